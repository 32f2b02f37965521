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
            cross_entropy::reference::backward(&reference, &wide_logits, dloss, &mut dlogits)
                .unwrap();
            let on_device = cross_entropy::cuda::DeviceTargets::new(&device, &narrow).unwrap();
            let z = device.upload(&logits).unwrap();
            let found = cross_entropy::cuda::forward(&device, &on_device, z.view()).unwrap();
            let found = found.read(&device).unwrap();
            assert!(
                (found.loss - score.loss).abs() <= 1e-6 * score.loss.abs().max(1.0),
                "{rows} x {classes}: {found:?}, {score:?}"
            );
            assert_eq!(
                (found.correct, found.counted),
                (score.correct, score.counted)
            );
            let what = format!("{rows} x {classes}, weighted {weighted}, smoothing {smoothing}");
            checks.check(&what, [("dlogits", &dlogits)], |device| {
                let mut dz = poisoned(device, logits.len());
                cross_entropy::cuda::backward(device, &on_device, z.view(), dloss, dz.view_mut())
                    .unwrap();
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
            targets: cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: Some(&wc),
                smoothing,
            },
        };
        let (mut dh, mut dw, mut db) = (
            vec![0.0; h.len()],
            vec![0.5; weight.len()],
            vec![0.25; bias.len()],
        );
        let gradients = classifier::Gradients {
            features: &mut dh[..],
            weight: &mut dw,
            bias: &mut db,
        };
        let (mut predictions, mut ranks) = (vec![0; rows], vec![0; rows]);
        let dloss = 100.0;
        let score = classifier::reference::loss_and_gradients(
            &reference,
            &wh,
            dloss,
            gradients,
            classifier::Rows {
                predictions: Some(&mut predictions),
                ranks: Some(&mut ranks),
            },
        )
        .unwrap();
        let on_device = cross_entropy::cuda::DeviceTargets::new(
            &device,
            &cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: Some(&class_weights),
                smoothing,
            },
        )
        .unwrap();
        let (device_weight, device_bias) = (
            device.upload(&weight).unwrap(),
            device.upload(&bias).unwrap(),
        );
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
        assert_eq!(
            (found.correct, found.counted),
            (score.correct, score.counted)
        );
        assert_eq!(found_predictions.to_vec(&device).unwrap(), predictions);
        // Logits that are equal but for rounding may come in another order.
        for (found, expected) in found_ranks.to_vec(&device).unwrap().iter().zip(&ranks) {
            assert!(found.abs_diff(*expected) <= 2, "{found} {expected}");
        }
        let what = format!("{rows} x {classes}, {channels} channels, smoothing {smoothing}");
        let expected = [("dh", &dh[..]), ("dweight", &dw), ("dbias", &db)];
        checks.check(&what, expected, |device| {
            let mut dh = poisoned(device, h.len());
            let mut dw = device.upload(&vec![0.5; weight.len()]).unwrap();
            let mut db = device.upload(&vec![0.25; bias.len()]).unwrap();
            let gradients = classifier::Gradients {
                features: dh.view_mut(),
                weight: dw.view_mut(),
                bias: db.view_mut(),
            };
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

/// With factors that bf16 holds exactly: what is summed in f32 agrees closely, and gradients up to the rounding of the logits' gradients.
#[test]
fn classifier_in_bf16() {
    let Some(device) = device() else { return };
    if device.capability() != (9, 0) {
        println!("skipped: other GPUs round the logits to bf16");
        return;
    }
    device.set_product_mode(ProductMode::Bf16);
    // With this gradient of the loss, labels have probabilities of about 0.995, and gradients are small differences.
    const CERTAIN: f64 = 1000.0;
    // Eighths, so that there are ties.
    let eighths = |count, seed| -> Vec<f32> {
        let rounded = |value: f32| (8.0 * value).round() / 8.0;
        random(count, seed).into_iter().map(rounded).collect()
    };
    for (rows, classes, channels, dloss) in [
        (1, 1, 64, 1.0),
        (400, 97, 256, -3.0),
        (400, 97, 256, CERTAIN),
        // More rows than one launch takes.
        (61_700, 3, 64, 50.0),
        (130, 1000, 192, 2.0),
        (200, 300, 128, 0.0),
    ] {
        let (labels, _) = targets(rows, classes);
        let mut h = eighths(rows * channels, 1);
        let (weight, bias) = (eighths(classes * channels, 2), eighths(classes, 3));
        if dloss == CERTAIN {
            for (h, &label) in h.chunks_mut(channels).zip(&labels) {
                let label = if label == cross_entropy::IGNORE {
                    0
                } else {
                    label
                };
                let weights = &weight[label as usize * channels..];
                h.iter_mut().zip(weights).for_each(|(h, w)| *h = w / 8.0);
            }
        }
        let (wh, ww, wb) = (wide(&h), wide(&weight), wide(&bias));
        let map = classifier::Classifier {
            channels,
            weight: &ww,
            bias: &wb,
            targets: cross_entropy::Targets::new(classes, &labels),
        };
        let mut expected = [&wh, &ww, &wb].map(|values| vec![0.25; values.len()]);
        let [dh, dw, db] = &mut expected;
        let mut predictions = vec![0; rows];
        let score = classifier::reference::loss_and_gradients(
            &map,
            &wh,
            dloss,
            classifier::Gradients {
                features: &mut dh[..],
                weight: dw,
                bias: db,
            },
            classifier::Rows {
                predictions: Some(&mut predictions),
                ranks: None,
            },
        )
        .unwrap();
        // Rows without label do not count, whatever they hold.
        for (row, _) in (labels.iter().enumerate()).filter(|(_, l)| **l == cross_entropy::IGNORE) {
            h[row * channels] = f32::INFINITY;
            predictions[row] = 0;
        }
        let on_device = cross_entropy::cuda::DeviceTargets::new(
            &device,
            &cross_entropy::Targets::new(classes, &labels),
        )
        .unwrap();
        let [h, weight, bias] = [&h, &weight, &bias].map(|values| device.upload(values).unwrap());
        let map = classifier::cuda::Classifier {
            channels,
            weight: weight.view(),
            bias: bias.view(),
            targets: &on_device,
        };
        let mut dh = poisoned(&device, h.len());
        let mut dw = device.upload(&vec![0.25; weight.len()]).unwrap();
        let mut db = device.upload(&vec![0.25; bias.len()]).unwrap();
        let mut found_predictions = device.upload(&vec![7u32; rows]).unwrap();
        let gradients = classifier::Gradients {
            features: dh.view_mut(),
            weight: dw.view_mut(),
            bias: db.view_mut(),
        };
        let wanted = classifier::cuda::Rows {
            predictions: Some(found_predictions.view_mut()),
            ranks: None,
        };
        let found =
            classifier::cuda::loss_and_gradients(&device, &map, h.view(), dloss, gradients, wanted)
                .unwrap()
                .read(&device)
                .unwrap();
        let what = format!("{rows} x {classes}, {channels} channels");
        assert!(
            (found.loss - score.loss).abs() <= 1e-5 * score.loss.max(1.0),
            "{what}: {found:?}, {score:?}"
        );
        assert_eq!(
            (found.correct, found.counted),
            (score.correct, score.counted),
            "{what}"
        );
        let mut found_predictions = found_predictions.to_vec(&device).unwrap();
        for (prediction, &label) in found_predictions.iter_mut().zip(&labels) {
            if label == cross_entropy::IGNORE {
                *prediction = 0;
            }
        }
        assert_eq!(found_predictions, predictions, "{what}");
        for (name, buffer, expected, tolerance) in [
            ("dh", dh, &expected[0], 1.0 / 128.0),
            ("dweight", dw, &expected[1], 1.0 / 128.0),
            ("dbias", db, &expected[2], 1e-4),
        ] {
            let largest = expected
                .iter()
                .fold(1e-3, |top: f64, value| top.max(value.abs()));
            for (place, (found, expected)) in buffer
                .to_vec(&device)
                .unwrap()
                .iter()
                .zip(expected)
                .enumerate()
            {
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= tolerance * largest,
                    "{what}, {name}[{place}]: {found}, {expected}, largest {largest}"
                );
            }
        }
    }
}

#[test]
fn targets_that_are_on_the_device() {
    use cross_entropy::cuda::{DeviceTargetSlices, DeviceTargets};
    let Some(device) = device() else { return };
    let (rows, classes) = (77, 10);
    let (labels, class_weights) = targets(rows, classes);
    let logits = device.upload(&random(rows * classes, 1)).unwrap();
    let (there, weights) = (
        device.upload(&labels).unwrap(),
        device.upload(&class_weights).unwrap(),
    );
    let counted = labels
        .iter()
        .filter(|&&label| label != cross_entropy::IGNORE);
    let total: f64 = counted
        .map(|&label| f64::from(class_weights[label as usize]))
        .sum();
    let normaliser = device.upload(&[total.recip()]).unwrap();
    let slices = |smoothing| DeviceTargetSlices {
        classes,
        labels: there.view(),
        class_weights: Some(weights.view()),
        smoothing,
    };
    // SAFETY: `targets` makes labels of these classes only.
    let made = |smoothing| unsafe {
        DeviceTargets::from_device(&device, slices(smoothing), normaliser.view())
    };
    let narrow = cross_entropy::Targets {
        classes,
        labels: &labels,
        class_weights: Some(&class_weights),
        smoothing: 0.1,
    };
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
        for (penalty, masked) in [
            (Penalty::MeanSquare, false),
            (Penalty::MeanSquare, true),
            (Penalty::L1, false),
            (Penalty::L1, true),
        ] {
            let mask: Vec<bool> = (0..rows).map(|row| row % 3 != 1).collect();
            let loss = Regression {
                features: &features,
                penalty,
                mask: masked.then_some(&mask),
            };
            let x = random(rows * features.dimension(), 1);
            let target = random(x.len(), 2);
            let (wx, wt) = (wide(&x), wide(&target));
            let expected = regression::reference::forward(&loss, &wx, &wt).unwrap();
            let mut dx = vec![0.0; x.len()];
            let dloss = 50.0 * rows as f64;
            regression::reference::backward(&loss, &wx, &wt, dloss, &mut dx).unwrap();
            let on_device = regression::cuda::DeviceRegression::new(&device, &loss, rows).unwrap();
            let (x, target) = (device.upload(&x).unwrap(), device.upload(&target).unwrap());
            let found = regression::cuda::forward(&device, &on_device, x.view(), target.view());
            let found = found.unwrap().to_vec(&device).unwrap()[0];
            assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            let what = format!("{rows} rows, {penalty:?}, masked {masked}");
            checks.check(&what, [("dx", &dx)], |device| {
                let mut dx = poisoned(device, x.len());
                let (x, target) = (x.view(), target.view());
                regression::cuda::backward(device, &on_device, x, target, dloss, dx.view_mut())
                    .unwrap();
                [dx]
            });
        }
    }
    checks.finish("regression");
}
