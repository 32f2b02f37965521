pub(crate) mod reference;

use super::*;
use crate::Scratch;
use crate::activation;
use crate::batch_norm::{self, BatchNorm, NormGroups, Normalisation, Statistics};
use crate::elementwise::rotate;
use crate::testing::{check_close, check_gradient, check_threads, dot, random};

fn regular((channels, input, output): (usize, usize, usize), samples: usize, activation: Activation) -> Regular {
    Regular { output_band_limit: output, ..Regular::new(FeatureType::uniform(channels, input), samples, activation) }
}

fn apply<T: Real>(config: &Regular, x: &[T]) -> Vec<T> {
    let vertices = x.len() / config.input.dimension();
    let mut y = vec![T::nan(); vertices * config.output().dimension()];
    let plan = &Plan::new(config).unwrap();
    Forward { rows: vertices, plan, norm: None, x, y: &mut y[..] }.on_host().unwrap();
    y
}

fn gradient<T: Real>(config: &Regular, x: &[T], dy: &[T]) -> Vec<T> {
    let vertices = x.len() / config.input.dimension();
    let mut dx = vec![T::nan(); x.len()];
    let (rows, plan) = (vertices, &Plan::new(config).unwrap());
    let (dgamma, dbeta) = (&mut [][..], &mut [][..]);
    Backward { rows, plan, norm: None, x, dy, dx: &mut dx[..], dgamma, dbeta }.on_host().unwrap();
    dx
}

/// Channels and band limits for every version of the loops, and counts of samples that alias, are
/// even, odd, prime and large.
fn shapes() -> impl Iterator<Item = ((usize, usize, usize), usize)> {
    let kinds = [(16, 2, 2), (1, 0, 0), (3, 1, 1), (17, 3, 3), (5, 4, 4), (2, 2, 3), (33, 3, 1)];
    let samples = [1, 2, 3, 4, 5, 7, 8, 101];
    kinds.into_iter().flat_map(move |kind| samples.into_iter().map(move |n| (kind, n)))
}

fn fast_is_reference<T: Real>(tolerance: f64) {
    for (kind, samples) in shapes() {
        for activation in activation::examples() {
            let config = regular(kind, samples, activation);
            for vertices in [0, 1, 66] {
                let x: Vec<T> = random(vertices * config.input.dimension(), 1);
                let dy: Vec<T> = random(vertices * config.output().dimension(), 2);
                let (mut y, mut dx) = (dy.clone(), x.clone());
                reference::forward(&config, &x, &mut y);
                reference::backward(&config, &x, &dy, &mut dx);
                check_close(&apply(&config, &x), &y, tolerance, &format!("y {config:?}"));
                // A kink in the function may be met at exactly zero, where rounding decides.
                if samples > 4 || config.activation != Activation::Relu {
                    let found = gradient(&config, &x, &dy);
                    check_close(&found, &dx, tolerance, &format!("dx {config:?}"));
                }
            }
        }
    }
}

#[test]
fn the_fast_version_equals_the_reference() {
    fast_is_reference::<f32>(1e-5);
    fast_is_reference::<f64>(1e-12);
}

#[test]
fn gradients_are_those_of_the_values() {
    for (kind, samples) in [((2, 2, 2), 5), ((3, 4, 2), 9), ((1, 1, 1), 2)] {
        for activation in activation::examples() {
            let config = regular(kind, samples, activation.clone());
            let x: Vec<f64> = random(3 * config.input.dimension(), 1);
            let dy: Vec<f64> = random(3 * config.output().dimension(), 2);
            let dx = gradient(&config, &x, &dy);
            check_gradient(&x, &dx, |x| dot(&apply(&config, x), &dy));
        }
    }
}

#[test]
fn identity_is_exact_from_2b_plus_1_samples_on() {
    for band_limit in 0..5 {
        for samples in [2 * band_limit + 1, 2 * band_limit + 2, 31] {
            let kind = (3, band_limit, band_limit);
            let config = regular(kind, samples, Activation::Identity);
            let x: Vec<f64> = random(7 * config.input.dimension(), 1);
            check_close(&apply(&config, &x), &x, 1e-14, "identity");
        }
        if band_limit > 0 {
            let config = regular((1, band_limit, band_limit), 2 * band_limit, Activation::Identity);
            let x: Vec<f64> = random(config.input.dimension(), 1);
            assert!(largest_difference(&apply(&config, &x), &x) > 1e-3);
        }
    }
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f64::max)
}

/// Output for turned input, and turned output.
fn both_ways(config: &Regular, angles: &[f64], x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let turn = |kind: &FeatureType, x: &[f64]| {
        let mut y = vec![0.0; x.len()];
        rotate(kind, angles, x, &mut y).unwrap();
        y
    };
    (apply(config, &turn(&config.input, x)), turn(&config.output(), &apply(config, x)))
}

