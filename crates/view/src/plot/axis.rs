//! Axes: what part of the numbers they show, and where their ticks stand.

/// Spacing of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal ratios.
    Log,
}

/// An axis with its label.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    pub(super) limits: Option<(f64, f64)>,
    /// Names of the places 0, 1, 2 and so on, instead of numbers.
    pub(super) names: Vec<String>,
}

impl Axis {
    /// An axis of equal differences that shows all of the data.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Linear,
            limits: None,
            names: Vec::new(),
        }
    }

    /// An axis of names side by side, for points at 0, 1, 2 and so on.
    pub fn named<N: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Self {
            limits: Some((-0.4, names.len() as f64 - 0.6)),
            names,
            ..Self::linear(label)
        }
    }

    /// An axis of equal ratios that shows all positive data.
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(label)
        }
    }

    /// Shows this part of the numbers instead of all data. Limits that make no sense (not finite, in
    /// the wrong order, not positive on a logarithmic axis) count as not given.
    pub fn limits(mut self, low: f64, high: f64) -> Self {
        self.limits = Some((low, high));
        self
    }
}

/// Numbers beyond this would overflow in differences: they count as infinite.
const LARGEST: f64 = 1e300;
/// And positive ones below this as zero.
const SMALLEST: f64 = 1e-300;

/// An axis that knows its data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    scale: Scale,
    /// On a logarithmic axis these are logarithms to base 10.
    low: f64,
    high: f64,
    names: Vec<String>,
}

/// A line across an axis; the small ones in between have no label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// As a share of the axis from its beginning.
    pub place: f64,
    pub label: Option<String>,
}

impl Range {
    /// What an axis shows of some data.
    pub fn new(axis: &Axis, data: impl IntoIterator<Item = f64>) -> Self {
        let (scale, names) = (axis.scale, axis.names.clone());
        if let Some((low, high)) = axis.limits
            && let (Some(low), Some(high)) = (scaled(scale, low), scaled(scale, high))
            && low < high
        {
            return Self {
                scale,
                low,
                high,
                names,
            };
        }
        let data = data.into_iter().filter_map(|value| scaled(scale, value));
        let (low, high) = data.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let (low, high) = if low > high {
            (0.0, 1.0)
        } else if high - low <= 1e-12 * high.abs().max(low.abs()) {
            // One value, in the middle.
            let margin = match scale {
                Scale::Log => 0.5,
                Scale::Linear if low == 0.0 => 1.0,
                Scale::Linear => 0.5 * low.abs(),
            };
            (low - margin, high + margin)
        } else {
            let margin = 0.04 * (high - low);
            (low - margin, high + margin)
        };
        Self {
            scale,
            low,
            high,
            names,
        }
    }

    /// Where a number lies, as a share of the axis: outside of 0 to 1 if it is not shown, none if it
    /// has no place at all.
    pub fn place(&self, value: f64) -> Option<f64> {
        Some((scaled(self.scale, value)? - self.low) / (self.high - self.low))
    }

    /// About `wanted` labelled ticks, and small ones in between on a logarithmic axis; all names of an
    /// axis of names.
    pub fn ticks(&self, wanted: usize) -> Vec<Tick> {
        if !self.names.is_empty() {
            return self.name_ticks();
        }
        let wanted = wanted.max(2);
        match self.scale {
            Scale::Linear => self.linear_ticks(wanted),
            // Too little for decades: round numbers at their places.
            Scale::Log if self.high - self.low < 1.5 => self.round_ticks(wanted),
            Scale::Log => self.decade_ticks(wanted),
        }
    }

    fn name_ticks(&self) -> Vec<Tick> {
        let tick = |(index, name): (usize, &String)| Tick {
            place: (index as f64 - self.low) / (self.high - self.low),
            label: Some(name.clone()),
        };
        let ticks = self.names.iter().enumerate().map(tick);
        ticks
            .filter(|tick| (0.0..=1.0).contains(&tick.place))
            .collect()
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<Tick> {
        round_numbers(self.low, self.high, wanted)
            .into_iter()
            .map(|(value, label)| Tick {
                place: (value - self.low) / (self.high - self.low),
                label: Some(label),
            })
            .collect()
    }

    fn round_ticks(&self, wanted: usize) -> Vec<Tick> {
        let values = match self.high - self.low < 0.5 {
            true => round_numbers(10f64.powf(self.low), 10f64.powf(self.high), wanted),
            false => self.one_two_five(),
        };
        let tick = |(value, label): (f64, String)| {
            Some(Tick {
                place: self.place(value)?,
                label: Some(label),
            })
        };
        values
            .into_iter()
            .filter_map(tick)
            .filter(|tick| (0.0..=1.0).contains(&tick.place))
            .collect()
    }

    /// 1, 2 and 5 times the powers of ten about a range of logarithms.
    fn one_two_five(&self) -> Vec<(f64, String)> {
        let exponents = self.low.floor() as i32..=self.high.ceil() as i32;
        exponents
            .flat_map(|exponent| [1.0, 2.0, 5.0].map(|factor| (factor, exponent)))
            .map(|(factor, exponent)| {
                let value = factor * 10f64.powi(exponent);
                let label = match exponent {
                    -4..=5 => format!("{value:.*}", exponent.min(0).unsigned_abs() as usize),
                    _ => format!("{factor}e{exponent}"),
                };
                (value, label)
            })
            .collect()
    }

    fn decade_ticks(&self, wanted: usize) -> Vec<Tick> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let decades = (last - first).unsigned_abs() as usize;
        let step = decades.div_ceil(wanted).max(1) as i32;
        let plain = first >= 0 && last <= 4;
        let label = |exponent: i32| match (plain, exponent) {
            (true, _) => 10i64.pow(exponent.unsigned_abs()).to_string(),
            (_, 0) => "1".into(),
            (_, 1) => "10".into(),
            _ => format!("10^{{{exponent}}}"),
        };
        let mut ticks = Vec::new();
        for exponent in first - 1..=last + 1 {
            let mut tick = |value: f64, label: Option<String>| {
                let place = (value - self.low) / (self.high - self.low);
                if (0.0..=1.0).contains(&place) {
                    ticks.push(Tick { place, label });
                }
            };
            let labelled = exponent.rem_euclid(step) == 0;
            tick(exponent.into(), labelled.then(|| label(exponent)));
            if decades <= 6 {
                for digit in 2..10 {
                    tick(f64::from(exponent) + f64::from(digit).log10(), None);
                }
            }
        }
        ticks
    }
}

