//! Losses and the fused classifier.

use super::*;

fn targets(rows: usize, classes: usize) -> (Vec<u32>, Vec<f32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let labels = (0..rows)
        .map(|row| match row % 5 {
            4 => cross_entropy::IGNORE,
            _ => rng.random_range(0..classes as u32),
        })
        .collect();
    let weights = (0..classes).map(|class| (class % 3) as f32 * 0.5).collect();
    (labels, weights)
}

#[test]
fn cross_entropy_of_logits() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for (rows, classes) in [(0, 3), (1, 2), (77, 10), (700, 33), (9, 6890), (3, 40_000)] {
        let (labels, class_weights) = targets(rows, classes);
        let logits: Vec<f32> = random(rows * classes, 1).iter().map(|z| 4.0 * z).collect();
        let wide_weights = wide(&class_weights);
        for (weighted, smoothing) in [(false, 0.0), (true, 0.0), (false, 0.2), (true, 0.1)] {
            let narrow = cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: weighted.then_some(&class_weights[..]),
                smoothing,
            };
            let reference = cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: weighted.then_some(&wide_weights[..]),
                smoothing,
            };
            let wide_logits = wide(&logits);
            let score = cross_entropy::reference::forward(&reference, &wide_logits).unwrap();
            let mut dlogits = vec![0.0; logits.len()];
            let dloss = 1000.0;
            cross_entropy::reference::backward(&reference, &wide_logits, dloss, &mut dlogits).unwrap();
            let on_device = cross_entropy::cuda::DeviceTargets::new(&device, &narrow).unwrap();
            let z = device.upload(&logits).unwrap();
            let found = cross_entropy::cuda::forward(&device, &on_device, z.view()).unwrap();
            let found = found.read(&device).unwrap();
            assert!(
                (found.loss - score.loss).abs() <= 1e-6 * score.loss.abs().max(1.0),
                "{rows} x {classes}: {found:?}, {score:?}"
            );
            assert_eq!((found.correct, found.counted), (score.correct, score.counted));
            let what = format!("{rows} x {classes}, weighted {weighted}, smoothing {smoothing}");
            checks.check(&what, [("dlogits", &dlogits)], |device| {
                let mut dz = poisoned(device, logits.len());
                cross_entropy::cuda::backward(device, &on_device, z.view(), dloss, dz.view_mut()).unwrap();
                [dz]
            });
        }
    }
    checks.finish("cross-entropy");
}

