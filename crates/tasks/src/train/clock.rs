//! Times and counts of a training process.

use std::time::Instant;

/// Times and counts of this process.
pub(super) struct Clock {
    pub started: Instant,
    /// Steps and meshes since the start.
    pub steps: u64,
    pub meshes: u64,
    pub checkpoint: Instant,
    pub steps_since_checkpoint: u64,
    lap: Instant,
}

impl Clock {
    pub fn new() -> Self {
        let now = Instant::now();
        Self { started: now, steps: 0, meshes: 0, checkpoint: now, steps_since_checkpoint: 0, lap: now }
    }

    /// Seconds since the last call.
    pub fn lap(&mut self) -> f64 {
        let begun = std::mem::replace(&mut self.lap, Instant::now());
        (self.lap - begun).as_secs_f64()
    }
}
