//! The gauge convolution with weights of edges, products with keys, and the ends of messages.

use super::*;
use crate::gauge_conv::GaugeConv;
use crate::messages::{Gather, GatherBackward, Reduce, ReduceBackward};
use crate::weighted_conv::{Backward, Forward, Products};

#[test]
fn weighted_convolutions_and_products() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        let (vertices, edge_count) = (graph.wide.vertex_count(), graph.wide.edge_count());
        for (input, output) in [
            ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"),
            ("3x0 + 17x1 + 2x3", "5x0 + 9x2 + 3x3"),
            ("5x0", "1x0"),
            ("2x0 + 1x1", "1x2"),
        ] {
            let op = GaugeConv { self_term: false, ..GaugeConv::new(kind(input), kind(output)) };
            let (op, what) = (&op, format!("{}, {input} to {output}", graph.name));
            let (xs, ys) = (vertices * op.input.dimension(), vertices * op.output.dimension());
            checks.compare(&what, ["y", "dx", "dweight", "dbias", "products"], |on| {
                let [x, dy, factors] = [(xs, 1), (ys, 2), (edge_count, 5)].map(|(n, seed)| on.random(n, seed));
                let (weight, bias) = (on.random(op.neighbour_count(), 3), on.random(op.bias_count(), 4));
                let [mut y, mut dx, mut products] = [ys, xs, edge_count].map(|n| on.nan(n));
                let (mut dw, mut db) = (on.filled(op.neighbour_count(), 0.5), on.filled(op.bias_count(), 0.25));
                let graph = on.graph(&graph, &on_device);
                let (run, x, dy, factors) = (&mut on.executor(), x.view(), dy.view(), factors.view());
                let (weight, bias) = (weight.view(), bias.view());
                Forward { op, graph, factors, x, weight, bias, y: y.view_mut() }.run(run).unwrap();
                let (to, dweight, dbias) = (Some(dx.view_mut()), dw.view_mut(), db.view_mut());
                Backward { op, graph, factors, x, weight, bias, dy, dx: to, dweight, dbias }.run(run).unwrap();
                Products { op, graph, y: dy, x, weight, products: products.view_mut() }.run(run).unwrap();
                [y, dx, dw, db, products]
            });
        }
    }
    checks.finish("weighted convolutions");
}

#[test]
fn ends_of_messages() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
        let (vertices, edges) = (graph.wide.vertex_count(), graph.wide.edge_count());
        for text in ["16x0 + 16x1 + 16x2", "3x0 + 7x1 + 1x3", "5x0"] {
            let features = kind(text);
            let width = features.dimension();
            let (features, rows) = (&features, vertices * width);
            let names = ["gather", "gather dx", "reduce", "reduce dvalues"];
            // A range that cuts rows, after the edges before it.
            let cut = edges / 3;
            for range in &[0..cut, cut..edges] {
                let what = format!("{}, {text}, {range:?}", graph.name);
                checks.compare(&what, names, |on| {
                    let [x, dz, values] = [(rows, 1), (range.len() * 2 * width, 2), (range.len() * width, 3)]
                        .map(|(count, seed)| on.random(count, seed));
                    let (mut z, mut dvalues) = (on.nan(range.len() * 2 * width), on.nan(range.len() * width));
                    let (mut dx, mut y) = (on.filled(rows, 0.5), on.filled(rows, 0.25));
                    let (graph, run, x) = (on.graph(&graph, &on_device), &mut on.executor(), x.view());
                    Gather { features, range, graph, x, z: z.view_mut() }.run(run).unwrap();
                    GatherBackward { features, range, graph, dz: dz.view(), dx: dx.view_mut() }.run(run).unwrap();
                    Reduce { features, range, graph, values: values.view(), y: y.view_mut() }.run(run).unwrap();
                    ReduceBackward { features, range, graph, dy: x, dvalues: dvalues.view_mut() }.run(run).unwrap();
                    [z, dx, y, dvalues]
                });
            }
        }
    }
    checks.finish("ends of messages");
}
