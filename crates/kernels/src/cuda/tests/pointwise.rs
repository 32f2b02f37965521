//! Operators that work number by number, irrep by irrep or channel by channel.

use super::*;
use crate::elementwise::{
    Accumulate, Add, Concatenate, Scale, Select, Slice, Softmax, SoftmaxBackward, Split, Unselect,
};

const ACTIVATIONS: [Activation; 5] =
    [Activation::Identity, Activation::Relu, Activation::Elu, Activation::Gelu, Activation::Tanh];

#[test]
fn activations() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let polynomial = Activation::Polynomial(vec![0.25, -1.0, 0.0, 0.5]);
    for function in ACTIVATIONS.into_iter().chain([polynomial]) {
        for count in [0, 1, 1000, 4097] {
            let (x, dy) = (random(count, 1), random(count, 2));
            let y: Vec<f64> = wide(&x).iter().map(|&x| function.value(x)).collect();
            let dx: Vec<f64> = (wide(&x).iter().zip(wide(&dy))).map(|(&x, dy)| function.slope(x) * dy).collect();
            let what = format!("{function:?}, {count}");
            checks.check(&what, [("y", &y), ("dx", &dx)], |device| {
                let (x, dy) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
                let (mut y, mut dx) = (poisoned(device, count), poisoned(device, count));
                let (activation, x, dy) = (&function, x.view(), dy.view());
                activation::Forward { activation, x, y: y.view_mut() }.launch(device).unwrap();
                activation::Backward { activation, x, dy, dx: dx.view_mut() }.launch(device).unwrap();
                [y, dx]
            });
        }
    }
    checks.finish("activation");
}

