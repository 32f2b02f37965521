//! Training, and the use of trained models.

use crate::arrays::{owned, values};
use crate::data::{PreparedMesh, cache, configuration, prepared};
use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_nn::{Device, DeviceChoice, Workspace};
use gemcnn_tasks::data::{DataConfig, Dataset, Split};
use gemcnn_tasks::evaluation::{EvaluationOptions, evaluate};
use gemcnn_tasks::predict::Prediction;
use gemcnn_tasks::train::{Event, Observer, Outcome, RunConfig, RunDirectory, StopFlag};
use gemcnn_tasks::{Task, TaskError};
use numpy::{PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two looks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The process whose threads prepare batches; 0 if none does yet.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Fails in a forked process: batches are prepared by threads of the global pool, which stay behind in the parent.
fn expect_first_process() -> PyResult<()> {
    let process = std::process::id();
    let found = PROCESS.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed);
    match found {
        Ok(_) => Ok(()),
        Err(first) if first == process => Ok(()),
        Err(_) => Err(errors::task(
            "this process was forked from one that has trained or evaluated already; start it with the method `spawn`",
        )),
    }
}

fn open(device: &str, config: &RunConfig) -> PyResult<Device> {
    let choice: DeviceChoice = device.parse().map_err(errors::task)?;
    let (device, _) = choice.open().map_err(errors::cuda)?;
    if let Device::Cuda(cuda) = &device {
        cuda.set_product_mode(config.training.precision.into());
    }
    Ok(device)
}

/// Calls Python at the end of each epoch, and stops the run if it raises.
struct Callback<'a> {
    on_epoch: Option<&'a Py<PyAny>>,
    stop: &'a StopFlag,
    raised: &'a Mutex<Option<PyErr>>,
}

impl Observer for Callback<'_> {
    fn observe(&mut self, event: Event<'_>) {
        let (Event::EpochDone(record), Some(on_epoch)) = (event, self.on_epoch) else { return };
        let called = serde_json::to_string(record).map_err(errors::task);
        let called = called.and_then(|record| Python::attach(|py| on_epoch.call1(py, (record,)).map(|_| ())));
        if let Err(error) = called {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.stop.request();
        }
    }
}

/// Trains the model of a configuration: TOML text, or a file. Gives the directory of the run, and false if it was
/// stopped.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the settings of a run")]
fn train(
    py: Python<'_>,
    text: Option<&str>,
    file: Option<PathBuf>,
    directory: Option<PathBuf>,
    resume: bool,
    device: &str,
    use_cache: bool,
    on_epoch: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    expect_first_process()?;
    let config = configuration(text, file.as_ref())?;
    let device = open(device, &config)?;
    let cache = cache(use_cache).map_err(errors::task)?;
    let run = match (&directory, resume) {
        (Some(path), true) => RunDirectory::open(path),
        (Some(path), false) => RunDirectory::create(path),
        (None, _) => RunDirectory::create_next(Path::new("runs"), &config.name()),
    };
    let run = run.map_err(errors::task)?;
    let (stop, raised) = (StopFlag::new(), Mutex::new(None));
    let pool = crate::threads::current(py)?;
    // Training runs on a thread of its own, so that this one can look for Ctrl-C.
    let outcome = py.detach(|| {
        std::thread::scope(|scope| {
            let training = scope.spawn(|| {
                let mut observer = Callback { on_epoch: on_epoch.as_ref(), stop: &stop, raised: &raised };
                pool.install(|| gemcnn_tasks::run::train(&config, &run, &cache, &device, &mut observer, &stop))
            });
            while !training.is_finished() {
                std::thread::park_timeout(POLL_INTERVAL);
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    stop.request();
                }
            }
            training.join()
        })
    });
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = raised {
        return Err(error);
    }
    match outcome {
        Ok(Ok(Outcome::Finished { .. })) => Ok(run.path().to_path_buf()),
        Ok(Ok(Outcome::Stopped { epoch, step })) => {
            Err(errors::task(format!("stopped in epoch {} after {step} steps", epoch + 1)))
        }
        Ok(Err(error)) => {
            let message = errors::task(error);
            if !run.config().exists() {
                run.discard();
            }
            Err(message)
        }
        Err(_) => Err(errors::task("training panicked; please report this")),
    }
}

/// A trained model; it never changes.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
struct TrainedModel {
    model: gemcnn_tasks::train::TrainedModel,
    device: Device,
    workspace: Mutex<Workspace<f32>>,
}

