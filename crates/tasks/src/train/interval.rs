//! Interval between checkpoints.

use crate::{Result, TaskError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Interval between checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// In minutes.
    Minutes(f64),
    /// In epochs; a checkpoint is written at the end of an epoch.
    Epochs(u64),
    /// In steps.
    Steps(u64),
}

impl Default for Interval {
    fn default() -> Self {
        Self::Minutes(2.0)
    }
}

impl Interval {
    pub(super) fn check(&self) -> Result<()> {
        let sensible = match *self {
            Self::Minutes(minutes) => (0.0..1e6).contains(&minutes),
            Self::Epochs(count) | Self::Steps(count) => count > 0,
        };
        match sensible {
            true => Ok(()),
            false => Err(TaskError::setting(
                "training.checkpoint",
                "must be a time from 0 to a million minutes, or at least one epoch or step",
            )),
        }
    }

    /// True if a checkpoint is due, given the time and steps since the last one and the position in the data.
    pub(super) fn is_due(&self, passed: Duration, steps: u64, epoch: u64, ends_epoch: bool) -> bool {
        match *self {
            Self::Minutes(minutes) => passed.as_secs_f64() >= 60.0 * minutes,
            Self::Epochs(count) => ends_epoch && epoch.is_multiple_of(count),
            Self::Steps(count) => steps >= count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_due_by_time_steps_or_epochs() {
        let due = |interval: Interval, seconds, steps, epoch, ends| {
            interval.is_due(Duration::from_secs(seconds), steps, epoch, ends)
        };
        assert!(due(Interval::Minutes(1.0), 60, 0, 0, false));
        assert!(!due(Interval::Minutes(1.0), 59, 900, 2, true));
        assert!(due(Interval::Steps(3), 0, 3, 0, false));
        assert!(!due(Interval::Steps(3), 99, 2, 3, true));
        assert!(due(Interval::Epochs(2), 0, 0, 4, true));
        assert!(!due(Interval::Epochs(2), 0, 0, 3, true));
        assert!(!due(Interval::Epochs(2), 0, 0, 4, false));
    }
}
