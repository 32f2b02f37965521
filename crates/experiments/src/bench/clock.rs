//! Repeated timing of calls, by the wall clock or by events of a GPU.

use gemcnn_kernels::cuda::Timer;
use gemcnn_nn::{Device, NnError};
use std::time::Instant;

/// Minimum number of repeats.
const MIN_REPEATS: usize = 3;
/// Maximum number of repeats.
const MAX_REPEATS: usize = 100;
/// Warm-up calls on a GPU: they compile kernels, fill memory pools and capture steps.
const WARM_UP_CALLS: usize = 3;
/// Duration of a group of calls. On a GPU a repeat is a group, so that the synchronisation at its end
/// does not count.
const GROUP_SECONDS: f64 = 2e-3;
const MAX_GROUP: usize = 100;

/// Seconds per call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timing {
    pub median: f64,
    pub minimum: f64,
    pub repeats: usize,
}

/// The clock of a device.
#[derive(Debug)]
pub(super) enum Clock {
    Wall,
    Cuda(Timer),
}

impl Clock {
    pub fn new(device: &Device) -> Result<Self, NnError> {
        Ok(match device {
            Device::Cpu => Self::Wall,
            Device::Cuda(device) => Self::Cuda(Timer::new(device)?),
        })
    }

    fn seconds(&mut self, work: impl FnOnce() -> Result<(), NnError>) -> Result<f64, NnError> {
        match self {
            Self::Wall => {
                let start = Instant::now();
                work()?;
                Ok(start.elapsed().as_secs_f64())
            }
            Self::Cuda(timer) => Ok(timer.milliseconds(work)? / 1e3),
        }
    }

    /// Repeats `call` for about `budget` seconds, at least three times, after a warm-up.
    pub fn measure(&mut self, budget: f64, mut call: impl FnMut() -> Result<(), NnError>) -> Result<Timing, NnError> {
        let group = match self {
            Self::Wall => {
                call()?;
                1
            }
            Self::Cuda(_) => {
                (0..WARM_UP_CALLS).try_for_each(|_| call())?;
                let seconds = self.seconds(&mut call)?;
                ((GROUP_SECONDS / seconds) as usize).clamp(1, MAX_GROUP)
            }
        };
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < MIN_REPEATS || (times.len() < MAX_REPEATS && start.elapsed().as_secs_f64() < budget) {
            let seconds = self.seconds(|| (0..group).try_for_each(|_| call()))?;
            times.push(seconds / group as f64);
        }
        Ok(summary(times))
    }
}

fn summary(mut times: Vec<f64>) -> Timing {
    times.sort_by(f64::total_cmp);
    Timing { median: times[times.len() / 2], minimum: times[0], repeats: times.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_nn::FeatureType;

    #[test]
    fn median_and_minimum_are_of_the_sorted_times() {
        let timing = summary(vec![3.0, 1.0, 2.0, 9.0, 8.0]);
        let expected = Timing { median: 3.0, minimum: 1.0, repeats: 5 };
        assert_eq!(timing, expected);
    }

    #[test]
    fn the_first_call_is_a_warm_up() {
        let mut calls = 0;
        let call = || {
            calls += 1;
            Ok(())
        };
        let timing = Clock::Wall.measure(0.0, call).unwrap();
        assert_eq!(timing.repeats, MIN_REPEATS);
        assert_eq!(calls, MIN_REPEATS + 1);
    }

    #[test]
    fn a_failing_call_ends_the_measurement() {
        let mut calls = 0;
        let failed = Clock::Wall.measure(1.0, || {
            calls += 1;
            Ok("16".parse::<FeatureType>().map(drop)?)
        });
        assert!(failed.is_err());
        assert_eq!(calls, 1);
    }
}