#[test]
fn turns_by_a_whole_number_of_samples_are_exact() {
    for (kind, samples) in shapes() {
        for activation in activation::examples() {
            let config = regular(kind, samples, activation);
            let turns = 0..2 * samples;
            let angles: Vec<f64> = turns.map(|k| std::f64::consts::TAU * k as f64 / samples as f64).collect();
            let x: Vec<f64> = random(angles.len() * config.input.dimension(), 1);
            let (first, last) = both_ways(&config, &angles, &x);
            check_close(&first, &last, 1e-12, "equivariance");
        }
    }
}

#[test]
fn other_turns_obey_the_bound() {
    let vertices = 2000;
    let angles: Vec<f64> = random(vertices, 7).iter().map(|a: &f64| 4.0 * a).collect();
    let mut errors = Vec::new();
    for samples in [5, 7, 15, 51, 201] {
        for (input, output) in [(1, 1), (2, 2), (2, 1), (3, 2)] {
            if samples <= 2 * input {
                continue;
            }
            let config = regular((1, input, output), samples, Activation::Relu);
            let x: Vec<f64> = random(vertices * config.input.dimension(), 1);
            let (first, last) = both_ways(&config, &angles, &x);
            let width = 2 * output + 1;
            let mut largest = 0f64;
            let rows = first.chunks_exact(width).zip(last.chunks_exact(width));
            for ((first, last), x) in rows.zip(x.chunks_exact(2 * input + 1)) {
                let error: f64 = first.iter().zip(last).map(|(a, b)| (a - b).abs()).sum();
                let norm: f64 = x.iter().map(|x| x.abs()).sum();
                let derivative: f64 = (1..=input).map(|m| m as f64 * (x[2 * m - 1].abs() + x[2 * m].abs())).sum();
                let limit = output as f64;
                let bound = 4.0 * std::f64::consts::PI / samples as f64
                    * ((2.0 * limit + 0.5) * derivative + limit * (limit + 1.0) * norm);
                assert!(error <= bound, "{error} over {bound}");
                largest = largest.max(error);
            }
            if (input, output) == (2, 2) {
                errors.push(largest);
            }
        }
    }
    // It is an error that more samples make smaller, and not zero.
    assert!(errors.is_sorted_by(|a, b| a > b) && errors[0] > 1e-2, "{errors:?}");
}

#[test]
fn polynomials_are_exact_from_enough_samples_on() {
    let vertices = 200;
    let angles: Vec<f64> = random(vertices, 7).iter().map(|a: &f64| 4.0 * a).collect();
    for degree in 1..=4 {
        for band_limit in 1..=3 {
            let coefficients: Vec<f64> = (0..=degree).map(|k| 0.5 + 0.25 * k as f64).collect();
            let error = |samples: usize| {
                let activation = Activation::Polynomial(coefficients.clone());
                let config = regular((1, band_limit, band_limit), samples, activation);
                let x: Vec<f64> = random(vertices * config.input.dimension(), 1);
                let (first, last) = both_ways(&config, &angles, &x);
                let scale = last.iter().fold(1.0, |most: f64, y| most.max(y.abs()));
                largest_difference(&first, &last) / scale
            };
            let enough = (degree + 1) * band_limit + 1;
            assert!(error(enough) < 1e-12, "degree {degree}, band limit {band_limit}");
            assert!(error(enough + 1) < 1e-12);
            assert!(error(enough - 1) > 1e-6, "degree {degree}, band limit {band_limit}");
        }
    }
}

