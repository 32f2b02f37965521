//! `gemcnn mesh`: commands for single meshes.

mod convert;
mod diff;
mod geometry;
mod info;
mod make;
mod picture;
mod remesh;

use crate::failure::Failure;
use crate::output::say;
use crate::progress;
use clap::Subcommand;
use gemcnn_mesh::{
    MeshFile, VertexAttribute, WriteOptions, one_of, read_mesh, writable_extensions, write_mesh_with_faces,
};
use std::path::{Path, PathBuf};

/// The commands; the help of each is at its definition.
#[derive(Subcommand)]
pub enum MeshCommand {
    Info(info::Info),
    Convert(convert::Convert),
    Geometry(geometry::Geometry),
    Make(make::Make),
    Picture(picture::PictureCommand),
    Simplify(remesh::Simplify),
    Remesh(remesh::Remesh),
    Subdivide(remesh::Subdivide),
    Sample(remesh::Sample),
    Connect(remesh::Connect),
    Diff(diff::Diff),
}

pub fn run(command: MeshCommand) -> Result<(), Failure> {
    match command {
        MeshCommand::Info(command) => command.run(),
        MeshCommand::Convert(command) => command.run(),
        MeshCommand::Geometry(command) => command.run(),
        MeshCommand::Make(command) => command.run(),
        MeshCommand::Picture(command) => command.run(),
        MeshCommand::Simplify(command) => command.run(),
        MeshCommand::Remesh(command) => command.run(),
        MeshCommand::Subdivide(command) => command.run(),
        MeshCommand::Sample(command) => command.run(),
        MeshCommand::Connect(command) => command.run(),
        MeshCommand::Diff(command) => command.run(),
    }
}

pub fn read(path: &Path) -> Result<MeshFile, Failure> {
    let file = progress::during(&format!("reading {}", path.display()), || read_mesh(path)).map_err(Failure::input)?;
    for note in &file.notes {
        say(format_args!("note: {}: {note}", path.display()));
    }
    Ok(file)
}

fn write(
    path: &Path,
    mesh: &gemcnn_mesh::Mesh,
    attributes: &[VertexAttribute],
    face_attributes: &[VertexAttribute],
    options: &WriteOptions,
) -> Result<(), Failure> {
    progress::during(&format!("writing {}", path.display()), || {
        write_mesh_with_faces(path, mesh, attributes, face_attributes, options)
    })
    .map_err(Failure::input)
}

/// Parses an output path with one of the given extensions.
fn output_path(text: &str, extensions: &[&str]) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if extensions.contains(&extension.as_str()) {
        Ok(path)
    } else {
        Err(format!("the file name must end in {}", one_of(extensions)))
    }
}

fn mesh_output(text: &str) -> Result<PathBuf, String> {
    output_path(text, &writable_extensions(|_| true))
}
