//! Trajectories as data sets: a folder for each equation, a PLY file for each trajectory with all its states.

use super::equation::Equation;
use super::shape::{SHAPES, Shape};
use crate::random::Draws;
use gemcnn_mesh::surface::{Evolution, SurfaceLaplacian};
use gemcnn_mesh::{
    AttributeValues, DVec3, GaugeGraph, GeometryOptions, Mesh, SharedFolder, VertexAttribute, WriteOptions, read_mesh,
    read_text, write_mesh,
};
use gemcnn_tasks::data::{DESCRIPTION_FILE, Description, OneOrMany, Split};
use gemcnn_tasks::{Task, TaskError};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Number of states that a prediction starts from, as in the published protocol.
pub(super) const HISTORY: usize = 5;

/// Name of the logarithm of the area of each vertex, relative to the mean.
pub(super) const AREA: &str = "log_area";

const MESHES: &str = "meshes";

/// Settings of the trajectories.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSettings {
    /// Mean number of vertices of a mesh (default 600).
    pub vertices: usize,
    /// Trajectories on each mesh, from different initial states (default 5).
    pub trajectories: usize,
    /// Number of time steps (default 100).
    pub steps: usize,
    /// Seed of meshes and initial states (default 1).
    pub seed: u64,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self { vertices: 600, trajectories: 5, steps: 100, seed: 1 }
    }
}

impl DataSettings {
    /// The options of the command that makes the data.
    pub fn command(&self) -> String {
        let Self { vertices, trajectories, steps, seed } = self;
        format!("--vertices {vertices} --trajectories {trajectories} --steps {steps} --seed {seed}")
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first one that is out of range.
    pub fn check(&self) -> Result<(), TaskError> {
        let least = 4 * (HISTORY + 1);
        for (what, value, low, high) in [
            ("vertices", self.vertices, 50, 100_000),
            ("trajectories", self.trajectories, 2, 1000),
            ("steps", self.steps, least, 999),
        ] {
            if !(low..=high).contains(&value) {
                let problem = format!("{value} is out of range: must be from {low} to {high}");
                return Err(TaskError::setting(what, problem));
            }
        }
        Ok(())
    }

    /// Trajectories on each training mesh that are for training.
    fn training(&self) -> usize {
        (self.trajectories * 7 / 10).max(1)
    }
}

/// Name of a state in the files.
pub(super) fn state_name(state: usize) -> String {
    format!("u{state:03}")
}

/// Names of the columns of a state.
pub(super) fn columns(state: usize, is_vector: bool) -> Vec<String> {
    let name = state_name(state);
    if is_vector { ["x", "y", "z"].map(|axis| format!("{name}_{axis}")).into() } else { vec![name] }
}

/// Makes the data set of an equation in a folder. Files that are there already are kept. Processes that write at the
/// same time share the file `lock`.
pub fn make(equation: Equation, settings: &DataSettings, folder: &Path, lock: &Path) -> Result<(), TaskError> {
    settings.check()?;
    let description = folder.join(DESCRIPTION_FILE);
    if description.exists() {
        return Ok(());
    }
    let meshes = folder.join(MESHES);
    std::fs::create_dir_all(&meshes).map_err(TaskError::file(&meshes))?;
    // Of both folders, what killed processes left is removed.
    let open = |folder: &Path| SharedFolder::open(folder, lock).map_err(TaskError::file(lock));
    drop(open(&meshes)?);
    let _held = open(folder)?;
    (0..SHAPES.len()).into_par_iter().try_for_each(|number| {
        let shape = &SHAPES[number];
        let paths: Vec<PathBuf> =
            (0..settings.trajectories).map(|trajectory| meshes.join(file_name(shape, trajectory) + ".ply")).collect();
        match paths.iter().all(|path| path.exists()) {
            true => Ok(()),
            false => write_trajectories(equation, settings, number, &paths),
        }
    })?;
    let part_of = |shape: &Shape, trajectory: usize| match shape.is_trained {
        true if trajectory < settings.training() => Split::Train,
        true => Split::Validation,
        false => Split::Test,
    };
    let names = Split::ALL.map(|part| {
        let of_shape = |shape: &'static Shape| {
            let own = (0..settings.trajectories).filter(move |&number| part_of(shape, number) == part);
            own.map(move |number| file_name(shape, number))
        };
        Some(SHAPES.iter().flat_map(of_shape).collect())
    });
    let is_vector = equation.dynamics().order() == 1;
    let mut described = Description::new(Task::Regression);
    described.meshes = MESHES.into();
    described.target.property = Some(OneOrMany::Many(columns(settings.steps / 10, is_vector)));
    described.target.vectors = is_vector;
    // The description completes the data set.
    described.write(folder, names)
}

fn file_name(shape: &Shape, trajectory: usize) -> String {
    format!("{}-{trajectory:02}", shape.name)
}

