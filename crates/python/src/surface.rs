//! Laplacians of surfaces and their eigenpairs.

use crate::arrays::owned;
use crate::errors;
use crate::geometry::GaugeGraph;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::surface::{HeatArrays, HeatSolver, Jets, SurfaceLaplacian};
use numpy::{PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;

/// The edges of the Laplacian in compressed rows, with weights and transport, and the mass of each vertex.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
fn laplacian<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    graph: &Bound<'py, GaugeGraph>,
) -> PyResult<(
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
)> {
    let (mesh, graph) = (&mesh.get().0, &graph.get().graph);
    let arrays = work(py, || HeatArrays::new(mesh, graph))?.map_err(errors::geometry)?;
    Ok((
        PyArray1::from_vec(py, arrays.offsets),
        PyArray1::from_vec(py, arrays.neighbours),
        PyArray1::from_vec(py, arrays.weights),
        PyArray1::from_vec(py, arrays.transport),
        PyArray1::from_vec(py, arrays.mass),
    ))
}

/// Lowest eigenvalues and eigenvectors of an order: `[V, k]`, or `[2 V, k]` with the real parts of a vertex and then
/// its imaginary parts.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
fn eigenpairs<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    graph: &Bound<'py, GaugeGraph>,
    order: usize,
    count: usize,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>)> {
    let (mesh, graph) = (&mesh.get().0, &graph.get().graph);
    let basis = work(py, || {
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let connection = laplacian.connection(order, graph.frames())?;
        connection.eigenbasis(count)
    })?;
    let basis = basis.map_err(errors::geometry)?;
    let parts = if order == 0 { 1 } else { 2 };
    let shape = (mesh.vertex_count() * parts, basis.len());
    let vectors = owned(py, basis.vectors, shape)?;
    Ok((PyArray1::from_vec(py, basis.values), vectors))
}

/// Gradients of scalar fields `[V, b]` in the frames of a graph, `[2 V, b]`: the first and the second component of a
/// vertex.
#[pyfunction]
fn gradient<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    graph: &Bound<'py, GaugeGraph>,
    field: PyReadonlyArray2<'py, f64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (mesh, graph) = (&mesh.get().0, &graph.get().graph);
    let columns = field.as_array().ncols();
    let field = crate::arrays::values("field", &field)?;
    let gradient = work(py, || {
        let laplacian = SurfaceLaplacian::new(mesh)?;
        Jets::new(&laplacian, graph.frames())?.gradient(field, columns)
    })?;
    let shape = (2 * mesh.vertex_count(), columns);
    owned(py, gradient.map_err(errors::geometry)?, shape)
}

/// Fields `[V, b]`, or `[2 V, b]` as in `eigenpairs`, after an implicit step of diffusion.
#[pyfunction]
fn diffuse<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    graph: &Bound<'py, GaugeGraph>,
    order: usize,
    time: f64,
    field: PyReadonlyArray2<'py, f64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (mesh, graph) = (&mesh.get().0, &graph.get().graph);
    let columns = field.as_array().ncols();
    let rows = field.as_array().nrows();
    let field = crate::arrays::values("field", &field)?;
    let diffused = work(py, || {
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let solver = HeatSolver::new(&laplacian, order, graph.frames(), &[time])?;
        solver.solve(0, field, columns)
    })?;
    owned(py, diffused.map_err(errors::geometry)?, (rows, columns))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(laplacian, module)?)?;
    module.add_function(wrap_pyfunction!(eigenpairs, module)?)?;
    module.add_function(wrap_pyfunction!(gradient, module)?)?;
    module.add_function(wrap_pyfunction!(diffuse, module)?)
}
