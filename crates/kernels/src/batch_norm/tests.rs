pub(crate) mod reference;

use super::*;
use crate::elementwise::rotate;
use crate::testing::{check_close, check_gradient, check_threads, dot, random};

fn config(kind: &str, groups: NormGroups) -> BatchNorm {
    BatchNorm::new(kind.parse().unwrap(), groups)
}

fn examples() -> [BatchNorm; 6] {
    [
        config("5x0 + 3x1 + 7x2", NormGroups::PerIrrep),
        config("3x0 + 3x1 + 3x2", NormGroups::PerChannel),
        config("2x1", NormGroups::PerIrrep),
        config("4x0", NormGroups::PerChannel),
        config("4x0", NormGroups::PerIrrep),
        config("0x0", NormGroups::PerChannel),
    ]
}

/// Everything that one pass forward and backward gives.
#[derive(Debug, PartialEq)]
struct Pass<T> {
    y: Vec<T>,
    dx: Vec<T>,
    dgamma: Vec<T>,
    dbeta: Vec<T>,
}

fn pass<T: Real>(
    config: &BatchNorm,
    statistics: &Statistics,
    (gamma, beta): (&[T], &[T]),
    (x, dy): (&[T], &[T]),
) -> Pass<T> {
    let norm = Normalisation { config, statistics, gamma, beta };
    let rows = x.len() / config.kind.dimension().max(1);
    let mut pass = Pass {
        y: vec![T::nan(); x.len()],
        dx: vec![T::nan(); x.len()],
        dgamma: vec![T::one(); gamma.len()],
        dbeta: vec![T::one(); gamma.len()],
    };
    Forward { rows, norm, x, y: &mut pass.y[..] }.on_host().unwrap();
    let (dx, dgamma, dbeta) = (&mut pass.dx[..], &mut pass.dgamma[..], &mut pass.dbeta[..]);
    Backward { rows, norm, x, dy, dx, dgamma, dbeta }.on_host().unwrap();
    pass
}