#[test]
fn fused_classifier() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for (rows, classes, channels, smoothing) in [
        (0, 3, 4, 0.0),
        (1, 2, 3, 0.0),
        (77, 10, 16, 0.2),
        (1500, 33, 5, 0.0),
        (1500, 33, 5, 0.1),
        (40, 6890, 64, 0.0),
        (40, 6890, 64, 0.1),
        (3, 40_000, 8, 0.3),
        (129, 1, 64, 0.0),
        (700, 500, 256, 0.0),
        (300, 130, 192, 0.1),
        (100, 2000, 128, 0.0),
        // Few classes and too many channels for one kernel.
        (300, 8, 1028, 0.1),
        (300, 3, 0, 0.1),
    ] {
        let (labels, class_weights) = targets(rows, classes);
        let h = random(rows * channels, 1);
        let weight = random(classes * channels, 2);
        let bias = random(classes, 3);
        let (wh, ww, wb, wc) = (wide(&h), wide(&weight), wide(&bias), wide(&class_weights));
        let reference = classifier::Classifier {
            channels,
            weight: &ww,
            bias: &wb,
            targets: cross_entropy::Targets { classes, labels: &labels, class_weights: Some(&wc), smoothing },
        };
        let (mut dh, mut dw, mut db) = (vec![0.0; h.len()], vec![0.0; weight.len()], vec![0.0; bias.len()]);
        let gradients = classifier::Gradients { features: &mut dh[..], weight: &mut dw, bias: &mut db };
        let (mut predictions, mut ranks) = (vec![0; rows], vec![0; rows]);
        let dloss = 100.0;
        let score = classifier::reference::loss_and_gradients(
            &reference,
            &wh,
            dloss,
            gradients,
            classifier::Rows { predictions: Some(&mut predictions), ranks: Some(&mut ranks) },
        )
        .unwrap();
        let on_device = cross_entropy::cuda::DeviceTargets::new(
            &device,
            &cross_entropy::Targets { classes, labels: &labels, class_weights: Some(&class_weights), smoothing },
        )
        .unwrap();
        let (device_weight, device_bias) = (device.upload(&weight).unwrap(), device.upload(&bias).unwrap());
        let map = classifier::cuda::Classifier {
            channels,
            weight: device_weight.view(),
            bias: device_bias.view(),
            targets: &on_device,
        };
        let features = device.upload(&h).unwrap();
        device.set_product_mode(ProductMode::F32);
        let mut found_predictions = device.upload(&vec![7u32; rows]).unwrap();
        let mut found_ranks = device.upload(&vec![7u32; rows]).unwrap();
        let found = classifier::cuda::evaluate(
            &device,
            &map,
            features.view(),
            classifier::cuda::Rows {
                predictions: Some(found_predictions.view_mut()),
                ranks: Some(found_ranks.view_mut()),
            },
        )
        .unwrap()
        .read(&device)
        .unwrap();
        assert!(
            (found.loss - score.loss).abs() <= 1e-5 * score.loss.abs().max(1.0),
            "{rows} x {classes}: {found:?}, {score:?}"
        );
        assert_eq!((found.correct, found.counted), (score.correct, score.counted));
        assert_eq!(found_predictions.to_vec(&device).unwrap(), predictions);
        // Logits that are equal but for rounding may come in another order.
        for (found, expected) in found_ranks.to_vec(&device).unwrap().iter().zip(&ranks) {
            assert!(found.abs_diff(*expected) <= 2, "{found} {expected}");
        }
        let what = format!("{rows} x {classes}, {channels} channels, smoothing {smoothing}");
        let expected = [("dh", &dh[..]), ("dweight", &dw), ("dbias", &db)];
        checks.check(&what, expected, |device| {
            let mut dh = poisoned(device, h.len());
            let mut dw = poisoned(device, weight.len());
            let mut db = poisoned(device, bias.len());
            let gradients =
                classifier::Gradients { features: dh.view_mut(), weight: dw.view_mut(), bias: db.view_mut() };
            let loss = classifier::cuda::loss_and_gradients(
                device,
                &map,
                features.view(),
                dloss,
                gradients,
                classifier::cuda::Rows::default(),
            )
            .unwrap()
            .read(device)
            .unwrap();
            assert!((loss.loss - score.loss).abs() <= BF16 * score.loss.abs().max(1.0));
            [dh, dw, db]
        });
    }
    checks.finish("classifier");
}

/// Work for a classifier, and the gradient of its loss.
struct Problem {
    classes: usize,
    channels: usize,
    h: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    labels: Vec<u32>,
    class_weights: Option<Vec<f32>>,
    smoothing: f64,
    dloss: f64,
}

/// What is computed from it: `dh`, `dweight` and `dbias`, and predictions.
struct Solution<T> {
    score: cross_entropy::Score,
    gradients: [Vec<T>; 3],
    predictions: Vec<u32>,
}

impl Solution<f32> {
    /// Checks it, with these relative errors of the gradients.
    fn check(&self, what: &str, expected: &Solution<f64>, tolerances: [f64; 3]) {
        let (score, exact) = (self.score, expected.score);
        assert!((score.loss - exact.loss).abs() <= 1e-5 * exact.loss.max(1.0), "{what}: {score:?}, {exact:?}");
        assert_eq!((score.correct, score.counted), (exact.correct, exact.counted), "{what}");
        assert_eq!(self.predictions, expected.predictions, "{what}");
        for (place, name) in ["dh", "dweight", "dbias"].into_iter().enumerate() {
            let (found, expected) = (&self.gradients[place], &expected.gradients[place]);
            let what = format!("{what}, {name}");
            check_within(&what, found, expected, tolerances[place]);
        }
    }
}

impl Problem {
    /// Numbers are eighths: all products are exact, and there are ties.
    fn of_eighths(rows: usize, classes: usize, channels: usize, dloss: f64) -> Self {
        let mut problem = Self::new(rows, classes, channels, dloss);
        for values in [&mut problem.h, &mut problem.weight, &mut problem.bias] {
            values.iter_mut().for_each(|v| *v = (8.0 * *v).round() / 8.0);
        }
        problem
    }