#[test]
fn batch_normalisation_and_the_regular_nonlinearity() {
    use batch_norm::{BatchNorm, NormGroups, Statistics};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in [1, 63, 500, 2111] {
        for (case, (channels, band, output_band, samples, groups)) in [
            (16, 2, 2, 5, NormGroups::PerChannel),
            (16, 2, 2, 7, NormGroups::PerIrrep),
            (3, 1, 3, 9, NormGroups::PerChannel),
            (1, 4, 2, 101, NormGroups::PerIrrep),
            (200, 0, 0, 1, NormGroups::PerChannel),
            (2, 40, 40, 140, NormGroups::PerChannel),
        ]
        .into_iter()
        .enumerate()
        {
            if case == 5 && rows > 63 {
                continue;
            }
            let input = FeatureType::uniform(channels, band);
            let config = regular::Regular {
                output_band_limit: output_band,
                ..regular::Regular::new(input.clone(), samples, ACTIVATIONS[(case + 1) % 5].clone())
            };
            let norm = BatchNorm { epsilon: 0.05, ..BatchNorm::new(input.clone(), groups) };
            let slots = norm.slots().unwrap();
            let x: Vec<f32> = (random(rows * input.dimension(), 1).iter().enumerate())
                .map(|(i, x)| x + 0.3 * (i % 7) as f32)
                .collect();
            let dy = random(rows * config.output().dimension(), 2);
            let dz = random(x.len(), 6);
            let (gamma, beta) = (random(slots, 3), random(slots, 4));
            let (wx, wdy) = (wide(&x), wide(&dy));
            let statistics = batch_norm::reference::statistics(&norm, rows, &wx);
            let running = Statistics::running(&wide(&gamma), &vec![0.8; slots]);
            let (wide_gamma, wide_beta) = (wide(&gamma), wide(&beta));
            for (origin, statistics) in [("batch", &statistics), ("running", &running)] {
                let normalisation =
                    batch_norm::Normalisation { config: &norm, statistics, gamma: &wide_gamma[..], beta: &wide_beta };
                let mut z = vec![0.0; x.len()];
                batch_norm::reference::forward(&normalisation, &wx, &mut z);
                let zeros = || (vec![0.5; slots], vec![0.25; slots]);
                let backward = |dz: &[f64]| {
                    let (mut dx, (mut dgamma, mut dbeta)) = (vec![0.0; x.len()], zeros());
                    let gradients = [&mut dgamma[..], &mut dbeta];
                    batch_norm::reference::backward(&normalisation, &wx, dz, &mut dx, gradients);
                    (dx, dgamma, dbeta)
                };
                let (norm_dx, norm_dgamma, norm_dbeta) = backward(&wide(&dz));
                let (mut plain_y, mut plain_dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
                regular::reference::forward(&config, &wx, &mut plain_y);
                regular::reference::backward(&config, &wx, &wdy, &mut plain_dx);
                let (mut y, mut of_z) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
                regular::reference::forward(&config, &z, &mut y);
                regular::reference::backward(&config, &z, &wdy, &mut of_z);
                let (dx, dgamma, dbeta) = backward(&of_z);
                let what = format!("{rows} rows, {input}, {samples} samples, {groups:?}, {origin}");
                let expected = [
                    ("normalised", &z[..]),
                    ("norm dx", &norm_dx),
                    ("norm dgamma", &norm_dgamma),
                    ("norm dbeta", &norm_dbeta),
                    ("plain y", &plain_y),
                    ("plain dx", &plain_dx),
                    ("y", &y),
                    ("dx", &dx),
                    ("dgamma", &dgamma),
                    ("dbeta", &dbeta),
                ];
                checks.check(&what, expected, |device| {
                    let up = |values: &[f32]| device.upload(values).unwrap();
                    let (x, dy, dz) = (up(&x), up(&dy), up(&dz));
                    let (gamma, beta) = (up(&gamma), up(&beta));
                    let constant = up(&vec![0.8; slots]);
                    use batch_norm::cuda as norm_cuda;
                    let statistics = if origin == "batch" {
                        norm_cuda::statistics(device, &norm, rows, x.view()).unwrap()
                    } else {
                        norm_cuda::DeviceStatistics::running(device, gamma.view(), constant.view()).unwrap()
                    };
                    let (statistics, gamma, beta) = (&statistics, gamma.view(), beta.view());
                    let norm = batch_norm::Normalisation { config: &norm, statistics, gamma, beta };
                    let nan = |count: usize| poisoned(device, count);
                    let mut z = nan(x.len());
                    let (x, dy) = (x.view(), dy.view());
                    batch_norm::Forward { rows, norm, x, y: z.view_mut() }.launch(device).unwrap();
                    let start = |value: f32| up(&vec![value; slots]);
                    let (mut norm_dx, mut ndg, mut ndb) = (nan(x.len()), start(0.5), start(0.25));
                    let (dx, dgamma, dbeta) = (norm_dx.view_mut(), ndg.view_mut(), ndb.view_mut());
                    batch_norm::Backward { rows, norm, x, dy: dz.view(), dx, dgamma, dbeta }.launch(device).unwrap();
                    let plan = &regular::cuda::DevicePlan::new(&config).unwrap();
                    let (mut plain_y, mut plain_dx) = (nan(dy.len()), nan(x.len()));
                    let (mut none_dg, mut none_db) = (up(&[]), up(&[]));
                    let (mut y, mut dx) = (nan(dy.len()), nan(x.len()));
                    let (mut dg, mut db) = (start(0.5), start(0.25));
                    for (norm, y, dx, dgamma, dbeta) in [
                        (None, &mut plain_y, &mut plain_dx, &mut none_dg, &mut none_db),
                        (Some(norm), &mut y, &mut dx, &mut dg, &mut db),
                    ] {
                        regular::Forward { rows, plan, norm, x, y: y.view_mut() }.launch(device).unwrap();
                        let (dx, dgamma, dbeta) = (dx.view_mut(), dgamma.view_mut(), dbeta.view_mut());
                        regular::Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta }.launch(device).unwrap();
                    }
                    [z, norm_dx, ndg, ndb, plain_y, plain_dx, y, dx, dg, db]
                });
            }
        }
    }
    checks.finish("batch normalisation and regular nonlinearity");
}

