//! First values of weights: scaled so that features keep their scale from layer to layer. The
//! reasoning stands in `docs/initialisation.md`.

use crate::layers::{GemConvConfig, Nonlinearity, Regular};
use gemcnn_kernels::norm_gate::{self, GatedNonlinearity, NormNonlinearity, rotating_irreps};
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Aggregation, FeatureType, KernelError, irrep_dimension};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// Share of the vertex's own term in the mean square of the output, where there is one.
const SELF_SHARE: f64 = 0.5;
/// Mean over the distance of the sum of squares of the radial hat functions.
const RADIAL_MOMENT: f64 = 2.0 / 3.0;
/// Rows drawn to find the moment of a nonlinearity.
const DRAWS: usize = 2048;

/// Square of the factor of the sum over neighbours.
pub(crate) fn squared_scale(aggregation: Aggregation, degree: f64) -> f64 {
    match aggregation {
        Aggregation::Sum => 1.0,
        Aggregation::Mean => degree.max(1.0).powi(-2),
        Aggregation::MeanWithSelf => (degree + 1.0).powi(-2),
    }
}

/// Variances of the first weights of a convolution.
pub(crate) struct ConvVariances {
    /// By output component.
    neighbour: Vec<f64>,
    inputs: usize,
    /// By self weight.
    self_term: Vec<f64>,
}

impl ConvVariances {
    /// Of a place in `[rings, D_out, D_in]`.
    pub(crate) fn neighbour(&self, place: usize) -> f64 {
        self.neighbour[place / self.inputs % self.neighbour.len()]
    }

    /// Of a self weight.
    pub(crate) fn self_term(&self, place: usize) -> f64 {
        self.self_term[place]
    }
}

/// Half of an output's mean square comes from the vertex itself, where it can, the rest from the
/// neighbours.
pub(crate) fn conv_variances(config: &GemConvConfig) -> ConvVariances {
    let moment = |order: usize| config.input_moments.get(order).copied().unwrap_or(1.0);
    let degree = config.degree.max(1.0);
    let rings = if config.rings > 1 { RADIAL_MOMENT } else { 1.0 };
    let scale = squared_scale(config.aggregation, degree) * rings;
    let power = |(order, channels): (usize, usize)| {
        channels as f64 * irrep_dimension(order) as f64 * moment(order)
    };
    let independent = degree * config.input.orders().map(power).sum::<f64>();
    let neighbour = config.output.orders().flat_map(|(order, channels)| {
        let same = config.input.multiplicity(order) as f64 * moment(order);
        let own = config.self_term && same > 0.0;
        let share = if own { 1.0 - SELF_SHARE } else { 1.0 };
        let sum = independent.max(degree * degree * same);
        let variance = if sum > 0.0 {
            share / (sum * scale)
        } else {
            0.0
        };
        std::iter::repeat_n(variance, channels * irrep_dimension(order))
    });
    let own_scale = match config.aggregation {
        Aggregation::Sum | Aggregation::Mean => 1.0,
        Aggregation::MeanWithSelf => squared_scale(config.aggregation, degree),
    };
    let self_term = config.input.orders().flat_map(|(order, channels)| {
        let fan = channels * irrep_dimension(order);
        let variance = SELF_SHARE / (fan as f64 * moment(order) * own_scale);
        std::iter::repeat_n(variance, fan * config.output.multiplicity(order))
    });
    ConvVariances {
        neighbour: neighbour.collect(),
        inputs: config.input.dimension().max(1),
        self_term: self_term.collect(),
    }
}

/// For each weight of an equivariant linear map the number of inputs that reach the same output.
pub(crate) fn self_fans(input: &FeatureType, output: &FeatureType) -> Vec<f64> {
    let fans = input.orders().flat_map(|(order, channels)| {
        let fan = channels * irrep_dimension(order);
        let weights = fan * output.multiplicity(order);
        std::iter::repeat_n(fan as f64, weights)
    });
    fans.collect()
}

/// Mean square of an output component of each order, for independent normal input of standard deviation
/// `scale`, by drawing; all 1 for settings that the operator refuses, as the layer itself will.
fn drawn_moments(
    [input, output]: [&FeatureType; 2],
    scale: f64,
    apply: impl FnOnce(&[f64], &mut [f64]) -> Result<(), KernelError>,
) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut normal = || {
        let (u, v): (f64, f64) = (random.random(), random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
    };
    let x: Vec<f64> = (0..DRAWS * input.dimension())
        .map(|_| scale * normal())
        .collect();
    let width = output.dimension();
    let mut y = vec![0.0; DRAWS * width];
    let refused = apply(&x, &mut y).is_err();
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

impl Regular {
    /// Mean square of an output component of each order, for independent standard normal input of a
    /// type, by drawing. With batch normalisation the input is first scaled to samples of variance 1.
    pub fn moments(&self, kind: &FeatureType) -> Vec<f64> {
        let band_limit = kind.highest_order();
        let single = FeatureType::uniform(1, band_limit);
        let config = regular::Regular::new(single.clone(), self.samples, self.activation.clone());
        let scale = match self.batch_norm {
            true => (1.0 + band_limit as f64).sqrt().recip(),
            false => 1.0,
        };
        drawn_moments([&single, &single], scale, |x, y| {
            regular::forward(&Plan::new(&config)?, DRAWS, x, y)
        })
    }
}

impl Nonlinearity {
    /// As [`Regular::moments`], of features of type `output`.
    pub fn moments(&self, output: &FeatureType) -> Vec<f64> {
        // One channel of each order that occurs tells those of the others.
        let present: Vec<usize> = output.multiplicities().iter().map(|&m| m.min(1)).collect();
        let single = FeatureType::new(&present);
        let types = [&self.input(&single), &single];
        match self {
            Self::None => Vec::new(),
            Self::Regular(regular) => regular.moments(output),
            Self::Norm { activation, .. } => drawn_moments(types, 1.0, |x, y| {
                let config = NormNonlinearity::new(single.clone(), activation.clone());
                let bias = vec![0.0; rotating_irreps(&single)];
                norm_gate::norm_forward(&config, DRAWS, x, &bias, y)
            }),
            Self::Gated { activation, .. } => drawn_moments(types, 1.0, |x, y| {
                let config = GatedNonlinearity {
                    output: single.clone(),
                    activation: activation.clone(),
                };
                norm_gate::gated_forward(&config, DRAWS, x, y)
            }),
        }
    }
}
