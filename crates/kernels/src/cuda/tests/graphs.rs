//! Operators on graphs: aggregation, convolution, pooling.

use super::*;

#[test]
fn aggregate_and_its_adjoint() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    let areas = weighted_graphs(NeighbourWeights::Area);
    for graph in graphs().into_iter().chain(areas) {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        for (case, (input, highest_order, rings)) in [
            ("16x0 + 16x1 + 16x2", 2, 1),
            ("3x0 + 1x1 + 5x2", 3, 2),
            ("8x0", 0, 1),
            ("2x1 + 6x3", 1, 3),
            ("40x0 + 4x1", 6, 4),
        ]
        .into_iter()
        .enumerate()
        {
            if graph.name == "large" && case > 0 {
                continue;
            }
            let op = aggregate::Aggregate {
                input: kind(input),
                highest_order,
                rings,
                max_radius: 0.3,
                aggregation: AGGREGATIONS[case % 3],
            };
            let vertices = graph.wide.vertex_count();
            let (op, xs, sums) = (&op, vertices * op.input.dimension(), vertices * op.dimension());
            checks.compare(&format!("{}, {input}", graph.name), ["a", "dx"], |on| {
                let (x, da, mut a, mut dx) = (on.random(xs, 1), on.random(sums, 2), on.nan(sums), on.nan(xs));
                let (graph, run) = (on.graph(&graph, &on_device), &mut on.executor());
                aggregate::Forward { op, graph, x: x.view(), a: a.view_mut() }.run(run).unwrap();
                aggregate::Backward { op, graph, da: da.view(), dx: dx.view_mut() }.run(run).unwrap();
                [a, dx]
            });
        }
    }
    checks.finish("aggregate");
}

#[test]
fn gauge_convolution() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    let types = [
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 1),
        ("3x0", "16x0 + 16x1 + 16x2", 3),
        ("16x0 + 16x1 + 16x2", "64x0", 1),
        ("2x0 + 3x1 + 1x3", "5x0 + 1x2", 3),
        ("1x1", "2x1 + 2x0", 1),
        ("7x0", "1x0", 3),
        // 16 channels of each order: sums in registers, with all aggregations, without a self term, and unaligned.
        ("16x0 + 16x1", "16x0 + 16x1 + 16x2", 1),
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 1),
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 1),
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 1),
        ("16x0 + 16x1", "16x0 + 16x1", 1),
        ("16x0 + 16x1", "16x0 + 16x1", 1),
    ];
    const WITHOUT_SELF: [usize; 2] = [4, 9];
    const UNALIGNED: usize = 11;
    let weights = [NeighbourWeights::Area, NeighbourWeights::Jets];
    let weighted = weights.into_iter().flat_map(weighted_graphs);
    for graph in graphs().into_iter().chain(weighted) {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        for (case, (input, output, rings)) in types.into_iter().enumerate() {
            if graph.name == "large" && case > 0 {
                continue;
            }
            let op = gauge_conv::GaugeConv {
                rings,
                max_radius: 0.3,
                aggregation: AGGREGATIONS[case % 3],
                self_term: !WITHOUT_SELF.contains(&case),
                bias: case != 3,
                ..gauge_conv::GaugeConv::new(kind(input), kind(output))
            };
            let vertices = graph.wide.vertex_count();
            let x = random(vertices * op.input.dimension(), 1);
            let dy = random(vertices * op.output.dimension(), 2);
            let neighbour = random(op.neighbour_count(), 3);
            let own = random(op.self_count(), 4);
            let bias = random(op.bias_count(), 5);
            let before = [3, 4, 5].map(|seed| {
                let count = [neighbour.len(), own.len(), bias.len()][seed as usize - 3];
                random(count, 10 + seed)
            });
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let mut sums = before.clone().map(|values| wide(&values));
            let (wn, ws, wb) = (wide(&neighbour), wide(&own), wide(&bias));
            let weights = gauge_conv::Weights { neighbour: &wn[..], self_term: &ws, bias: &wb };
            let [dn, ds, db] = &mut sums;
            let gradients = gauge_conv::Weights { neighbour: &mut dn[..], self_term: ds, bias: db };
            let wx = wide(&x);
            gauge_conv::reference::forward(&op, graph.wide.view(), &wx, weights, &mut y);
            gauge_conv::reference::backward(&op, graph.wide.view(), &wx, weights, &wide(&dy), &mut dx, gradients);
            let what = format!("{}, {input} to {output}", graph.name);
            let expected = [
                ("y", &y[..]),
                ("dx", &dx),
                ("neighbour gradients", &sums[0]),
                ("self gradients", &sums[1]),
                ("bias gradients", &sums[2]),
            ];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                // One number before the features, so that they are not aligned for wide loads.
                let shift = usize::from(case == UNALIGNED);
                let [x, dy] = [&x, &dy].map(|values| up(&[&[0.0][..shift], values].concat()));
                let [x, dy] = [&x, &dy].map(|values| values.view().slice(shift..usize::MAX));
                let (neighbour, own, bias) = (up(&neighbour), up(&own), up(&bias));
                let (neighbour, self_term, bias) = (neighbour.view(), own.view(), bias.view());
                let (op, graph) = (&op, on_device.view());
                let mut y = poisoned(device, dy.len());
                let mut dx = poisoned(device, x.len());
                let [mut dn, mut ds, mut db] = before.clone().map(|values| up(&values));
                let pass = gauge_conv::Forward { op, graph, x, neighbour, self_term, bias, y: y.view_mut() };
                pass.launch(device).unwrap();
                let pass = gauge_conv::Backward {
                    op,
                    graph,
                    x,
                    neighbour,
                    self_term,
                    bias,
                    dy,
                    dx: Some(dx.view_mut()),
                    dneighbour: dn.view_mut(),
                    dself_term: ds.view_mut(),
                    dbias: db.view_mut(),
                };
                pass.launch(device).unwrap();
                [y, dx, dn, ds, db]
            });
        }
    }
    checks.finish("gauge convolution");
}

