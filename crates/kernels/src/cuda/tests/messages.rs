//! The gauge convolution with weights of edges, products with keys, and the ends of messages.

use super::*;
use crate::gauge_conv::GaugeConv;
use crate::messages;
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
            let (x, z, v) = (random(vertices * width, 1), random(edges * 2 * width, 2), random(edges * width, 3));
            let view = graph.wide.view();
            let gathered = messages::reference::gather(&features, view, &wide(&x));
            let (mut dx, mut y) = (wide(&x), wide(&x));
            messages::reference::gather_backward(&features, view, &wide(&z), &mut dx);
            messages::reference::reduce(&features, view, &wide(&v), &mut y);
            let dv = messages::reference::reduce_backward(&features, view, &wide(&x));
            let expected = [("gather", &gathered[..]), ("gather dx", &dx), ("reduce", &y), ("reduce dvalues", &dv)];
            // Ranges that cut rows.
            let piece = edges / 3 + 1;
            checks.check(&format!("{}, {text}", graph.name), expected, |device| {
                use messages::{Gather, GatherBackward, Reduce, ReduceBackward};
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (xs, zs, vs) = (up(&x), up(&z), up(&v));
                let (mut dx, mut y) = (up(&x), up(&x));
                let (mut gathered, mut dv) = (poisoned(device, z.len()), poisoned(device, v.len()));
                let graph = on_device.view();
                for first in (0..edges).step_by(piece) {
                    let range = first..edges.min(first + piece);
                    let rows = |width: usize| range.start * width..range.end * width;
                    let (at_z, at_v) = (rows(2 * width), rows(width));
                    let (features, range) = (&features, &range);
                    let z = gathered.view_mut().slice(at_z.clone());
                    Gather { features, range, graph, x: xs.view(), z }.launch(device).unwrap();
                    let dz = zs.view().slice(at_z);
                    GatherBackward { features, range, graph, dz, dx: dx.view_mut() }.launch(device).unwrap();
                    let values = vs.view().slice(at_v.clone());
                    Reduce { features, range, graph, values, y: y.view_mut() }.launch(device).unwrap();
                    let dvalues = dv.view_mut().slice(at_v);
                    ReduceBackward { features, range, graph, dy: xs.view(), dvalues }.launch(device).unwrap();
                }
                [gathered, dx, y, dv]
            });
        }
    }
    checks.finish("ends of messages");
}
