//! Gauge graphs and features.

use crate::arrays::{borrowed, values};
use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_kernels::{GraphArrays, GraphParts, Real};
use gemcnn_mesh::{Adjacency, Frame, Gauge, GeometryOptions, NeighbourWeights, Neighbourhood, NormalWeighting};
use numpy::{Element, PyArray1, PyArray2, PyArray3, PyArrayMethods};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The gauge graph of a mesh; it never changes.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
pub struct GaugeGraph {
    pub graph: gemcnn_mesh::GaugeGraph,
    pub normals: NormalWeighting,
}

fn choose<T: Copy>(name: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(choice, _)| *choice == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
        errors::geometry(format!("{name} is `{word}`, but must be one of {}", words.join(", ")))
    })
}

/// Options of the geometry from the arguments of Python.
pub fn options(arguments: &Bound<'_, PyDict>) -> PyResult<GeometryOptions> {
    let word = |key: &str| -> PyResult<String> {
        let value = arguments.get_item(key)?;
        value.map_or_else(|| Ok(String::new()), |value| value.extract())
    };
    let radius = arguments.get_item("radius")?;
    let radius: Option<f64> = radius.map(|radius| radius.extract()).transpose()?.flatten();
    let limit = arguments.get_item("limit")?;
    let limit: Option<usize> = limit.map(|limit| limit.extract()).transpose()?.flatten();
    let limit = limit.unwrap_or(usize::MAX);
    let need = || radius.ok_or_else(|| errors::geometry("this neighbourhood needs a radius"));
    let neighbourhood = word("neighbourhood")?;
    let neighbourhood = match neighbourhood.as_str() {
        "one_ring" => Neighbourhood::OneRing,
        "radius" => Neighbourhood::Radius { radius: need()?, limit },
        "patch" => Neighbourhood::Patch { radius: need()?, limit },
        other => choose(
            "neighbourhood",
            other,
            &[
                ("one_ring", Neighbourhood::OneRing),
                ("radius", Neighbourhood::OneRing),
                ("patch", Neighbourhood::OneRing),
            ],
        )?,
    };
    let gauge = match arguments.get_item("gauge")? {
        Some(gauge) if !gauge.is_none() => {
            if let Ok(angles) = gauge.extract::<PyReadonlyArray1<'_, f64>>() {
                Gauge::Angles(values("gauge", &angles)?.to_vec())
            } else if let Ok(neighbours) = gauge.extract::<PyReadonlyArray1<'_, u32>>() {
                Gauge::Neighbours(values("gauge", &neighbours)?.to_vec())
            } else if let Ok(directions) = gauge.extract::<PyReadonlyArray2<'_, f64>>() {
                let rows = values("gauge", &directions)?;
                if directions.as_array().ncols() != 3 {
                    return Err(errors::geometry("directions must have shape [V, 3]"));
                }
                Gauge::Directions(bytemuck::cast_slice(rows).to_vec())
            } else {
                return Err(errors::geometry(
                    "the gauge must be angles [V] (float64), neighbours [V] (uint32) or directions [V, 3] (float64)",
                ));
            }
        }
        _ => Gauge::FirstNeighbour,
    };
    let estimate = arguments.get_item("estimate_normals")?;
    Ok(GeometryOptions {
        normals: choose(
            "normals",
            &word("normals")?,
            &[("area", NormalWeighting::Area), ("corner_angle", NormalWeighting::CornerAngle)],
        )?,
        neighbourhood,
        weights: choose(
            "weights",
            &word("weights")?,
            &[("count", NeighbourWeights::Count), ("area", NeighbourWeights::Area), ("jets", NeighbourWeights::Jets)],
        )?,
        gauge,
        estimate_normals: estimate.map_or(Ok(false), |value| value.extract())?,
    })
}

/// The arrays of a graph as operators take them.
fn graph_arrays<'py, T: Real + Element>(
    py: Python<'py>,
    graph: &gemcnn_mesh::GaugeGraph,
) -> PyResult<Bound<'py, PyDict>> {
    let parts = GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
        coefficients: graph.coefficients(),
    };
    let made = work(py, || GraphArrays::<T>::union(&[parts]))?.map_err(errors::geometry)?;
    let view = made.view();
    let edges = view.edge_count();
    let phases = view.phases().iter();
    let phases: Vec<T> = phases.flat_map(|p| [p.angle[0], p.angle[1], p.transport[0], p.transport[1]]).collect();
    let signed =
        |values: &[u32]| -> Bound<'py, PyArray1<i32>> { PyArray1::from_vec(py, bytemuck::cast_slice(values).to_vec()) };
    let found = PyDict::new(py);
    found.set_item("offsets", signed(view.offsets()))?;
    found.set_item("neighbours", signed(view.neighbours()))?;
    found.set_item("reverse", signed(view.reverse()))?;
    found.set_item("phases", PyArray1::from_vec(py, phases).reshape([edges, 4])?)?;
    found.set_item("radius", PyArray1::from_slice(py, view.radius()))?;
    let coefficients = PyArray1::from_slice(py, view.coefficients());
    found.set_item("coefficients", coefficients.reshape([edges, view.columns()])?)?;
    Ok(found)
}

