//! Attention in one kernel, against the composition of products, softmax and convolutions in f64.

use super::*;
use crate::attention::{Attention, HeadWeights, cuda};
use crate::edges::{Softmax, SoftmaxBackward};
use crate::gauge_conv::GaugeConv;
use crate::irrep_dimension;
use crate::self_map::SelfMap;
use crate::weighted_conv::{Backward, Forward, Products};

/// Of products in tf32; the logits and their gradients are differences.
const TOLERANCE: f64 = 1e-2;

/// Weights of a head.
type Head = HeadWeights<Vec<f32>>;

/// Index in the output of each number of a head.
fn places(op: &Attention, head: usize) -> Vec<usize> {
    let orders = op.output.orders().flat_map(|(order, channels)| {
        let (start, run) = (op.output.range(order).start, channels / op.heads);
        (0..irrep_dimension(order)).map(move |i| (start + i * channels + head * run, run))
    });
    orders.flat_map(|(first, run)| first..first + run).collect()
}

/// `y`, `dx` and the gradients of all weights, head by head.
fn composed(op: &Attention, graph: &GraphArrays<f64>, x: &[f64], heads: &[Head], dy: &[f64]) -> [Vec<f64>; 3] {
    let (graph, vertices) = (graph.view(), graph.vertex_count());
    let outputs = op.output.dimension();
    let part = op.part();
    let width = part.dimension();
    let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    let mut gradients = Vec::new();
    for (head, weight) in heads.iter().enumerate() {
        let conv = |bias: bool| GaugeConv { self_term: false, bias, ..GaugeConv::new(op.input.clone(), part.clone()) };
        let (key_op, value_op) = (conv(false), conv(true));
        let map = SelfMap { input: op.input.clone(), output: part.clone(), bias: false };
        let [wq, wk, wv, wb] = [&weight.query, &weight.key, &weight.value, &weight.bias].map(|w| wide(w));
        let places = places(op, head);
        let scale = (width as f64).sqrt().recip();
        let mut query = vec![0.0; vertices * width];
        self_map::reference::forward(&map, vertices, x, &wq, &[], &mut query);
        query.iter_mut().for_each(|q| *q *= scale);
        let edge_row = || vec![0.0; graph.edge_count()];
        let (mut logits, mut a) = (edge_row(), edge_row());
        let products = |y: &[f64], weight: &[f64], products: &mut [f64]| {
            Products { op: &key_op, graph, y, x, weight, products }.on_host().unwrap();
        };
        products(&query, &wk, &mut logits);
        Softmax { heads: 1, graph, x: &logits[..], y: &mut a[..] }.on_host().unwrap();
        let mut part_y = query.clone();
        let (op, weight, bias) = (&value_op, &wv[..], &wb[..]);
        Forward { op, graph, factors: &a[..], x, weight, bias, y: &mut part_y[..] }.on_host().unwrap();
        let mut part_dy = Vec::with_capacity(query.len());
        for (row, part_row) in part_y.chunks_exact(width).enumerate() {
            for (&place, &value) in places.iter().zip(part_row) {
                y[row * outputs + place] = value;
                part_dy.push(dy[row * outputs + place]);
            }
        }
        let mut add = vec![0.0; x.len()];
        let mut add_to_dx = |add: &[f64]| dx.iter_mut().zip(add).for_each(|(dx, a)| *dx += a);
        let [mut dq, mut dk, mut dv, mut db] = [&wq, &wk, &wv, &wb].map(|w| vec![0.0; w.len()]);
        let (factors, dy, to, dweight, dbias) = (&a[..], &part_dy[..], Some(&mut add[..]), &mut dv[..], &mut db[..]);
        Backward { op, graph, factors, x, weight, bias, dy, dx: to, dweight, dbias }.on_host().unwrap();
        add_to_dx(&add);
        let (mut da, mut dl) = (edge_row(), edge_row());
        products(&part_dy, &wv, &mut da);
        SoftmaxBackward { heads: 1, graph, y: &a[..], dy: &da[..], dx: &mut dl[..] }.on_host().unwrap();
        let mut dquery = query.clone();
        let (op, factors, weight, bias) = (&key_op, &dl[..], &wk[..], &[][..]);
        Forward { op, graph, factors, x, weight, bias, y: &mut dquery[..] }.on_host().unwrap();
        let (dy, to, dweight, dbias) = (&query[..], Some(&mut add[..]), &mut dk[..], &mut [][..]);
        Backward { op, graph, factors, x, weight, bias, dy, dx: to, dweight, dbias }.on_host().unwrap();
        add_to_dx(&add);
        dquery.iter_mut().for_each(|q| *q *= scale);
        self_map::reference::backward(&map, vertices, x, &wq, &dquery, &mut add, &mut dq, &mut []);
        add_to_dx(&add);
        gradients.extend([dq, dk, dv, db].concat());
    }
    [y, dx, gradients]
}

