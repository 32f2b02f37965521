//! `gemcnn data make bodies`: synthetic bodies in correspondence.

use super::Unfinished;
use crate::failure::Failure;
use crate::output::{count, print};
use crate::progress;
use clap::Args;
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, Mesh, SharedFolder, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_tasks::Task;
use gemcnn_tasks::data::{BodiesConfig, Description};
use rayon::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file of the template.
const TEMPLATE: &str = "template.ply";

/// Synthetic bodies in correspondence, like those of `gemcnn train correspondence`.
#[derive(Args)]
pub struct Bodies {
    /// Folder for the data set: new, empty, or with the unfinished output of the same command.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Number of bodies. The first 80 % are for training.
    #[arg(long, value_name = "N", default_value_t = BodiesConfig::default().count, value_parser = body_count)]
    count: usize,

    /// Vertices of each body.
    #[arg(long, value_name = "N", default_value_t = BodiesConfig::default().vertices)]
    vertices: usize,

    /// Seed of shapes and poses.
    #[arg(long, value_name = "SEED", default_value_t = BodiesConfig::default().seed)]
    seed: u64,

    /// Further variety, from 0 to 1: children, stout people, clothes, hair, sitting, crawling, raised arms.
    #[arg(long, value_name = "V", default_value_t = BodiesConfig::default().variety)]
    variety: f64,
}

fn body_count(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|error| format!("{error}"))?;
    BodiesConfig::sound_count(count)
}

impl Bodies {
    pub fn run(self) -> Result<(), Failure> {
        let Self { count: bodies, vertices, seed, variety, .. } = self;
        let command = format!("--count {bodies} --vertices {vertices} --seed {seed}");
        // Folders that were begun without this option continue.
        let command = if variety == 0.0 { command } else { format!("{command} --variety {variety}") };
        let unfinished = Unfinished::new(&self.folder, command)?;
        let meshes = self.folder.join("meshes");
        let body = |number| meshes.join(format!("{}.ply", BodiesConfig::body_name(number)));
        let options = BodyOptions { vertices, seed, variety, ..Default::default() };
        let family = progress::during("making the template", || BodyFamily::new(&options));
        let family = family.map_err(Failure::usage)?;
        let mark = unfinished.begin()?;
        std::fs::create_dir_all(&meshes).map_err(Failure::at(&meshes))?;
        // Of both folders, what killed processes left is removed.
        let open = |folder: &Path| SharedFolder::open(folder, mark).map_err(Failure::at(folder));
        drop(open(&meshes)?);
        let held = open(&self.folder)?;
        let labels: Vec<u8> = family.segments().iter().map(|segment| segment.label()).collect();
        let part = VertexAttribute::new("part", AttributeValues::U8(labels));
        let write = |path: &Path, mesh: &Mesh| {
            let attributes = std::slice::from_ref(&part);
            if path.exists() {
                return Ok(());
            }
            write_mesh(path, mesh, attributes, &WriteOptions::default()).map_err(Failure::input)
        };
        write(&self.folder.join(TEMPLATE), family.template())?;
        let what = format!("making {}", count(self.count, "body", "bodies"));
        progress::during(&what, || {
            let numbers = (0..self.count).into_par_iter();
            numbers.try_for_each(|number| write(&body(number), &family.body(number as u64)))
        })?;
        let train = BodiesConfig { count: self.count, ..Default::default() }.training();
        let names = |numbers: Range<usize>| Some(numbers.map(BodiesConfig::body_name).collect());
        let mut description = Description::new(Task::Correspondence);
        description.meshes = "meshes".into();
        description.template = Some(TEMPLATE.into());
        // The description completes the data set.
        description.write(&self.folder, [names(0..train), None, names(train..self.count)]).map_err(Failure::input)?;
        drop(held);
        unfinished.finish()?;
        print(&format!(
            "{}: {} of {} in correspondence\n",
            self.folder.display(),
            count(self.count, "body", "bodies"),
            count(self.vertices, "vertex", "vertices"),
        ))
    }
}
