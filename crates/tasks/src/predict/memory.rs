//! Memory that a prediction needs, known before it is made.

use super::prediction::{TILE, UNDIVIDED};
use crate::train::TrainedModel;
use crate::{Result, Task, TaskError};
use gemcnn_mesh::NeighbourWeights;
use gemcnn_nn::Part;

/// Bytes of the mesh and its gauge geometry for each vertex of a triangle mesh, while they are computed and while
/// pictures are drawn.
const GEOMETRY: u64 = 800;
/// How many times larger the geometry is where neighbours are those within a radius, and with coarser graphs of such
/// neighbours.
const WIDE: u64 = 8;
const COARSER: u64 = 3;
/// Features of the widest layer that exist at once.
const LAYERS: u64 = 2;
/// Copies of eigenvectors while they are computed, in double precision.
const COPIES: u64 = 4;

/// Most memory of a WebAssembly module with addresses of 32 bits.
const ADDRESSABLE: u64 = 1 << 32;

impl TrainedModel {
    /// Estimate of the memory in bytes that a prediction for a mesh needs. It is meant to be too large rather than too
    /// small.
    pub fn memory_for(&self, vertices: usize) -> u64 {
        let preparation = self.preparation();
        let is_wide = preparation.weights != NeighbourWeights::Count || preparation.geometry.ball.is_some();
        let geometry = match (is_wide, &preparation.hierarchy) {
            (true, _) => WIDE * GEOMETRY,
            (false, Some(_)) => COARSER * GEOMETRY,
            (false, None) => GEOMETRY,
        };
        let [scalars, vectors, tensors] = preparation.eigenvectors().map(|count| count as u64);
        let eigenvectors = 8 * COPIES * (scalars + 2 * vectors + 2 * tensors);
        let ratios = (preparation.hierarchy.as_ref()).map_or(&[][..], |settings| &settings.ratios);
        // The logits of a class for each vertex are never stored at once.
        let is_stored = self.config.task != Task::Correspondence;
        let widest = widest(&self.network.parts(), ratios, is_stored);
        let features = 4 * LAYERS * widest.ceil() as u64;
        let vertices = vertices as u64;
        let seen = match self.reach() {
            Some(_) if vertices > UNDIVIDED as u64 => 2 * TILE as u64,
            _ => vertices,
        };
        let all = vertices.saturating_mul(geometry + eigenvectors);
        all.saturating_add(seen.saturating_mul(features))
    }

    /// Fails if a prediction for a mesh needs more memory than the machine has free.
    ///
    /// # Errors
    /// [`TaskError::TooLarge`]. Where the free memory is not known, there is none.
    pub fn check_memory(&self, name: &str, vertices: usize) -> Result<()> {
        let needed = self.memory_for(vertices);
        match free_memory() {
            Some(free) if needed > free => Err(TaskError::TooLarge { name: name.into(), vertices, needed, free }),
            _ => Ok(()),
        }
    }
}

/// The most numbers for each vertex of the mesh among the features before and after all parts of a network. A coarser
/// graph has a share of the vertices, the product of the `ratios` up to it. The last output counts if it `is_stored`.
fn widest(parts: &[Part], ratios: &[f64], is_stored: bool) -> f64 {
    let numbers = parts.iter().enumerate().map(|(index, part)| {
        let share: f64 = ratios.iter().take(part.level).product();
        let output = if index + 1 < parts.len() || is_stored { part.output.dimension() } else { 0 };
        share * part.input.dimension().max(output) as f64
    });
    numbers.fold(0.0, f64::max)
}

/// Free memory in bytes: that of the machine, or of the control group if it is less. `None` where the tables of Linux
/// are missing.
fn free_memory() -> Option<u64> {
    if cfg!(target_family = "wasm") {
        return Some(ADDRESSABLE);
    }
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let machine = kilobytes.saturating_mul(1024);
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let group = number("memory.max").zip(number("memory.current"));
    let group = group.map(|(most, used)| most.saturating_sub(used));
    Some(group.map_or(machine, |group| group.min(machine)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Model, ModelSpec, UNetModel};
    use crate::{Element, ModelConfig};
    use gemcnn_nn::FeatureType;

    #[test]
    fn coarse_features_count_by_their_share_of_the_vertices() {
        let spec = ModelSpec {
            input: FeatureType::scalars(3),
            task: Task::Correspondence,
            per: Element::Vertex,
            outputs: FeatureType::scalars(6890),
        };
        let parts = |head: usize| {
            let model = UNetModel { head, ..UNetModel::default() };
            let (network, _) = ModelConfig::from(model).init(&spec, 1).unwrap();
            network.parts()
        };
        let ratios = UNetModel::default().hierarchy().unwrap().ratios;
        let levels: Vec<usize> = parts(256).iter().map(|part| part.level).collect();
        assert_eq!(levels[..5], [0, 1, 2, 1, 0]);
        assert_eq!(widest(&parts(256), &ratios, false), 256.0);
        assert_eq!(widest(&parts(256), &ratios, true), 6890.0);
        // The input of the last block: 16 and 32 channels of 5 numbers. Coarser ones have more, for a quarter of the
        // vertices.
        assert_eq!(widest(&parts(0), &ratios, false), 240.0);
    }
}