#[test]
fn running_averages() {
    use batch_norm::{BatchNorm, NormGroups};
    let Some(device) = device() else { return };
    let norm = BatchNorm::new(kind("3x0 + 2x1"), NormGroups::PerIrrep);
    let x = random(77 * 7, 1);
    let expected = batch_norm::reference::statistics(&norm, 77, &wide(&x));
    let (mut mean, mut variance) = (vec![0.5f32; 5], vec![2.0f32; 5]);
    expected.update_running(0.1, &mut mean, &mut variance).unwrap();
    let x = device.upload(&x).unwrap();
    let statistics = batch_norm::cuda::statistics(&device, &norm, 77, x.view()).unwrap();
    let (found_mean, found_variance) = statistics.read(&device).unwrap();
    let mut device_mean = device.upload(&[0.5f32; 5]).unwrap();
    let mut device_variance = device.upload(&[2.0f32; 5]).unwrap();
    statistics.update_running(&device, 0.1, device_mean.view_mut(), device_variance.view_mut()).unwrap();
    for slot in 0..5 {
        assert!((found_mean[slot] - expected.mean[slot]).abs() < 1e-12);
        assert!((found_variance[slot] - expected.variance[slot]).abs() < 1e-12);
    }
    assert_eq!(device_mean.to_vec(&device).unwrap(), mean);
    assert_eq!(device_variance.to_vec(&device).unwrap(), variance);

    // The same in one launch, and the same result with its map of the columns.
    let mut device_mean = device.upload(&[0.5f32; 5]).unwrap();
    let mut device_variance = device.upload(&[2.0f32; 5]).unwrap();
    let gamma = device.upload(&random(5, 2)).unwrap();
    let beta = device.upload(&random(5, 3)).unwrap();
    let slots = batch_norm::cuda::TrainingSlots {
        gamma: gamma.view(),
        beta: beta.view(),
        mean: device_mean.view_mut(),
        variance: device_variance.view_mut(),
    };
    let momentum = BatchNorm { momentum: 0.1, ..norm.clone() };
    let at_once = batch_norm::cuda::training_statistics(&device, &momentum, 77, x.view(), slots).unwrap();
    assert_eq!(device_mean.to_vec(&device).unwrap(), mean);
    assert_eq!(device_variance.to_vec(&device).unwrap(), variance);
    let normalised = [&statistics, &at_once].map(|statistics| {
        let norm = batch_norm::Normalisation { config: &norm, statistics, gamma: gamma.view(), beta: beta.view() };
        let mut y = device.zeros(77 * 7).unwrap();
        batch_norm::Forward { rows: 77, norm, x: x.view(), y: y.view_mut() }.launch(&device).unwrap();
        y.to_vec(&device).unwrap()
    });
    assert_eq!(normalised[0], normalised[1]);
}

#[test]
fn norm_and_gated_nonlinearities() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (case, output) in ["4x0 + 3x1 + 2x2", "5x1", "3x0"].into_iter().enumerate() {
            let activation = ACTIVATIONS[(case + 2) % 5].clone();
            let norm = norm_gate::NormNonlinearity {
                epsilon: 1e-2,
                ..norm_gate::NormNonlinearity::new(kind(output), activation.clone())
            };
            let gated = norm_gate::GatedNonlinearity { output: kind(output), activation };
            let (input, biases) = (gated.input().dimension(), norm_gate::rotating_irreps(&norm.kind));
            let (what, width) = (format!("{rows} rows, {output}"), norm.kind.dimension());
            let names = ["norm y", "norm dx", "norm dbias", "gated y", "gated dx"];
            checks.compare(&what, names, |on| {
                use norm_gate::{GatedBackward, GatedForward, NormBackward, NormForward};
                let (x, gx, dy) = (on.random(rows * width, 1), on.random(rows * input, 1), on.random(rows * width, 2));
                let (bias, mut dbias) = (on.random(biases, 3), on.filled(biases, 0.5));
                let [mut y, mut dx, mut gy, mut gdx] = [width, width, width, input].map(|n| on.nan(rows * n));
                let (run, x, gx, dy, bias) = (&mut on.executor(), x.view(), gx.view(), dy.view(), bias.view());
                NormForward { op: &norm, rows, x, bias, y: y.view_mut() }.run(run).unwrap();
                let (to, db) = (dx.view_mut(), dbias.view_mut());
                NormBackward { op: &norm, rows, x, bias, dy, dx: to, dbias: db }.run(run).unwrap();
                GatedForward { op: &gated, rows, x: gx, y: gy.view_mut() }.run(run).unwrap();
                GatedBackward { op: &gated, rows, x: gx, dy, dx: gdx.view_mut() }.run(run).unwrap();
                [y, dx, dbias, gy, gdx]
            });
        }
    }
    checks.finish("norm and gated nonlinearities");
}

#[test]
fn dropout_draws_the_masks_of_the_cpu() {
    let Some(device) = device() else { return };
    for (unit, text) in [
        (dropout::DropoutUnit::Irrep, "5x0 + 3x1 + 2x2"),
        (dropout::DropoutUnit::Irrep, "8x0 + 4x1 + 12x3"),
        (dropout::DropoutUnit::Irrep, "8x0"),
        (dropout::DropoutUnit::Channel, "4x0 + 4x1 + 4x2"),
    ] {
        for probability in [0.0, 0.3, 0.999] {
            let config = dropout::Dropout { kind: kind(text), unit, probability };
            let stream = Stream { seed: 0xfedc_ba98_7654_3210, step: 0x1_0000_0007 };
            for rows in ROWS {
                let x = random(rows * config.kind.dimension(), 1);
                let mut expected = vec![0.0f32; x.len()];
                dropout::reference::forward(&config, stream, &x, &mut expected).unwrap();
                let x = device.upload(&x).unwrap();
                let mut y = poisoned(&device, x.len());
                let salt = 0x0123_4567_89ab_cdef;
                let unsalted = Stream { seed: stream.seed ^ salt, ..stream };
                let on_device = dropout::cuda::DeviceStream::new(&device, unsalted).unwrap();
                let words = (&on_device, salt);
                let (x, to) = (x.view(), y.view_mut());
                dropout::DropUnits { op: &config, rows, stream: words, x, y: to }.launch(&device).unwrap();
                assert_eq!(y.to_vec(&device).unwrap(), expected, "{text}, {rows} rows");
            }
        }
    }
}

