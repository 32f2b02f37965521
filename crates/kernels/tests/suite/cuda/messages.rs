//! The gauge convolution with weights of edges, products with keys, and the ends of messages.

use super::*;
use gemcnn_kernels::gauge_conv::{GaugeConv, Weights};
use gemcnn_kernels::{Scratch, messages, weighted_conv};

fn weights<S>(neighbour: S, self_term: S, bias: S) -> Weights<S> {
    Weights { neighbour, self_term, bias }
}

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
            let x = random(vertices * op.input.dimension(), 1);
            let dy = random(vertices * op.output.dimension(), 2);
            let weight = random(op.neighbour_count(), 3);
            let bias = random(op.bias_count(), 4);
            let factors = random(edge_count, 5);
            let (wx, wdy, ww, wb, wf) = (wide(&x), wide(&dy), wide(&weight), wide(&bias), wide(&factors));
            let (view, mut scratch) = (graph.wide.view(), Scratch::new());
            let values = weights(&ww[..], &[], &wb[..]);
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let (mut dw, mut db) = (vec![0.5; weight.len()], vec![0.25; bias.len()]);
            let mut products = vec![0.0; edge_count];
            weighted_conv::forward(&op, view, &wf, &wx, values, &mut y, &mut scratch).unwrap();
            let gradients = weights(&mut dw[..], &mut [], &mut db[..]);
            let wanted = Some(&mut dx[..]);
            weighted_conv::backward(&op, view, &wf, &wx, values, &wdy, wanted, gradients, &mut scratch).unwrap();
            weighted_conv::reference::products(&op, view, &wdy, &wx, &ww, &mut products).unwrap();
            let expected = [("y", &y[..]), ("dx", &dx), ("dweight", &dw), ("dbias", &db), ("products", &products)];
            let what = format!("{}, {input} to {output}", graph.name);
            checks.check(&what, expected, |device| {
                use weighted_conv::cuda;
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, w, b, f) = (up(&x), up(&dy), up(&weight), up(&bias), up(&factors));
                let (mut y, mut dx) = (poisoned(device, dy.len()), poisoned(device, x.len()));
                let (mut dw, mut db) = (up(&vec![0.5; w.len()]), up(&vec![0.25; b.len()]));
                let mut products = poisoned(device, edge_count);
                let (graph, f, xs) = (on_device.view(), f.view(), x.view());
                let values = weights(w.view(), DeviceSlice::empty(), b.view());
                cuda::forward(device, &op, graph, f, xs, values, y.view_mut()).unwrap();
                let gradients = weights(dw.view_mut(), DeviceSliceMut::empty(), db.view_mut());
                let wanted = Some(dx.view_mut());
                let dys = dy.view();
                cuda::backward(device, &op, graph, f, xs, values, dys, wanted, gradients).unwrap();
                let to = products.view_mut();
                cuda::products(device, &op, graph, dys, xs, w.view(), to).unwrap();
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
                use messages::cuda;
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (xs, zs, vs) = (up(&x), up(&z), up(&v));
                let (mut dx, mut y) = (up(&x), up(&x));
                let (mut gathered, mut dv) = (poisoned(device, z.len()), poisoned(device, v.len()));
                let graph = on_device.view();
                for first in (0..edges).step_by(piece) {
                    let range = first..edges.min(first + piece);
                    let rows = |width: usize| range.start * width..range.end * width;
                    let (at_z, at_v) = (rows(2 * width), rows(width));
                    let (f, r) = (&features, || range.clone());
                    let to = gathered.view_mut().slice(at_z.clone());
                    cuda::gather(device, f, r(), graph, xs.view(), to).unwrap();
                    let from = zs.view().slice(at_z);
                    cuda::gather_backward(device, f, r(), graph, from, dx.view_mut()).unwrap();
                    let from = vs.view().slice(at_v.clone());
                    cuda::reduce(device, f, r(), graph, from, y.view_mut()).unwrap();
                    let to = dv.view_mut().slice(at_v);
                    cuda::reduce_backward(device, f, r(), graph, xs.view(), to).unwrap();
                }
                [gathered, dx, y, dv]
            });
        }
    }
    checks.finish("ends of messages");
}
