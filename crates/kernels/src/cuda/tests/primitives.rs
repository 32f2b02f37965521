//! The primitives: invariants of irreps, features on edges, bases of meshes, incidences.

use super::*;
use crate::diffusion::{self, Diffusion, Spectra};
use crate::elementwise::{BlockMaximum, BlockMaximumBackward};
use crate::{edges, incidence, irrep, mesh_product};

#[test]
fn invariants_of_irreps() {
    use irrep::Grouping::{Heads, Irreps};
    use irrep::{Dot, Norm, NormBackward, Scale};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (text, grouping) in [
            ("5x0 + 3x1 + 7x2", Irreps),
            ("5x0 + 3x1 + 7x2", Heads(1)),
            ("6x0 + 3x1 + 9x3", Heads(3)),
            ("64x0 + 64x1 + 64x2", Heads(4)),
            ("1x1", Irreps),
            ("0x0", Heads(2)),
        ] {
            let features = &kind(text);
            let [width, scalars, irreps] =
                [features.dimension(), grouping.count(features), Irreps.count(features)].map(|n| rows * n);
            // Gradients of both products are products again.
            let names = ["norm", "norm dx", "dot", "scale"];
            checks.compare(&format!("{rows} rows of {text}"), names, |on| {
                let (a, b, s, d) =
                    (on.random(width, 1), on.random(width, 2), on.random(scalars, 3), on.random(irreps, 4));
                let [mut norm, mut dx, mut dot, mut scale] = [irreps, width, scalars, width].map(|n| on.nan(n));
                let (run, a, b, epsilon) = (&mut on.executor(), a.view(), b.view(), 1e-3);
                Norm { features, epsilon, rows, x: a, y: norm.view_mut() }.run(run).unwrap();
                NormBackward { features, epsilon, rows, x: a, dy: d.view(), dx: dx.view_mut() }.run(run).unwrap();
                Dot { features, grouping, rows, a, b, y: dot.view_mut() }.run(run).unwrap();
                Scale { features, grouping, rows, x: a, factors: s.view(), y: scale.view_mut() }.run(run).unwrap();
                [norm, dx, dot, scale]
            });
        }
    }
    checks.finish("invariants of irreps");
}

#[test]
fn features_on_edges() {
    use edges::*;
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        let (vertices, edge_count) = (graph.wide.vertex_count(), graph.wide.edge_count());
        for (case, (text, heads)) in
            [("16x0 + 16x1 + 16x2", 4), ("3x0 + 7x1 + 1x3", 1), ("5x0", 5), ("33x2", 3)].into_iter().enumerate()
        {
            for frame in [EdgeFrame::Vertex, EdgeFrame::Edge] {
                let op = Reduce { aggregation: AGGREGATIONS[case % 3], heads, ..Reduce::sum(kind(text), frame) };
                let (op, features) = (&op, &op.features);
                let [x_count, v_count, w_count] =
                    [vertices * features.dimension(), edge_count * features.dimension(), edge_count * heads];
                let names = [
                    "gather",
                    "gather dx",
                    "spread",
                    "spread dx",
                    "reduce",
                    "reduce dvalues",
                    "reduce dweights",
                    "softmax",
                    "softmax dx",
                ];
                checks.compare(&format!("{}, {text}, {frame:?}", graph.name), names, |on| {
                    let (x, v, w) = (on.random(x_count, 1), on.random(v_count, 2), on.random(w_count, 3));
                    let scores: Vec<f32> = random(w_count, 3).iter().map(|w| 300.0 * w).collect();
                    let scores = on.numbers(&scores);
                    let [mut gather, mut spread, mut dv] = [(); 3].map(|()| on.nan(v_count));
                    let [mut gather_dx, mut spread_dx, mut reduce] = [(); 3].map(|()| on.nan(x_count));
                    let [mut dw, mut soft, mut soft_dx] = [(); 3].map(|()| on.nan(w_count));
                    let (x, v, w, graph) = (x.view(), v.view(), w.view(), on.graph(&graph, &on_device));
                    let (sum, run) = (&Reduce::sum(features.clone(), frame), &mut on.executor());
                    Gather { features, frame, graph, x, y: gather.view_mut() }.run(run).unwrap();
                    GatherBackward { features, frame, graph, dy: v, dx: gather_dx.view_mut() }.run(run).unwrap();
                    Spread { op: sum, graph, weights: None, x, y: spread.view_mut() }.run(run).unwrap();
                    ReduceForward { op: sum, graph, x: v, weights: None, y: spread_dx.view_mut() }.run(run).unwrap();
                    // The weights of odd cases are ones.
                    let weights = (case % 2 == 0).then_some(w);
                    ReduceForward { op, graph, x: v, weights, y: reduce.view_mut() }.run(run).unwrap();
                    Spread { op, graph, weights, x, y: dv.view_mut() }.run(run).unwrap();
                    ReduceBackwardWeights { op, graph, x: v, dy: x, dweights: dw.view_mut() }.run(run).unwrap();
                    Softmax { heads, graph, x: scores.view(), y: soft.view_mut() }.run(run).unwrap();
                    SoftmaxBackward { heads, graph, y: w, dy: w, dx: soft_dx.view_mut() }.run(run).unwrap();
                    [gather, gather_dx, spread, spread_dx, reduce, dv, dw, soft, soft_dx]
                });
            }
        }
    }
    checks.finish("features on edges");
}

