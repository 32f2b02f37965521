//! Hierarchies of gauge graphs.

use crate::arrays::borrowed;
use crate::errors;
use crate::geometry::{GaugeGraph, options};
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::{DVec3, HierarchyOptions, PointIndex, farthest_points};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
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

/// Points `[N, 3]` as the library takes them.
fn points<'a>(points: &'a PyReadonlyArray2<'_, f64>) -> PyResult<&'a [DVec3]> {
    let rows = crate::arrays::values("points", points)?;
    if points.as_array().ncols() != 3 || !rows.iter().all(|value| value.is_finite()) {
        return Err(errors::geometry("points must have shape [N, 3] and be finite"));
    }
    Ok(bytemuck::cast_slice(rows))
}

/// Two arrays of indices.
type IndexArrays<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>);

/// `count` of the points, chosen by farthest-point sampling from the first one, in ascending order, and for each point
/// the place of the nearest of them.
#[pyfunction]
fn coarsen<'py>(py: Python<'py>, positions: PyReadonlyArray2<'py, f64>, count: usize) -> PyResult<IndexArrays<'py>> {
    let positions = points(&positions)?;
    let (chosen, nearest) = work(py, || {
        let mut chosen = farthest_points(positions, count, 0);
        chosen.sort_unstable();
        let kept: Vec<DVec3> = chosen.iter().map(|&point| positions[point as usize]).collect();
        let index = PointIndex::new(&kept);
        let nearest = |&point: &DVec3| index.nearest(point).map_or(0, |found| found.point);
        let mut nearest: Vec<u32> = positions.iter().map(nearest).collect();
        // Each is its own nearest, also where several are at one place.
        for (place, &point) in (0..).zip(&chosen) {
            nearest[point as usize] = place;
        }
        (chosen, nearest)
    })?;
    Ok((PyArray1::from_vec(py, chosen), PyArray1::from_vec(py, nearest)))
}

/// Pairs of points at most `radius` apart, each with itself too, for each first point at most `limit`, the nearest.
#[pyfunction]
fn pairs_within<'py>(
    py: Python<'py>,
    positions: PyReadonlyArray2<'py, f64>,
    radius: f64,
    limit: usize,
) -> PyResult<IndexArrays<'py>> {
    let positions = points(&positions)?;
    let pairs: (Vec<u32>, Vec<u32>) = work(py, || {
        let (index, mut found) = (PointIndex::new(positions), Vec::new());
        let pairs = (0..).zip(positions).flat_map(|(first, &centre)| {
            index.within(centre, radius, limit, &mut found);
            found.iter().map(|other| (first, other.point)).collect::<Vec<_>>()
        });
        pairs.unzip()
    })?;
    Ok((PyArray1::from_vec(py, pairs.0), PyArray1::from_vec(py, pairs.1)))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Clusters>()?;
    module.add_function(wrap_pyfunction!(hierarchy, module)?)?;
    module.add_function(wrap_pyfunction!(coarsen, module)?)?;
    module.add_function(wrap_pyfunction!(pairs_within, module)?)
}
