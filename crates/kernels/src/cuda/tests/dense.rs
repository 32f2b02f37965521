//! Linear maps.

use super::*;

#[test]
fn linear_maps() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    // With more rows, columns are summed in two stages.
    for rows in ROWS.into_iter().chain([8193]) {
        for (inputs, outputs, bias) in [
            (16, 256, true),
            (5, 3, true),
            (33, 1, false),
            (1, 7, true),
            (1, 16, false),
            (3, 20, true),
            (16, 64, true),
            (13, 700, true),
            // On Hopper the product of the classifier.
            (64, 1024, true),
            (256, 1045, true),
            (192, 1538, true),
        ] {
            if rows > 8192 && outputs > 64 {
                continue;
            }
            let op = linear::Linear { inputs, outputs, bias };
            let (op, xs, ys) = (&op, rows * inputs, rows * outputs);
            checks.compare(&format!("{rows} rows, {inputs} to {outputs}"), ["y", "dx", "dweight", "dbias"], |on| {
                let counts = [(xs, 1), (ys, 2), (op.weight_count(), 3), (op.bias_count(), 4)];
                let [x, dy, weight, bias] = counts.map(|(count, seed)| on.random(count, seed));
                let (mut y, mut dx) = (on.nan(ys), on.nan(xs));
                let (mut dw, mut db) = (on.filled(op.weight_count(), 0.5), on.filled(op.bias_count(), 0.25));
                let (run, x, weight, bias, dy) = (&mut on.executor(), x.view(), weight.view(), bias.view(), dy.view());
                linear::Forward { op, rows, x, weight, bias, y: y.view_mut() }.run(run).unwrap();
                let (to, dweight, dbias) = (Some(dx.view_mut()), dw.view_mut(), db.view_mut());
                linear::Backward { op, rows, x, weight, dy, dx: to, dweight, dbias }.run(run).unwrap();
                [y, dx, dw, db]
            });
        }
    }
    checks.finish("linear");
}

/// Eighths, which all modes hold exactly, times powers of two: rows of very different sizes have exact products.
#[test]
fn maps_to_many_outputs_with_exact_factors() {
    let Some(device) = device() else { return };
    let eighths = |count, seed| -> Vec<f32> {
        let numbers = random(count, seed);
        numbers.iter().map(|v| (8.0 * v).round() / 8.0).collect()
    };
    for (rows, inputs, outputs, shift) in
        [(1, 64, 1024, 0), (129, 256, 6890, 0), (400, 256, 6890, 1), (127, 128, 1025, 0), (770, 192, 2001, 3)]
    {
        let op = linear::Linear { inputs, outputs, bias: true };
        let mut x = eighths(rows * inputs, 1);
        let sizes = [1.0f32, (40f32).exp2(), (-40f32).exp2()];
        for (row, x) in x.chunks_mut(inputs).enumerate() {
            x.iter_mut().for_each(|x| *x *= sizes[row % 3]);
        }
        let (weight, bias) = (eighths(op.weight_count(), 2), eighths(outputs, 3));
        let mut expected = vec![0.0; rows * outputs];
        let (wx, ww) = (wide(&x), wide(&weight));
        linear::reference::forward(&op, rows, &wx, &ww, &wide(&bias), &mut expected);
        let [x, weight, bias] = [&x, &weight, &bias].map(|v| device.upload(v).unwrap());
        for mode in [ProductMode::Tf32, ProductMode::Bf16] {
            device.set_product_mode(mode);
            // NaN around the result must stay.
            let mut y = poisoned(&device, expected.len() + 2 * shift);
            let to = y.view_mut().slice(shift..shift + expected.len());
            let (x, weight, bias) = (x.view(), weight.view(), bias.view());
            linear::Forward { op: &op, rows, x, weight, bias, y: to }.launch(&device).unwrap();
            let y = y.to_vec(&device).unwrap();
            let (before, rest) = y.split_at(shift);
            let (found, after) = rest.split_at(expected.len());
            assert!(before.iter().chain(after).all(|y| y.is_nan()));
            let what = format!("{rows} rows, {inputs} to {outputs}, {mode:?}");
            for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (f64::from(*found) - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                    "{what}, {place}: {found}, {expected}"
                );
            }
        }
    }
}

#[test]
fn equivariant_linear_maps() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (input, output, bias) in [
            ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", true),
            ("3x0 + 2x1", "1x1 + 4x2 + 2x0", true),
            ("5x1", "2x0", false),
            // Order 0 alone.
            ("16x0 + 16x1 + 16x2", "64x0", true),
            ("3x0", "16x0 + 16x1 + 16x2", false),
            ("1x0 + 3x3", "7x3", false),
        ] {
            let op = self_map::SelfMap { input: kind(input), output: kind(output), bias };
            let (op, xs, ys) = (&op, rows * op.input.dimension(), rows * op.output.dimension());
            checks.compare(&format!("{rows} rows, {input} to {output}"), ["y", "dx", "dweight", "dbias"], |on| {
                let counts = [(xs, 1), (ys, 2), (op.parameter_count(), 3), (op.bias_count(), 4)];
                let [x, dy, weight, bias] = counts.map(|(count, seed)| on.random(count, seed));
                let (mut y, mut dx) = (on.nan(ys), on.nan(xs));
                let (mut dw, mut db) = (on.filled(op.parameter_count(), 0.5), on.filled(op.bias_count(), 0.25));
                let (run, x, weight, bias, dy) = (&mut on.executor(), x.view(), weight.view(), bias.view(), dy.view());
                self_map::Forward { op, rows, x, weight, bias, y: y.view_mut() }.run(run).unwrap();
                let (to, dweight, dbias) = (Some(dx.view_mut()), dw.view_mut(), db.view_mut());
                self_map::Backward { op, rows, x, weight, dy, dx: to, dweight, dbias }.run(run).unwrap();
                [y, dx, dw, db]
            });
        }
    }
    checks.finish("equivariant linear map");
}