#[test]
fn products_with_the_bases_of_meshes() {
    use mesh_product::{Expand, MeshProduct, Project};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for offsets in [&[0, 531, 531, 532, 1300][..], &[0, 0], &[0]] {
        let (vertices, meshes) = (offsets[offsets.len() - 1] as usize, offsets.len() - 1);
        for (text, columns, complex) in [
            ("16x0 + 16x1 + 16x2", 128, false),
            ("5x0", 37, false),
            ("7x2", 33, true),
            ("1x1", 1, true),
            ("3x1", 0, true),
        ] {
            let op = MeshProduct { features: kind(text), columns, complex };
            let (op, mesh_offsets, width) = (&op, offsets, op.features.dimension());
            let (basis_count, y_count) = (vertices * columns * if complex { 2 } else { 1 }, meshes * columns * width);
            let names = ["project", "project with weights", "project dx", "expand", "expand dy"];
            checks.compare(&format!("{offsets:?}, {columns} columns, {text}"), names, |on| {
                let weights: Vec<f32> = random(vertices, 2).iter().map(|w| 1.0 + w).collect();
                let (basis, weights) = (on.random(basis_count, 1), on.numbers(&weights));
                let (x, y) = (on.random(vertices * width, 3), on.random(y_count, 4));
                let [mut project, mut weighted, mut dy] = [(); 3].map(|()| on.nan(y_count));
                let [mut dx, mut expand] = [(); 2].map(|()| on.nan(vertices * width));
                let (basis, weights, x, y, run) =
                    (basis.view(), Some(weights.view()), x.view(), y.view(), &mut on.executor());
                Project { op, mesh_offsets, basis, weights: None, x, y: project.view_mut() }.run(run).unwrap();
                Project { op, mesh_offsets, basis, weights, x, y: weighted.view_mut() }.run(run).unwrap();
                Expand { op, mesh_offsets, basis, weights, y, x: dx.view_mut() }.run(run).unwrap();
                Expand { op, mesh_offsets, basis, weights: None, y, x: expand.view_mut() }.run(run).unwrap();
                Project { op, mesh_offsets, basis, weights: None, x, y: dy.view_mut() }.run(run).unwrap();
                [project, weighted, dx, expand, dy]
            });
        }
    }
    checks.finish("products with the bases of meshes");
}

