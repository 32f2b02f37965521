//! The page of a run while it trains: a server for this machine alone.

use super::report;
use super::run::held_out_split;
use super::server::{Response, Server};
use crate::failure::Failure;
use gemcnn_nn::{Archive, Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::Cache;
use gemcnn_tasks::evaluation::Assessor;
use gemcnn_tasks::page::PredictionPage;
use gemcnn_tasks::train::{Event, Observer, Record, StepReport, TrainedModel, read_metrics};
use gemcnn_view::page::{Confusion, Page, Progress};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Number of held-out meshes with predictions.
const MAX_MESHES: usize = 4;
/// A page that sent a request within this time is open.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a prediction, in multiples of its duration.
const PAUSE: u32 = 100;
/// Longest wait at the end for an open page to learn that training has ended.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(1500);

/// What the server knows of the run.
#[derive(Default)]
struct State {
    configuration: String,
    epochs: u64,
    records: Vec<Record>,
    step: Option<StepReport>,
    ended: Option<String>,
    /// The meshes of the page in JSON, and the number of times they changed.
    meshes: (u64, Arc<str>),
    /// Confusion of the classes on these meshes.
    confusion: Option<Confusion>,
    /// Time of the last request of a page.
    last_request: Option<Instant>,
    /// True after a page has read that training has ended.
    end_was_read: bool,
    /// Earliest time of the next prediction.
    next_prediction: Option<Instant>,
}

/// The live view of a run. It ends when it is dropped.
pub struct LiveView {
    state: Arc<Mutex<State>>,
    server: Server,
    /// Models with their epochs.
    models: SyncSender<(Archive, u64)>,
}

impl LiveView {
    /// Starts the server. `run` is the directory of the run.
    pub fn start(run: &Path, cache: Cache) -> Result<Self, Failure> {
        let page = Page { live: true, report: Some(Default::default()), ..Page::new(run.display().to_string()) };
        let html: Arc<str> = page.to_html().map_err(Failure::input)?.into();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = Server::start(move |path| match path {
            "/" => Some(Response::html(Arc::clone(&html))),
            "/report.json" => Some(Response::json(locked(&shared).report().into())),
            "/meshes.json" => Some(Response::json(Arc::clone(&locked(&shared).meshes.1))),
            _ => None,
        })
        .map_err(|error| Failure::input(format!("cannot serve the page: {error}")))?;
        // At most one model waits.
        let (models, receiver) = sync_channel(1);
        let (shared, run) = (Arc::clone(&state), run.to_path_buf());
        // Ends with the sender. It is not waited for, because a prediction may take long.
        std::thread::spawn(move || predict_each(&receiver, &shared, &run, &cache));
        Ok(Self { state, server, models })
    }

    /// Address of the page.
    pub fn address(&self) -> String {
        format!("http://{}/", self.server.address())
    }

    /// Records an event of the run.
    pub fn observe(&self, event: &Event<'_>) {
        let mut state = locked(&self.state);
        match event {
            Event::Started { run, epochs, .. } => {
                state.epochs = *epochs;
                state.records = read_metrics(&run.join("metrics.jsonl")).unwrap_or_default();
                state.configuration = std::fs::read_to_string(run.join("config.toml")).unwrap_or_default();
            }
            Event::StepDone(report) => state.step = Some((*report).clone()),
            Event::EpochDone(record) => {
                // A resumed run repeats epochs after its checkpoint.
                state.records.retain(|other| other.epoch < record.epoch);
                state.records.push((*record).clone());
            }
            Event::Model(archive) => {
                let epoch = state.records.last().map_or(0, |record| record.epoch);
                // A model that nobody can take is left out.
                let _ = self.models.try_send(((*archive).clone(), epoch));
            }
            _ => {}
        }
    }

    /// True if a page is open and its last prediction is long enough ago.
    pub fn wants_model(&self) -> bool {
        let state = locked(&self.state);
        state.is_watched() && state.next_prediction.is_none_or(|time| Instant::now() >= time)
    }

    /// Tells an open page how the run ended.
    pub fn end(self, how: &str) {
        locked(&self.state).ended = Some(how.into());
        let start = Instant::now();
        while start.elapsed() < SHUTDOWN_GRACE {
            let state = locked(&self.state);
            if state.end_was_read || !state.is_watched() {
                return;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl State {
    fn is_watched(&self) -> bool {
        self.last_request.is_some_and(|time| time.elapsed() < PAGE_TIMEOUT)
    }

    /// The report in JSON.
    fn report(&mut self) -> String {
        self.last_request = Some(Instant::now());
        self.end_was_read = self.ended.is_some();
        let mut report = report::of_records(&self.records, &self.configuration);
        report.progress = Some(self.progress());
        report.confusion = self.confusion.clone();
        let news = serde_json::json!({ "report": report, "meshes": self.meshes.0 });
        news.to_string()
    }

    fn progress(&self) -> Progress {
        if let Some(how) = &self.ended {
            return Progress { share: 1.0, text: how.clone(), ended: true };
        }
        let Some(step) = &self.step else { return Progress { text: "preparing meshes".into(), ..Default::default() } };
        let epochs = self.epochs.max(1);
        let done = (step.epoch.max(1) - 1) as f64 + step.step as f64 / step.steps.max(1) as f64;
        let left = report::time(step.time_left.as_secs_f64());
        Progress {
            share: (done / epochs as f64).min(1.0),
            text: format!("epoch {} of {epochs}, {left} left", step.epoch),
            ended: false,
        }
    }
}

/// The state. A thread that panicked has only left numbers behind, so its lock is still good.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Predicts with each model that arrives, with one thread of its own.
fn predict_each(models: &Receiver<(Archive, u64)>, state: &Mutex<State>, run: &Path, cache: &Cache) {
    let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(1).build() else { return };
    for (archive, epoch) in models {
        let start = Instant::now();
        let meshes = pool.install(|| predicted(&archive, epoch, run, cache));
        let mut state = locked(state);
        // A mesh that cannot be predicted stops training itself, with the reason.
        if let Ok((json, confusion)) = meshes {
            state.meshes = (state.meshes.0 + 1, json.into());
            state.confusion = confusion;
        }
        state.next_prediction = Some(Instant::now() + PAUSE * start.elapsed());
    }
}

/// The first held-out meshes with the predictions of a model, as JSON of the page, and the confusion of their classes.
fn predicted(
    archive: &Archive,
    epoch: u64,
    run: &Path,
    cache: &Cache,
) -> Result<(String, Option<Confusion>), TaskError> {
    let file: PathBuf = run.join("model.safetensors");
    let model = TrainedModel::from_archive(archive, &file)?;
    let dataset = model.config.dataset()?;
    let assessor = Assessor::new(&model, &dataset, held_out_split(&dataset), cache)?;
    let mut page = Page::new(run.display().to_string());
    let mut held_out = PredictionPage::new(&model);
    held_out.prepare(&mut page);
    let mut workspace = Workspace::new(Device::Cpu);
    for index in 0..assessor.len().min(MAX_MESHES) {
        let (mesh, _) = held_out.mesh(assessor.assess(&model, &mut workspace, index)?);
        page.meshes.push(mesh);
    }
    page.live = true;
    let page = page.encode().map_err(|error| TaskError::setting("page", error.to_string()))?;
    let blocks = serde_json::json!(page.blocks);
    let json = format!("{{\"epoch\":{epoch},\"description\":{},\"blocks\":{blocks}}}", page.description);
    Ok((json, held_out.confusion()))
}

/// An observer that also updates a live view.
pub struct WithLiveView<O> {
    /// The observer itself.
    pub inner: O,
    /// The live view, if there is one.
    pub live: Option<LiveView>,
}

impl<O: Observer> Observer for WithLiveView<O> {
    fn observe(&mut self, event: Event<'_>) {
        if let Some(live) = &self.live {
            live.observe(&event);
        }
        self.inner.observe(event);
    }

    fn wants_model(&mut self) -> bool {
        self.live.as_ref().is_some_and(LiveView::wants_model) || self.inner.wants_model()
    }
}
