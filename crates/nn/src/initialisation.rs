//! First values of weights: scaled so that features keep their scale from layer to layer. The
//! reasoning stands in `docs/initialisation.md`.

use crate::layers::{GemConvConfig, Regular};
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Aggregation, FeatureType, irrep_dimension};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// Correlation that features of neighbours are assumed to have.
const CORRELATION: f64 = 0.5;
/// Share of the vertex's own term in the mean square of the output, where there is one.
const SELF_SHARE: f64 = 0.5;
/// Mean over the distance of the sum of squares of the radial hat functions.
const RADIAL_MOMENT: f64 = 2.0 / 3.0;
/// Rows drawn to find the moment of a nonlinearity.
const DRAWS: usize = 2048;

/// Mean square of an aggregated component if each neighbour's is 1: the terms of `degree` neighbours
/// with pairwise correlation `c` add up to `degree (1 + c (degree - 1))`.
pub(crate) fn neighbour_moment(aggregation: Aggregation, degree: f64) -> f64 {
    let degree = degree.max(1.0);
    let sum = degree * (1.0 + CORRELATION * (degree - 1.0));
    match aggregation {
        Aggregation::Sum => sum,
        Aggregation::Mean => sum / degree.powi(2),
        Aggregation::MeanWithSelf => sum / (degree + 1.0).powi(2),
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
    let inputs = config.input.dimension();
    let rings = if config.rings > 1 { RADIAL_MOMENT } else { 1.0 };
    let moment = neighbour_moment(config.aggregation, config.degree) * rings;
    let own_scale = match config.aggregation {
        Aggregation::Sum | Aggregation::Mean => 1.0,
        Aggregation::MeanWithSelf => (config.degree + 1.0).recip(),
    };
    let neighbour = config.output.orders().flat_map(|(order, channels)| {
        let own = config.self_term && config.input.multiplicity(order) > 0;
        let share = if own { 1.0 - SELF_SHARE } else { 1.0 };
        let variance = share / (inputs as f64 * moment * config.input_moment);
        std::iter::repeat_n(variance, channels * irrep_dimension(order))
    });
    let own = |fan: f64| SELF_SHARE / (fan * own_scale * own_scale * config.input_moment);
    ConvVariances {
        neighbour: neighbour.collect(),
        inputs: inputs.max(1),
        self_term: self_fans(&config.input, &config.output)
            .into_iter()
            .map(own)
            .collect(),
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

impl Regular {
    /// Mean square of an output component for independent standard normal input, by drawing.
    /// With batch normalisation the input is first scaled to samples of variance 1.
    pub(crate) fn moment(&self, kind: &FeatureType) -> f64 {
        let band_limit = kind.highest_order();
        let single = FeatureType::uniform(1, band_limit);
        let config = regular::Regular::new(single.clone(), self.samples, self.activation.clone());
        let Ok(plan) = Plan::<f64>::new(&config) else {
            // The layer itself will refuse these settings.
            return 1.0;
        };
        let scale = match self.batch_norm {
            true => (1.0 + band_limit as f64).sqrt().recip(),
            false => 1.0,
        };
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let mut normal = || {
            let (u, v): (f64, f64) = (random.random(), random.random());
            (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
        };
        let x: Vec<f64> = (0..DRAWS * single.dimension())
            .map(|_| scale * normal())
            .collect();
        let mut y = vec![0.0; x.len()];
        match regular::forward(&plan, DRAWS, &x, &mut y) {
            Ok(()) => y.iter().map(|v| v * v).sum::<f64>() / y.len() as f64,
            Err(_) => 1.0,
        }
    }
}