fn fast_is_reference<T: Real>(tolerance: f64) {
    for config in examples() {
        for vertices in [0, 1, 67, 1100] {
            let x: Vec<T> = random(vertices * config.kind.dimension(), 1);
            let dy: Vec<T> = random(x.len(), 2);
            let slots = config.slots().unwrap();
            let (gamma, beta): (Vec<T>, Vec<T>) = (random(slots, 3), random(slots, 4));
            let batch = statistics(&config, vertices, &x, &mut Scratch::new()).unwrap();
            let expected = reference::statistics(&config, vertices, &x);
            check_close(&batch.mean, &expected.mean, 1e-13, "mean");
            check_close(&batch.variance, &expected.variance, 1e-13, "variance");
            let running = Statistics { origin: Origin::Running, ..batch.clone() };
            for statistics in [batch, running] {
                let found = pass(&config, &statistics, (&gamma, &beta), (&x, &dy));
                let normalisation =
                    Normalisation { config: &config, statistics: &statistics, gamma: &gamma[..], beta: &beta[..] };
                let (mut y, mut dx) = (x.clone(), x.clone());
                let (mut dgamma, mut dbeta) = (vec![T::one(); slots], vec![T::one(); slots]);
                reference::forward(&normalisation, &x, &mut y);
                reference::backward(&normalisation, &x, &dy, &mut dx, [&mut dgamma, &mut dbeta]);
                check_close(&found.y, &y, tolerance, "y");
                check_close(&found.dx, &dx, tolerance, "dx");
                check_close(&found.dgamma, &dgamma, tolerance, "dgamma");
                check_close(&found.dbeta, &dbeta, tolerance, "dbeta");
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    fast_is_reference::<f32>(1e-5);
    fast_is_reference::<f64>(1e-12);
}

#[test]
fn gradients_pass_through_the_batch_statistics() {
    for config in examples() {
        let vertices = 5;
        let x: Vec<f64> = random(vertices * config.kind.dimension(), 1);
        let dy: Vec<f64> = random(x.len(), 2);
        let slots = config.slots().unwrap();
        let (gamma, beta): (Vec<f64>, Vec<f64>) = (random(slots, 3), random(slots, 4));
        let running = Statistics::running(&vec![0.25; slots], &vec![0.5; slots]);
        for training in [true, false] {
            let statistics_of = |x: &[f64]| match training {
                true => statistics(&config, vertices, x, &mut Scratch::new()).unwrap(),
                false => running.clone(),
            };
            let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| {
                dot(&pass(&config, &statistics_of(x), (gamma, beta), (x, x)).y, &dy)
            };
            let found = pass(&config, &statistics_of(&x), (&gamma, &beta), (&x, &dy));
            let added = |values: &[f64]| values.iter().map(|v| v - 1.0).collect::<Vec<_>>();
            check_gradient(&x, &found.dx, |x| loss(x, &gamma, &beta));
            check_gradient(&gamma, &added(&found.dgamma), |gamma| loss(&x, gamma, &beta));
            check_gradient(&beta, &added(&found.dbeta), |beta| loss(&x, &gamma, beta));
        }
    }
}

/// The identity on the module page, against samples made one by one.
#[test]
fn per_channel_is_ordinary_batch_normalisation_of_the_samples() {
    for (band_limit, samples) in [(0, 1), (1, 3), (2, 5), (2, 8), (3, 7)] {
        let (vertices, channels) = (40, 3);
        let config = BatchNorm::new(FeatureType::uniform(channels, band_limit), NormGroups::PerChannel);
        let width = config.kind.dimension();
        let x: Vec<f64> = random(vertices * width, 1);
        let found = statistics(&config, vertices, &x, &mut Scratch::new()).unwrap();
        for channel in 0..channels {
            let mut signal = Vec::new();
            for row in x.chunks_exact(width) {
                for t in 0..samples {
                    let angle = std::f64::consts::TAU * t as f64 / samples as f64;
                    let mut sample = row[channel];
                    for order in 1..=band_limit {
                        let start = (2 * order - 1) * channels + channel;
                        let (sin, cos) = (order as f64 * angle).sin_cos();
                        sample += row[start] * cos + row[start + channels] * sin;
                    }
                    signal.push(sample);
                }
            }
            let mean = signal.iter().sum::<f64>() / signal.len() as f64;
            let square = signal.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
            assert!((found.mean[channel] - mean).abs() < 1e-13);
            assert!((found.variance[channel] - square / signal.len() as f64).abs() < 1e-13);
        }
    }
}

#[test]
fn a_large_common_offset_costs_no_digits() {
    let config = config("1x0", NormGroups::PerIrrep);
    let x: Vec<f64> = random(1000, 1).iter().map(|x: &f64| x + 1e8).collect();
    let near: Vec<f64> = x.iter().map(|x| x - 1e8).collect();
    let of = |x: &[f64]| statistics(&config, 1000, x, &mut Scratch::new()).unwrap();
    assert!((of(&x).variance[0] - of(&near).variance[0]).abs() < 1e-13);
    assert!((of(&x).mean[0] - 1e8 - of(&near).mean[0]).abs() < 1e-7);
}

#[test]
fn normalised_maps_have_unit_scale_and_commute_with_rotation() {
    let vertices = 300;
    let angles: Vec<f64> = random(vertices, 9).iter().map(|a: &f64| 4.0 * a).collect();
    for config in examples() {
        let x: Vec<f64> = random(vertices * config.kind.dimension(), 1);
        let turn = |x: &[f64]| {
            let mut y = vec![0.0; x.len()];
            rotate(&config.kind, &angles, x, &mut y).unwrap();
            y
        };
        let slots = config.slots().unwrap();
        let (gamma, beta): (Vec<f64>, Vec<f64>) = (random(slots, 3), random(slots, 4));
        let statistics_of = |x: &[f64]| statistics(&config, vertices, x, &mut Scratch::new()).unwrap();
        let apply = |x: &[f64]| pass(&config, &statistics_of(x), (&gamma, &beta), (x, x)).y;
        check_close(&apply(&turn(&x)), &turn(&apply(&x)), 1e-12, "equivariance");

        let (ones, zeros) = (vec![1.0; slots], vec![0.0; slots]);
        let y = pass(&config, &statistics_of(&x), (&ones, &zeros), (&x, &x)).y;
        let after = statistics_of(&y);
        check_close(&after.mean, &zeros, 1e-12, "mean");
        check_close(&after.variance, &ones, 1e-3, "variance");
    }
}

#[test]
fn running_averages_move_towards_the_batch() {
    let config = config("1x0 + 1x1", NormGroups::PerIrrep);
    let x = [1.0, 0.5, 0.5, 3.0, -1.0, 1.0];
    let batch = statistics(&config, 2, &x, &mut Scratch::new()).unwrap();
    assert_eq!(batch.mean, [2.0, 0.0]);
    assert_eq!(batch.variance, [1.0, 0.625]);
    let (mut mean, mut variance) = ([0f32, 0.0], [1f32, 1.0]);
    batch.update_running(0.5, &mut mean, &mut variance).unwrap();
    assert_eq!((mean, variance), ([1.0, 0.0], [1.0, 0.8125]));
    let empty = statistics::<f32>(&config, 0, &[], &mut Scratch::new()).unwrap();
    empty.update_running(0.5, &mut mean, &mut variance).unwrap();
    assert_eq!(mean, [1.0, 0.0]);
    assert!(batch.update_running(0.5, &mut mean[1..], &mut variance).is_err());
}

#[test]
fn threads_do_not_change_a_bit() {
    let config = &examples()[0];
    let x: Vec<f32> = random(3000 * config.kind.dimension(), 1);
    let slots = config.slots().unwrap();
    let (gamma, beta): (Vec<f32>, Vec<f32>) = (random(slots, 3), random(slots, 4));
    check_threads(|| {
        let batch = statistics(config, 3000, &x, &mut Scratch::new()).unwrap();
        let pass = pass(config, &batch, (&gamma, &beta), (&x, &x));
        (batch, pass)
    });
}

#[test]
fn settings_are_checked() {
    let uneven = config("1x0 + 2x1", NormGroups::PerChannel).slots();
    assert!(uneven.unwrap_err().to_string().contains("1x0 + 2x1"));
    let mut bad = config("1x0", NormGroups::PerIrrep);
    bad.epsilon = 0.0;
    assert!(bad.slots().is_err());
    bad = config("1x0", NormGroups::PerIrrep);
    bad.momentum = 1.5;
    assert!(bad.slots().is_err());
    let good = config("1x0", NormGroups::PerIrrep);
    assert!(statistics(&good, 2, &[0f32], &mut Scratch::new()).is_err());
    let statistics = Statistics::running(&[0f32], &[1.0]);
    let norm = Normalisation { config: &good, statistics: &statistics, gamma: &[1f32][..], beta: &[] };
    assert!(Forward { rows: 1, norm, x: &[0.0][..], y: &mut [0.0][..] }.on_host().is_err());
}
