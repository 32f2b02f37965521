//! Hierarchies of gauge graphs.

use crate::arrays::borrowed;
use crate::errors;
use crate::geometry::{GaugeGraph, options};
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::HierarchyOptions;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Clusters of the vertices of a finer level; they never change.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
pub struct Clusters(pub gemcnn_mesh::Clusters);

#[pymethods]
impl Clusters {
    #[new]
    fn new(
        count: usize,
        cluster_of: PyReadonlyArray1<'_, u32>,
        transport: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<Self> {
        let cluster_of = crate::arrays::values("cluster_of", &cluster_of)?.to_vec();
        let transport = crate::arrays::values("transport", &transport)?.to_vec();
        let clusters = gemcnn_mesh::Clusters::new(count, cluster_of, transport);
        clusters.map(Self).map_err(errors::geometry)
    }

    fn offsets<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().0.offsets();
        borrowed(slf, values, values.len())
    }

    fn members<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().0.members();
        borrowed(slf, values, values.len())
    }

    fn cluster_of<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().0.cluster_of();
        borrowed(slf, values, values.len())
    }

    fn transport<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let values = slf.get().0.transport();
        borrowed(slf, values, values.len())
    }
}

/// The graph of each level, its vertices in the mesh, and the clusters of the level before.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
fn hierarchy<'py>(
    py: Python<'py>,
    mesh: &Bound<'py, Mesh>,
    ratios: Vec<f64>,
    radii: Vec<f64>,
    limit: Option<usize>,
    arguments: &Bound<'py, PyDict>,
) -> PyResult<Vec<(GaugeGraph, Bound<'py, PyArray1<u32>>, Option<Clusters>)>> {
    let mesh = &mesh.get().0;
    let options =
        HierarchyOptions { geometry: options(arguments)?, ratios, radii, neighbour_limit: limit.unwrap_or(usize::MAX) };
    let hierarchy = work(py, || gemcnn_mesh::Hierarchy::new(mesh, &options))?;
    let hierarchy = hierarchy.map_err(errors::geometry)?;
    let levels = hierarchy.levels().iter().map(|level| {
        let graph = GaugeGraph { graph: level.graph.clone(), normals: options.geometry.normals };
        let vertices = PyArray1::from_slice(py, &level.vertices);
        (graph, vertices, level.clusters.clone().map(Clusters))
    });
    Ok(levels.collect())
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Clusters>()?;
    module.add_function(wrap_pyfunction!(hierarchy, module)?)
}
