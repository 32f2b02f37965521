//! Operators of surfaces: Laplacians, eigenpairs, gradients, diffusion, and the features that are made of them.

use crate::arrays::owned;
use crate::errors;
use crate::geometry::GaugeGraph;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::surface::{
    Eigenbasis, HeatArrays, HeatSolver, Jets, SurfaceError, SurfaceLaplacian, SurfaceOperators,
};
use gemcnn_tasks::FeatureConfig;
use gemcnn_tasks::features::{Fields, Surface};
use numpy::{PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Largest number of features of a vertex, so that a mistyped setting does not exhaust the memory.
const MAX_FEATURES: usize = 65_536;

/// The operators of a mesh in the frames of a graph. Jets and eigenpairs are computed once.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
pub struct Operators {
    mesh: Py<Mesh>,
    graph: Py<GaugeGraph>,
    laplacian: SurfaceLaplacian,
    jets: OnceLock<Jets>,
    /// The basis of each order, with the number of eigenpairs that was asked for.
    bases: Mutex<BTreeMap<usize, (usize, Arc<Eigenbasis>)>>,
}

impl Operators {
    fn mesh(&self) -> &gemcnn_mesh::Mesh {
        &self.mesh.get().0
    }

    fn graph(&self) -> &gemcnn_mesh::GaugeGraph {
        &self.graph.get().graph
    }

    fn jets(&self) -> Result<&Jets, SurfaceError> {
        if let Some(jets) = self.jets.get() {
            return Ok(jets);
        }
        let jets = Jets::new(&self.laplacian, self.graph().frames())?;
        Ok(self.jets.get_or_init(|| jets))
    }

    /// The `count` lowest eigenpairs of an order: those of a basis with as many, or a new one.
    fn basis(&self, order: usize, count: usize) -> Result<Arc<Eigenbasis>, SurfaceError> {
        let bases = || self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        let found = bases().get(&order).filter(|(asked, _)| *asked >= count).map(|(_, basis)| basis.clone());
        let basis = match found {
            Some(basis) => basis,
            None => {
                let connection = self.laplacian.connection(order, self.graph().frames())?;
                let basis = Arc::new(connection.eigenbasis(count)?);
                bases().insert(order, (count, basis.clone()));
                basis
            }
        };
        if basis.len() <= count {
            return Ok(basis);
        }
        let rows = basis.vectors.chunks(basis.len());
        let vectors = rows.flat_map(|row| &row[..count]).copied().collect();
        Ok(Arc::new(Eigenbasis { order, values: basis.values[..count].to_vec(), vectors }))
    }
}

#[pymethods]
impl Operators {
    #[new]
    fn new(py: Python<'_>, mesh: Py<Mesh>, graph: Py<GaugeGraph>) -> PyResult<Self> {
        let vertices = mesh.get().0.vertex_count();
        if graph.get().graph.vertex_count() != vertices {
            let other = graph.get().graph.vertex_count();
            return Err(errors::geometry(format!(
                "graph has {other} vertices, but the mesh {vertices}: it belongs to another mesh"
            )));
        }
        let laplacian = work(py, || SurfaceLaplacian::new(&mesh.get().0))?.map_err(errors::geometry)?;
        Ok(Self { mesh, graph, laplacian, jets: OnceLock::new(), bases: Mutex::default() })
    }

    /// The mass of each vertex.
    fn mass<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, self.laplacian.mass())
    }

    /// The edges of the Laplacian in compressed rows, with weights and transport, and the gradient of scalars in compressed
    /// rows, two for each vertex.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let arrays = work(py, || HeatArrays::new(self.mesh(), self.graph()))?.map_err(errors::geometry)?;
        let found = PyDict::new(py);
        for (name, values) in [
            ("offsets", arrays.offsets),
            ("neighbours", arrays.neighbours),
            ("gradient_offsets", arrays.gradient_offsets),
            ("gradient_neighbours", arrays.gradient_neighbours),
        ] {
            found.set_item(name, PyArray1::from_vec(py, values))?;
        }
        for (name, values) in
            [("weights", arrays.weights), ("transport", arrays.transport), ("gradient", arrays.gradient)]
        {
            found.set_item(name, PyArray1::from_vec(py, values))?;
        }
        Ok(found)
    }

    /// Lowest eigenvalues and eigenvectors of an order: `[V, k]`, or `[2 V, k]` with the real parts of a vertex and then
    /// its imaginary parts.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn eigenpairs<'py>(
        &self,
        py: Python<'py>,
        order: usize,
        count: usize,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>)> {
        let basis = work(py, || self.basis(order, count))?.map_err(errors::geometry)?;
        let parts = if order == 0 { 1 } else { 2 };
        let vectors = owned(py, basis.vectors.clone(), (self.mesh().vertex_count() * parts, basis.len()))?;
        Ok((PyArray1::from_slice(py, &basis.values), vectors))
    }

    /// Gradients of scalar fields `[V, b]` in the frames of the graph, `[2 V, b]`: the first and the second component of a
    /// vertex.
    fn gradient<'py>(&self, py: Python<'py>, field: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let columns = field.as_array().ncols();
        let field = crate::arrays::values("field", &field)?;
        let gradient = work(py, || self.jets()?.gradient(field, columns))?.map_err(errors::geometry)?;
        owned(py, gradient, (2 * self.mesh().vertex_count(), columns))
    }

    /// Fields `[V, b]`, or `[2 V, b]` as in `eigenpairs`, after an implicit step of diffusion.
    fn diffuse<'py>(
        &self,
        py: Python<'py>,
        order: usize,
        time: f64,
        field: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (rows, columns) = field.as_array().dim();
        let field = crate::arrays::values("field", &field)?;
        let diffused = work(py, || {
            let solver = HeatSolver::new(&self.laplacian, order, self.graph().frames(), &[time])?;
            solver.solve(0, field, columns)
        })?;
        owned(py, diffused.map_err(errors::geometry)?, (rows, columns))
    }
}