    fn new(rows: usize, classes: usize, channels: usize, dloss: f64) -> Self {
        Self {
            classes,
            channels,
            h: random(rows * channels, 1),
            weight: random(classes * channels, 2),
            bias: random(classes, 3),
            labels: targets(rows, classes).0,
            class_weights: None,
            smoothing: 0.0,
            dloss,
        }
    }

    /// Multiplies every third row by `2^-power`, and the row after it by `2^power`.
    fn spread(mut self, power: i32) -> Self {
        for (row, h) in self.h.chunks_mut(self.channels).enumerate() {
            let scale = [(-power as f32).exp2(), (power as f32).exp2(), 1.0][row % 3];
            h.iter_mut().for_each(|h| *h *= scale);
        }
        self
    }

    /// In f64.
    fn expected(&self) -> Solution<f64> {
        let (h, weight, bias) = (wide(&self.h), wide(&self.weight), wide(&self.bias));
        let class_weights = self.class_weights.as_deref().map(wide);
        let map = classifier::Classifier {
            channels: self.channels,
            weight: &weight,
            bias: &bias,
            targets: cross_entropy::Targets {
                class_weights: class_weights.as_deref(),
                smoothing: self.smoothing,
                ..cross_entropy::Targets::new(self.classes, &self.labels)
            },
        };
        let mut gradients = [&h, &weight, &bias].map(|values| vec![0.0; values.len()]);
        let mut predictions = vec![0; self.labels.len()];
        let [dh, dw, db] = &mut gradients;
        let score = classifier::reference::loss_and_gradients(
            &map,
            &h,
            self.dloss,
            classifier::Gradients { features: &mut dh[..], weight: dw, bias: db },
            classifier::Rows { predictions: Some(&mut predictions), ranks: None },
        )
        .unwrap();
        Solution { score, gradients, predictions }
    }

    /// With gradients of weights that are `shift` numbers off their alignment: with another one, logits of many classes
    /// are stored.
    fn found(&self, device: &CudaDevice, mode: ProductMode, shift: usize) -> Solution<f32> {
        self.found_at(device, mode, shift, 0)
    }

    /// The same with features that are `features_shift` numbers off theirs.
    fn found_at(&self, device: &CudaDevice, mode: ProductMode, shift: usize, features_shift: usize) -> Solution<f32> {
        device.set_product_mode(mode);
        let on_device = cross_entropy::cuda::DeviceTargets::new(
            device,
            &cross_entropy::Targets {
                class_weights: self.class_weights.as_deref(),
                smoothing: self.smoothing,
                ..cross_entropy::Targets::new(self.classes, &self.labels)
            },
        )
        .unwrap();
        let [weight, bias] = [&self.weight, &self.bias].map(|values| device.upload(values).unwrap());
        let mut h = vec![f32::NAN; features_shift];
        h.extend(&self.h);
        let h = device.upload(&h).unwrap();
        let map = classifier::cuda::Classifier {
            channels: self.channels,
            weight: weight.view(),
            bias: bias.view(),
            targets: &on_device,
        };
        let mut dh = poisoned(device, self.h.len());
        let mut dw = poisoned(device, weight.len() + shift);
        let mut db = poisoned(device, bias.len());
        let mut predictions = device.upload(&vec![7u32; self.labels.len()]).unwrap();
        let score = classifier::cuda::loss_and_gradients(
            device,
            &map,
            h.view().slice(features_shift..h.len()),
            self.dloss,
            classifier::Gradients {
                features: dh.view_mut(),
                weight: dw.view_mut().slice(shift..weight.len() + shift),
                bias: db.view_mut(),
            },
            classifier::cuda::Rows { predictions: Some(predictions.view_mut()), ranks: None },
        )
        .unwrap();
        Solution {
            score: score.read(device).unwrap(),
            gradients: [
                dh.to_vec(device).unwrap(),
                dw.to_vec(device).unwrap().split_off(shift),
                db.to_vec(device).unwrap(),
            ],
            predictions: predictions.to_vec(device).unwrap(),
        }
    }
}

/// A GPU whose classifier stores no logits.
fn hopper() -> Option<CudaDevice> {
    let device = device()?;
    let is_hopper = device.capability() == (9, 0);
    if !is_hopper {
        println!("skipped: other GPUs store the logits");
    }
    is_hopper.then_some(device)
}

