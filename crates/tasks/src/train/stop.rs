//! A request to stop, from another thread or a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a training run to save and stop after the present step. Clones share the request.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Not requested.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests it; returns whether it had been requested before.
    pub fn request(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether it was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