#[pymethods]
impl GaugeGraph {
    #[new]
    fn new(py: Python<'_>, mesh: &Bound<'_, Mesh>, arguments: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (mesh, options) = (&mesh.get().0, options(arguments)?);
        let graph = work(py, || gemcnn_mesh::GaugeGraph::new(mesh, &options))?;
        Ok(Self { graph: graph.map_err(errors::geometry)?, normals: options.normals })
    }

    /// A graph from its arrays.
    #[staticmethod]
    fn from_arrays(
        py: Python<'_>,
        offsets: PyReadonlyArray1<'_, u32>,
        neighbours: PyReadonlyArray1<'_, u32>,
        theta: PyReadonlyArray1<'_, f64>,
        transport: PyReadonlyArray1<'_, f64>,
        radius: PyReadonlyArray1<'_, f64>,
        frames: PyReadonlyArray3<'_, f64>,
    ) -> PyResult<Self> {
        if frames.as_array().shape()[1..] != [3, 3] {
            return Err(errors::geometry("frames must have shape [V, 3, 3]"));
        }
        let frames: Vec<Frame> = bytemuck::cast_slice(values("frames", &frames)?).to_vec();
        let (offsets, neighbours) = (values("offsets", &offsets)?, values("neighbours", &neighbours)?);
        let numbers = [("theta", &theta), ("transport", &transport), ("radius", &radius)];
        let [theta, transport, radius] = numbers.map(|(name, array)| values(name, array));
        let (theta, transport, radius) = (theta?, transport?, radius?);
        let graph = work(py, || {
            let adjacency = Adjacency::new(offsets.to_vec(), neighbours.to_vec())?;
            gemcnn_mesh::GaugeGraph::from_parts(adjacency, theta.to_vec(), transport.to_vec(), radius.to_vec(), frames)
        })?;
        Ok(Self { graph: graph.map_err(errors::geometry)?, normals: NormalWeighting::default() })
    }

    fn offsets<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().graph.offsets();
        borrowed(slf, values, values.len())
    }

    fn neighbours<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().graph.neighbours();
        borrowed(slf, values, values.len())
    }

    fn reverse<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let values = slf.get().graph.reverse();
        borrowed(slf, values, values.len())
    }

    fn theta<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let values = slf.get().graph.theta();
        borrowed(slf, values, values.len())
    }

    fn transport<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let values = slf.get().graph.transport();
        borrowed(slf, values, values.len())
    }

    fn radius<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let values = slf.get().graph.radius();
        borrowed(slf, values, values.len())
    }

    fn frames<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let frames = slf.get().graph.frames();
        borrowed(slf, bytemuck::cast_slice(frames), (frames.len(), 3, 3))
    }

    fn coefficients<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (columns, values) = slf.get().graph.coefficients();
        borrowed(slf, values, (slf.get().graph.edge_count(), columns))
    }

    /// The graph in frames rotated by angles.
    fn rotated(&self, py: Python<'_>, angles: PyReadonlyArray1<'_, f64>) -> PyResult<Self> {
        let angles = values("angles", &angles)?;
        let graph = work(py, || self.graph.clone().gauge_transform(angles))?;
        Ok(Self { graph: graph.map_err(errors::geometry)?, normals: self.normals })
    }

    /// The arrays for operators, in f64 or f32.
    fn arrays<'py>(&self, py: Python<'py>, wide: bool) -> PyResult<Bound<'py, PyDict>> {
        if wide { graph_arrays::<f64>(py, &self.graph) } else { graph_arrays::<f32>(py, &self.graph) }
    }

    /// The graph as bytes, and whether its normals are weighted by angles.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, bool)> {
        let bytes = work(py, || self.graph.to_safetensors())?.map_err(errors::geometry)?;
        let by_angle = self.normals == NormalWeighting::CornerAngle;
        Ok((PyBytes::new(py, &bytes), by_angle))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8], by_angle: bool) -> PyResult<Self> {
        let graph = work(py, || gemcnn_mesh::GaugeGraph::from_safetensors(bytes))?;
        Ok(Self {
            graph: graph.map_err(errors::geometry)?,
            normals: if by_angle { NormalWeighting::CornerAngle } else { NormalWeighting::Area },
        })
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GaugeGraph>()
}
