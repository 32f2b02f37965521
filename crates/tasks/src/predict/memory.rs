//! Memory that a prediction needs, known before it is made.

use super::prediction::{TILE, UNDIVIDED};
use crate::TaskError;
use crate::train::TrainedModel;
use gemcnn_mesh::NeighbourWeights;

/// Bytes of the mesh and its gauge geometry for each vertex of a triangle mesh, while they are computed and while pictures
/// are drawn.
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
    /// Estimate of the memory in bytes that a prediction for a mesh needs. It is meant to be too large rather than too small.
    pub fn memory_for(&self, vertices: usize) -> u64 {
        let preparation = self.preparation();
        let is_wide =
            preparation.weights != NeighbourWeights::Count || preparation.geometry.ball.is_some();
        let geometry = match (is_wide, &preparation.hierarchy) {
            (true, _) => WIDE * GEOMETRY,
            (false, Some(_)) => COARSER * GEOMETRY,
            (false, None) => GEOMETRY,
        };
        let [scalars, vectors, tensors] = preparation.eigenvectors.map(|count| count as u64);
        let eigenvectors = 8 * COPIES * (scalars + 2 * vectors + 2 * tensors);
        let parts = self.network.parts();
        let types = parts.iter().flat_map(|part| [&part.input, &part.output]);
        let widest = types.map(|kind| kind.dimension() as u64).max();
        let features = 4 * LAYERS * widest.unwrap_or(0);
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
    pub fn check_memory(&self, name: &str, vertices: usize) -> Result<(), TaskError> {
        let needed = self.memory_for(vertices);
        match free_memory() {
            Some(free) if needed > free => Err(TaskError::TooLarge {
                name: name.into(),
                vertices,
                needed,
                free,
            }),
            _ => Ok(()),
        }
    }
}

/// Free memory in bytes: that of the machine, or of the control group if it is less. `None` where the tables of Linux are
/// missing.
fn free_memory() -> Option<u64> {
    if cfg!(target_family = "wasm") {
        return Some(ADDRESSABLE);
    }
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
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
