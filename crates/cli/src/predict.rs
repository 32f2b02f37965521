//! `gemcnn predict`: a trained model on meshes.

use crate::device::DeviceArgs;
use crate::failure::{Failure, NO_MESHES};
use crate::kinds::{AXES, word};
use crate::output::{print, print_on, say};
use clap::Args;
use gemcnn_mesh::{Mesh, write_atomically};
use gemcnn_nn::Workspace;
use gemcnn_tasks::data::{SurfaceFile, csv_cell, is_mesh, mesh_files};
use gemcnn_tasks::predict::{Pictures, Prediction, PredictionFiles, UniqueNames};
use gemcnn_tasks::train::TrainedModel;
use gemcnn_tasks::{Element, Sample, Task, TaskError, summed_up};
use gemcnn_view::render::Up;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

/// File names of the tables of classes and values of whole meshes.
const CLASSES: &str = "classes.csv";
const VALUES: &str = "values.csv";

/// Options of `gemcnn predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Run directory, a model file such as best.safetensors, or the name of a bundled model (`gemcnn models`).
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Mesh files, or folders of mesh files.
    #[arg(value_name = "MESH", required = true)]
    meshes: Vec<PathBuf>,

    /// Directory for the results: new, empty, or with earlier results, which are overwritten.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Do not render pictures, which take most of the time.
    #[arg(long)]
    no_pictures: bool,

    /// Segmentation: also write the probability of each class, as an array and as properties of the mesh, and make
    /// colours paler where the model is less certain.
    #[arg(long)]
    probabilities: bool,

    /// Axis that points up in pictures [default: inferred from each mesh]
    #[arg(long, value_parser = word::<Up>(AXES))]
    up: Option<Up>,

    #[command(flatten)]
    device: DeviceArgs,
}

impl PredictArgs {
    pub fn run(self) -> Result<(), Failure> {
        let model = TrainedModel::read(&self.run).map_err(|error| match is_mesh(&self.run) {
            true => {
                Failure::usage(format!("{} is a mesh; give the run directory first, then meshes", self.run.display()))
            }
            false if !self.run.exists() => {
                Failure::input(format!("{error}, or give a model of the program (`gemcnn models` lists them)"))
            }
            false => Failure::input(error),
        })?;
        if self.probabilities && model.config.task != Task::Segmentation {
            return Err(Failure::usage(format!(
                "--probabilities is for segmentation, but this is a model for {}",
                model.config.task
            )));
        }
        let (inputs, bad) = self.inputs()?;
        if inputs.is_empty() {
            return Err(Failure::Reported);
        }
        let device = self.device.open(model.config.training.precision.into())?;
        let pictures = (!self.no_pictures).then_some(Pictures { up: self.up });
        let files = PredictionFiles::new(&self.output, &model, pictures).map_err(Failure::input)?;
        let mut session = Session {
            model: &model,
            workspace: Workspace::new(device),
            probabilities: self.probabilities,
            skipped: Vec::new(),
            bad,
        };
        match (model.per, model.config.task) {
            (Element::Mesh, Task::Classification) => session.write_table(&inputs, &self.output.join(CLASSES)),
            (Element::Mesh, _) => session.write_table(&inputs, &self.output.join(VALUES)),
            _ => session.write_meshes(&inputs, &files),
        }?;
        if !session.skipped.is_empty() {
            say(format_args!(
                "meshes without a prediction: {}\n  {}",
                session.skipped.len(),
                summed_up(&session.skipped).join("\n  ")
            ));
        }
        match session.bad + session.skipped.len() {
            0 => Ok(()),
            _ => Err(Failure::Reported),
        }
    }

    /// The meshes of the command line with names for their results, and the number of arguments with errors.
    fn inputs(&self) -> Result<(Vec<Input>, usize), Failure> {
        let mut paths = Vec::new();
        let mut bad = 0;
        for named in &self.meshes {
            if !named.is_dir() {
                paths.push(named.clone());
                continue;
            }
            match mesh_files(named) {
                Ok(found) => {
                    if found.is_empty() {
                        say(format_args!("error: {}: {NO_MESHES}", named.display()));
                        bad += 1;
                    }
                    paths.extend(found);
                }
                Err(error) => {
                    say(format_args!("error: {error}"));
                    bad += 1;
                }
            }
        }
        if let Some(path) = paths.iter().find(|path| lies_in(path, &self.output)) {
            return Err(Failure::usage(format!(
                "{} is in {}: results could replace meshes and their labels; choose another \
                 directory",
                path.display(),
                self.output.display()
            )));
        }
        let mut names = UniqueNames::default();
        let inputs = paths.into_iter().map(|path| Input { name: names.of(&path), path });
        Ok((inputs.collect(), bad))
    }
}

/// A mesh file and the unique name of its results.
struct Input {
    path: PathBuf,
    name: String,
}

/// A mesh and its sample.
struct Loaded {
    mesh: Mesh,
    sample: Sample,
    notes: Vec<String>,
    probabilities: Option<Vec<f32>>,
}