/// Solves the equation on a shape from several initial states, and writes a file for each.
fn write_trajectories(
    equation: Equation,
    settings: &DataSettings,
    number: usize,
    paths: &[PathBuf],
) -> Result<(), TaskError> {
    let shape = &SHAPES[number];
    let mesh = shape.mesh(settings.vertices, settings.seed)?;
    let name = || shape.name.to_string();
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default());
    let graph = graph.map_err(|source| TaskError::Geometry { name: name(), source })?;
    let of_surface = |source| TaskError::Surface { name: name(), source };
    let laplacian = SurfaceLaplacian::new(&mesh).map_err(of_surface)?;
    let ((interval, substeps), dynamics) = (equation.step(), equation.dynamics());
    let step = interval / substeps as f64;
    let frames = graph.frames();
    let evolution = Evolution::new(&laplacian, dynamics, frames, step).map_err(of_surface)?;
    let trajectories = paths.len();
    let mut draws: Vec<Draws> = (0..trajectories as u64)
        .map(|trajectory| Draws::new(settings.seed, (number as u64) << 32 | trajectory))
        .collect();
    let mut state = equation.start(mesh.vertices(), frames, &mut draws);
    let vertices = mesh.vertex_count();
    let areas = laplacian.mass().iter();
    let areas = areas.map(|area| (area * vertices as f64).ln() as f32);
    let area = VertexAttribute::new(AREA, AttributeValues::F32(areas.collect()));
    let mut attributes = vec![vec![area]; trajectories];
    for time in 0..=settings.steps {
        if time > 0 {
            for _ in 0..substeps {
                (evolution.advance(&mut state, trajectories)).map_err(of_surface)?;
            }
        }
        let value = |vertex: usize, trajectory: usize| match dynamics.order() {
            0 => DVec3::X * state.values[vertex * trajectories + trajectory],
            _ => {
                let [x, y] = [0, 1].map(|part| state.values[(2 * vertex + part) * trajectories + trajectory]);
                frames[vertex].vector([x, y])
            }
        };
        for (trajectory, attributes) in attributes.iter_mut().enumerate() {
            for (axis, name) in columns(time, dynamics.order() == 1).into_iter().enumerate() {
                let column = (0..vertices).map(|vertex| value(vertex, trajectory)[axis] as f32);
                let column = AttributeValues::F32(column.collect());
                attributes.push(VertexAttribute::new(name, column));
            }
        }
    }
    for (path, attributes) in paths.iter().zip(&attributes) {
        write_mesh(path, &mesh, attributes, &WriteOptions::default())?;
    }
    Ok(())
}

/// A trajectory of a data set.
pub(super) struct Trajectory {
    pub name: String,
    /// Its mesh in [`Data::meshes`].
    pub mesh: usize,
    /// One or three numbers for each vertex at each time.
    pub states: Vec<Vec<f32>>,
}

/// The data set of an equation.
pub(super) struct Data {
    /// The distinct meshes, with the logarithms of the areas of their vertices.
    pub meshes: Vec<(String, Mesh, Vec<f32>)>,
    /// Trajectories of each part: training, other initial states, other meshes.
    pub parts: [Vec<Trajectory>; 3],
    /// Number of states of each trajectory.
    pub states: usize,
}

impl Data {
    /// Reads the data set of an equation from a folder in the layout of [`make`].
    pub fn read(equation: Equation, folder: &Path) -> Result<Self, TaskError> {
        let refuse = |problem: &str| Err(TaskError::at(folder, problem));
        let Some(description) = Description::read(folder)? else {
            return refuse("there is no data set; `gemcnn data make pde` makes one");
        };
        let Some(lists) = &description.split.files else { return refuse("its parts are not given by lists of files") };
        let is_vector = equation.dynamics().order() == 1;
        let mut data = Self { meshes: Vec::new(), parts: [Vec::new(), Vec::new(), Vec::new()], states: 0 };
        for (part, trajectories) in Split::ALL.into_iter().zip(0..) {
            let Some(list) = lists.get(part) else { return refuse("it needs lists of all three parts") };
            let list = folder.join(list);
            let names = read_text(&list).map_err(TaskError::file(&list))?;
            for name in names.lines().filter(|line| !line.is_empty()) {
                let path = folder.join(&description.meshes).join(format!("{name}.ply"));
                let trajectory = data.load(name, &path, is_vector)?;
                data.parts[trajectories].push(trajectory);
            }
        }
        if data.parts.iter().any(Vec::is_empty) {
            return refuse("one of its parts is empty");
        }
        Ok(data)
    }

    fn load(&mut self, name: &str, path: &Path, is_vector: bool) -> Result<Trajectory, TaskError> {
        let refuse = |problem: String| Err(TaskError::at(path, problem));
        let file = read_mesh(path)?;
        let column = |name: &str| file.attributes.iter().find(|column| column.name == name);
        let vertices = file.mesh.vertex_count();
        let mut states = Vec::new();
        loop {
            let names = columns(states.len(), is_vector);
            let Some(found) = names.iter().map(|n| column(n)).collect::<Option<Vec<_>>>() else { break };
            let row = |v: usize| found.iter().map(move |column| column.values.to_f64(v) as f32);
            let state: Vec<f32> = (0..vertices).flat_map(row).collect();
            if state.iter().any(|value| !value.is_finite()) {
                let state = state_name(states.len());
                return refuse(format!("`{state}` has a value that is not finite"));
            }
            states.push(state);
        }
        let Some(area) = column(AREA) else { return refuse(format!("there are no vertex values `{AREA}`")) };
        let least = 4 * (HISTORY + 1) + 1;
        if states.len() < least {
            let (found, first) = (states.len(), state_name(0));
            return refuse(format!("it has {found} states from `{first}` on; at least {least} are needed"));
        }
        if self.states == 0 {
            self.states = states.len();
        }
        if states.len() != self.states {
            let (found, expected) = (states.len(), self.states);
            return refuse(format!("{found} states, but others have {expected}"));
        }
        let known = self.meshes.iter().position(|known| known.1 == file.mesh);
        let mesh = known.unwrap_or_else(|| {
            let areas = (0..vertices).map(|v| area.values.to_f64(v) as f32);
            let shape = name.rsplit_once('-').map_or(name, |(shape, _)| shape);
            (self.meshes).push((shape.into(), file.mesh.clone(), areas.collect()));
            self.meshes.len() - 1
        });
        Ok(Trajectory { name: name.into(), mesh, states })
    }

    /// Number of the first states of training trajectories that training sees: three quarters.
    pub fn training_states(&self) -> usize {
        (self.states - 1) * 3 / 4 + 1
    }
}
