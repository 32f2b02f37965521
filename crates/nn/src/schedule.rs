//! Learning-rate schedules: factors that multiply a base rate.

use crate::{NnError, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A learning-rate schedule: a factor for every step, counted from 0. After its last step the factor stays
/// constant.
///
/// ```
/// use gemcnn_nn::Schedule;
/// let schedule = Schedule::WarmUp {
///     steps: 10,
///     then: Box::new(Schedule::Cosine { steps: 100, last: 0.0 }),
/// };
/// assert_eq!(schedule.factor(4), 0.5);
/// assert_eq!(schedule.factor(10), 1.0);
/// assert!(schedule.factor(110) < 1e-12);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Always 1.
    Constant,
    /// Half a cosine period from 1 to `last`.
    Cosine {
        /// Steps until the last factor.
        steps: u64,
        /// The last factor.
        last: f64,
    },
    /// Half a cosine period from `first` to 1, then half a period from 1 to `last`.
    OneCycle {
        /// Total number of steps.
        steps: u64,
        /// Fraction of the steps in which the factor rises, in [0, 1].
        rise: f64,
        /// The first factor.
        first: f64,
        /// The last factor.
        last: f64,
    },
    /// Multiplied by `factor` after every `every` steps.
    Step {
        /// Steps between changes.
        every: u64,
        /// Factor of each change.
        factor: f64,
    },
    /// Linear warm-up `1/steps, 2/steps, ..., 1`, followed by another schedule.
    WarmUp {
        /// Length of the warm-up.
        steps: u64,
        /// The schedule that follows, from its step 0.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// The factor of a step.
    pub fn factor(&self, step: u64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Cosine { steps, last } => cosine(1.0, *last, share(step, *steps)),
            Self::OneCycle { steps, rise, first, last } => {
                let (done, rise) = (share(step, *steps), rise.clamp(0.0, 1.0));
                if done < rise {
                    cosine(*first, 1.0, done / rise)
                } else {
                    let fall = 1.0 - rise;
                    let down = if fall > 0.0 { (done - rise) / fall } else { 1.0 };
                    cosine(1.0, *last, down)
                }
            }
            Self::Step { every, factor } => {
                let changes = step.checked_div(*every).unwrap_or(0);
                factor.powi(i32::try_from(changes).unwrap_or(i32::MAX))
            }
            Self::WarmUp { steps, then } if step < *steps => (step + 1) as f64 / *steps as f64 * then.factor(0),
            Self::WarmUp { steps, then } => then.factor(step - steps),
        }
    }
}

/// Half a cosine period from `start` at `done = 0` to `end` at `done = 1`.
fn cosine(start: f64, end: f64, done: f64) -> f64 {
    end + (start - end) * 0.5 * (1.0 + (PI * done).cos())
}

fn share(step: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { step as f64 / steps as f64 }
}

/// A learning-rate factor that is reduced when a metric has stopped decreasing.
///
/// ```
/// use gemcnn_nn::Plateau;
/// let mut plateau = Plateau::new(0.5, 1, 0.0)?;
/// let factors: Vec<f64> = [3.0, 2.0, 2.0, 2.0, 2.0].map(|loss| plateau.observe(loss)).into();
/// assert_eq!(factors, [1.0, 1.0, 1.0, 0.5, 0.5]);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// Multiplier of the factor on a plateau.
    decrease: f64,
    /// Number of observations without progress before the factor is reduced.
    patience: u32,
    /// Progress is a value below `best - threshold |best|`.
    threshold: f64,
    best: Option<f64>,
    waited: u32,
    factor: f64,
}

impl Plateau {
    /// A plateau before its first observation, with the factor 1.
    ///
    /// # Errors
    /// A decrease outside (0, 1), or a threshold outside [0, 1).
    pub fn new(decrease: f64, patience: u32, threshold: f64) -> Result<Self> {
        if !(decrease > 0.0 && decrease < 1.0) {
            return Err(NnError::setting("plateau", format!("the factor {decrease} must lie between 0 and 1")));
        }
        if !(0.0..1.0).contains(&threshold) {
            return Err(NnError::setting(
                "plateau",
                format!("the threshold {threshold} must be at least 0 and below 1"),
            ));
        }
        Ok(Self { decrease, patience, threshold, best: None, waited: 0, factor: 1.0 })
    }

    /// Observes one value of the metric and returns the current factor. NaN counts as no progress.
    pub fn observe(&mut self, metric: f64) -> f64 {
        let progress = match self.best {
            None => !metric.is_nan(),
            Some(best) => metric < best - self.threshold * best.abs(),
        };
        if progress {
            self.best = Some(metric);
            self.waited = 0;
        } else {
            self.waited += 1;
            if self.waited > self.patience {
                self.factor *= self.decrease;
                self.waited = 0;
            }
        }
        self.factor
    }

    /// The current factor.
    pub fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(schedule: &Schedule, steps: impl IntoIterator<Item = u64>) -> Vec<f64> {
        steps.into_iter().map(|s| schedule.factor(s)).collect()
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() < 1e-12, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn schedules_by_hand() {
        let half = 0.5f64.sqrt();
        let cosine = Schedule::Cosine { steps: 4, last: 0.0 };
        assert_close(&factors(&cosine, 0..6), &[1.0, 0.5 + half / 2.0, 0.5, 0.5 - half / 2.0, 0.0, 0.0]);
        let cycle = Schedule::OneCycle { steps: 8, rise: 0.25, first: 0.2, last: 0.1 };
        assert_close(&factors(&cycle, [0, 1, 2, 5, 8, 80]), &[0.2, 0.6, 1.0, 0.55, 0.1, 0.1]);
        let step = Schedule::Step { every: 2, factor: 0.1 };
        assert_close(&factors(&step, 0..5), &[1.0, 1.0, 0.1, 0.1, 0.01]);
        let warm = Schedule::WarmUp { steps: 2, then: Box::new(step) };
        assert_close(&factors(&warm, 0..5), &[0.5, 1.0, 1.0, 1.0, 0.1]);
        assert_close(&factors(&Schedule::Constant, [0, 9]), &[1.0, 1.0]);
    }

    #[test]
    fn degenerate_schedules_stay_finite() {
        for schedule in [
            Schedule::Cosine { steps: 0, last: 0.5 },
            Schedule::Step { every: 0, factor: 0.5 },
            Schedule::OneCycle { steps: 0, rise: 1.0, first: 0.0, last: 0.0 },
            Schedule::WarmUp { steps: 0, then: Box::new(Schedule::Constant) },
        ] {
            assert!((0..3).all(|step| schedule.factor(step).is_finite()));
        }
    }

    #[test]
    fn plateau_waits_for_its_patience_and_requires_the_threshold() {
        let mut plateau = Plateau::new(0.5, 2, 0.1).unwrap();
        let found: Vec<f64> = [10.0, 9.5, 9.2, 9.1, 8.0, f64::NAN, 7.9, 7.8, 7.0]
            .into_iter()
            .map(|metric| plateau.observe(metric))
            .collect();
        assert_close(&found, &[1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]);
        let text = serde_json::to_string(&plateau).unwrap();
        let again: Plateau = serde_json::from_str(&text).unwrap();
        assert_eq!(again, plateau);
        assert!(Plateau::new(1.0, 1, 0.0).is_err());
        assert!(Plateau::new(0.5, 1, -0.1).is_err());
    }
}
