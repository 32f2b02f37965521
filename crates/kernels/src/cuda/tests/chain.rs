//! Messages and updates of vertices in one kernel, against the compositions in f64.

use super::*;
use crate::linear::Linear;
use crate::messages;
use crate::messages::chain::{self, Chain, SendLayer};
use crate::regular::{self, Regular, cuda::DevicePlan};
use crate::self_map::SelfMap;

/// Weights that change the values of a channel little.
fn small(count: usize, seed: u64) -> Vec<f32> {
    random(count, seed).iter().map(|value| 0.1 * value).collect()
}

/// Biases of scalars: half of the channels are always active and half never, so that rounding flips no ReLU.
fn decided(channels: usize) -> impl Iterator<Item = f32> {
    (0..channels).map(|channel| if channel % 3 == 0 { -8.0 } else { 8.0 })
}

struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// Adds gradients in the order of the weights of a chain: all matrices, then all biases.
fn packed(layers: &[[Vec<f64>; 2]]) -> Vec<f64> {
    let parts = (0..2).flat_map(|part| layers.iter().map(move |layer| layer[part].clone()));
    parts.flatten().collect()
}

fn uploaded(device: &CudaDevice, layers: &[Layer]) -> DeviceBuffer<f32> {
    let matrices = layers.iter().flat_map(|layer| &layer.weight);
    let all = matrices.chain(layers.iter().flat_map(|layer| &layer.bias));
    device.upload(&all.copied().collect::<Vec<_>>()).unwrap()
}

fn assert_close(device: &CudaDevice, what: &str, found: &DeviceBuffer<f32>, expected: &[f64]) {
    let error = relative_error(&found.to_vec(device).unwrap(), expected);
    println!("{what}: {error:.2e}");
    // NaN is not below any tolerance.
    assert!(error < TF32, "{what}: {error:e}");
}

#[test]
fn messages_in_one_kernel() {
    let Some(device) = device() else { return };
    device.set_product_mode(ProductMode::Tf32);
    let default_tile = device.tile_bytes();
    for (input, channels, band_limit, count) in
        [("16x0 + 16x1 + 16x2", 16, 2, 2), ("3x0 + 7x1 + 1x3", 5, 1, 3), ("3x0", 8, 2, 1), ("16x0 + 9x2", 24, 0, 2)]
    {
        let input = kind(input);
        let hidden = FeatureType::uniform(channels, band_limit);
        let config = Regular::new(hidden.clone(), 2 * band_limit + 1, Activation::Relu);
        let device_plan = DevicePlan::new(&config).unwrap();
        let (ends, width) = (2 * input.dimension(), hidden.dimension());
        let map = |layer: usize| Linear { inputs: if layer == 0 { ends } else { width }, outputs: width, bias: true };
        let maps: Vec<Linear> = (0..count).map(map).collect();
        let layers: Vec<Layer> = (0..count)
            .map(|layer| Layer {
                weight: small(maps[layer].weight_count(), 20 + layer as u64),
                bias: decided(channels).chain(small(width - channels, 30 + layer as u64)).collect(),
            })
            .collect();
        let of_chain = maps.iter().map(|map| SendLayer { map, plan: &device_plan });
        let of_chain: Vec<_> = of_chain.collect();
        let chain = Chain::messages(&device, &input, &of_chain).unwrap().unwrap();
        assert!(chain.has_backward());
        device.set_product_mode(ProductMode::F32);
        assert!(Chain::messages(&device, &input, &of_chain).unwrap().is_none());
        device.set_product_mode(ProductMode::Tf32);
        let weights = uploaded(&device, &layers);
        assert_eq!(weights.len(), chain.weight_count());
        for graph in graphs() {
            let (view, edges) = (graph.wide.view(), graph.wide.edge_count());
            let vertices = graph.wide.vertex_count();
            let (x, dy) = (random(vertices * input.dimension(), 1), random(vertices * width, 2));
            let mut values = vec![messages::reference::gather(&input, view, &wide(&x))];
            let mut sums = Vec::new();
            for (map, layer) in maps.iter().zip(&layers) {
                let (weight, bias) = (wide(&layer.weight), wide(&layer.bias));
                let (mut sum, mut value) = (vec![0.0; edges * width], vec![0.0; edges * width]);
                let x = &values[sums.len()];
                linear::reference::forward(map, edges, x, &weight, &bias, &mut sum);
                regular::reference::forward(&config, &sum, &mut value);
                values.push(value);
                sums.push(sum);
            }
            let mut y = vec![0.0; vertices * width];
            messages::reference::reduce(&hidden, view, &values[count], &mut y);
            let mut gradient = messages::reference::reduce_backward(&hidden, view, &wide(&dy));
            let mut gradients = Vec::new();
            for index in (0..count).rev() {
                let (map, layer) = (&maps[index], &layers[index]);
                let mut dsum = vec![0.0; sums[index].len()];
                regular::reference::backward(&config, &sums[index], &gradient, &mut dsum);
                let mut of_layer = [map.weight_count(), width].map(|n| vec![0.0; n]);
                let [dweight, dbias] = &mut of_layer;
                gradient = vec![0.0; edges * map.inputs];
                let (x, weight) = (&values[index], wide(&layer.weight));
                linear::reference::backward(map, edges, x, &weight, &dsum, &mut gradient, dweight, dbias);
                gradients.insert(0, of_layer);
            }
            let mut dx = vec![0.0; x.len()];
            messages::reference::gather_backward(&input, view, &gradient, &mut dx);

            let on_device = DeviceGraph::new(&device, graph.narrow.view()).unwrap();
            let of = on_device.view();
            let (xs, dys) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
            let what = format!("{}, {input}", graph.name);
            let mut found = poisoned(&device, y.len());
            let w = weights.view();
            chain::send(&device, &chain, of, xs.view(), w, found.view_mut()).unwrap();
            assert_close(&device, &format!("{what}, y"), &found, &y);
            // All edges at once, and in pieces.
            for tile in [default_tile, 1 << 16] {
                device.set_tile_bytes(tile);
                let mut dxs = poisoned(&device, dx.len());
                let mut dws = poisoned(&device, weights.len());
                let (x, dy, to) = (xs.view(), dys.view(), dxs.view_mut());
                let result = chain::send_backward(&device, &chain, of, x, w, dy, to, dws.view_mut());
                result.unwrap();
                assert_close(&device, &format!("{what}, dx"), &dxs, &dx);
                assert_close(&device, &format!("{what}, dw"), &dws, &packed(&gradients));
            }
            device.set_tile_bytes(default_tile);
        }
    }
}

