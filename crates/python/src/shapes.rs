//! Meshes of simple shapes and of synthetic bodies.

use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::shapes::{self, BodyFamily, BodyOptions, Cells, Roughness, ShapeError};
use numpy::PyArray1;
use pyo3::prelude::*;

fn made(mesh: Result<gemcnn_mesh::Mesh, ShapeError>) -> PyResult<Mesh> {
    mesh.map(Mesh).map_err(errors::mesh)
}

fn cells(quads: bool) -> Cells {
    match quads {
        true => Cells::Quads,
        false => Cells::Triangles,
    }
}

#[pyfunction]
fn icosphere(py: Python<'_>, subdivisions: u32) -> PyResult<Mesh> {
    made(work(py, || shapes::icosphere(subdivisions))?)
}

#[pyfunction]
fn grid(py: Python<'_>, rows: usize, columns: usize, quads: bool) -> PyResult<Mesh> {
    made(work(py, || shapes::grid(rows, columns, cells(quads)))?)
}

#[pyfunction]
fn rough_grid(py: Python<'_>, rows: usize, columns: usize, roughness: f64, seed: u64, quads: bool) -> PyResult<Mesh> {
    let roughness = Roughness::new(roughness, seed);
    made(work(py, || shapes::rough_grid(rows, columns, cells(quads), &roughness))?)
}

#[pyfunction]
fn torus(py: Python<'_>, segments: (usize, usize), radii: (f64, f64), quads: bool) -> PyResult<Mesh> {
    made(work(py, || shapes::torus(segments.0, segments.1, radii.0, radii.1, cells(quads)))?)
}

#[pyfunction]
fn capsule(
    py: Python<'_>,
    segments: usize,
    bands: (usize, usize),
    radius: f64,
    length: f64,
    quads: bool,
) -> PyResult<Mesh> {
    made(work(py, || shapes::capsule(segments, bands.0, bands.1, radius, length, cells(quads)))?)
}

/// Bodies of a family, and the part of each vertex.
#[pyfunction]
fn bodies<'py>(
    py: Python<'py>,
    indices: Vec<u64>,
    vertices: usize,
    seed: u64,
    variation: (f64, f64),
) -> PyResult<(Vec<Mesh>, Bound<'py, PyArray1<u8>>)> {
    let (people, poses) = variation;
    let options = BodyOptions { vertices, seed, people, poses };
    let (bodies, parts) = work(py, || {
        let family = BodyFamily::new(&options)?;
        let bodies: Vec<Mesh> = indices.iter().map(|&index| Mesh(family.body(index))).collect();
        let parts: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
        Ok::<_, ShapeError>((bodies, parts))
    })?
    .map_err(errors::mesh)?;
    Ok((bodies, PyArray1::from_vec(py, parts)))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(icosphere, module)?)?;
    module.add_function(wrap_pyfunction!(grid, module)?)?;
    module.add_function(wrap_pyfunction!(rough_grid, module)?)?;
    module.add_function(wrap_pyfunction!(torus, module)?)?;
    module.add_function(wrap_pyfunction!(capsule, module)?)?;
    module.add_function(wrap_pyfunction!(bodies, module)?)
}