#[test]
fn diffusion_in_the_bases_of_meshes() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for (offsets, text, columns, gradients) in [
        (&[0, 700][..], "33x0 + 5x1 + 3x2", &[40, 17, 9][..], true),
        (&[0, 131, 131, 132, 460], "7x0 + 2x1", &[9, 5, 4], false),
        (&[0, 300, 301], "128x0", &[64], true),
        (&[0, 97], "4x2", &[3, 0, 5], true),
    ] {
        let op = Diffusion { features: kind(text), columns: columns.to_vec(), gradients };
        let (vertices, meshes) = (offsets[offsets.len() - 1] as usize, offsets.len() - 1);
        let positive = |count, seed| -> Vec<f32> {
            let values = random(count, seed);
            values.iter().map(|value| value.abs()).collect()
        };
        let scale = 1.0 / (vertices as f32).sqrt();
        let bases = random(vertices * op.basis_width(), 1);
        let bases: Vec<f32> = bases.iter().map(|value| scale * value).collect();
        let (mass, eigenvalues) = (positive(vertices, 2), positive(meshes * columns.iter().sum::<usize>(), 3));
        let (log_times, bands) = (random(op.parameter_count(), 4), random(op.parameter_count(), 5));
        let (op, mesh_offsets) = (&op, offsets);
        let (xs, ys, kept) =
            (vertices * op.features.dimension(), vertices * op.output().dimension(), op.saved_count(meshes));
        let names = ["y", "spectrum", "dx", "dlog times", "dbands"];
        checks.compare(&format!("{text}, {columns:?}"), names, |on| {
            let arrays = [&mass, &bases, &eigenvalues, &log_times, &bands].map(|array| on.numbers(array));
            let [m, b, e, log_times, bands] = arrays.each_ref().map(Numbers::view);
            let spectra = match on.device {
                None => {
                    let [mass, bases, eigenvalues] = [m, b, e].map(|array| array.host().unwrap());
                    OnDevice::Host(Spectra { mass, bases, eigenvalues, packed: &[][..] })
                }
                Some(_) => {
                    let [mass, bases, eigenvalues] = [m, b, e].map(|array| array.cuda().unwrap());
                    OnDevice::Cuda(Spectra { mass, bases, eigenvalues, packed: DeviceSlice::empty() })
                }
            };
            let (x, dy) = (on.random(xs, 6), on.random(ys, 7));
            let (mut y, mut saved, mut dx) = (on.nan(ys), on.nan(kept), on.nan(xs));
            let (mut dt, mut db) = (on.filled(log_times.len(), 1.0), on.filled(bands.len(), 2.0));
            let (run, x, to, saved_to) = (&mut on.executor(), x.view(), y.view_mut(), saved.view_mut());
            let forward = diffusion::Forward { op, mesh_offsets, spectra, log_times, bands, x, y: to, saved: saved_to };
            forward.run(run).unwrap();
            let (kept, dy, dx_to) = (saved.view(), dy.view(), Some(dx.view_mut()));
            diffusion::Backward {
                op,
                mesh_offsets,
                spectra,
                log_times,
                bands,
                saved: kept,
                dy,
                dx: dx_to,
                dlog_times: dt.view_mut(),
                dbands: db.view_mut(),
            }
            .run(run)
            .unwrap();
            [y, saved, dx, dt, db]
        });
    }
    checks.finish("diffusion in the bases of meshes");
}

#[test]
fn incidences_with_transport() {
    use incidence::{IncidenceArrays, IncidenceParts, Normalise, Sum, Target};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    // Rows of 0 to 6 entries, and columns without any.
    let (mut offsets, mut indices) = (vec![0], Vec::new());
    for row in 0..333u32 {
        indices.extend((0..row * 3 % 7).map(|i| (row * 5 + i / 2 * 3) % 150));
        offsets.push(indices.len() as u32);
    }
    let angles: Vec<f64> = random(indices.len(), 1).iter().map(|&a| 3.0 * f64::from(a)).collect();
    let plain = IncidenceParts::faces(152, &offsets, &indices);
    let weights: Vec<f64> = angles.iter().map(|a| 1.0 + 0.2 * a).collect();
    let rotating = IncidenceParts { angles: Some(&angles), ..plain };
    let weighted = IncidenceParts { weights: Some(&weights), ..rotating };
    let none = IncidenceParts::faces(0, &[0], &[]);
    for (name, parts) in
        [("empty", &[none][..]), ("without angles", &[plain]), ("union", &[rotating, none, weighted, plain])]
    {
        let wide_arrays = IncidenceArrays::<f64>::union(parts).unwrap();
        let narrow = IncidenceArrays::<f32>::union(parts).unwrap();
        let on_device = incidence::cuda::DeviceIncidence::new(&device, &narrow).unwrap();
        for (case, text) in ["16x0 + 16x1 + 16x2", "5x0", "3x1 + 1x4"].into_iter().enumerate() {
            let (features, mode) = (kind(text), AGGREGATIONS[case]);
            let (features, aggregation) = (&features, mode);
            for (target, normalise) in [Target::Rows, Target::Columns]
                .into_iter()
                .flat_map(|to| [(to, Normalise::Target), (to, Normalise::Source)])
            {
                let counts = [target.other(), target].map(|end| narrow.count(end) * features.dimension());
                let what = format!("{name}, {text}, to {target:?} by {normalise:?}");
                checks.compare(&what, ["y"], |on| {
                    let (x, mut y) = (on.random(counts[0], 2), on.nan(counts[1]));
                    let incidence = match on.device {
                        None => OnDevice::Host(&wide_arrays),
                        Some(_) => OnDevice::Cuda(&on_device),
                    };
                    let (x, to, run) = (x.view(), y.view_mut(), &mut on.executor());
                    Sum { features, aggregation, target, normalise, incidence, x, y: to }.run(run).unwrap();
                    [y]
                });
            }
        }
    }
    checks.finish("incidences with transport");
}