#[test]
fn updates_in_one_kernel() {
    let Some(device) = device() else { return };
    device.set_product_mode(ProductMode::Tf32);
    for (channels, band_limit, count, vertices) in [(16, 2, 2, 1001), (8, 1, 3, 7), (24, 0, 1, 100)] {
        let kind = FeatureType::uniform(channels, band_limit);
        let config = Regular::new(kind.clone(), 2 * band_limit + 1, Activation::Relu);
        let device_plan = DevicePlan::new(&config).unwrap();
        let chain = Chain::update(&device, &kind, count, &device_plan);
        let chain = chain.unwrap().unwrap();
        let both = kind.concatenated(&kind);
        let map = |layer: usize| SelfMap {
            input: if layer == 0 { both.clone() } else { kind.clone() },
            output: kind.clone(),
            bias: true,
        };
        let maps: Vec<SelfMap> = (0..count).map(map).collect();
        let layers: Vec<Layer> = (0..count)
            .map(|layer| Layer {
                weight: small(maps[layer].parameter_count(), 20 + layer as u64),
                bias: decided(channels).collect(),
            })
            .collect();
        let weights = uploaded(&device, &layers);
        let width = kind.dimension();
        let [x, m, dy] = [1, 2, 3].map(|seed| random(vertices * width, seed));
        let mut joined = vec![0.0; 2 * x.len()];
        let (wide_x, wide_m) = (wide(&x), wide(&m));
        let (first, second, rows) = (&kind, &kind, vertices);
        let (a, b) = (&wide_x[..], &wide_m[..]);
        elementwise::Concatenate { first, second, rows, a, b, y: &mut joined[..] }.on_host().unwrap();
        let (mut values, mut sums) = (vec![joined], Vec::new());
        for (map, layer) in maps.iter().zip(&layers) {
            let (weight, bias) = (wide(&layer.weight), wide(&layer.bias));
            let mut sum = vec![0.0; vertices * width];
            self_map::reference::forward(map, vertices, &values[sums.len()], &weight, &bias, &mut sum);
            let mut value = vec![0.0; sum.len()];
            regular::reference::forward(&config, &sum, &mut value);
            values.push(value);
            sums.push(sum);
        }
        let y: Vec<f64> = wide(&x).iter().zip(&sums[count - 1]).map(|(x, s)| x + s).collect();
        let (mut gradient, mut gradients) = (wide(&dy), Vec::new());
        for index in (0..count).rev() {
            let (map, layer) = (&maps[index], &layers[index]);
            if index + 1 < count {
                let mut dsum = vec![0.0; gradient.len()];
                regular::reference::backward(&config, &sums[index], &gradient, &mut dsum);
                gradient = dsum;
            }
            let mut of_layer = [map.parameter_count(), channels].map(|n| vec![0.0; n]);
            let [dweight, dbias] = &mut of_layer;
            let mut before = vec![0.0; values[index].len()];
            let (x, weight) = (&values[index], wide(&layer.weight));
            self_map::reference::backward(map, vertices, x, &weight, &gradient, &mut before, dweight, dbias);
            gradient = before;
            gradients.insert(0, of_layer);
        }
        let (mut dx, mut dm) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (a, b) = (&mut dx[..], &mut dm[..]);
        elementwise::Split { first, second, rows, y: &gradient[..], a, b }.on_host().unwrap();
        dx.iter_mut().zip(&dy).for_each(|(dx, &dy)| *dx += f64::from(dy));

        let up = |values: &[f32]| device.upload(values).unwrap();
        let (xs, ms, dys) = (up(&x), up(&m), up(&dy));
        let (ends, w) = ([xs.view(), ms.view()], weights.view());
        let mut found = poisoned(&device, y.len());
        chain::update(&device, &chain, vertices, ends, w, found.view_mut()).unwrap();
        assert_close(&device, &format!("{kind}, y"), &found, &y);
        let [mut dxs, mut dms, mut dws] = [dx.len(), dm.len(), weights.len()].map(|count| poisoned(&device, count));
        let to = [dxs.view_mut(), dms.view_mut()];
        let (dy, dw) = (dys.view(), dws.view_mut());
        chain::update_backward(&device, &chain, vertices, ends, w, dy, to, dw).unwrap();
        assert_close(&device, &format!("{kind}, dx"), &dxs, &dx);
        assert_close(&device, &format!("{kind}, dm"), &dms, &dm);
        assert_close(&device, &format!("{kind}, dw"), &dws, &packed(&gradients));
    }
}
