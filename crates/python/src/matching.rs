//! Maps between meshes.

use crate::arrays::{owned, values};
use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_matching::{MatchError, Matcher, Verdict};
use gemcnn_mesh::DVec3;
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_nn::{DeviceChoice, Workspace};
use gemcnn_tasks::train::TrainedModel;
use numpy::{PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use std::path::PathBuf;

/// The maps between two meshes; they never change.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
struct Match {
    found: gemcnn_matching::Match,
    notes: [Vec<String>; 2],
    /// Number of vertices of B.
    targets: usize,
}

type Points<'py> = (Bound<'py, PyArray2<u32>>, Bound<'py, PyArray2<f64>>);

fn points<'py>(py: Python<'py>, points: &[SurfacePoint]) -> PyResult<Points<'py>> {
    let shape = (points.len(), 3);
    let corners = points.iter().flat_map(|point| point.corners).collect();
    let weights = points.iter().flat_map(|point| point.weights).collect();
    Ok((owned(py, corners, shape)?, owned(py, weights, shape)?))
}

#[pymethods]
impl Match {
    #[new]
    fn new(
        py: Python<'_>,
        a: &Bound<'_, Mesh>,
        b: &Bound<'_, Mesh>,
        model: Option<PathBuf>,
        device: &str,
    ) -> PyResult<Self> {
        let choice: DeviceChoice = device.parse().map_err(errors::task)?;
        let (device, _) = choice.open().map_err(errors::cuda)?;
        let (a, b) = (&a.get().0, &b.get().0);
        let matched = work(py, || {
            let matcher = match model {
                None => Matcher::of_bodies()?,
                Some(run) => {
                    Matcher::new(TrainedModel::read(&run).map_err(|error| MatchError::Network(error.to_string()))?)?
                }
            };
            let mut workspace = Workspace::new(device);
            let [a, b] = matcher.shapes(&mut workspace, [a, b]);
            let (a, b) = (a?, b?);
            let found = gemcnn_matching::Match::new(&a, &b)?;
            let notes = [&a, &b].map(|shape| shape.notes().iter().map(ToString::to_string).collect());
            Ok(Self { found, notes, targets: b.vertex_count() })
        });
        matched?.map_err(|error: MatchError| errors::task(error))
    }

    fn forward<'py>(&self, py: Python<'py>) -> PyResult<Points<'py>> {
        points(py, &self.found.forward)
    }

    fn backward<'py>(&self, py: Python<'py>) -> PyResult<Points<'py>> {
        points(py, &self.found.backward)
    }

    fn functional_map<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let map = &self.found.functional_map;
        owned(py, map.values.clone(), (map.size, map.size))
    }

    fn confidence<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        PyArray1::from_slice(py, &self.found.confidence)
    }

    /// The verdict and the measures as JSON, what was seen, and the summary.
    fn evidence(&self) -> PyResult<(String, String, Vec<String>, String)> {
        let evidence = &self.found.evidence;
        let json = serde_json::to_string(evidence).map_err(errors::task)?;
        let doubts = evidence.doubts().iter().map(ToString::to_string).collect();
        Ok((evidence.verdict().to_string(), json, doubts, evidence.summary()))
    }

    fn is_meaningless(&self) -> bool {
        self.found.evidence.verdict() == Verdict::Meaningless
    }

    /// What was done to each mesh.
    fn notes(&self) -> [Vec<String>; 2] {
        self.notes.clone()
    }

    /// Vectors at the vertices of B for those of A.
    fn vectors<'py>(&self, py: Python<'py>, vectors: PyReadonlyArray2<'_, f64>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows = values("vectors", &vectors)?;
        if rows.len() != 3 * self.targets {
            return Err(errors::mesh(format!("vectors must have shape [{}, 3]", self.targets)));
        }
        let carried = self.found.transfer_vectors(bytemuck::cast_slice(rows));
        let rows: Vec<f64> = carried.iter().flat_map(DVec3::to_array).collect();
        owned(py, rows, (carried.len(), 3))
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Match>()
}