#[test]
fn dropout_of_meshes_draws_the_masks_of_the_cpu() {
    let Some(device) = device() else { return };
    let stream = Stream { seed: 3, step: 9 };
    for graph in graphs() {
        let offsets = graph.narrow.view().mesh_offsets();
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        for (probability, width) in [(0.0, 3), (0.5, 1), (0.5, 70), (0.9, 4)] {
            let x = random(graph.wide.vertex_count() * width, 1);
            let mut expected = vec![0.0f32; x.len()];
            let (from, to) = (&x[..], &mut expected[..]);
            dropout::DropMeshes { probability, width, stream, meshes: offsets, x: from, y: to }.on_host().unwrap();
            let (x, mut y) = (device.upload(&x).unwrap(), poisoned(&device, x.len()));
            let words = dropout::cuda::DeviceStream::new(&device, stream).unwrap();
            let (stream, meshes, x, to) = ((&words, 0), on_device.view(), x.view(), y.view_mut());
            dropout::DropMeshes { probability, width, stream, meshes, x, y: to }.launch(&device).unwrap();
            let what = format!("{}, {probability}, {width}", graph.name);
            assert_eq!(y.to_vec(&device).unwrap(), expected, "{what}");
        }
    }
}

#[test]
fn elementwise_operators() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let (first, second) = (kind("3x0 + 2x1"), kind("1x0 + 4x1 + 2x3"));
    let both = first.concatenated(&second);
    let slice = Slice { kind: both.clone(), channels: vec![1..3, 0..5] };
    let narrow = slice.output().unwrap();
    for rows in ROWS {
        let (first, second, slice, width) = (&first, &second, &slice, both.dimension());
        let names = [
            "concatenate",
            "split, first",
            "split, second",
            "slice",
            "unslice",
            "add",
            "accumulate",
            "scale",
            "softmax",
            "softmax backward",
        ];
        checks.compare(&format!("{rows} rows"), names, |on| {
            let counts = [first, second, &both, &narrow].map(|kind| kind.dimension() * rows);
            let [a, b, y, dy] = [0, 1, 2, 3].map(|i| on.random(counts[i], 1 + i as u64));
            let [mut joined, mut sum, mut scaled, mut shares, mut gradient, mut unsliced] =
                std::array::from_fn(|_| on.nan(counts[2]));
            let (mut split_a, mut split_b, mut sliced) = (on.nan(counts[0]), on.nan(counts[1]), on.nan(counts[3]));
            let mut accumulated = on.random(counts[2], 3);
            let run = &mut on.executor();
            Concatenate { first, second, rows, a: a.view(), b: b.view(), y: joined.view_mut() }.run(run).unwrap();
            Split { first, second, rows, y: y.view(), a: split_a.view_mut(), b: split_b.view_mut() }.run(run).unwrap();
            Select { slice, rows, x: y.view(), y: sliced.view_mut() }.run(run).unwrap();
            Unselect { slice, rows, dy: dy.view(), dx: unsliced.view_mut() }.run(run).unwrap();
            Add { a: y.view(), b: y.view(), y: sum.view_mut() }.run(run).unwrap();
            Accumulate { a: y.view(), y: accumulated.view_mut() }.run(run).unwrap();
            Scale { factor: -0.75, x: y.view(), y: scaled.view_mut() }.run(run).unwrap();
            Softmax { width, rows, x: y.view(), y: shares.view_mut() }.run(run).unwrap();
            let (y, dy) = (shares.view(), sum.view());
            SoftmaxBackward { width, rows, y, dy, dx: gradient.view_mut() }.run(run).unwrap();
            [joined, split_a, split_b, sliced, unsliced, sum, accumulated, scaled, shares, gradient]
        });
    }
    checks.finish("elementwise");
}