#[test]
fn mixtures_and_maxima_of_blocks() {
    use incidence::{IncidenceArrays, IncidenceParts, Mix, MixBackward, Mixture};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    // Rows of 0 to 2 entries, and columns without any.
    let (mut offsets, mut indices) = (vec![0], Vec::new());
    for row in 0..533u32 {
        indices.extend((0..row % 3).map(|i| (row * 5 + i * 3) % 150));
        offsets.push(indices.len() as u32);
    }
    let parts = IncidenceParts::faces(152, &offsets, &indices);
    let wide_arrays = IncidenceArrays::<f64>::union(&[parts]).unwrap();
    let narrow = IncidenceArrays::<f32>::union(&[parts]).unwrap();
    let on_device = incidence::cuda::DeviceIncidence::new(&device, &narrow).unwrap();
    for (case, (weights, channels)) in [(32, 64), (5, 3), (37, 130), (1, 1)].into_iter().enumerate() {
        let op = Mixture { aggregation: AGGREGATIONS[case % 3], weights, channels };
        let (op, values, mixed) = (&op, [533 * channels, 533 * weights], 152 * op.outputs());
        checks.compare(&format!("{weights} weights, {channels} channels"), ["y", "dx", "dw"], |on| {
            let (x, w, dy) = (on.random(values[0], 1), on.random(values[1], 2), on.random(mixed, 3));
            let (mut y, mut dx, mut dw) = (on.nan(mixed), on.nan(values[0]), on.nan(values[1]));
            let incidence = match on.device {
                None => OnDevice::Host(&wide_arrays),
                Some(_) => OnDevice::Cuda(&on_device),
            };
            let (run, x, w, dx_to, dw_to) = (&mut on.executor(), x.view(), w.view(), dx.view_mut(), dw.view_mut());
            Mix { op, incidence, x, w, y: y.view_mut() }.run(run).unwrap();
            MixBackward { op, incidence, x, w, dy: dy.view(), dx: dx_to, dw: dw_to }.run(run).unwrap();
            [y, dx, dw]
        });
        // The same numbers as blocks.
        let (blocks, width, rows) = (weights, channels, 533);
        checks.compare(&format!("{weights} blocks of {channels}"), ["maximum", "maximum dx"], |on| {
            let (x, dy) = (on.random(rows * width * blocks, 4), on.random(rows * width, 5));
            let (mut y, mut dx) = (on.nan(rows * width), on.nan(rows * width * blocks));
            let run = &mut on.executor();
            BlockMaximum { blocks, width, rows, x: x.view(), y: y.view_mut() }.run(run).unwrap();
            let (x, y_view, dy, dx_view) = (x.view(), y.view(), dy.view(), dx.view_mut());
            BlockMaximumBackward { blocks, width, rows, x, y: y_view, dy, dx: dx_view }.run(run).unwrap();
            [y, dx]
        });
    }
    checks.finish("mixtures and maxima of blocks");
}
