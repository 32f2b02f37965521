//! The side of `bench/compare` that runs this library. It reads requests from standard input, one JSON
//! object per line, and answers each with one line.

mod backward;
mod case;
mod job;
mod network;

use case::Case;
use gemcnn_experiments::bench::PeakMemory;
use gemcnn_nn::{Device, DeviceChoice, NnError, ProductMode};
use gemcnn_tasks::TaskError;
use job::Job;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Errors of a request, or of the start.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}; use: gemcnn-compare-worker [--threads N] [--device cpu|cuda|cuda:N]")]
    Usage(String),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("standard input or output: {0}")]
    Pipe(#[from] std::io::Error),
    #[error("request: {0}")]
    Request(#[from] serde_json::Error),
    #[error("{0}")]
    Case(String),
    #[error("no case is loaded: send a `load` request first")]
    NothingLoaded,
}

impl From<NnError> for Failure {
    fn from(error: NnError) -> Self {
        Self::Task(error.into())
    }
}

/// Requests.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Write the file of a case.
    Make {
        #[serde(flatten)]
        case: Case,
        path: PathBuf,
    },
    /// Load a case in place of the one before.
    Load { case: PathBuf, matmul: Matmul },
    /// Do the work.
    Run { calls: usize },
    /// Do the work once with the weights of the case and without dropout, and write the results.
    Result { path: PathBuf },
    /// Report the peak memory.
    Memory,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Matmul {
    F32,
    Tf32,
    Bf16,
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), Failure> {
    let device = open_device(std::env::args().skip(1))?;
    let mut server = Server {
        start_bytes: PeakMemory::watch(&device).bytes(),
        memory: PeakMemory::watch(&device),
        device,
        loaded: None,
    };
    for line in std::io::stdin().lines() {
        let answer = match server.answer(&line?) {
            Ok(answer) => answer,
            Err(failure) => {
                let text = failure.to_string();
                json!({ "memory": text.contains("out of memory"), "error": text })
            }
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

/// Parses the options, starts the threads and opens the device.
fn open_device(mut arguments: impl Iterator<Item = String>) -> Result<Device, Failure> {
    let mut device = DeviceChoice::Cpu;
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let bad = || Failure::Usage(format!("invalid option `{name} {value}`"));
        match name.as_str() {
            "--device" => device = value.parse().map_err(|_| bad())?,
            "--threads" => rayon::ThreadPoolBuilder::new()
                .num_threads(value.parse().map_err(|_| bad())?)
                // As in PyTorch, the thread that calls is one of them.
                .use_current_thread()
                .build_global()
                .map_err(|_| bad())?,
            _ => return Err(bad()),
        }
    }
    Ok(device.open()?.0)
}

struct Server {
    device: Device,
    /// Memory in use before anything was loaded.
    start_bytes: Option<usize>,
    /// Peak memory since the last case was loaded.
    memory: PeakMemory,
    loaded: Option<Box<dyn Job>>,
}

impl Server {
    fn answer(&mut self, line: &str) -> Result<Value, Failure> {
        let start = Instant::now();
        match serde_json::from_str(line)? {
            Request::Make { case, path } => case.archive()?.write(path)?,
            Request::Load { case, matmul } => {
                self.loaded = None;
                let mode = match matmul {
                    Matmul::F32 => ProductMode::F32,
                    Matmul::Tf32 => ProductMode::Tf32,
                    Matmul::Bf16 => ProductMode::Bf16,
                };
                if let Device::Cuda(device) = &self.device {
                    device.set_product_mode(mode);
                }
                self.loaded = Some(job::load(&case, &self.device, mode)?);
                self.memory = PeakMemory::watch(&self.device);
            }
            Request::Run { calls } => {
                let job = self.loaded.as_mut().ok_or(Failure::NothingLoaded)?;
                (0..calls).try_for_each(|_| job.call())?;
                if let Device::Cuda(device) = &self.device {
                    device.synchronise().map_err(NnError::from)?;
                }
            }
            Request::Result { path } => {
                let job = self.loaded.as_mut().ok_or(Failure::NothingLoaded)?;
                job.result()?.write(path)?;
            }
            Request::Memory => {
                let peak_bytes = self.memory.bytes();
                return Ok(json!({ "peak_bytes": peak_bytes, "start_bytes": self.start_bytes }));
            }
        }
        Ok(json!({ "ok": true, "seconds": start.elapsed().as_secs_f64() }))
    }
}
