//! Meshes of simple shapes and of synthetic bodies.

use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::shapes::{self, BodyFamily, BodyOptions, Cells, Roughness, ShapeError};
use numpy::PyArray1;
use pyo3::prelude::*;
use rayon::prelude::*;

fn made(mesh: Result<gemcnn_mesh::Mesh, ShapeError>) -> PyResult<Mesh> {
    mesh.map(Mesh).map_err(errors::mesh)
}

fn cells(quads: bool) -> Cells {
    if quads { Cells::Quads } else { Cells::Triangles }
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

/// A family of bodies, with the mesh that they share.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
pub struct Bodies(BodyFamily);

#[pymethods]
impl Bodies {
    #[new]
    fn new(py: Python<'_>, vertices: usize, seed: u64, people: f64, poses: f64, variety: f64) -> PyResult<Self> {
        let options = BodyOptions { vertices, seed, people, poses, variety };
        work(py, || BodyFamily::new(&options))?.map(Self).map_err(errors::mesh)
    }

    fn of(&self, py: Python<'_>, indices: Vec<u64>) -> PyResult<Vec<Mesh>> {
        work(py, || indices.par_iter().map(|&index| Mesh(self.0.body(index))).collect())
    }

    /// The part of each vertex.
    fn parts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u8>> {
        PyArray1::from_iter(py, self.0.segments().iter().map(|part| part.label()))
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(icosphere, module)?)?;
    module.add_function(wrap_pyfunction!(grid, module)?)?;
    module.add_function(wrap_pyfunction!(rough_grid, module)?)?;
    module.add_function(wrap_pyfunction!(torus, module)?)?;
    module.add_function(wrap_pyfunction!(capsule, module)?)?;
    module.add_class::<Bodies>()
}
