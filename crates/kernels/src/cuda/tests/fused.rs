//! Operators with what follows them, against the references one after the other.

use super::*;

const STREAM: Stream = Stream { seed: 0x0123_4567_89ab_cdef, step: 0x2_0000_0003 };
const SALT: u64 = 0xfedc_ba98_7654_3210;

/// Numbers of the type of a dropout with units dropped.
fn dropped(config: &dropout::Dropout, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    dropout::reference::forward(config, STREAM, x, &mut y).unwrap();
    y
}

/// The stream whose words, with the salt, are those of [`STREAM`].
fn unsalted(device: &CudaDevice) -> dropout::cuda::DeviceStream {
    let seed = STREAM.seed ^ SALT;
    dropout::cuda::DeviceStream::new(device, Stream { seed, ..STREAM }).unwrap()
}

#[test]
fn linear_maps_with_activation_and_dropout() {
    use linear::activated;
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let functions = [Activation::Tanh, Activation::Gelu, Activation::Elu];
    for rows in [0, 1, 63, 500, 2111] {
        for (case, (inputs, outputs)) in [(16, 256), (5, 4), (33, 100), (3, 1024), (64, 256)].into_iter().enumerate() {
            let op = linear::Linear { inputs, outputs, bias: true };
            let function = &functions[case % 3];
            let config = (case % 2 == 0).then(|| dropout::Dropout {
                kind: FeatureType::scalars(outputs),
                unit: dropout::DropoutUnit::Irrep,
                probability: 0.4,
            });
            let (x, dy) = (random(rows * inputs, 1), random(rows * outputs, 2));
            let (weight, bias) = (random(op.weight_count(), 3), random(outputs, 4));
            let drop = |x: &[f64]| config.as_ref().map_or(x.to_vec(), |config| dropped(config, x));
            let (wx, ww) = (wide(&x), wide(&weight));
            let mut z = vec![0.0; dy.len()];
            linear::reference::forward(&op, rows, &wx, &ww, &wide(&bias), &mut z);
            let y: Vec<f64> = z.iter().map(|&z| function.value(z)).collect();
            let y = drop(&y);
            let dz = drop(&wide(&dy));
            let dz: Vec<f64> = z.iter().zip(dz).map(|(&z, d)| function.slope(z) * d).collect();
            let mut dx = vec![0.0; x.len()];
            let (mut dw, mut db) = (vec![0.5; weight.len()], vec![0.25; outputs]);
            linear::reference::backward(&op, rows, &wx, &ww, &dz, &mut dx, &mut dw, &mut db);
            let what = format!("{rows} rows, {inputs} to {outputs}");
            let expected = [("y", &y[..]), ("dx", &dx), ("dweight", &dw), ("dbias", &db)];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, w, b) = (up(&x), up(&dy), up(&weight), up(&bias));
                let [mut z, mut y] = [(); 2].map(|()| poisoned(device, dy.len()));
                let mut dx = poisoned(device, x.len());
                let (mut dw, mut db) = (up(&vec![0.5; w.len()]), up(&vec![0.25; b.len()]));
                let stream = unsalted(device);
                let then = activated::Then {
                    activation: function,
                    dropout: config.as_ref().map(|config| dropout::cuda::Drawn { config, stream: &stream, salt: SALT }),
                };
                let (op, x, weight, bias) = (&op, x.view(), w.view(), b.view());
                let pass = linear::Forward { op, rows, x, weight, bias, y: y.view_mut() };
                activated::forward(device, &then, pass, z.view_mut()).unwrap();
                let (to, dweight, dbias) = (Some(dx.view_mut()), dw.view_mut(), db.view_mut());
                let pass = linear::Backward { op, rows, x, weight, dy: dy.view(), dx: to, dweight, dbias };
                activated::backward(device, &then, pass, bias, z.view()).unwrap();
                [y, dx, dw, db]
            });
        }
    }
    checks.finish("linear map with activation");
}

#[test]
fn the_regular_nonlinearity_with_dropout() {
    use batch_norm::{BatchNorm, NormGroups};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in [1, 63, 500, 2111] {
        for (channels, band, output_band, samples) in
            [(16, 2, 2, 5), (4, 3, 3, 7), (12, 1, 3, 9), (8, 5, 5, 11), (160, 1, 2, 5)]
        {
            let input = FeatureType::uniform(channels, band);
            let config = regular::Regular {
                output_band_limit: output_band,
                ..regular::Regular::new(input.clone(), samples, Activation::Gelu)
            };
            let drop = dropout::Dropout { kind: config.output(), unit: dropout::DropoutUnit::Irrep, probability: 0.3 };
            let norm = BatchNorm::new(input.clone(), NormGroups::PerChannel);
            let slots = norm.slots().unwrap();
            let x = random(rows * input.dimension(), 1);
            let dy = random(rows * config.output().dimension(), 2);
            let (gamma, beta) = (random(slots, 3), random(slots, 4));
            let wx = wide(&x);
            let statistics = batch_norm::reference::statistics(&norm, rows, &wx);
            let normalisation = batch_norm::Normalisation {
                config: &norm,
                statistics: &statistics,
                gamma: &wide(&gamma)[..],
                beta: &wide(&beta),
            };
            let (mut z, mut y) = (vec![0.0; x.len()], vec![0.0; dy.len()]);
            batch_norm::reference::forward(&normalisation, &wx, &mut z);
            regular::reference::forward(&config, &z, &mut y);
            let y = dropped(&drop, &y);
            let (mut dz, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            regular::reference::backward(&config, &z, &dropped(&drop, &wide(&dy)), &mut dz);
            let (mut dgamma, mut dbeta) = (vec![0.5; slots], vec![0.25; slots]);
            let mut gradients = batch_norm::NormGradients { gamma: &mut dgamma[..], beta: &mut dbeta };
            batch_norm::reference::backward(&normalisation, &wx, &dz, &mut dx, &mut gradients);
            let what = format!("{rows} rows, {input}, {samples} samples");
            let expected = [("y", &y[..]), ("dx", &dx), ("dgamma", &dgamma), ("dbeta", &dbeta)];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, gamma, beta) = (up(&x), up(&dy), up(&gamma), up(&beta));
                let statistics = batch_norm::cuda::statistics(device, &norm, rows, x.view());
                let statistics = statistics.unwrap();
                let normalisation = batch_norm::Normalisation {
                    config: &norm,
                    statistics: &statistics,
                    gamma: gamma.view(),
                    beta: beta.view(),
                };
                let stream = unsalted(device);
                let drawn = Some(dropout::cuda::Drawn { config: &drop, stream: &stream, salt: SALT });
                use regular::cuda;
                let plan = cuda::DevicePlan::new(&config).unwrap();
                let (mut y, mut dx) = (poisoned(device, dy.len()), poisoned(device, x.len()));
                let to = y.view_mut();
                cuda::forward_dropped(device, &plan, normalisation, drawn, rows, x.view(), to).unwrap();
                let (mut dg, mut db) = (up(&vec![0.5; slots]), up(&vec![0.25; slots]));
                let gradients = batch_norm::NormGradients { gamma: dg.view_mut(), beta: db.view_mut() };
                cuda::backward_dropped(
                    device,
                    &plan,
                    normalisation,
                    drawn,
                    rows,
                    (x.view(), dy.view()),
                    dx.view_mut(),
                    gradients,
                )
                .unwrap();
                [y, dx, dg, db]
            });
        }
    }
    checks.finish("regular nonlinearity with dropout");
}
