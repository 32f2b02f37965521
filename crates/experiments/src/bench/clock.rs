//! Repeated timing of calls, by the wall clock or by events of a GPU.

use gemcnn_kernels::cuda::Timer;
use gemcnn_nn::{Device, NnError};
use std::time::Instant;

/// Minimum number of repeats.
const FEWEST: usize = 3;
/// Maximum number of repeats.
const MOST: usize = 100;
/// Warm-up calls on a GPU: they compile kernels, fill memory pools and capture steps.
const FIRST_CALLS: usize = 3;
/// Duration of a group of calls. On a GPU a repeat is a group, so that the synchronisation at its end
/// does not count.
const GROUP_SECONDS: f64 = 2e-3;
const LARGEST_GROUP: usize = 100;

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

    /// Repeats `call` for about `budget` seconds, at least three times. It is given the number of the call.
    pub fn measure(
        &mut self,
        budget: f64,
        mut call: impl FnMut(usize) -> Result<(), NnError>,
    ) -> Result<Timing, NnError> {
        let mut number = 0;
        let mut next = || {
            number += 1;
            call(number - 1)
        };
        let group = match self {
            Self::Wall => {
                next()?;
                1
            }
            Self::Cuda(_) => {
                (0..FIRST_CALLS).try_for_each(|_| next())?;
                let single = self.seconds(&mut next)?;
                ((GROUP_SECONDS / single) as usize).clamp(1, LARGEST_GROUP)
            }
        };
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < FEWEST || (times.len() < MOST && start.elapsed().as_secs_f64() < budget) {
            let seconds = self.seconds(|| (0..group).try_for_each(|_| next()))?;
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
    fn calls_are_numbered_and_the_first_is_a_warm_up() {
        let mut numbers = Vec::new();
        let call = |number| {
            numbers.push(number);
            Ok(())
        };
        let timing = Clock::Wall.measure(0.0, call).unwrap();
        assert_eq!(timing.repeats, FEWEST);
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn a_failing_call_ends_the_measurement() {
        let mut calls = 0;
        let failed = Clock::Wall.measure(1.0, |_| {
            calls += 1;
            Ok("16".parse::<FeatureType>().map(drop)?)
        });
        assert!(failed.is_err());
        assert_eq!(calls, 1);
    }
}
