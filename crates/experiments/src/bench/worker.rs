//! Our side of `bench/compare`: reads requests, one JSON object per line, and answers each with one line.

use super::case::Case;
use super::job::{GaugeGeometry, Job, Setup, prepare};
use super::memory::PeakMemory;
use gemcnn_nn::{Archive, Device, NnError};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::Precision;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, Result, Write};
use std::path::PathBuf;
use std::time::Instant;

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
    Load { case: PathBuf, matmul: Precision },
    /// Do the work.
    Run { calls: usize },
    /// Do the work once with the weights of the case and without dropout, and write the results.
    Result { path: PathBuf },
    /// Report the peak memory.
    Memory,
}

/// Answers requests until they end. On the CPU, call it on a thread of the rayon pool ([`Device::run`]).
pub fn serve(device: &Device, requests: impl BufRead, mut answers: impl Write) -> Result<()> {
    let memory = PeakMemory::watch(device);
    let mut server = Server { start_bytes: memory.bytes(), memory, device: device.clone(), job: None };
    for line in requests.lines() {
        let answer = server.answer(&line?).unwrap_or_else(|error| {
            let text = error.to_string();
            json!({ "memory": text.contains("out of memory"), "error": text })
        });
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

struct Server {
    device: Device,
    /// Memory in use before anything was loaded.
    start_bytes: Option<usize>,
    /// Peak memory since the last case was loaded.
    memory: PeakMemory,
    job: Option<Box<dyn Job>>,
}

impl Server {
    fn answer(&mut self, line: &str) -> std::result::Result<Value, TaskError> {
        let start = Instant::now();
        let request = serde_json::from_str(line).map_err(|error| TaskError::setting("request", error.to_string()))?;
        match request {
            Request::Make { case, path } => case.archive()?.write(path)?,
            Request::Load { case, matmul } => {
                self.job = None;
                self.job = Some(self.load(&Archive::read(case)?, matmul)?);
                self.memory = PeakMemory::watch(&self.device);
            }
            Request::Run { calls } => {
                let job = self.job()?;
                (0..calls).try_for_each(|_| job.call())?;
                if let Device::Cuda(device) = &self.device {
                    device.synchronise().map_err(NnError::from)?;
                }
            }
            Request::Result { path } => self.job()?.results()?.write(path)?,
            Request::Memory => {
                return Ok(json!({ "peak_bytes": self.memory.bytes(), "start_bytes": self.start_bytes }));
            }
        }
        Ok(json!({ "ok": true, "seconds": start.elapsed().as_secs_f64() }))
    }

    fn job(&mut self) -> std::result::Result<&mut Box<dyn Job>, TaskError> {
        self.job.as_mut().ok_or_else(|| TaskError::setting("case", "none is loaded: send a `load` request first"))
    }

    fn load(&self, archive: &Archive, matmul: Precision) -> std::result::Result<Box<dyn Job>, TaskError> {
        let case: Case = archive.json("case")?;
        let setup = Setup { device: self.device.clone(), products: matmul.into(), sets: 1, captures: true };
        Ok(match case.work()? {
            None => Box::new(GaugeGeometry { mesh: case.mesh()? }),
            Some(work) => prepare(&work, &case.graphs(&work, archive)?, &setup)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn answers(requests: &[Value]) -> Vec<Value> {
        let requests: String = requests.iter().map(|request| format!("{request}\n")).collect();
        let mut answers = Vec::new();
        serve(&Device::Cpu, requests.as_bytes(), &mut answers).unwrap();
        answers.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    /// Makes and loads some small work, asks for its result, and runs it.
    fn requests(folder: &Path, work: &str) -> Vec<Value> {
        let [case, result] = ["case", "result"].map(|name| folder.join(format!("{work}_{name}")));
        vec![
            json!({"do": "make", "work": work, "vertices": 60, "meshes": 2, "path": case}),
            json!({"do": "load", "case": case, "matmul": "f32"}),
            json!({"do": "result", "path": result}),
            json!({"do": "run", "calls": 2}),
        ]
    }

    #[test]
    fn all_work_has_results() {
        let folder = tempfile::tempdir().unwrap();
        let works = [
            ("geometry", &["theta", "g", "r"][..]),
            ("convolution_forward", &["y"]),
            ("convolution_backward", &["y", "dx", "gradient.conv1.weight"]),
            ("attention_forward", &["y"]),
            ("attention_backward", &["y", "dx", "gradient.conv1.head2.key.weight"]),
            ("messages_forward", &["y"]),
            ("messages_backward", &["y", "dx", "gradient.block1.edge2.weight"]),
            ("inference", &["y"]),
            ("correspondence_inference", &["y"]),
            ("blocks", &["loss", "gradient.block3.conv2.self_weight"]),
            ("correspondence", &["loss", "gradient.linear7.weight"]),
            ("mnist", &["loss", "gradient.conv1.weight"]),
            ("diffusion", &["loss", "gradient.block2.diffusion.log_time"]),
            ("segmentation", &["loss", "gradient.linear6.weight"]),
        ];
        let mut all: Vec<Value> = works.iter().flat_map(|(work, _)| requests(folder.path(), work)).collect();
        all.push(json!({"do": "memory"}));
        let answers = answers(&all);
        let (memory, done) = answers.split_last().unwrap();
        for (request, answer) in all.iter().zip(done) {
            assert_eq!(answer["ok"], true, "{request}: {answer}");
            assert!(answer["seconds"].as_f64().unwrap() >= 0.0);
        }
        if cfg!(target_os = "linux") {
            assert!(memory["peak_bytes"].as_u64() > Some(1 << 20), "{memory}");
            assert!(memory["start_bytes"].as_u64() > Some(0), "{memory}");
        }
        for (work, wanted) in works {
            let result = Archive::read(folder.path().join(format!("{work}_result"))).unwrap();
            for name in wanted {
                let values: Vec<f64> = result.tensor(name).unwrap();
                let sum: f64 = values.iter().map(|value| value.abs()).sum();
                assert!(sum > 0.0 && sum.is_finite(), "{work}: {name}");
            }
        }
    }

    #[test]
    fn results_of_a_step_are_of_the_same_weights() {
        let folder = tempfile::tempdir().unwrap();
        let [first, again] = ["blocks_result", "again"].map(|name| folder.path().join(name));
        let mut requests = requests(folder.path(), "blocks");
        requests.push(json!({"do": "result", "path": again}));
        answers(&requests);
        let [first, again] = [first, again].map(|path| Archive::read(path).unwrap().to_bytes().unwrap());
        assert_eq!(first, again);
    }

    #[test]
    fn failed_requests_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none");
        let mut all = requests(folder.path(), "convolution_backward");
        let failing = [
            (json!({"do": "run", "calls": 1}), "load"),
            (json!({"do": "load", "case": missing, "matmul": "f32"}), "none"),
            (json!({"do": "dance"}), "dance"),
            (json!(7), "request"),
        ];
        all.splice(0..0, failing.iter().map(|(request, _)| request.clone()));
        all.push(json!({"do": "result", "path": missing}));
        let answers = answers(&all);
        let problems = failing.iter().map(|(_, problem)| *problem).chain([""; 4]).chain(["before any run"]);
        for ((request, answer), problem) in all.iter().zip(&answers).zip(problems) {
            match problem {
                "" => assert_eq!(answer["ok"], true, "{request}: {answer}"),
                _ => {
                    assert!(answer["error"].as_str().unwrap_or_default().contains(problem), "{request}: {answer}");
                    assert_eq!(answer["memory"], false);
                }
            }
        }
    }
}