/// Modes that store no logits, and the rounding of their factors.
const ROUNDED: [(ProductMode, f64); 2] = [(ProductMode::Bf16, 1.0 / 128.0), (ProductMode::Tf32, 1.0 / 1024.0)];

fn check_within(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    let largest = expected.iter().fold(1e-3, |top: f64, value| top.max(value.abs()));
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * largest, "{what}[{place}]: {found}, {expected}, largest {largest}");
    }
}

/// With factors that bf16 holds exactly: what is summed in f32 agrees closely, and gradients up to the rounding of the
/// logits' gradients.
#[test]
fn classifier_with_exact_factors() {
    let Some(device) = hopper() else { return };
    // Labels have probabilities of about 0.995, and gradients are small differences.
    let mut certain = Problem::of_eighths(400, 97, 256, 1000.0);
    let channels = certain.channels;
    for (h, &label) in certain.h.chunks_mut(channels).zip(&certain.labels) {
        let label = if label == cross_entropy::IGNORE { 0 } else { label };
        let weights = &certain.weight[label as usize * channels..];
        h.iter_mut().zip(weights).for_each(|(h, w)| *h = w / 8.0);
    }
    // Large rows that are right have no gradient, and those of the others are still accurate.
    let mut uneven = Problem::of_eighths(300, 97, 256, 2000.0).spread(10);
    let right = uneven.expected().predictions;
    for row in (1..300).step_by(3) {
        uneven.labels[row] = right[row];
    }
    for mut problem in [
        Problem::of_eighths(1, 33, 64, 1.0),
        Problem::of_eighths(400, 97, 256, -3.0),
        certain,
        // More rows than one launch takes.
        Problem::of_eighths(61_700, 33, 64, 50.0),
        Problem::of_eighths(130, 1000, 192, 2.0),
        Problem::of_eighths(200, 300, 128, 0.0),
        uneven,
        // Beyond the range of fp16 and of exponents of logits.
        Problem::of_eighths(300, 130, 128, 100.0).spread(66),
    ] {
        let mut expected = problem.expected();
        // Rows without label do not count, whatever they hold.
        let ignored = |(_, label): &(usize, &u32)| **label == cross_entropy::IGNORE;
        let ignored: Vec<usize> = (problem.labels.iter().enumerate().filter(ignored)).map(|(row, _)| row).collect();
        for &row in &ignored {
            problem.h[row * problem.channels] = [f32::INFINITY, f32::MAX, f32::NAN][row % 3];
            expected.predictions[row] = 0;
        }
        for (mode, rounding) in ROUNDED {
            let what = format!(
                "{} x {}, {} channels, dloss {}, {mode:?}",
                problem.labels.len(),
                problem.classes,
                problem.channels,
                problem.dloss
            );
            let mut found = problem.found(&device, mode, 0);
            ignored.iter().for_each(|&row| found.predictions[row] = 0);
            found.check(&what, &expected, [rounding, rounding, 1e-4]);
        }
    }
}

/// In all modes, and with the same bits in all.
#[test]
fn classifier_with_few_classes() {
    let Some(device) = device() else { return };
    let sizes = [0, 1, 127, 1000].into_iter().flat_map(|rows| {
        let classes = [1, 2, 3, 8, 10, 31, 32].into_iter();
        classes.flat_map(move |classes| {
            let channels = [1, 3, 16, 60, 64, 128, 255, 256, 512].into_iter();
            channels.map(move |channels| (rows, classes, channels))
        })
    });
    // Steps of the loop over rows, also on the largest GPU.
    let sizes = sizes.chain([(30_001, 8, 128), (10_001, 32, 256)]);
    for (number, (rows, classes, channels)) in sizes.enumerate() {
        let mut problem = Problem::of_eighths(rows, classes, channels, 10.0 * rows as f64);
        // Differences of logits are of the same size with any number of channels, and exact.
        let scale = [1.0, 0.5, 0.25, 0.125][(channels.ilog2() / 2).min(3) as usize];
        problem.h.iter_mut().for_each(|h| *h *= scale);
        if number % 2 == 1 {
            problem.class_weights = Some(targets(rows, classes).1);
        }
        problem.smoothing = [0.0, 0.0, 0.1][number % 3];
        let expected = problem.expected();
        let what = format!("{rows} x {classes}, {channels} channels");
        let modes = [ProductMode::F32, ProductMode::Tf32, ProductMode::Bf16];
        let found = modes.map(|mode| problem.found(&device, mode, 0));
        for other in &found[1..] {
            assert_eq!(found[0].score, other.score, "{what}");
            assert_eq!(found[0].gradients, other.gradients, "{what}");
        }
        let [found, ..] = found;
        found.check(&what, &expected, [1e-5; 3]);
    }
}