/// A number on the scale of an axis, if it has a place there.
fn scaled(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear => (value.abs() <= LARGEST).then_some(value),
        Scale::Log => (SMALLEST..=LARGEST).contains(&value).then(|| value.log10()),
    }
}

/// Multiples of 1, 2 or 5 times a power of ten in a range, about as many as wanted, as text too.
fn round_numbers(low: f64, high: f64, wanted: usize) -> Vec<(f64, String)> {
    let rough = (high - low) / wanted as f64;
    let decade = rough.log10().floor();
    let unit = 10f64.powf(decade);
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * unit >= 0.7 * rough)
        .unwrap_or(10.0);
    let step = factor * unit;
    let first = (low / step).ceil();
    // Far from zero a step can be too small to be told apart: never more than a few.
    let count = ((high / step).floor() - first).clamp(0.0, 4.0 * wanted as f64) as usize;
    let decimals = (-step.log10() - 1e-9).ceil().max(0.0);
    let scientific = decimals > 4.0 || low.abs().max(high.abs()) >= 1e6;
    (0..=count)
        .map(|index| {
            // The sum with zero turns -0 into 0.
            let value = (first + index as f64) * step + 0.0;
            let label = match (scientific, value == 0.0) {
                (true, true) => "0".into(),
                (true, false) => scientific_label(value, step),
                _ => format!("{value:.*}", decimals as usize),
            };
            (value, label)
        })
        .filter(|(value, _)| *value >= low && *value <= high)
        .collect()
}

/// A number with as many digits as a step needs: `1.5e-7`.
fn scientific_label(value: f64, step: f64) -> String {
    let exponent = (value.abs().log10() + 1e-9).floor();
    let digits = (exponent - step.log10() - 1e-9).ceil().clamp(0.0, 6.0) as usize;
    let mantissa = value / 10f64.powf(exponent);
    format!("{mantissa:.digits$}e{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis, data: &[f64], wanted: usize) -> Vec<String> {
        let ticks = Range::new(&axis, data.iter().copied()).ticks(wanted);
        assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.place)));
        ticks.into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        let linear = || Axis::linear("");
        assert_eq!(
            labels(linear(), &[1.0, 10.0], 5),
            ["2", "4", "6", "8", "10"]
        );
        assert_eq!(
            labels(linear().limits(0.0, 1.0), &[], 5),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(
            labels(linear().limits(-1e-7, 1e-7), &[], 2),
            ["-1e-7", "0", "1e-7"]
        );
    }

    #[test]
    fn log_ticks_are_decades_and_plain_numbers_where_those_are_short() {
        let log = || Axis::log("");
        assert_eq!(labels(log(), &[1.0, 101.0], 5), ["1", "10", "100"]);
        assert_eq!(
            labels(log(), &[1e-8, 1.0], 4),
            ["10^{-8}", "10^{-6}", "10^{-4}", "10^{-2}", "1"]
        );
        assert_eq!(
            labels(log().limits(2.0, 5.0), &[], 5),
            ["2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0"]
        );
    }

    #[test]
    fn less_than_two_decades_have_round_numbers() {
        let shown = Axis::log("").limits(0.015, 0.3);
        assert_eq!(labels(shown, &[], 5), ["0.02", "0.05", "0.1", "0.2"]);
    }

    #[test]
    fn names_stand_at_whole_numbers() {
        let axis = Axis::named("", ["flat", "bent", "rough"]);
        assert_eq!(labels(axis.clone(), &[], 1), ["flat", "bent", "rough"]);
        let range = Range::new(&axis, [0.0, 2.0]);
        for (index, tick) in range.ticks(1).iter().enumerate() {
            assert_eq!(range.place(index as f64), Some(tick.place));
        }
        assert!(labels(axis.limits(0.5, 1.5), &[], 9) == ["bent"]);
    }

    #[test]
    fn data_without_places_leaves_a_usable_axis() {
        let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0];
        let range = Range::new(&Axis::log(""), odd);
        assert!(range.ticks(5).len() > 1);
        assert!(odd.iter().all(|&value| range.place(value).is_none()));
        for data in [
            &[3.0][..],
            &[0.0],
            &[1e16, 1e16 + 2.0],
            &[-1e300, 1e300],
            &[f64::MAX, f64::MIN],
        ] {
            let range = Range::new(&Axis::linear(""), data.iter().copied());
            for tick in range.ticks(5) {
                assert!((0.0..=1.0).contains(&tick.place), "{data:?}: {tick:?}");
            }
        }
        let bad_limits = Axis::linear("").limits(1.0, f64::NAN);
        assert_eq!(
            Range::new(&bad_limits, [0.0, 1.0]),
            Range::new(&Axis::linear(""), [0.0, 1.0])
        );
    }
}
