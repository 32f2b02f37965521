//! `gemcnn data make`: synthetic data sets.

use crate::failure::Failure;
use crate::output::{count, print, write_file};
use crate::progress;
use clap::{Args, Subcommand};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, Mesh, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_tasks::Task;
use gemcnn_tasks::data::{BodiesConfig, DESCRIPTION_FILE, Description, Parts};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Files of a data set besides its description and meshes.
const TEMPLATE: &str = "template.ply";
const TRAIN: &str = "train.txt";
const TEST: &str = "test.txt";

/// Generate a data set: a folder of meshes with targets.
#[derive(Args)]
pub struct Make {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    Bodies(Bodies),
}

/// Synthetic bodies in correspondence, as `gemcnn train correspondence` uses.
#[derive(Args)]
struct Bodies {
    /// Folder for the data set, new or empty.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Number of bodies; the first 80 % are for training.
    #[arg(long, value_name = "N", default_value_t = BodiesConfig::default().count, value_parser = body_count)]
    count: usize,

    /// Vertices of each body.
    #[arg(long, value_name = "N", default_value_t = BodiesConfig::default().vertices)]
    vertices: usize,

    /// Seed of the shapes and poses.
    #[arg(long, value_name = "SEED", default_value_t = BodiesConfig::default().seed)]
    seed: u64,
}

fn body_count(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|error| format!("{error}"))?;
    BodiesConfig::sound_count(count)
}

impl Make {
    pub fn run(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Bodies(bodies) => bodies.run(),
        }
    }
}

impl Bodies {
    fn run(self) -> Result<(), Failure> {
        let meshes = self.folder.join("meshes");
        let body = |number| meshes.join(format!("{}.ply", BodiesConfig::body_name(number)));
        if std::fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::input(format!(
                "{} is not empty; choose a new folder",
                self.folder.display()
            )));
        }
        let options = BodyOptions {
            vertices: self.vertices,
            seed: self.seed,
            ..Default::default()
        };
        let family = progress::during("making the template", || BodyFamily::new(&options));
        let family = family.map_err(Failure::usage)?;
        std::fs::create_dir_all(&meshes)
            .map_err(|error| Failure::input(format!("{}: {error}", meshes.display())))?;
        let parts: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
        let part = VertexAttribute::new("part", AttributeValues::U8(parts));
        let write = |path: &Path, mesh: &Mesh| {
            let attributes = std::slice::from_ref(&part);
            write_mesh(path, mesh, attributes, &WriteOptions::default()).map_err(Failure::input)
        };
        write(&self.folder.join(TEMPLATE), family.template())?;
        let what = format!("making {}", count(self.count, "body", "bodies"));
        progress::during(&what, || {
            let numbers = (0..self.count).into_par_iter();
            numbers.try_for_each(|number| write(&body(number), &family.body(number as u64)))
        })?;
        self.describe()?;
        print(&format!(
            "{}: {} of {} in correspondence\n",
            self.folder.display(),
            count(self.count, "body", "bodies"),
            count(self.vertices, "vertex", "vertices"),
        ))
    }

    /// Writes the lists of the parts and then the description, which completes the data set.
    fn describe(&self) -> Result<(), Failure> {
        let config = BodiesConfig {
            count: self.count,
            ..Default::default()
        };
        let train = config.training();
        for (file, numbers) in [(TRAIN, 0..train), (TEST, train..self.count)] {
            let names: String = numbers
                .map(|number| BodiesConfig::body_name(number) + "\n")
                .collect();
            write_file(&self.folder.join(file), names.as_bytes())?;
        }
        let mut description = Description::new(Task::Correspondence);
        description.meshes = "meshes".into();
        description.template = Some(TEMPLATE.into());
        description.split.files = Some(Parts {
            train: Some(TRAIN.into()),
            validation: None,
            test: Some(TEST.into()),
        });
        let path = self.folder.join(DESCRIPTION_FILE);
        write_file(&path, description.to_toml().as_bytes())
    }
}
