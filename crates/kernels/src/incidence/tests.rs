pub(crate) mod reference;

use super::*;
use crate::testing::{check_close, check_threads, random, turned};

const AGGREGATIONS: [Aggregation; 3] = [Aggregation::Sum, Aggregation::Mean, Aggregation::MeanWithSelf];

/// Rows of 0 to 6 entries, some columns without any, and columns twice in a row.
fn irregular(rows: u32, columns: u32) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0];
    let mut indices: Vec<u32> = Vec::new();
    for row in 0..rows {
        let column = |i: u32| (row * 5 + i / 2 * 3) % (columns - 2);
        indices.extend((0..row * 3 % 7).map(column));
        offsets.push(indices.len() as u32);
    }
    (offsets, indices)
}

fn incidences<T: Real>() -> Vec<(&'static str, IncidenceArrays<T>)> {
    let (offsets, indices) = irregular(101, 40);
    let angles: Vec<f64> = random::<f64>(indices.len(), 9).iter().map(|a| 4.0 * a).collect();
    let plain = IncidenceParts::faces(40, &offsets, &indices);
    let weights: Vec<f64> = angles.iter().map(|a| 1.0 + 0.2 * a).collect();
    let rotating = IncidenceParts { angles: Some(&angles), ..plain };
    let weighted = IncidenceParts { weights: Some(&weights), ..rotating };
    let none = IncidenceParts::faces(0, &[0], &[]);
    let quad = IncidenceParts::faces(5, &[0, 4, 7], &[0, 1, 2, 3, 3, 2, 4]);
    [
        ("empty", &[none][..]),
        ("polygons", &[quad]),
        ("without angles", &[plain]),
        ("with angles", &[rotating]),
        ("with weights", &[weighted]),
        ("union", &[quad, none, rotating, weighted, plain]),
    ]
    .map(|(name, parts)| (name, IncidenceArrays::union(parts).unwrap()))
    .into()
}

/// Sums to the target of values at the other end, and their gradient where `back` is set.
fn run<T: Real>(
    (features, aggregation): (&FeatureType, Aggregation),
    (target, back): (Target, bool),
    incidence: &IncidenceArrays<T>,
    x: &[T],
) -> Vec<T> {
    let (target, normalise) = if back { (target.other(), Normalise::Source) } else { (target, Normalise::Target) };
    let mut y = vec![T::nan(); incidence.count(target) * features.dimension()];
    Sum { features, aggregation, target, normalise, incidence, x, y: &mut y[..] }.on_host().unwrap();
    y
}

fn kinds() -> [FeatureType; 3] {
    ["0x0", "5x0", "3x0 + 7x1 + 1x3"].map(|text| text.parse().unwrap())
}

