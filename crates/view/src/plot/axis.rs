//! Axes: the range of numbers that they show, and their ticks.

/// An axis with its label.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub(super) label: String,
    log: bool,
    limits: Option<(f64, f64)>,
    /// Labels of the positions 0, 1, 2 and so on, instead of numbers.
    names: Vec<String>,
}

impl Axis {
    /// A linear axis that shows all data.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: false, limits: None, names: Vec::new() }
    }

    /// A logarithmic axis that shows all positive data.
    pub fn log(label: impl Into<String>) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    /// An axis with names at 0, 1, 2 and so on.
    pub fn named<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Self { limits: Some((-0.4, names.len() as f64 - 0.6)), names, ..Self::linear(label) }
    }

    /// Shows the numbers from `low` to `high` instead of all data. Invalid limits (not finite, in the wrong
    /// order, not positive on a logarithmic axis) are ignored.
    pub fn limits(mut self, low: f64, high: f64) -> Self {
        self.limits = Some((low, high));
        self
    }
}

/// Numbers that an axis can show, by magnitude. Differences of larger ones could overflow.
const LARGEST: f64 = 1e300;
/// Smallest number on a logarithmic axis.
const SMALLEST: f64 = 1e-300;

/// The part of an axis that is visible.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    log: bool,
    /// Ends of the axis; on a logarithmic axis their logarithms to base 10.
    low: f64,
    high: f64,
    names: Vec<String>,
}

/// A mark on an axis. Minor ticks have no label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Position as a fraction of the axis.
    pub place: f64,
    pub label: Option<String>,
}

impl Range {
    /// The range that an axis shows of its data.
    pub fn new(axis: &Axis, data: impl IntoIterator<Item = f64>) -> Self {
        let scaled = |value: f64| scaled(axis.log, value);
        let limits = axis.limits.and_then(|(low, high)| Some((scaled(low)?, scaled(high)?)));
        let (low, high) = limits.filter(|(low, high)| low < high).unwrap_or_else(|| {
            let start = (f64::INFINITY, f64::NEG_INFINITY);
            let (low, high) = (data.into_iter().filter_map(scaled))
                .fold(start, |(low, high), value| (low.min(value), high.max(value)));
            let margin = if low > high {
                return (0.0, 1.0);
            } else if high - low > 1e-12 * high.abs().max(low.abs()) {
                0.04 * (high - low)
            } else if axis.log {
                0.5
            } else if low == 0.0 {
                1.0
            } else {
                0.5 * low.abs()
            };
            (low - margin, high + margin)
        });
        Self { log: axis.log, low, high, names: axis.names.clone() }
    }

    /// Position of a number as a fraction of the axis. It is outside of 0 to 1 if the number is not visible,
    /// and `None` if the axis cannot show it.
    pub fn place(&self, value: f64) -> Option<f64> {
        Some((scaled(self.log, value)? - self.low) / (self.high - self.low))
    }

    /// About `wanted` labelled ticks, and minor ticks on a logarithmic axis. A named axis has all its names.
    pub fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let wanted = wanted.max(2);
        let values = if !self.names.is_empty() {
            let names = self.names.iter().enumerate();
            names.map(|(index, name)| (index as f64, Some(name.clone()))).collect()
        } else if !self.log {
            round_numbers(self.low, self.high, wanted)
        } else if self.high - self.low < 0.5 {
            round_numbers(10f64.powf(self.low), 10f64.powf(self.high), wanted)
        } else if self.high - self.low < 1.5 {
            self.one_two_five()
        } else {
            self.decades(wanted)
        };
        let tick = |(value, label)| {
            // Rounding may move a tick at the very end of the axis.
            const SLACK: f64 = 1e-9;
            let place = self.place(value)?;
            let visible = (-SLACK..=1.0 + SLACK).contains(&place);
            visible.then_some(Tick { place: place.clamp(0.0, 1.0), label })
        };
        values.into_iter().filter_map(tick).collect()
    }

    /// 1, 2 and 5 times powers of ten.
    fn one_two_five(&self) -> Vec<(f64, Option<String>)> {
        let exponents = self.low.floor() as i32..=self.high.ceil() as i32;
        let factors = exponents.flat_map(|exponent| [1.0, 2.0, 5.0].map(|factor| (factor, exponent)));
        let tick = |(factor, exponent): (f64, i32)| {
            let value = factor * 10f64.powi(exponent);
            let label = match exponent {
                -4..=5 => format!("{value:.*}", exponent.min(0).unsigned_abs() as usize),
                _ => format!("{factor}e{exponent}"),
            };
            (value, Some(label))
        };
        factors.map(tick).collect()
    }

    /// Powers of ten, with minor ticks between them if there are few.
    fn decades(&self, wanted: usize) -> Vec<(f64, Option<String>)> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let decades = last.abs_diff(first) as usize;
        let step = decades.div_ceil(wanted).max(1) as i32;
        let plain = first >= 0 && last <= 4;
        let label = |exponent: i32| match exponent {
            0 | 1 => 10i32.pow(exponent as u32).to_string(),
            _ if plain => format!("{}", 10f64.powi(exponent)),
            _ => format!("10{}", superscript(exponent)),
        };
        let mut ticks = Vec::new();
        for exponent in first - 1..=last + 1 {
            let power = 10f64.powi(exponent);
            ticks.push((power, (exponent.rem_euclid(step) == 0).then(|| label(exponent))));
            if decades <= 6 {
                ticks.extend((2..10).map(|digit| (f64::from(digit) * power, None)));
            }
        }
        ticks
    }
}