impl Input {
    fn load(&self, model: &TrainedModel) -> Result<Loaded, TaskError> {
        let SurfaceFile { mesh, fields, mut notes } = SurfaceFile::read(&self.path, &model.config.features)?;
        let name = self.path.display().to_string();
        let sample = model.sample_with(&name, &mesh, &fields)?;
        notes.extend(model.ranges.iter().flat_map(|ranges| ranges.notes(&sample)));
        Ok(Loaded { mesh, sample, notes, probabilities: None })
    }
}

/// A model with its workspace.
struct Session<'a> {
    model: &'a TrainedModel,
    workspace: Workspace<f32>,
    probabilities: bool,
    /// Number of arguments with errors.
    bad: usize,
    /// Problems of the meshes that were skipped, one line each.
    skipped: Vec<String>,
}

impl Session<'_> {
    fn write_meshes(&mut self, inputs: &[Input], files: &PredictionFiles) -> Result<(), Failure> {
        self.each(inputs, |input, loaded, prediction| {
            let frames = loaded.sample.graph().frames();
            let paths = files
                .write(&input.name, &loaded.mesh, frames, &prediction, loaded.probabilities.as_deref())
                .map_err(Failure::input)?;
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            print_on(&format!("{}: {}\n", input.path.display(), paths.join(", ")))
        })
    }

    /// Writes a row for each mesh: file, class, and the probability of each class; or file and values.
    fn write_table(&mut self, inputs: &[Input], path: &Path) -> Result<(), Failure> {
        let classes = self.model.classes.clone();
        let name = |class: usize| match &classes {
            Some(classes) => classes.name(class),
            None => format!("value{class}"),
        };
        let outputs = self.model.network.output().dimension();
        let heads: String = (0..outputs).map(|class| format!(",{}", csv_cell(&name(class)))).collect();
        let class_head = if classes.is_some() { ",class" } else { "" };
        let header = format!("mesh{class_head}{heads}");
        let mut rows = 0;
        let mut failure = None;
        let written = write_atomically(path, |table| {
            writeln!(table, "{header}")?;
            let streamed = self.each(inputs, |input, _, prediction| {
                let mesh = input.path.display();
                let mut row = csv_cell(&mesh.to_string());
                let said = match prediction {
                    Prediction::MeshClass { class, probabilities } => {
                        let class = name(class as usize);
                        row += &format!(",{}", csv_cell(&class));
                        row.extend(probabilities.iter().map(|p| format!(",{p:.6}")));
                        class
                    }
                    Prediction::Values { values, .. } => {
                        row.extend(values.iter().map(|value| format!(",{value}")));
                        let words: Vec<String> = values.iter().map(f32::to_string).collect();
                        words.join(" ")
                    }
                    Prediction::Classes { .. } => return Ok(()),
                };
                writeln!(table, "{row}").map_err(Failure::input)?;
                rows += 1;
                print_on(&format!("{mesh}: {said}\n"))
            });
            let complete = match rows {
                // Each mesh was reported; an earlier table stays.
                0 => streamed.and(Err(Failure::Reported)),
                _ => streamed,
            };
            complete.map_err(|error| {
                failure = Some(error);
                std::io::Error::other("the table is not complete")
            })
        });
        match (failure, written) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(Failure::at(path)(error)),
            (None, Ok(())) => print(&format!("{}\n", path.display())),
        }
    }

    /// Calls `act` with the prediction for each mesh, while the next one is read and prepared. Meshes that cannot be
    /// used are reported and counted.
    fn each(
        &mut self,
        inputs: &[Input],
        mut act: impl FnMut(&Input, Loaded, Prediction) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let model = self.model;
        std::thread::scope(|scope| {
            // Without a buffer, so that at most one mesh waits.
            let (sender, receiver) = sync_channel(0);
            scope.spawn(move || {
                for input in inputs {
                    if sender.send((input, input.load(model))).is_err() {
                        return;
                    }
                }
            });
            for (input, loaded) in receiver {
                let predicted = loaded.and_then(|mut loaded| {
                    let (workspace, sample) = (&mut self.workspace, &loaded.sample);
                    let prediction = match self.probabilities {
                        true => {
                            let (classes, rows) = model.predict_probabilities(workspace, sample)?;
                            loaded.probabilities = Some(rows);
                            let per = model.per;
                            Prediction::Classes { per, classes }
                        }
                        false => model.predict(workspace, sample)?,
                    };
                    Ok((loaded, prediction))
                });
                match predicted {
                    Ok((loaded, prediction)) => {
                        for note in &loaded.notes {
                            say(format_args!("note: {}: {note}", input.path.display()));
                        }
                        act(input, loaded, prediction)?;
                    }
                    Err(error) => {
                        say(format_args!("error: {error}"));
                        self.skipped.push(error.to_string());
                    }
                }
            }
            Ok(())
        })
    }
}

/// True if a file, or the target of a link, is in a folder.
pub fn lies_in(file: &Path, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let here = file.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let here = here.and_then(|parent| parent.canonicalize().ok());
    let there = file.canonicalize().ok();
    here.as_deref() == Some(&*folder) || there.as_deref().and_then(Path::parent) == Some(&*folder)
}
