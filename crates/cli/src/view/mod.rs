//! `gemcnn view`: an interactive page of meshes, predictions or a training run.

mod files;
mod live;
mod model;
mod report;
mod run;
mod server;

pub use live::{LiveView, WithLiveView};

use crate::data::CacheArgs;
use crate::failure::Failure;
use crate::kinds::{AXES, word};
use crate::matching;
use crate::output::{count, print, say, write_file};
use crate::progress;
use clap::Args;
use gemcnn_tasks::data::mesh_files;
use gemcnn_view::page::{MAX_VERTICES, Page};
use gemcnn_view::render::Up;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of `gemcnn view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Mesh files, folders of meshes or of prediction results, or one run directory.
    #[arg(value_name = "FILES or RUN", required_unless_present = "with_model")]
    inputs: Vec<PathBuf>,

    /// Include the model of a run (a run directory, or a model file). The page then predicts, in the browser, for mesh
    /// files that are dropped on it.
    #[arg(long, value_name = "RUN")]
    with_model: Option<PathBuf>,

    /// Match two meshes of human bodies (`gemcnn match`): points that correspond have the same colour, and are marked on both
    /// when one is picked.
    #[arg(long = "match")]
    matched: bool,

    /// Output file: one self-contained HTML file.
    #[arg(short, long, value_name = "OUT.html", default_value = "view.html")]
    output: PathBuf,

    /// Open the page in the browser.
    #[arg(long)]
    open: bool,

    /// Axis that points up.
    #[arg(long, value_parser = word::<Up>(AXES), default_value = "y")]
    up: Up,

    /// Largest number of vertices of a mesh in the page. Larger meshes are simplified.
    #[arg(long, value_name = "N", default_value_t = MAX_VERTICES as u32, value_parser = clap::value_parser!(u32).range(100..))]
    vertices: u32,

    /// Number of held-out meshes of a run in the page: those with the worst scores.
    #[arg(long, value_name = "N", default_value_t = 6)]
    meshes: usize,

    #[command(flatten)]
    cache: CacheArgs,
}

impl ViewArgs {
    pub fn run(self) -> Result<(), Failure> {
        let mut page = match &self.inputs[..] {
            [run] if is_run(run) => {
                progress::during("evaluating held-out meshes", || run::page(run, self.meshes, &self.cache.open()?))?
            }
            inputs if inputs.iter().any(|input| is_run(input)) => {
                return Err(Failure::usage("give one run directory alone, or meshes"));
            }
            [] => Page::new("Predictions"),
            inputs => files::page(&mesh_paths(inputs)?)?,
        };
        if self.matched {
            matching::link(&mut page)?;
        }
        if let Some(run) = &self.with_model {
            model::add(&mut page, run)?;
        }
        page.up = self.up;
        page.most_vertices = self.vertices as usize;
        let html = progress::during("making the page", || page.to_html()).map_err(Failure::input)?;
        write_file(&self.output, html.as_bytes())?;
        if self.open {
            open(&self.output);
        }
        print(&format!(
            "{}: {}, {:.1} MB\n",
            self.output.display(),
            count(page.meshes.len(), "mesh", "meshes"),
            html.len() as f64 / 1e6
        ))
    }
}

/// True for a directory of `gemcnn train`.
fn is_run(path: &Path) -> bool {
    path.join("config.toml").is_file()
}

/// The mesh files of the command line and of its folders.
fn mesh_paths(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            paths.push(input.clone());
            continue;
        }
        let found = mesh_files(input).map_err(Failure::input)?;
        if found.is_empty() {
            let problem = "the folder has neither meshes nor a training run; give meshes, a folder of meshes, or a run \
                directory such as runs/NAME-1";
            return Err(Failure::at(input)(problem));
        }
        paths.extend(found);
    }
    Ok(paths)
}

/// Opens a file in the browser. A failure is only reported, because the file is there.
fn open(path: &Path) {
    let mut command = match std::env::consts::OS {
        "macos" => Command::new("open"),
        "windows" => Command::new("explorer"),
        _ => Command::new("xdg-open"),
    };
    let command = command.arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        say(format_args!("note: cannot start a browser ({error}); open {} yourself", path.display()));
    }
}

/// A page with the title of its inputs.
fn titled(names: &[String]) -> Page {
    Page::new(match names {
        [] => String::new(),
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}"),
    })
}
