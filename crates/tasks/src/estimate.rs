//! What training with the default settings would take, estimated from a few meshes.

use crate::data::{Cache, Check, DataConfig, default_memory, size_in_memory};
use crate::run::Data;
use crate::train::{BatchSource, GeometryCache, PreparedBatch, RunConfig};
use crate::{Result, Sample, SampleSource, TaskError};
use gemcnn_nn::{Device, Optimiser, StepSettings, Stepper, Stream, Workspace};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of vertices that are prepared together for an estimate, beyond one mesh.
const VERTICES: usize = 500_000;
/// Steps of training before the one that is timed.
const WARM_UP: u64 = 1;
/// Time of a step of training in evaluations of the same meshes.
const EVALUATIONS: f64 = 3.0;

/// An estimate for training with the default settings on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Seconds to prepare all meshes, with their versions and copies, on all cores.
    pub preparation: f64,
    /// Seconds of all epochs once they are prepared.
    pub training: f64,
    /// Number of epochs.
    pub epochs: u64,
    /// Bytes of the cache.
    pub disk: u64,
    /// Bytes of main memory for samples and, on the CPU, a step.
    pub memory: u64,
}

/// Prepares as many meshes as there are threads, and makes a few steps of training on one of them. Meshes of other sizes
/// are assumed to take as much for each vertex.
///
/// # Errors
/// No training meshes, or one that cannot be prepared or trained on.
pub fn estimate(data: &DataConfig, check: &Check, device: &Device) -> Result<Estimate> {
    let task = check.task.ok_or_else(|| TaskError::setting(&check.name, "its task is not known"))?;
    let config = RunConfig { data: data.clone(), ..RunConfig::new(task) };
    let data = Data::open(&config)?;
    let (objective, (network, mut parameters)) = data.model(&config, false)?;
    let splits = data.splits(&config, &Cache::none())?;
    let training = &splits[0];
    let vertices: usize = check.splits.iter().map(|split| split.vertices).sum();
    let meshes: usize = check.splits.iter().map(|split| split.meshes).sum();
    let mean = vertices / meshes.max(1);
    let versions = training.versions();
    let of_training = training.len() / versions;
    let count = rayon::current_num_threads().min(VERTICES / mean.max(1)).clamp(1, of_training.max(1));
    // Different versions of meshes from the whole split.
    let chosen: Vec<usize> = (0..count).map(|at| at * of_training / count * versions + at % versions).collect();
    let since = Instant::now();
    let prepared = chosen.par_iter().map(|&index| training.measure(index)).collect::<Result<Vec<_>, _>>()?;
    let elapsed = since.elapsed().as_secs_f64();
    let measured: usize = prepared.iter().map(|(sample, _)| sample.graph().vertex_count()).sum();
    // Measured amounts are of `count` meshes, and of other sizes than the mean.
    let each = mean as f64 / measured.max(1) as f64;
    let samples: usize = splits.iter().map(|split| split.len()).sum();
    let in_memory: usize = prepared.iter().map(|(sample, _)| size_in_memory(sample)).sum();
    let entries: usize = prepared.iter().map(|(_, bytes)| bytes).sum();
    let kept = (in_memory as f64 * each * samples as f64).min(default_memory() as f64);

    let single = Single(&prepared[0].0);
    let (objective, cache) = (Arc::new(objective), GeometryCache::off());
    let source = BatchSource { samples: &single, objective: &objective, cache: &cache, device };
    let batch = PreparedBatch::load(source, &[0], None)?.batch;
    let mut optimiser = Optimiser::new(config.training.method(), &parameters)?;
    let mut workspace = Workspace::new(device.clone());
    workspace.set_product_mode(config.training.precision.into());
    let mut stepper = Stepper::default();
    let mut step = Duration::ZERO;
    for number in 0..=WARM_UP {
        let since = Instant::now();
        let randomness = Stream { seed: config.training.seed, step: number };
        let settings = StepSettings { rate: config.training.rate, randomness, clip: None };
        let loss = stepper.step(&*network, &mut parameters, &mut optimiser, &mut workspace, &batch, settings)?;
        loss.value()?;
        step = since.elapsed();
    }
    let of_step = prepared[0].0.graph().vertex_count().max(1) as f64;
    let visits = of_training as f64 + (samples - training.len()) as f64 / EVALUATIONS;
    let step_bytes = workspace.pool().usage().peak_bytes + workspace.scratch_bytes();
    Ok(Estimate {
        preparation: elapsed * each * samples as f64,
        training: config.training.epochs as f64 * visits * step.as_secs_f64() * mean as f64 / of_step,
        epochs: config.training.epochs,
        disk: (entries as f64 * each * samples as f64) as u64,
        memory: kept as u64 + step_bytes as u64,
    })
}

/// One sample.
struct Single<'a>(&'a Sample);

impl SampleSource for Single<'_> {
    fn len(&self) -> usize {
        1
    }

    fn name(&self, _: usize) -> String {
        self.0.name.clone()
    }

    fn load(&self, _: usize) -> Result<Sample> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;
    use crate::data::{BodiesConfig, check};

    #[test]
    fn the_cache_has_the_estimated_size() {
        let bodies = DataConfig::Bodies(BodiesConfig { count: 6, vertices: 500, ..Default::default() });
        let check = check(&bodies, None);
        let estimate = estimate(&bodies, &check, &Device::Cpu).unwrap();
        let config = RunConfig { data: bodies, ..RunConfig::new(Task::Correspondence) };
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let (mut memory, data) = (0, Data::open(&config).unwrap());
        for split in data.splits(&config, &cache).unwrap() {
            for index in 0..split.len() {
                memory += size_in_memory(&split.load(index).unwrap());
            }
        }
        let near =
            |estimate: u64, bytes: u64| estimate as f64 > 0.8 * bytes as f64 && (estimate as f64) < 1.25 * bytes as f64;
        let disk = cache.usage().unwrap().bytes;
        assert!(near(estimate.disk, disk), "{} of {disk}", estimate.disk);
        assert!(estimate.memory > memory as u64 * 4 / 5, "{} of {memory}", estimate.memory);
        assert!(estimate.preparation > 0.0 && estimate.training > 0.0);
        assert_eq!(estimate.epochs, config.training.epochs);
        let without = Check { task: None, ..check };
        assert!(super::estimate(&config.data, &without, &Device::Cpu).is_err());
    }
}