#[test]
fn pooling_over_meshes() {
    use pool::{Max, MaxBackward, Mean, MeanBackward};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        let meshes = graph.wide.mesh_offsets();
        for channels in [1, 5, 64, 300] {
            let features = &FeatureType::scalars(channels);
            let x = random(graph.wide.vertex_count() * channels, 1);
            let dy = random(graph.wide.mesh_count() * channels, 2);
            let (wx, wdy) = (wide(&x), wide(&dy));
            let (mut mean, mut max) = (vec![0.0; dy.len()], vec![0.0; dy.len()]);
            let mut arguments = vec![0; dy.len()];
            pool::reference::mean(meshes, features, &wx, &mut mean);
            pool::reference::max(meshes, features, &wx, &mut max, &mut arguments);
            let (dy_wide, arguments) = (&wdy[..], &arguments[..]);
            let (mut mean_dx, mut max_dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            MeanBackward { features, meshes, dy: dy_wide, dx: &mut mean_dx[..] }.on_host().unwrap();
            MaxBackward { features, meshes, arguments, dy: dy_wide, dx: &mut max_dx[..] }.on_host().unwrap();
            let what = format!("{}, {channels} channels", graph.name);
            let expected = [("mean", &mean[..]), ("mean dx", &mean_dx), ("max", &max), ("max dx", &max_dx)];
            checks.check(&what, expected, |device| {
                let (x, dy) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
                let nan = |count: usize| poisoned(device, count);
                let (mut mean, mut max) = (nan(dy.len()), nan(dy.len()));
                let (mut mean_dx, mut max_dx) = (nan(x.len()), nan(x.len()));
                let mut found: DeviceBuffer<u32> = device.zeros(dy.len()).unwrap();
                let (meshes, x, dy) = (on_device.view(), x.view(), dy.view());
                Mean { features, meshes, x, y: mean.view_mut() }.launch(device).unwrap();
                MeanBackward { features, meshes, dy, dx: mean_dx.view_mut() }.launch(device).unwrap();
                Max { features, meshes, x, y: max.view_mut(), arguments: found.view_mut() }.launch(device).unwrap();
                let (arguments_there, dx) = (found.view(), max_dx.view_mut());
                MaxBackward { features, meshes, arguments: arguments_there, dy, dx }.launch(device).unwrap();
                assert_eq!(found.to_vec(device).unwrap(), arguments);
                [mean, mean_dx, max, max_dx]
            });
        }
    }
    checks.finish("pooling over meshes");
}

