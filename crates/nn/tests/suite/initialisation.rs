//! The initialisation keeps features at unit scale through twenty layers.

use crate::common;
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh, Neighbourhood};
use gemcnn_nn::layers::{GemConv, GemConvConfig, Nonlinearity, Regular};
use gemcnn_nn::{Aggregation, Builder, FeatureType, GraphBatch, Levels, Module, Parameters, Tape, Workspace};

struct Deep {
    kind: FeatureType,
    layers: Vec<(GemConv, Box<dyn Module<f64>>)>,
    parameters: Parameters<f64>,
}

impl Deep {
    /// Twenty convolutions with ReLU in between, without normalisation.
    fn new(kind: &FeatureType, aggregation: Aggregation, degree: f64, seed: u64) -> Self {
        let regular = Regular::relu(2 * kind.highest_order() + 3);
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, seed);
        let layers = (0..20)
            .map(|index| {
                let input_moments = match index {
                    0 => Vec::new(),
                    _ => Nonlinearity::<f64>::moments(&regular, kind),
                };
                let config = GemConvConfig {
                    aggregation,
                    degree,
                    input_moments,
                    ..GemConvConfig::new(kind.clone(), kind.clone())
                };
                let conv = config.init(&format!("conv{index}"), &mut builder).unwrap();
                let act = regular.init(&format!("act{index}"), kind, &mut builder);
                (conv, act.unwrap())
            })
            .collect();
        Self { kind: kind.clone(), layers, parameters }
    }

    /// Root mean square of each order after each convolution, for input of unit scale.
    fn scales(&mut self, batch: &GraphBatch<f64>, seed: u64, calibrate: bool) -> Vec<Vec<f64>> {
        let count = batch.vertex_count() * self.kind.dimension();
        let unit = 3f64.sqrt();
        let x = common::random::<f64>(count, seed);
        let x: Vec<f64> = x.iter().map(|v| unit * v).collect();
        let levels = Levels::from(batch);
        let mut workspace = Workspace::default();
        let mut tape = match calibrate {
            true => Tape::calibrating(&mut workspace, &mut self.parameters),
            false => Tape::inference(&mut workspace, &self.parameters),
        };
        let mut x = tape.input(self.kind.clone(), &x).unwrap();
        let mut scales = Vec::new();
        for (conv, act) in &self.layers {
            let y = conv.forward(&mut tape, levels, x).unwrap();
            let orders = self.kind.orders().map(|(order, _)| {
                let block = |row: &[f64]| -> f64 { row[self.kind.range(order)].iter().map(|v| v * v).sum() };
                let sum: f64 = y.values().unwrap().chunks(self.kind.dimension()).map(block).sum();
                (sum / (y.rows() * self.kind.range(order).len()) as f64).sqrt()
            });
            scales.push(orders.collect());
            x = act.forward(&mut tape, levels, y).unwrap();
        }
        scales
    }
}

fn batch(mesh: &Mesh, neighbourhood: Neighbourhood) -> GraphBatch<f64> {
    let options = GeometryOptions { neighbourhood, ..Default::default() };
    GraphBatch::new([&GaugeGraph::new(mesh, &options).unwrap()]).unwrap()
}

/// Calls `check` for types, degrees and aggregations.
fn for_all(mut check: impl FnMut(&str, &GraphBatch<f64>, &FeatureType, Aggregation)) {
    let sphere = shapes::icosphere(3).unwrap();
    let grid = shapes::grid(25, 25, Cells::Quads).unwrap();
    let near = Neighbourhood::Radius { radius: 0.4, limit: 32 };
    let graphs = [
        ("triangles", batch(&sphere, Neighbourhood::OneRing)),
        ("quads", batch(&grid, Neighbourhood::OneRing)),
        ("radius graph", batch(&sphere, near)),
    ];
    for (name, batch) in &graphs {
        for kind in ["16x0 + 16x1 + 16x2", "32x0", "12x0 + 12x1 + 12x2 + 12x3"] {
            let kind: FeatureType = kind.parse().unwrap();
            for aggregation in [Aggregation::Sum, Aggregation::Mean, Aggregation::MeanWithSelf] {
                let what = format!("{name}, {kind}, {aggregation:?}");
                check(&what, batch, &kind, aggregation);
            }
        }
    }
}

#[test]
fn drawn_weights_neither_explode_nor_die() {
    for_all(|what, batch, kind, aggregation| {
        let mut net = Deep::new(kind, aggregation, batch.mean_degree(), 1);
        let scales = net.scales(batch, 2, false);
        for (layer, orders) in scales.iter().enumerate() {
            let mean = orders.iter().sum::<f64>() / orders.len() as f64;
            let lowest = if layer < 4 { 0.3 } else { 0.02 };
            // At a border the mean with the vertex itself has fewer terms, so its own counts more.
            let highest = match aggregation {
                Aggregation::MeanWithSelf => 12.0,
                _ => 3.0,
            };
            assert!((lowest..highest).contains(&mean), "{what}, layer {layer}: {orders:?}");
        }
    });
}

#[test]
fn twenty_calibrated_layers_keep_unit_scale() {
    for_all(|what, batch, kind, aggregation| {
        let mut net = Deep::new(kind, aggregation, batch.mean_degree(), 1);
        net.scales(batch, 2, true);
        let on_the_same_data = net.scales(batch, 2, false);
        for size in on_the_same_data.iter().flatten() {
            assert!((size - 1.0).abs() < 1e-9, "{what}: {size}");
        }
        for (layer, orders) in net.scales(batch, 3, false).iter().enumerate() {
            for size in orders {
                assert!((0.5..2.0).contains(size), "{what}, layer {layer}: {orders:?}");
            }
        }
    });
}
