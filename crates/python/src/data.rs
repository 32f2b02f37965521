//! Samples: prepared meshes for Python, and the data set of a configuration.

use crate::arrays::owned;
use crate::errors;
use crate::geometry::GaugeGraph;
use crate::hierarchy::Clusters;
use crate::threads::work;
use gemcnn_kernels::diffusion::Spectra;
use gemcnn_mesh::{Level, NormalWeighting};
use gemcnn_nn::{IGNORE, SpectraBatch, Target};
use gemcnn_tasks::data::{Cache, PreparedSplit, Split};
use gemcnn_tasks::train::{Checked, RunConfig};
use gemcnn_tasks::{Sample, SampleSource};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Label of rows whose class is not known, as in PyTorch.
const UNKNOWN: i64 = -100;

/// Features `[V, D]` and gauge graph of a sample. For models with eigenvectors also their numbers by order, the masses,
/// the bases and the eigenvalues. For models that pool also the graphs of the coarser levels with the clusters of the
/// level before.
pub type PreparedMesh<'py> = (
    Bound<'py, PyArray2<f32>>,
    GaugeGraph,
    Option<(Vec<usize>, [Bound<'py, PyArray1<f32>>; 3])>,
    Vec<(GaugeGraph, Clusters)>,
);

/// A sample for Python, without its target.
pub fn prepared(py: Python<'_>, sample: Sample, normals: NormalWeighting) -> PyResult<PreparedMesh<'_>> {
    let shape = (sample.graph().vertex_count(), sample.kind.dimension());
    let spectra = sample.extras.get().map(|spectra: &SpectraBatch<f32>| {
        let Spectra { mass, bases, eigenvalues, .. } = spectra.arrays();
        let arrays = [mass, bases, eigenvalues].map(|values| PyArray1::from_slice(py, values));
        (spectra.columns().to_vec(), arrays)
    });
    let mut levels = Arc::unwrap_or_clone(sample.hierarchy).into_levels().into_iter();
    let graph = levels.next().ok_or_else(|| errors::task("a sample without a graph"))?.graph;
    let graph = GaugeGraph { graph, normals };
    let coarser = |level: Level| Some((GaugeGraph { graph: level.graph, normals }, Clusters(level.clusters?)));
    let levels = levels.filter_map(coarser).collect();
    Ok((owned(py, sample.features, shape)?, graph, spectra, levels))
}

/// The configuration of a run: the same as TOML in JSON, or a file.
pub fn configuration(text: Option<&str>, file: Option<&PathBuf>) -> PyResult<Checked<RunConfig>> {
    let config = match (text, file) {
        (Some(text), _) => {
            let value: serde_json::Value = serde_json::from_str(text).map_err(errors::task)?;
            let text = toml::to_string(&value).map_err(errors::task)?;
            RunConfig::parse(&text)
        }
        (None, Some(file)) => RunConfig::read(file),
        (None, None) => return Err(errors::task("there is no configuration")),
    };
    config.and_then(RunConfig::checked).map_err(errors::task)
}

/// The cache of prepared meshes, or none.
pub fn cache(use_cache: bool) -> Result<Cache, gemcnn_tasks::TaskError> {
    if use_cache { Cache::of_user().limited(None) } else { Ok(Cache::none()) }
}

/// A part of the data set of a configuration; it never changes.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
struct DataSet {
    config: Checked<RunConfig>,
    samples: PreparedSplit,
    /// Names of the classes; empty in regression.
    #[pyo3(get)]
    classes: Vec<String>,
    /// Types of the input and the output.
    #[pyo3(get)]
    types: (String, String),
    /// Length of a row of the output.
    width: usize,
}

#[pymethods]
impl DataSet {
    #[new]
    fn new(py: Python<'_>, text: Option<&str>, file: Option<PathBuf>, part: &str, use_cache: bool) -> PyResult<Self> {
        let config = configuration(text, file.as_ref())?;
        let part: Split = serde_json::from_value(part.into()).map_err(errors::task)?;
        let opened = work(py, || {
            let dataset = config.dataset()?;
            let samples = dataset.split(part, &config.preparation(), &cache(use_cache)?)?;
            Ok((dataset, samples))
        })?;
        let (dataset, samples) = opened.map_err(|error: gemcnn_tasks::TaskError| errors::task(error))?;
        let classes = dataset
            .classes()
            .map_or(Vec::new(), |classes| (0..classes.count()).map(|class| classes.name(class)).collect());
        Ok(Self {
            classes,
            types: (config.features.kind().to_string(), dataset.outputs().to_string()),
            width: dataset.outputs().dimension(),
            config,
            samples,
        })
    }

    fn __len__(&self) -> usize {
        self.samples.len()
    }

    /// The kind of the model.
    fn kind(&self) -> String {
        self.config.model.name().to_owned()
    }

    /// The name of a sample, the sample, and its labels or values.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        index: usize,
    ) -> PyResult<(String, PreparedMesh<'py>, Option<Bound<'py, PyArray1<i64>>>, Option<Bound<'py, PyArray2<f32>>>)>
    {
        let mut sample = work(py, || self.samples.load(index))?.map_err(errors::task)?;
        let name = std::mem::take(&mut sample.name);
        let (labels, values) = match std::mem::replace(&mut sample.target, Target::Unknown) {
            Target::Unknown => (None, None),
            Target::Values(values) => {
                let rows = values.len().checked_div(self.width).unwrap_or(0);
                (None, Some(owned(py, values, (rows, self.width))?))
            }
            Target::Classes(labels) => {
                let label = |label: u32| match label {
                    IGNORE => UNKNOWN,
                    label => label.into(),
                };
                let labels = PyArray1::from_iter(py, labels.into_iter().map(label));
                (Some(labels), None)
            }
        };
        let normals = self.config.geometry.normals;
        Ok((name, prepared(py, sample, normals)?, labels, values))
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DataSet>()
}