#[pymethods]
impl TrainedModel {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, device: &str) -> PyResult<Self> {
        let model = work(py, || gemcnn_tasks::train::TrainedModel::read(&path))?;
        let model = model.map_err(errors::task)?;
        let device = open(device, &model.config)?;
        Ok(Self { workspace: Mutex::new(Workspace::new(device.clone())), model, device })
    }

    /// The configuration as JSON.
    fn config(&self) -> PyResult<String> {
        let config = self.model.config.to_json().map_err(errors::task)?;
        Ok(config.to_string())
    }

    /// Names of the classes; empty in regression.
    fn classes(&self) -> Vec<String> {
        match &self.model.classes {
            Some(classes) => (0..classes.count()).map(|class| classes.name(class)).collect(),
            None => Vec::new(),
        }
    }

    /// Types of the input and the output.
    fn types(&self) -> (String, String) {
        let network = &self.model.network;
        (network.input().to_string(), network.output().to_string())
    }

    /// What a row of the output is for: `vertex`, `face`, `edge` or `mesh`.
    fn per(&self) -> PyResult<String> {
        let per = serde_json::to_value(self.model.per).map_err(errors::task)?;
        Ok(per.as_str().unwrap_or_default().to_owned())
    }

    /// The network, layer by layer.
    fn describe(&self) -> String {
        let parts = self.model.network.parts();
        let lines = parts.iter().map(|part| {
            let (name, input, output) = (&part.name, &part.input, &part.output);
            format!("{name}: {input} -> {output}, {} parameters", part.parameters)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The names, shapes and values of all weights.
    fn weights<'py>(&self, py: Python<'py>) -> Vec<(String, Vec<usize>, Bound<'py, PyArray1<f32>>)> {
        let parameters = self.model.parameters.iter();
        let weights = parameters.map(|parameter| {
            let values = PyArray1::from_slice(py, parameter.value());
            (parameter.name().to_owned(), parameter.shape().to_vec(), values)
        });
        weights.collect()
    }

    /// The input of the network for a mesh, with scaled features.
    fn prepare<'py>(&self, py: Python<'py>, mesh: &Bound<'py, Mesh>) -> PyResult<PreparedMesh<'py>> {
        let mesh = &mesh.get().0;
        let sample = work(py, || self.model.sample("the mesh", mesh))?.map_err(errors::task)?;
        prepared(py, sample, self.model.config.geometry.normals)
    }

    /// Writes the model of a run directory or file to another file, with other weights.
    #[staticmethod]
    fn rewrite(source: PathBuf, file: PathBuf, weights: Vec<(String, PyReadonlyArray1<'_, f32>)>) -> PyResult<()> {
        let weights: Vec<(&str, &[f32])> =
            (weights.iter()).map(|(name, array)| Ok((name.as_str(), values(name, array)?))).collect::<PyResult<_>>()?;
        gemcnn_tasks::train::TrainedModel::rewrite(&source, &file, &weights).map_err(errors::task)
    }

    /// Scaling of the targets as JSON: `null`, or `shift` and `scale` of each component.
    fn target_scaling(&self) -> PyResult<String> {
        serde_json::to_string(&self.model.target_scaling).map_err(errors::task)
    }

    /// The prediction for a mesh: a dictionary with `classes`, `class` and `probabilities`, or `values`, `type` and
    /// `frames`.
    fn predict<'py>(&self, py: Python<'py>, mesh: &Bound<'py, Mesh>) -> PyResult<Bound<'py, PyDict>> {
        let mesh = &mesh.get().0;
        let pool = crate::threads::current(py)?;
        let predicted = py.detach(|| {
            let sample = pool.install(|| self.model.sample("the mesh", mesh))?;
            // Not inside of the pool: there a thread that waits for its own work takes that of others, and would wait
            // here for itself.
            let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
            let workspace = &mut *workspace;
            let prediction = pool.install(|| match self.model.config.task {
                Task::Segmentation => {
                    let (classes, rows) = self.model.predict_probabilities(workspace, &sample)?;
                    let per = self.model.per;
                    Ok((Prediction::Classes { per, classes }, Some(rows)))
                }
                _ => Ok((self.model.predict(workspace, &sample)?, None)),
            });
            prediction.map(|prediction| (prediction, sample.hierarchy))
        });
        let ((prediction, probabilities), hierarchy) = predicted.map_err(|error: TaskError| errors::task(error))?;
        let found = PyDict::new(py);
        match prediction {
            Prediction::Classes { classes, .. } => {
                if let Some(rows) = probabilities {
                    let shape = (classes.len(), rows.len() / classes.len().max(1));
                    found.set_item("probabilities", owned(py, rows, shape)?)?;
                }
                found.set_item("classes", PyArray1::from_vec(py, classes))?;
            }
            Prediction::MeshClass { class, probabilities } => {
                found.set_item("class", class)?;
                found.set_item("probabilities", PyArray1::from_vec(py, probabilities))?;
            }
            Prediction::Values { kind, values, .. } => {
                let rows = values.len().checked_div(kind.dimension()).unwrap_or(0);
                let shape = [rows, kind.dimension()];
                let values: Bound<'py, PyArray2<f32>> = PyArray1::from_vec(py, values).reshape(shape)?;
                let frames: Vec<f64> = bytemuck::cast_slice(hierarchy.graph().frames()).to_vec();
                let frames: Bound<'py, PyArray3<f64>> =
                    PyArray1::from_vec(py, frames).reshape([mesh.vertex_count(), 3, 3])?;
                found.set_item("values", values)?;
                found.set_item("type", kind.to_string())?;
                found.set_item("frames", frames)?;
            }
        }
        Ok(found)
    }

    /// The evaluation on a data set, or on that of the run, as JSON.
    fn evaluate(
        &self,
        py: Python<'_>,
        data: Option<PathBuf>,
        part: &str,
        rotation: Option<u64>,
        use_cache: bool,
    ) -> PyResult<String> {
        expect_first_process()?;
        let part: Split = serde_json::from_value(part.into()).map_err(errors::task)?;
        let config = &self.model.config;
        let options = EvaluationOptions { split: part, rotation, ..Default::default() };
        let evaluation = work(py, || {
            let dataset = match &data {
                Some(folder) => Dataset::open_for(&DataConfig::Folder(folder.clone()), config.task)?,
                None => {
                    let mut config = config.clone();
                    config.training.strict = true;
                    config.dataset()?
                }
            };
            let evaluation = evaluate(&self.model, &dataset, options, &cache(use_cache)?, &self.device)?;
            Ok::<_, TaskError>(evaluation.compared_with_training(config, &dataset))
        })?;
        serde_json::to_string(&evaluation.map_err(errors::task)?).map_err(errors::task)
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TrainedModel>()?;
    module.add_function(wrap_pyfunction!(train, module)?)
}