/// Vectors of features that are not aligned are read in smaller ones.
#[test]
fn few_classes_with_features_of_any_alignment() {
    let Some(device) = device() else { return };
    let problem = Problem::new(300, 8, 128, 300.0);
    let expected = problem.expected();
    for shift in 0..4 {
        let mut found = problem.found_at(&device, ProductMode::Tf32, shift, shift);
        for (place, name) in ["dh", "dweight", "dbias"].into_iter().enumerate() {
            let found = std::mem::take(&mut found.gradients[place]);
            let what = format!("{name}, {shift} numbers off");
            check_within(&what, &found, &expected.gradients[place], 1e-5);
        }
    }
}

#[test]
fn few_classes_of_a_number_that_is_not_finite_reach_the_loss() {
    let Some(device) = device() else { return };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut problem = Problem::new(200, 8, 128, 1.0);
        problem.h[5] = value;
        let loss = problem.found(&device, ProductMode::Tf32, 0).score.loss;
        assert!(!loss.is_finite(), "{value}: {loss}");
        // Rows without label do not count.
        let mut problem = Problem::new(200, 8, 128, 1.0);
        problem.h[4 * 128] = value;
        let found = problem.found(&device, ProductMode::Tf32, 0);
        assert!(found.score.loss.is_finite(), "{value}");
        assert!(found.gradients[2].iter().all(|d| d.is_finite()), "{value}");
    }
}

#[test]
fn huge_weights_of_one_class_leave_the_others_accurate() {
    let Some(device) = hopper() else { return };
    let (rows, huge, channels) = (300, 1, 128);
    let mut problem = Problem::of_eighths(rows, 97, channels, 300.0);
    for weight in &mut problem.weight[huge * channels..(huge + 1) * channels] {
        *weight *= (1 << 20) as f32;
    }
    let expected = problem.expected();
    // Rows in which that class has no part.
    let others = (0..rows)
        .filter(|&row| expected.predictions[row] != huge as u32)
        .filter(|&row| problem.labels[row] != huge as u32);
    let others: Vec<usize> = others.flat_map(|row| row * channels..(row + 1) * channels).collect();
    assert!(others.len() > 100 * channels);
    for (mode, rounding) in ROUNDED {
        let found = problem.found(&device, mode, 0);
        assert_eq!(found.predictions, expected.predictions, "{mode:?}");
        let [dh, dweight, dbias] = found.gradients;
        let found_others: Vec<f32> = others.iter().map(|&place| dh[place]).collect();
        let expected_others: Vec<f64> = (others.iter()).map(|&place| expected.gradients[0][place]).collect();
        let what = format!("{mode:?}");
        check_within(&what, &found_others, &expected_others, rounding);
        check_within(&what, &dh, &expected.gradients[0], rounding);
        check_within(&what, &dweight, &expected.gradients[1], rounding);
        check_within(&what, &dbias, &expected.gradients[2], 1e-4);
    }
}

/// Factors in fp16 with scales have the mantissa of tf32.
#[test]
fn classifier_without_stored_logits_is_as_accurate_as_tf32() {
    let Some(device) = hopper() else { return };
    for problem in [Problem::new(700, 500, 256, 1000.0), Problem::new(700, 500, 256, 1000.0).spread(3)] {
        let expected = problem.expected();
        let [fused, stored] = [0, 1].map(|shift| problem.found(&device, ProductMode::Tf32, shift));
        assert_ne!(fused.gradients, stored.gradients);
        let loss = |solution: &Solution<f32>| (solution.score.loss - expected.score.loss).abs() / expected.score.loss;
        let errors = |solution: &Solution<f32>| {
            let both = || solution.gradients.iter().zip(&expected.gradients);
            let mut errors: Vec<f64> = both().map(|(f, e)| relative_error(f, e)).collect();
            errors.push(loss(solution));
            errors
        };
        let (fused, stored) = (errors(&fused), errors(&stored));
        println!("dh, dweight, dbias, loss: {fused:?}, stored logits {stored:?}");
        for (fused, stored) in fused.iter().zip(&stored) {
            assert!(*fused <= 1.5 * stored + 1e-6, "{fused:e}, {stored:e}");
        }
    }
}

