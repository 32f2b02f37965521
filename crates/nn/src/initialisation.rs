//! Initialisation of weights, scaled so that features keep their scale from layer to layer. The derivation is in
//! `docs/initialisation.md`.

use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::{Aggregation, FeatureType, KernelError, irrep_dimension};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// Share of the self term in the mean square of the output, where there is one.
const SELF_SHARE: f64 = 0.5;
/// Mean over the distance of the sum of squares of the radial hat functions.
const RADIAL_MOMENT: f64 = 2.0 / 3.0;
/// Number of random rows from which the moments of a nonlinearity are estimated.
pub(crate) const DRAWS: usize = 2048;

/// Square of the factor of the sum over neighbours.
pub(crate) fn squared_scale(aggregation: Aggregation, degree: f64) -> f64 {
    match aggregation {
        Aggregation::Sum => 1.0,
        Aggregation::Mean => degree.max(1.0).powi(-2),
        Aggregation::MeanWithSelf => (degree + 1.0).powi(-2),
    }
}

/// Variances of the initial weights of a convolution.
pub(crate) struct ConvVariances {
    /// By output component.
    neighbour: Vec<f64>,
    inputs: usize,
    self_term: Fans,
    /// By input order.
    input_moments: Vec<f64>,
    own_scale: f64,
}

/// Fan-in of the weights of an equivariant linear map: first weight that follows, order and fan-in, for each order.
pub(crate) struct Fans(Vec<(usize, usize, f64)>);

impl Fans {
    pub(crate) fn new(input: &FeatureType, output: &FeatureType) -> Self {
        let mut end = 0usize;
        let fans = input.orders().map(|(order, channels)| {
            let fan = channels.saturating_mul(irrep_dimension(order));
            end = end.saturating_add(fan.saturating_mul(output.multiplicity(order)));
            (end, order, fan as f64)
        });
        Self(fans.collect())
    }

    /// Order and fan-in of a weight: the number of inputs of its output.
    pub(crate) fn of(&self, place: usize) -> (usize, f64) {
        let at = self.0.partition_point(|&(end, ..)| end <= place);
        self.0.get(at).map_or((0, 1.0), |&(_, order, fan)| (order, fan))
    }
}

impl ConvVariances {
    /// Of a place in `[rings, D_out, D_in]`.
    pub(crate) fn neighbour(&self, place: usize) -> f64 {
        self.neighbour[place / self.inputs % self.neighbour.len()]
    }

    /// Of a self weight.
    pub(crate) fn self_term(&self, place: usize) -> f64 {
        let (order, fan) = self.self_term.of(place);
        SELF_SHARE / (fan * self.input_moments[order] * self.own_scale)
    }
}

/// Half of the mean square of an output comes from the self term, where there is one, and the rest from the
/// neighbours.
pub(crate) fn conv_variances(config: &GaugeConv, degree: f64, input_moments: &[f64]) -> ConvVariances {
    let moment = |order: usize| input_moments.get(order).copied().unwrap_or(1.0);
    let degree = degree.max(1.0);
    let rings = if config.rings > 1 { RADIAL_MOMENT } else { 1.0 };
    let scale = squared_scale(config.aggregation, degree) * rings;
    let power = |(order, channels): (usize, usize)| channels as f64 * irrep_dimension(order) as f64 * moment(order);
    let independent = degree * config.input.orders().map(power).sum::<f64>();
    let neighbour = config.output.orders().flat_map(|(order, channels)| {
        let same = config.input.multiplicity(order) as f64 * moment(order);
        let own = config.self_term && same > 0.0;
        let share = if own { 1.0 - SELF_SHARE } else { 1.0 };
        let sum = independent.max(degree * degree * same);
        let variance = if sum > 0.0 { share / (sum * scale) } else { 0.0 };
        std::iter::repeat_n(variance, channels * irrep_dimension(order))
    });
    let own_scale = match config.aggregation {
        Aggregation::Sum | Aggregation::Mean => 1.0,
        Aggregation::MeanWithSelf => squared_scale(config.aggregation, degree),
    };
    let orders = 0..=config.input.highest_order();
    ConvVariances {
        neighbour: neighbour.collect(),
        inputs: config.input.dimension().max(1),
        self_term: Fans::new(&config.input, &config.output),
        input_moments: orders.map(moment).collect(),
        own_scale,
    }
}

/// Mean square of an output component of each order, for independent normal input of standard deviation
/// `scale`, estimated from random rows. All 1 for settings that the operator refuses; the layer then refuses them
/// too.
pub(crate) fn drawn_moments(
    [input, output]: [&FeatureType; 2],
    scale: f64,
    apply: impl FnOnce(&[f64], &mut [f64]) -> Result<(), KernelError>,
) -> Vec<f64> {
    let x = normal_draws(DRAWS * input.dimension(), scale);
    let mut y = vec![0.0; DRAWS * output.dimension()];
    let refused = apply(&x, &mut y).is_err();
    moments(output, &y, refused)
}

fn normal_draws(count: usize, scale: f64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut normal = || {
        let (u, v): (f64, f64) = (random.random(), random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
    };
    (0..count).map(|_| scale * normal()).collect()
}

fn moments(output: &FeatureType, y: &[f64], refused: bool) -> Vec<f64> {
    let width = output.dimension();
    let moment = |order: usize| {
        let range = output.range(order);
        if refused || range.is_empty() {
            return 1.0;
        }
        let count = (DRAWS * range.len()) as f64;
        let block = |row: &[f64]| -> f64 { row[range.clone()].iter().map(|v| v * v).sum() };
        y.chunks_exact(width).map(block).sum::<f64>() / count
    };
    (0..=output.highest_order()).map(moment).collect()
}