fn fused_is_one_after_the_other<T: Real>(tolerance: f64) {
    for groups in [NormGroups::PerIrrep, NormGroups::PerChannel] {
        for (kind, vertices) in [((16, 2, 2), 700), ((5, 4, 3), 65), ((3, 1, 1), 0)] {
            let config = regular(kind, 9, Activation::Elu);
            let norm = BatchNorm::new(config.input.clone(), groups);
            let slots = norm.slots().unwrap();
            let x: Vec<T> = random(vertices * config.input.dimension(), 1);
            let dy: Vec<T> = random(vertices * config.output().dimension(), 2);
            let (gamma, beta): (Vec<T>, Vec<T>) = (random(slots, 3), random(slots, 4));
            let statistics = batch_norm::statistics(&norm, vertices, &x, &mut Scratch::new()).unwrap();
            let normalisation =
                Normalisation { config: &norm, statistics: &statistics, gamma: &gamma[..], beta: &beta[..] };
            let (mut dgamma, mut dbeta) = (vec![T::one(); slots], vec![T::one(); slots]);
            let (mut rgamma, mut rbeta) = (dgamma.clone(), dbeta.clone());
            let (mut y, mut dx) = (dy.clone(), x.clone());
            let (rows, plan, norm) = (vertices, &Plan::new(&config).unwrap(), Some(normalisation));
            Forward { rows, plan, norm, x: &x[..], y: &mut y[..] }.on_host().unwrap();
            let (x, dy) = (&x[..], &dy[..]);
            let (to_dx, to_dgamma, to_dbeta) = (&mut dx[..], &mut dgamma[..], &mut dbeta[..]);
            let pass = Backward { rows, plan, norm, x, dy, dx: to_dx, dgamma: to_dgamma, dbeta: to_dbeta };
            pass.on_host().unwrap();

            let (mut between, mut expected) = (x.to_vec(), x.to_vec());
            batch_norm::reference::forward(&normalisation, x, &mut between);
            check_close(&y, &apply(&config, &between), tolerance, "y");
            let dbetween = gradient(&config, &between, dy);
            let apart = [&mut rgamma[..], &mut rbeta];
            batch_norm::reference::backward(&normalisation, x, &dbetween, &mut expected, apart);
            check_close(&dx, &expected, tolerance, "dx");
            check_close(&dgamma, &rgamma, tolerance, "dgamma");
            check_close(&dbeta, &rbeta, tolerance, "dbeta");
        }
    }
}

#[test]
fn fused_normalisation_equals_one_after_the_other() {
    fused_is_one_after_the_other::<f32>(2e-5);
    fused_is_one_after_the_other::<f64>(1e-12);
}

#[test]
fn threads_do_not_change_a_bit() {
    let config = &regular((16, 2, 2), 7, Activation::Relu);
    let vertices = 1000;
    let norm = &BatchNorm::new(config.input.clone(), NormGroups::PerChannel);
    let x: Vec<f32> = random(vertices * 80, 1);
    let (gamma, beta): (Vec<f32>, Vec<f32>) = (random(16, 3), random(16, 4));
    check_threads(|| {
        let statistics = &batch_norm::statistics(norm, vertices, &x, &mut Scratch::new()).unwrap();
        let norm = Some(Normalisation { config: norm, statistics, gamma: &gamma[..], beta: &beta[..] });
        let (mut dgamma, mut dbeta) = (vec![0.0; 16], vec![0.0; 16]);
        let (mut y, mut dx) = (x.clone(), x.clone());
        let (rows, plan, x) = (vertices, &Plan::new(config).unwrap(), &x[..]);
        Forward { rows, plan, norm, x, y: &mut y[..] }.on_host().unwrap();
        let pass = Backward {
            rows,
            plan,
            norm,
            x,
            dy: &y[..],
            dx: &mut dx[..],
            dgamma: &mut dgamma[..],
            dbeta: &mut dbeta[..],
        };
        pass.on_host().unwrap();
        (apply(config, x), gradient(config, x, x), y, dx, dgamma, dbeta)
    });
}

#[test]
fn settings_and_lengths_are_checked() {
    let message = |config: &Regular| Plan::<f32>::new(config).unwrap_err().to_string();
    let mut config = Regular::new("2x0 + 1x1".parse().unwrap(), 5, Activation::Relu);
    assert!(message(&config).contains("2x0 + 1x1"));
    config.input = FeatureType::default();
    assert!(Plan::<f32>::new(&config).is_err());
    config.input = FeatureType::uniform(2, 1);
    config.samples = 0;
    assert!(message(&config).contains("65536"));
    config.samples = 5;
    config.output_band_limit = 1 << 20;
    assert!(message(&config).contains("1048576"));
    config.output_band_limit = 1;
    let plan = &Plan::<f32>::new(&config).unwrap();
    assert_eq!(plan.config(), &config);
    let forward = |norm, x: &[f32], y: &mut [f32]| Forward { rows: 1, plan, norm, x, y }.on_host();
    assert!(forward(None, &[0.0; 5], &mut [0.0; 6]).is_err());
    assert!(forward(None, &[0.0; 6], &mut [0.0; 5]).is_err());
    let (x, dy, dx, norm) = (&[0.0; 6][..], &[0.0; 5][..], &mut [0.0; 6][..], None);
    assert!(Backward { rows: 1, plan, norm, x, dy, dx, dgamma: &mut [][..], dbeta: &mut [][..] }.on_host().is_err());
    let other = BatchNorm::new(FeatureType::uniform(3, 1), NormGroups::PerChannel);
    let statistics = Statistics::running(&[0f32; 3], &[1.0; 3]);
    let normalisation =
        Normalisation { config: &other, statistics: &statistics, gamma: &[1f32; 3][..], beta: &[0f32; 3] };
    let error = forward(Some(normalisation), &[0.0; 6], &mut [0.0; 6]);
    assert!(error.unwrap_err().to_string().contains("3x0 + 3x1"));
}