/// The same on the GPU.
fn fused(
    device: &CudaDevice,
    op: &Attention,
    graph: &DeviceGraph,
    x: &[f32],
    heads: &[Head],
    dy: &[f32],
) -> [Vec<f32>; 3] {
    let (graph, count) = (graph.view(), op.parameter_count());
    let up = |values: &[f32]| device.upload(values).unwrap();
    let mut packed = poisoned(device, count);
    for (head, weight) in heads.iter().enumerate() {
        let parts = [&weight.query, &weight.key, &weight.value, &weight.bias].map(|w| up(w));
        let [query, key, value, bias] = parts.each_ref().map(DeviceBuffer::view);
        let weights = HeadWeights { query, key, value, bias };
        cuda::pack(device, op, head, weights, &packed.view_mut()).unwrap();
    }
    let (xs, dys) = (up(x), up(dy));
    let [mut y, mut queries] = [(); 2].map(|()| poisoned(device, dy.len()));
    let mut a = poisoned(device, graph.edge_count() * op.heads);
    let (q, to) = (queries.view_mut(), y.view_mut());
    cuda::forward(device, op, graph, xs.view(), packed.view(), q, a.view_mut(), to).unwrap();
    let (mut dx, mut all) = (poisoned(device, x.len()), poisoned(device, count));
    let (saved_q, saved_a) = (queries.view(), a.view());
    let to = Some(dx.view_mut());
    let (w, d) = (packed.view(), dys.view());
    cuda::backward(device, op, graph, xs.view(), w, saved_q, saved_a, d, to, all.view_mut()).unwrap();
    // The gradients of the heads are added to.
    let mut gradients = Vec::new();
    for (head, weight) in heads.iter().enumerate() {
        let parts = [&weight.query, &weight.key, &weight.value, &weight.bias];
        let mut parts = parts.map(|w| up(&vec![0.5; w.len()]));
        let [query, key, value, bias] = parts.each_mut().map(DeviceBuffer::view_mut);
        let to = HeadWeights { query, key, value, bias };
        cuda::add_gradients(device, op, head, all.view(), &to).unwrap();
        for part in &parts {
            gradients.extend(part.to_vec(device).unwrap().iter().map(|g| g - 0.5));
        }
    }
    [y.to_vec(device).unwrap(), dx.to_vec(device).unwrap(), gradients]
}

#[test]
fn attention_in_one_kernel() {
    let Some(device) = device() else { return };
    // A hub with more edges than a block holds at a time.
    let wheel = {
        let rim = |i: usize| {
            let angle = 0.01 * i as f64;
            DVec3::new(angle.cos(), angle.sin(), 0.0)
        };
        let vertices = std::iter::once(DVec3::Z).chain((0..400).map(rim)).collect();
        let faces = (1..400u32).map(|i| [0, i, i + 1]).collect::<Vec<_>>();
        Mesh::new(vertices, faces.iter().collect()).unwrap()
    };
    let wheel = GaugeGraph::new(&wheel, &GeometryOptions::default()).unwrap();
    let mut graphs = graphs();
    graphs.push(Graph {
        name: "hub of 400",
        narrow: GraphArrays::union(&[parts(&wheel)]).unwrap(),
        wide: GraphArrays::union(&[parts(&wheel)]).unwrap(),
    });
    let (mut failures, mut worst) = (Vec::new(), 0.0f64);
    for (input, output, heads) in [
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 2),
        ("16x0 + 16x1", "16x0 + 16x1 + 16x2", 1),
        ("8x0 + 8x1 + 8x2", "16x0 + 16x1 + 16x2", 2),
        ("3x0", "8x0 + 8x1", 4),
        ("3x0 + 5x1 + 2x3", "6x0 + 9x2 + 3x3", 3),
        ("2x1", "1x0 + 1x2", 1),
    ] {
        let op = Attention { input: kind(input), output: kind(output), heads };
        device.set_product_mode(ProductMode::F32);
        assert!(!cuda::supports(&device, &op).unwrap());
        device.set_product_mode(ProductMode::Tf32);
        assert!(cuda::supports(&device, &op).unwrap(), "{input} to {output}");
        let part = op.part();
        let small = |count: usize, seed: u64| -> Vec<f32> {
            let size = (op.input.dimension() as f32).sqrt().recip();
            random(count, seed).iter().map(|w| w * size).collect()
        };
        let weights: Vec<Head> = (0..heads as u64)
            .map(|head| HeadWeights {
                query: small(self_map::parameter_count(&op.input, &part), 10 * head),
                key: small(part.dimension() * op.input.dimension(), 10 * head + 1),
                value: small(part.dimension() * op.input.dimension(), 10 * head + 2),
                bias: random(part.multiplicity(0), 10 * head + 3),
            })
            .collect();
        for graph in &graphs {
            let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
            let vertices = graph.wide.vertex_count();
            let x = random(vertices * op.input.dimension(), 100);
            let dy = random(vertices * op.output.dimension(), 101);
            let expected = composed(&op, &graph.wide, &wide(&x), &weights, &wide(&dy));
            let default_tile = device.tile_bytes();
            for tile in [default_tile, 1 << 16] {
                device.set_tile_bytes(tile);
                let run = || fused(&device, &op, &on_device, &x, &weights, &dy);
                let (found, again) = (run(), run());
                let label = format!("{}, {input} to {output}, tiles of {tile}", graph.name);
                for ((name, expected), (found, again)) in
                    ["y", "dx", "gradients"].into_iter().zip(&expected).zip(found.iter().zip(&again))
                {
                    let error = relative_error(found, expected);
                    worst = worst.max(error);
                    if error.is_nan() || error > TOLERANCE {
                        failures.push(format!("{label}, {name}: relative error {error:e}"));
                    }
                    let same = found.iter().zip(again).all(|(a, b)| a.to_bits() == b.to_bits());
                    if !same {
                        failures.push(format!("{label}, {name}: two runs differ"));
                    }
                }
            }
            device.set_tile_bytes(default_tile);
        }
    }
    println!("attention in one kernel: largest relative error {worst:.2e}");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