/// A number on the scale of an axis, if the axis can show it.
fn scaled(log: bool, value: f64) -> Option<f64> {
    match log {
        false => (value.abs() <= LARGEST).then_some(value),
        true => (SMALLEST..=LARGEST).contains(&value).then(|| value.log10()),
    }
}

/// An integer in superscript digits.
fn superscript(number: i32) -> String {
    let raised = |character| match character {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        // The others follow each other in Unicode.
        digit => char::from_u32('⁰' as u32 + digit as u32 - '0' as u32).unwrap_or(digit),
    };
    number.to_string().chars().map(raised).collect()
}

/// About `wanted` multiples of 1, 2 or 5 times a power of ten from `low` to `high`, with labels.
fn round_numbers(low: f64, high: f64, wanted: usize) -> Vec<(f64, Option<String>)> {
    let rough = (high - low) / wanted as f64;
    let unit = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0].into_iter();
    let step = factors.map(|f| f * unit).find(|step| *step >= 0.7 * rough).unwrap_or(10.0 * unit);
    // Rounding must not lose ticks at the ends.
    let first = (low / step - 1e-9).ceil();
    // Far from zero, rounding can make the step vanish: the number of ticks is bounded.
    let count = ((high / step + 1e-9).floor() - first).clamp(0.0, 4.0 * wanted as f64) as usize;
    let decimals = (-step.log10() - 1e-9).ceil().max(0.0);
    let scientific = decimals > 4.0 || low.abs().max(high.abs()) >= 1e6;
    let tick = |index: usize| {
        // Adding zero turns -0 into 0.
        let value = (first + index as f64) * step + 0.0;
        let label = match (scientific, value == 0.0) {
            (true, true) => "0".into(),
            (true, false) => scientific_label(value, step),
            _ => format!("{value:.*}", decimals as usize),
        };
        (value, Some(label))
    };
    (0..=count).map(tick).collect()
}

/// A number with as many digits as the step between ticks needs: `1.5e-7`.
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
        assert_eq!(labels(linear(), &[1.0, 10.0], 5), ["2", "4", "6", "8", "10"]);
        assert_eq!(labels(linear().limits(0.0, 1.0), &[], 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(linear().limits(-1e-7, 1e-7), &[], 2), ["-1e-7", "0", "1e-7"]);
    }

    #[test]
    fn log_ticks_are_decades_or_short_plain_numbers() {
        let log = || Axis::log("");
        assert_eq!(labels(log(), &[1.0, 101.0], 5), ["1", "10", "100"]);
        assert_eq!(labels(log(), &[1e-8, 1.0], 4), ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"]);
        assert_eq!(labels(log().limits(2.0, 5.0), &[], 5), ["2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0"]);
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
        for data in [&[3.0][..], &[0.0], &[1e16, 1e16 + 2.0], &[-1e300, 1e300], &[f64::MAX, f64::MIN]] {
            let range = Range::new(&Axis::linear(""), data.iter().copied());
            for tick in range.ticks(5) {
                assert!((0.0..=1.0).contains(&tick.place), "{data:?}: {tick:?}");
            }
        }
        let bad_limits = Axis::linear("").limits(1.0, f64::NAN);
        assert_eq!(Range::new(&bad_limits, [0.0, 1.0]), Range::new(&Axis::linear(""), [0.0, 1.0]));
    }
}
