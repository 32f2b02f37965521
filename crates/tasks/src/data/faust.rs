//! The FAUST registrations: 100 bodies in correspondence.

use super::meshes::Item;
use crate::{DataError, Result, TaskError};
use gemcnn_mesh::{Mesh, read_mesh};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Number of registrations.
pub(crate) const COUNT: usize = 100;
/// Number of training registrations in the paper: the first 80.
pub(crate) const TRAIN: usize = 80;
const VERTICES: usize = 6890;
const FACES: usize = 13776;

/// Folders that may contain the registrations, relative to the given folder.
const PLACES: [&str; 3] = ["", "training/registrations", "MPI-FAUST/training/registrations"];

fn file_name(number: usize) -> String {
    format!("tr_reg_{number:03}.ply")
}

/// The folder with the most registrations, and which of them it has. `None` if there are none.
fn place(folder: &Path) -> Option<(PathBuf, Vec<bool>)> {
    PLACES
        .iter()
        .map(|place| folder.join(place))
        .map(|place| {
            let there = (0..COUNT).map(|n| place.join(file_name(n)).is_file());
            let there: Vec<bool> = there.collect();
            (place, there)
        })
        .rev()
        .max_by_key(|(_, there)| there.iter().filter(|&&is| is).count())
        .filter(|(_, there)| there.contains(&true))
}

/// True if a folder contains a FAUST registration.
pub(crate) fn is_faust(folder: &Path) -> bool {
    place(folder).is_some()
}

/// Reads and checks all registrations. Returns them in order, and the first valid mesh.
pub(crate) fn registrations(folder: &Path, problems: &mut Vec<TaskError>) -> Result<(Vec<Item>, Option<Mesh>)> {
    let wrong = |problem: String| DataError::Faust { folder: folder.into(), problem };
    let Some((place, there)) = place(folder) else {
        let problem = format!(
            "no FAUST registrations ({} to {}) here, nor in {} or {}; FAUST is available after registration at https://faust-leaderboard.is.tuebingen.mpg.de: unpack MPI-FAUST.zip and give its folder",
            file_name(0),
            file_name(COUNT - 1),
            PLACES[1],
            PLACES[2]
        );
        return Err(wrong(problem).into());
    };
    let missing: Vec<usize> = (0..COUNT).filter(|&number| !there[number]).collect();
    if !missing.is_empty() {
        let problem = format!(
            "{} of the {COUNT} FAUST registrations are in {}, missing are {}; unpack MPI-FAUST.zip again",
            COUNT - missing.len(),
            place.display(),
            ranges(&missing)
        );
        return Err(wrong(problem).into());
    }
    let items: Vec<Item> =
        (0..COUNT).map(|number| Item::new(file_name(number), place.join(file_name(number)))).collect();
    let meshes: Vec<Result<Mesh>> = items.par_iter().map(|item| Ok(read_mesh(&item.path)?.mesh)).collect();
    let mut first: Option<Mesh> = None;
    for (item, mesh) in items.iter().zip(meshes) {
        let mesh = match mesh {
            Ok(mesh) => mesh,
            Err(error) => {
                problems.push(error);
                continue;
            }
        };
        let counts = (mesh.vertex_count(), mesh.face_count());
        if counts != (VERTICES, FACES) {
            problems.push(
                DataError::target(
                    &item.path.display().to_string(),
                    format!(
                        "{} vertices and {} faces, but FAUST registrations have {VERTICES} and {FACES}",
                        counts.0, counts.1
                    ),
                )
                .into(),
            );
            continue;
        }
        match &first {
            None => first = Some(mesh),
            Some(first) if first.faces() == mesh.faces() => {}
            Some(_) => problems.push(
                DataError::target(
                    &item.path.display().to_string(),
                    "its faces differ from those of the other registrations, so its vertices are not in correspondence",
                )
                .into(),
            ),
        }
    }
    Ok((items, first))
}

/// `3, 7-9, 80-99`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let words: Vec<String> = runs
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    words.join(", ")
}