#[test]
fn numbers_that_are_not_finite_reach_the_loss() {
    let Some(device) = hopper() else { return };
    for (mode, _) in ROUNDED {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut problem = Problem::new(200, 100, 64, 1.0);
            problem.h[5] = value;
            let loss = problem.found(&device, mode, 0).score.loss;
            assert!(!loss.is_finite(), "{mode:?}, {value} in features: {loss}");
            let mut problem = Problem::new(200, 100, 64, 1.0);
            problem.weight[70] = value;
            let loss = problem.found(&device, mode, 0).score.loss;
            assert!(!loss.is_finite(), "{mode:?}, {value} in weights: {loss}");
        }
    }
}

#[test]
fn targets_that_are_on_the_device() {
    use cross_entropy::ClassTargets;
    use cross_entropy::cuda::DeviceTargets;
    let Some(device) = device() else { return };
    let (rows, classes) = (77, 10);
    let (labels, class_weights) = targets(rows, classes);
    let logits = device.upload(&random(rows * classes, 1)).unwrap();
    let (there, weights) = (device.upload(&labels).unwrap(), device.upload(&class_weights).unwrap());
    let counted = labels.iter().filter(|&&label| label != cross_entropy::IGNORE);
    let total: f64 = counted.map(|&label| f64::from(class_weights[label as usize])).sum();
    let normaliser = device.upload(&[total.recip()]).unwrap();
    let slices = |smoothing| {
        let (labels, class_weights) = (there.view(), Some(weights.view()));
        ClassTargets { classes, labels, class_weights, smoothing }
    };
    // SAFETY: `targets` makes labels of these classes only.
    let made = |smoothing| unsafe { DeviceTargets::from_device(&device, slices(smoothing), normaliser.view()) };
    let narrow =
        cross_entropy::Targets { classes, labels: &labels, class_weights: Some(&class_weights), smoothing: 0.1 };
    let expected = DeviceTargets::new(&device, &narrow).unwrap();
    let [found, expected] = [&made(0.1).unwrap(), &expected].map(|targets| {
        let score = cross_entropy::cuda::forward(&device, targets, logits.view()).unwrap();
        let mut numbers = device.buffer::<f64>(3).unwrap();
        device.copy(score.numbers(), numbers.view_mut()).unwrap();
        numbers.to_vec(&device).unwrap()
    });
    assert_eq!(found, expected);
    assert!(made(1.0).is_err());
}

#[test]
fn regression_losses() {
    use regression::{Penalty, Regression};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    let features = kind("3x0 + 2x1 + 1x2");
    for rows in ROWS {
        for (penalty, masked) in
            [(Penalty::MeanSquare, false), (Penalty::MeanSquare, true), (Penalty::L1, false), (Penalty::L1, true)]
        {
            let mask: Vec<bool> = (0..rows).map(|row| row % 3 != 1).collect();
            let loss = Regression { features: &features, penalty, mask: masked.then_some(&mask) };
            let x = random(rows * features.dimension(), 1);
            let target = random(x.len(), 2);
            let (wx, wt) = (wide(&x), wide(&target));
            let expected = regression::reference::forward(&loss, &wx, &wt).unwrap();
            let mut dx = vec![0.0; x.len()];
            let dloss = 50.0 * rows as f64;
            regression::reference::backward(&loss, &wx, &wt, dloss, &mut dx).unwrap();
            let on_device = regression::cuda::DeviceValues::new(&device, &loss, &target).unwrap();
            let x = device.upload(&x).unwrap();
            let found = regression::cuda::forward(&device, &on_device, x.view());
            let found = found.unwrap().to_vec(&device).unwrap()[0];
            assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            let what = format!("{rows} rows, {penalty:?}, masked {masked}");
            checks.check(&what, [("dx", &dx)], |device| {
                let mut dx = poisoned(device, x.len());
                regression::cuda::backward(device, &on_device, x.view(), dloss, dx.view_mut()).unwrap();
                [dx]
            });
        }
    }
    checks.finish("regression");
}