#[test]
fn pooling_with_transport() {
    use pool::transport::{ClusterArrays, ClusterParts};
    use pool::{Pool, PoolBackward, Unpool, UnpoolBackward};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    // Clusters of 0 to 8 vertices in a mixed order.
    let sizes: Vec<u32> = (0..211).map(|cluster| cluster * 7 % 9).collect();
    let fine: u32 = sizes.iter().sum();
    let mut offsets = vec![0];
    for size in &sizes {
        offsets.push(offsets[offsets.len() - 1] + size);
    }
    let members: Vec<u32> = (0..fine).map(|place| place * 5 % fine).collect();
    assert!(!fine.is_multiple_of(5), "5 must reach every vertex");
    let mut cluster_of = vec![0; fine as usize];
    for cluster in 0..sizes.len() {
        for place in offsets[cluster]..offsets[cluster + 1] {
            cluster_of[members[place as usize] as usize] = cluster as u32;
        }
    }
    let angles: Vec<f64> = (0..fine).map(|_| 6.0 * rng.random::<f64>() - 3.0).collect();
    let parts = ClusterParts { offsets: &offsets, members: &members, cluster_of: &cluster_of, transport: &angles };
    let narrow = ClusterArrays::<f32>::union(&[parts, parts]).unwrap();
    let wide_clusters = ClusterArrays::<f64>::union(&[parts, parts]).unwrap();
    let on_device = pool::cuda::DeviceClusters::new(&device, narrow.view()).unwrap();
    for text in ["16x0 + 16x1 + 16x2", "1x0", "3x1 + 1x4"] {
        let (features, clusters) = (&kind(text), wide_clusters.view());
        let fine = random(2 * fine as usize * features.dimension(), 1);
        let coarse = random(2 * sizes.len() * features.dimension(), 2);
        let (wf, wc) = (wide(&fine), wide(&coarse));
        let (mut pooled, mut unpooled) = (vec![0.0; coarse.len()], vec![0.0; fine.len()]);
        pool::reference::pool(clusters, features, &wf, &mut pooled);
        pool::reference::unpool(clusters, features, &wc, &mut unpooled);
        let (mut pool_dx, mut unpool_dx) = (vec![0.0; fine.len()], vec![0.0; coarse.len()]);
        PoolBackward { features, clusters, dy: &wc[..], dx: &mut pool_dx[..] }.on_host().unwrap();
        UnpoolBackward { features, clusters, dy: &wf[..], dx: &mut unpool_dx[..] }.on_host().unwrap();
        let expected = [("pool", &pooled[..]), ("pool dx", &pool_dx), ("unpool", &unpooled), ("unpool dx", &unpool_dx)];
        checks.check(text, expected, |device| {
            let (x, c) = (device.upload(&fine).unwrap(), device.upload(&coarse).unwrap());
            let nan = |count: usize| poisoned(device, count);
            let (mut pooled, mut pool_dx) = (nan(c.len()), nan(x.len()));
            let (mut unpooled, mut unpool_dx) = (nan(x.len()), nan(c.len()));
            let (clusters, x, c) = (on_device.view(), x.view(), c.view());
            Pool { features, clusters, x, y: pooled.view_mut() }.launch(device).unwrap();
            PoolBackward { features, clusters, dy: c, dx: pool_dx.view_mut() }.launch(device).unwrap();
            Unpool { features, clusters, x: c, y: unpooled.view_mut() }.launch(device).unwrap();
            UnpoolBackward { features, clusters, dy: x, dx: unpool_dx.view_mut() }.launch(device).unwrap();
            [pooled, pool_dx, unpooled, unpool_dx]
        });
    }
    checks.finish("pooling with transport");
}