fn check_fast<T: Real>(tolerance: f64) {
    for (name, incidence) in incidences::<T>() {
        for features in kinds() {
            let width = features.dimension();
            let at_rows: Vec<T> = random(incidence.row_count() * width, 1);
            let at_columns: Vec<T> = random(incidence.column_count() * width, 2);
            for mode in AGGREGATIONS {
                let (f, g) = (&features, &incidence);
                for back in [false, true] {
                    let x = if back { &at_rows } else { &at_columns };
                    let y = run((f, mode), (Target::Rows, back), g, x);
                    let mut slow = vec![T::nan(); y.len()];
                    reference::apply(f, mode, g, x, &mut slow, back);
                    check_close(&y, &slow, tolerance, name);
                    let x = if back { &at_columns } else { &at_rows };
                    let y = run((f, mode), (Target::Columns, back), g, x);
                    let mut slow = vec![T::nan(); y.len()];
                    reference::apply_transposed(f, mode, g, x, &mut slow, back);
                    check_close(&y, &slow, tolerance, name);
                }
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    check_fast::<f32>(3e-6);
    check_fast::<f64>(1e-13);
}

#[test]
fn means_keep_constants_and_frames_rotate_the_results() {
    let (offsets, indices) = irregular(60, 30);
    let angles: Vec<f64> = random(indices.len(), 1);
    let (of_rows, of_columns) = (random::<f64>(60, 2), random::<f64>(30, 3));
    let arrays = |angles: &[f64]| {
        let parts = IncidenceParts { angles: Some(angles), ..IncidenceParts::faces(30, &offsets, &indices) };
        IncidenceArrays::<f64>::union(&[parts]).unwrap()
    };
    // The angle from column to row changes by -a_row + a_column.
    let mut moved = angles.clone();
    for row in 0..60 {
        for entry in offsets[row] as usize..offsets[row + 1] as usize {
            moved[entry] += of_columns[indices[entry] as usize] - of_rows[row];
        }
    }
    let (incidence, moved) = (arrays(&angles), arrays(&moved));
    let features: FeatureType = "2x0 + 3x1 + 2x4".parse().unwrap();
    let width = features.dimension();
    let mode = Aggregation::Mean;
    let (x, z): (Vec<f64>, Vec<f64>) = (random(30 * width, 4), random(60 * width, 5));
    let ends = [(Target::Rows, &x, &of_columns, &of_rows), (Target::Columns, &z, &of_rows, &of_columns)];
    for (target, x, of_sources, of_targets) in ends {
        let sum = |incidence, x: &[f64]| run((&features, mode), (target, false), incidence, x);
        let seen = sum(&moved, &turned(&features, x, of_sources));
        check_close(&seen, &turned(&features, &sum(&incidence, x), of_targets), 1e-12, "frames");
    }

    let scalar = FeatureType::scalars(1);
    let y = run((&scalar, mode), (Target::Rows, false), &incidence, &[2.0; 30]);
    let x = run((&scalar, mode), (Target::Columns, false), &incidence, &[2.0; 60]);
    for value in y.iter().chain(&x) {
        // Zero only where there is no entry.
        assert!(*value == 0.0 || (value - 2.0).abs() < 1e-14);
    }
    assert_eq!((y[0], x[29]), (0.0, 0.0));
}

#[test]
fn parts_and_lengths_are_checked_and_threads_do_not_matter() {
    let good = IncidenceParts::faces(4, &[0, 3, 6], &[0, 1, 2, 2, 1, 3]);
    for bad in [
        IncidenceParts { columns: 3, ..good },
        IncidenceParts { offsets: &[], ..good },
        IncidenceParts { offsets: &[0, 3, 5], ..good },
        IncidenceParts { offsets: &[0, 7, 6], ..good },
        IncidenceParts { angles: Some(&[0.0]), ..good },
        IncidenceParts { angles: Some(&[f64::NAN; 6]), ..good },
    ] {
        let problem = IncidenceArrays::<f64>::union(&[good, bad]).unwrap_err();
        assert!(matches!(problem, KernelError::Graph { .. }), "{problem}");
    }
    let union = IncidenceArrays::<f64>::union(&[good, good]).unwrap();
    assert_eq!((union.row_count(), union.column_count(), union.entry_count()), (4, 8, 12));
    let (features, aggregation, target) = (&FeatureType::scalars(1), Aggregation::Sum, Target::Rows);
    let (incidence, x, y) = (&union, &[0.0; 8][..], &mut [0.0; 3][..]);
    let sum = Sum { features, aggregation, target, normalise: Normalise::Target, incidence, x, y };
    assert!(sum.on_host().is_err());
    let (_, incidence) = incidences::<f32>().swap_remove(4);
    let features = &kinds()[2];
    let x: Vec<f32> = random(incidence.column_count() * features.dimension(), 1);
    check_threads(|| {
        let sum = |back, x: &[f32]| run((features, Aggregation::Mean), (Target::Rows, back), &incidence, x);
        let y = sum(false, &x);
        let dx = sum(true, &y);
        (y, dx)
    });
}

/// A mixture is the transposed map of the outer products of weights and values, in both directions.
#[test]
fn mixtures_are_sums_of_outer_products() {
    for (name, incidence) in incidences::<f64>().into_iter().take(3) {
        let (rows, columns) = (incidence.row_count(), incidence.column_count());
        for (weights, channels) in [(5, 3), (1, 4), (3, 0), (0, 2)] {
            let (x, w): (Vec<f64>, Vec<f64>) = (random(rows * channels, 1), random(rows * weights, 2));
            let dy: Vec<f64> = random(columns * weights * channels, 3);
            for aggregation in AGGREGATIONS {
                let op = Mixture { aggregation, weights, channels };
                let place = |row: usize, at: usize| {
                    let channel = at % channels;
                    (row * weights + at / channels, row * channels + channel)
                };
                let all = FeatureType::scalars(op.outputs());
                let products: Vec<f64> = (0..rows)
                    .flat_map(|row| (0..op.outputs()).map(move |at| place(row, at)))
                    .map(|(weight, value)| w[weight] * x[value])
                    .collect();
                let (mut y, mut expected) = (vec![f64::NAN; dy.len()], vec![0.0; dy.len()]);
                let (op, incidence, x, w) = (&op, &incidence, &x[..], &w[..]);
                Mix { op, incidence, x, w, y: &mut y[..] }.on_host().unwrap();
                reference::apply_transposed(&all, aggregation, incidence, &products, &mut expected, false);
                check_close(&y, &expected, 1e-13, name);
                let mut gradient = vec![0.0; products.len()];
                reference::apply_transposed(&all, aggregation, incidence, &dy, &mut gradient, true);
                let (mut wanted_dx, mut wanted_dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
                for (at, gradient) in gradient.iter().enumerate() {
                    let (weight, value) = place(at / op.outputs(), at % op.outputs());
                    wanted_dx[value] += w[weight] * gradient;
                    wanted_dw[weight] += x[value] * gradient;
                }
                let (mut dx, mut dw) = (vec![f64::NAN; x.len()], vec![f64::NAN; w.len()]);
                MixBackward { op, incidence, x, w, dy: &dy[..], dx: &mut dx[..], dw: &mut dw[..] }.on_host().unwrap();
                check_close(&dx, &wanted_dx, 1e-12, name);
                check_close(&dw, &wanted_dw, 1e-12, name);
            }
        }
    }
    let (_, rotating) = incidences::<f64>().swap_remove(3);
    let op = Mixture { aggregation: Aggregation::Sum, weights: 1, channels: 1 };
    let ones = vec![1.0; rotating.row_count()];
    let mut y = vec![0.0; rotating.column_count()];
    let refused = Mix { op: &op, incidence: &rotating, x: &ones[..], w: &ones[..], y: &mut y[..] }.on_host();
    assert!(matches!(refused, Err(KernelError::Setting { .. })));
}