/// Features of the vertices: their type, and rows. Those that need operators take them from `operators`.
#[pyfunction]
fn features<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    graph: &Bound<'py, GaugeGraph>,
    settings: &str,
    operators: Option<&Bound<'py, Operators>>,
) -> PyResult<(String, Bound<'py, PyArray2<f64>>)> {
    let config: FeatureConfig = serde_json::from_str(settings).map_err(errors::task)?;
    let needed = config.eigenvectors();
    let made = match operators {
        None if needed != [0; 3] => {
            Some(Bound::new(py, Operators::new(py, mesh.clone().unbind(), graph.clone().unbind())?)?)
        }
        _ => None,
    };
    let operators = operators.or(made.as_ref()).map(|operators| operators.get());
    let (mesh, graph) = (&mesh.get().0, graph.get());
    let vertices = mesh.vertex_count();
    if graph.graph.vertex_count() != vertices {
        return Err(errors::geometry("the graph belongs to another mesh"));
    }
    let kind = work(py, || config.kind())?;
    if kind.dimension() > MAX_FEATURES {
        let found = kind.dimension();
        return Err(errors::task(format!(
            "`kinds` ask for {found} numbers at each vertex, but at most {MAX_FEATURES} are possible"
        )));
    }
    let rows = work(py, || {
        let operators = match operators.filter(|_| needed != [0; 3]) {
            None => None,
            Some(operators) => {
                let wanted = (0..).zip(needed).filter(|&(_, count)| count > 0);
                let bases = wanted.map(|(order, count)| Ok((*operators.basis(order, count)?).clone()));
                let bases = bases.collect::<Result<Vec<Eigenbasis>, SurfaceError>>()?;
                let jets = operators.jets()?;
                let scalar = bases.first().filter(|basis| basis.order == 0);
                let gradient = scalar.map_or(Ok(Vec::new()), |basis| jets.gradient_basis(basis))?;
                let mass = operators.laplacian.mass().to_vec();
                Some(SurfaceOperators { mass, bases, gradient, jets: Some(jets.clone()) })
            }
        };
        let (graph, normals) = (&graph.graph, graph.normals);
        config.compute(Surface { mesh, graph, normals, operators: operators.as_ref(), fields: &Fields::default() })
    })?;
    let rows = owned(py, rows.map_err(errors::geometry)?, (vertices, kind.dimension()))?;
    Ok((kind.to_string(), rows))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Operators>()?;
    module.add_function(wrap_pyfunction!(features, module)?)
}
