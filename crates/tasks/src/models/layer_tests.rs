//! The layers of the baselines: values from the formulas in f64, gradients, symmetries, and devices.

mod golden;
mod symmetries;

use super::edge::edge_conv;
use super::feast::feast_conv;
use super::geodesic::geodesic_conv;
use super::monet::monet_conv;
use super::stack::patch_conv;
use super::zernike::zernike_conv;
use super::*;
use crate::features::{Fields, Surface};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{
    CudaDevice, Device, Geometry, GraphBatch, Network, NnError, PatchArrays, PatchBatch, ProductMode, Real, SparseMap,
    Stream, Tape, Workspace,
};
use std::f64::consts::TAU;

const INPUTS: usize = 3;
const OUTPUTS: usize = 4;

/// A layer with small settings.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Layer {
    Spiral,
    Feast,
    Edge,
    Monet,
    Geodesic,
    Acnn,
    Zernike,
}

const ALL: [Layer; 7] =
    [Layer::Spiral, Layer::Feast, Layer::Edge, Layer::Monet, Layer::Geodesic, Layer::Acnn, Layer::Zernike];

const LENGTH: usize = 9;
const MATRICES: usize = 5;
const NEIGHBOURS: usize = 7;
const KERNELS: usize = 3;
const RINGS: usize = 2;
const ANGLES: usize = 6;
const DEGREE: usize = 3;
/// On meshes of about 40 vertices: a disc of the two-ring.
const RADIUS: f64 = 0.35;

impl Layer {
    fn model(self) -> ModelConfig {
        match self {
            Self::Spiral => SpiralModel { length: LENGTH, dilation: 2, ..Default::default() }.into(),
            Self::Feast => FeastModel::default().into(),
            Self::Edge => EdgeModel { neighbours: NEIGHBOURS, ..Default::default() }.into(),
            Self::Monet => MonetModel { radius: RADIUS, ..Default::default() }.into(),
            Self::Geodesic => {
                GeodesicModel { rings: RINGS, angles: ANGLES, radius: RADIUS, ..Default::default() }.into()
            }
            Self::Acnn => AcnnModel { angles: 3, steps: vec![1, 3], radius: RADIUS, ..Default::default() }.into(),
            Self::Zernike => {
                ZernikeModel { degree: DEGREE, rotations: ANGLES, radius: RADIUS, ..Default::default() }.into()
            }
        }
    }

    /// The layer alone as a network.
    fn network<T: Real>(self) -> (Network<T>, gemcnn_nn::Parameters<T>) {
        let outputs = OUTPUTS;
        let network = Network::builder(FeatureType::scalars(INPUTS));
        let network = match self {
            Self::Spiral => network.layer(patch_conv("spiral", LENGTH, outputs)),
            Self::Acnn => network.layer(patch_conv("acnn", 6, outputs)),
            Self::Feast => network.layer(feast_conv(MATRICES, outputs)),
            Self::Edge => network.layer(edge_conv(NEIGHBOURS, outputs)),
            Self::Monet => network.layer(monet_conv(KERNELS, outputs)),
            Self::Geodesic => network.layer(geodesic_conv(RINGS, ANGLES, outputs)),
            Self::Zernike => network.layer(zernike_conv(DEGREE, ANGLES, outputs)),
        };
        let (network, mut parameters) = network.init(5).unwrap();
        // Biases start at zero, where a wrong sign does not show.
        for (index, parameter) in parameters.iter_mut().enumerate() {
            let shifts = random(parameter.value().len(), index as u64 + 40);
            let each = parameter.value_mut().iter_mut().zip(shifts);
            each.for_each(|(value, shift)| *value += T::of(0.3 * shift));
        }
        (network, parameters)
    }

    fn maps(self, mesh: &Mesh, graph: &GaugeGraph) -> Vec<SparseMap> {
        let surface = Surface { mesh, graph, normals: Default::default(), operators: None, fields: &Fields::default() };
        let extras = self.model().extras()[0].compute(surface).unwrap();
        extras.get::<PatchBatch<f32>>().unwrap().parts()[0].maps.clone()
    }

    fn batch<T: Real>(self, meshes: &[(&Mesh, &GaugeGraph)]) -> Geometry<T> {
        let graphs = GraphBatch::new(meshes.iter().map(|(_, graph)| *graph)).unwrap();
        let parts = meshes.iter().map(|(mesh, graph)| {
            let maps = self.maps(mesh, graph);
            let vertices = mesh.vertex_count();
            PatchArrays { vertices, maps }.into()
        });
        let patches = PatchBatch::new(parts).unwrap();
        Geometry::from(graphs).with(patches).unwrap()
    }
}

fn random(count: usize, seed: u64) -> Vec<f64> {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| 2.0 * random.random::<f64>() - 1.0).collect()
}

fn graph(mesh: &Mesh) -> GaugeGraph {
    GaugeGraph::new(mesh, &GeometryOptions::default()).unwrap()
}

/// Without any symmetry, so that no angle is at the jump of `monet` and no two distances are equal.
fn bumpy_sphere() -> Mesh {
    let angle = |p: DVec3| 3.0 * p.x + 2.0 * p.y * p.z + 1.3 * p.y + 0.7 * p.z;
    let bump = |p: DVec3| p * (1.0 + 0.2 * angle(p).sin());
    shapes::icosphere(1).unwrap().map_vertices(bump).unwrap()
}

/// A closed mesh and an open one.
fn meshes() -> [Mesh; 2] {
    let bend = |p: DVec3| DVec3::new(p.x, p.y, 0.1 * (p.x * p.x - 0.5 * p.y).sin());
    let grid = shapes::grid(5, 6, Cells::Triangles).unwrap();
    [bumpy_sphere(), grid.map_vertices(bend).unwrap()]
}

fn forward<T: Real>(layer: Layer, batch: &Geometry<T>, x: &[T]) -> Result<Vec<T>, NnError> {
    let (network, parameters) = layer.network::<T>();
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = tape.input(network.input().clone(), x)?;
    let y = network.forward(&mut tape, batch.into(), x)?;
    Ok(y.values()?.into_owned())
}

/// `W x + b` of one row.
fn affine(weight: &[f64], bias: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = weight.chunks_exact(x.len()).enumerate();
    rows.map(|(row, w)| {
        let sum: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
        sum + bias.get(row).copied().unwrap_or(0.0)
    })
    .collect()
}

fn largest(a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    a.iter().zip(&b).map(|(a, b)| a.max(*b)).collect()
}

/// A row of a sparse map applied to features.
fn row(map: &SparseMap, row: usize, x: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; INPUTS];
    for entry in map.offsets[row] as usize..map.offsets[row + 1] as usize {
        let at = map.columns[entry] as usize * INPUTS;
        let weight = map.weights.get(entry).map_or(1.0, |&w| f64::from(w));
        (sum.iter_mut().zip(&x[at..])).for_each(|(sum, x)| *sum += weight * x);
    }
    sum
}

/// Batch normalisation of a number in a slot, with running statistics. Orders above 0 are not shifted.
fn normalised(norm: &[&[f64]], slot: usize, order: usize, x: f64) -> f64 {
    let [gamma, beta, mean, variance] = norm else { panic!() };
    let scale = gamma[slot] / (variance[slot] + 1e-5).sqrt();
    match order {
        0 => scale * (x - mean[slot]) + beta[slot],
        _ => scale * x,
    }
}

/// The formula of a layer at one vertex.
fn expected(layer: Layer, mesh: &Mesh, maps: &[SparseMap], x: &[f64], i: usize) -> Vec<f64> {
    let (_, parameters) = layer.network::<f64>();
    let values: Vec<&[f64]> = parameters.iter().map(|p| p.value()).collect();
    let of = |v: usize| &x[v * INPUTS..(v + 1) * INPUTS];
    let bins = |count: usize| -> Vec<Vec<f64>> {
        let rows = i * count..(i + 1) * count;
        rows.map(|at| row(&maps[0], at, x)).collect()
    };
    match layer {
        Layer::Spiral | Layer::Acnn => {
            let count = if layer == Layer::Spiral { LENGTH } else { 6 };
            affine(values[0], values[1], &bins(count).concat())
        }
        Layer::Feast => {
            let [u, ref norm @ .., w, b] = values[..] else { panic!() };
            let graph = graph(mesh);
            let mut near: Vec<usize> = (graph.neighbours()[graph.row(i)].iter()).map(|&v| v as usize).collect();
            near.push(i);
            let mut y = b.to_vec();
            for &j in &near {
                let difference: Vec<f64> = of(j).iter().zip(of(i)).map(|(j, i)| j - i).collect();
                let scores = affine(u, &[], &difference).into_iter().enumerate();
                let scores: Vec<f64> = scores.map(|(m, s)| normalised(norm, m, 0, s)).collect();
                let total: f64 = scores.iter().map(|s| s.exp()).sum();
                for (m, score) in scores.iter().enumerate() {
                    let q = score.exp() / total / near.len() as f64;
                    for (o, y) in y.iter_mut().enumerate() {
                        let w = &w[o * MATRICES * INPUTS + m * INPUTS..][..INPUTS];
                        *y += q * w.iter().zip(of(j)).map(|(w, x)| w * x).sum::<f64>();
                    }
                }
            }
            y
        }
        Layer::Edge => {
            let [a, b, ref norm @ ..] = values[..] else { panic!() };
            let points = mesh.vertices();
            let mut near: Vec<usize> = (0..points.len()).collect();
            near.sort_by(|&a, &b| {
                let [a, b] = [a, b].map(|v| points[v].distance_squared(points[i]));
                a.total_cmp(&b)
            });
            let at = |&j: &usize| {
                let difference: Vec<f64> = of(j).iter().zip(of(i)).map(|(j, i)| j - i).collect();
                let (first, second) = (affine(a, &[], of(i)), affine(b, &[], &difference));
                let each = first.iter().zip(second).enumerate();
                each.map(|(o, (first, second))| first + normalised(norm, o, 0, second)).collect()
            };
            let all = near[..NEIGHBOURS].iter().map(at);
            all.reduce(largest).unwrap()
        }
        Layer::Monet => {
            let [gaussians, w, b] = values[..] else { panic!() };
            let pairs = (0..maps[2].columns.len()).filter(|&at| maps[2].columns[at] == i as u32);
            let pairs: Vec<usize> = pairs.collect();
            let mut means = vec![0.0; KERNELS * INPUTS];
            for &pair in &pairs {
                let u: Vec<f64> = (maps[1].weights[3 * pair..][..3].iter()).map(|&v| f64::from(v)).collect();
                let points = affine(gaussians, &[], &u);
                for k in 0..KERNELS {
                    let square = points[k].powi(2) + points[KERNELS + k].powi(2);
                    let weight = (-0.5 * square).exp() / pairs.len() as f64;
                    let value = of(maps[0].columns[pair] as usize);
                    let sums = means[k * INPUTS..].iter_mut().zip(value);
                    sums.for_each(|(sum, x)| *sum += weight * x);
                }
            }
            affine(w, b, &means)
        }
        Layer::Geodesic => {
            let bins = bins(RINGS * ANGLES);
            let rotated = |k: usize| {
                let turned = (0..ANGLES * RINGS).map(|at| {
                    let (angle, ring) = (at / RINGS, at % RINGS);
                    bins[(angle + k) % ANGLES * RINGS + ring].clone()
                });
                affine(values[0], &[], &turned.collect::<Vec<_>>().concat())
            };
            (0..ANGLES).map(rotated).reduce(largest).unwrap()
        }
        Layer::Zernike => {
            let [ref norm @ .., w] = values[..] else { panic!() };
            let mut bins = bins(10);
            // Order and first slot of each polynomial: cosine and sine share one.
            let slots = [[(0, 0), (0, 1), (1, 2), (1, 3), (1, 2)], [(1, 3), (2, 4), (2, 4), (3, 5), (3, 5)]];
            for (bin, (order, first)) in bins.iter_mut().zip(slots.concat()) {
                for (channel, value) in bin.iter_mut().enumerate() {
                    *value = normalised(norm, first * INPUTS + channel, order, *value);
                }
            }
            // Degrees 0 and 2, then 1 and 3 with cosine and sine, 2, 3.
            let pairs = [(1, 2, 4), (1, 3, 5), (2, 6, 7), (3, 8, 9)];
            let rotated = |k: usize| {
                let mut turned = bins.clone();
                for (m, cosine, sine) in pairs {
                    let (s, c) = (TAU * (m * k) as f64 / ANGLES as f64).sin_cos();
                    for channel in 0..INPUTS {
                        let [a, b] = [bins[cosine][channel], bins[sine][channel]];
                        turned[cosine][channel] = c * a - s * b;
                        turned[sine][channel] = s * a + c * b;
                    }
                }
                affine(w, &[], &turned.concat())
            };
            (0..ANGLES).map(rotated).reduce(largest).unwrap()
        }
    }
}

#[test]
fn values_are_those_of_the_formulas() {
    let meshes = meshes();
    let graphs = meshes.each_ref().map(graph);
    for layer in ALL {
        let batch = layer.batch::<f64>(&[(&meshes[0], &graphs[0]), (&meshes[1], &graphs[1])]);
        let count: usize = meshes.iter().map(Mesh::vertex_count).sum();
        let x = random(count * INPUTS, 1);
        let found = forward(layer, &batch, &x).unwrap();
        let first = meshes[0].vertex_count();
        for (mesh, graph, start) in [(&meshes[0], &graphs[0], 0), (&meshes[1], &graphs[1], first)] {
            let (maps, x) = (layer.maps(mesh, graph), &x[start * INPUTS..]);
            for i in 0..mesh.vertex_count() {
                let wanted = expected(layer, mesh, &maps, x, i);
                let found = &found[(start + i) * OUTPUTS..][..OUTPUTS];
                for (found, wanted) in found.iter().zip(&wanted) {
                    // Angles are stored in f32.
                    let off = (found - wanted).abs();
                    assert!(off < 1e-5, "{layer:?}, {i}: {found} is not {wanted}");
                }
            }
        }
        let bare = Geometry::from(GraphBatch::new([&graphs[0]]).unwrap());
        let error = forward(layer, &bare, &x[..first * INPUTS]).unwrap_err();
        assert!(matches!(error, NnError::Layer { .. } | NnError::Missing { .. }));
    }
}

/// Loss, gradient of the input, and gradients of all parameters together.
fn step<T: Real>(
    device: &Device,
    layer: Layer,
    batch: &Geometry<T>,
    x: &[T],
    change: &[f64],
    rate: f64,
) -> (f64, Vec<T>, Vec<T>) {
    let (network, mut parameters) = layer.network::<T>();
    let mut changes = change.iter();
    for parameter in parameters.iter_mut().filter(|p| p.is_trained()) {
        for value in parameter.value_mut() {
            *value += T::of(rate * changes.next().unwrap());
        }
    }
    let target: Vec<T> = (random(x.len() / INPUTS * OUTPUTS, 9).iter()).map(|&v| T::of(v)).collect();
    let mut workspace = Workspace::new(device.clone());
    let stream = Stream { seed: 1, step: 0 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let x = tape.tracked_input(network.input().clone(), x).unwrap();
    let y = network.forward(&mut tape, batch.into(), x.clone()).unwrap();
    let loss = tape.mean_square(y, &target).unwrap();
    let value = loss.value().unwrap();
    let dx = tape.backward_to(&loss, &[&x]).unwrap()[0].to_vec();
    parameters.move_to_host().unwrap();
    let trained = parameters.iter().filter(|p| p.is_trained());
    let gradients = trained.flat_map(|p| p.gradient().to_vec());
    (value, dx, gradients.collect())
}

#[test]
fn gradients_equal_finite_differences() {
    let mesh = bumpy_sphere();
    let graph = graph(&mesh);
    for layer in ALL {
        let batch = layer.batch::<f64>(&[(&mesh, &graph)]);
        let x = random(mesh.vertex_count() * INPUTS, 1);
        let count = layer.network::<f64>().1.trained_count();
        let (along_x, along_parameters) = (random(x.len(), 2), random(count, 3));
        let run = |x: &[f64], rate: f64| step(&Device::Cpu, layer, &batch, x, &along_parameters, rate);
        let (_, dx, gradients) = run(&x, 0.0);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let h = 1e-6;
        let moved = |sign: f64| -> Vec<f64> {
            let pairs = x.iter().zip(&along_x);
            pairs.map(|(x, v)| x + sign * h * v).collect()
        };
        let by_x = (run(&moved(1.0), 0.0).0 - run(&moved(-1.0), 0.0).0) / (2.0 * h);
        let by_parameters = (run(&x, h).0 - run(&x, -h).0) / (2.0 * h);
        for (what, found, wanted) in
            [("input", dot(&dx, &along_x), by_x), ("parameters", dot(&gradients, &along_parameters), by_parameters)]
        {
            let off = (found - wanted).abs() / wanted.abs().max(1e-3);
            assert!(off < 1e-5, "{layer:?}, {what}: {found} is not {wanted}");
        }
    }
}

#[test]
fn devices_agree_with_f64_on_the_cpu() {
    let mut devices = vec![Device::Cpu];
    match CudaDevice::new(0) {
        Ok(device) => {
            device.set_product_mode(ProductMode::F32);
            devices.push(Device::Cuda(device));
        }
        Err(problem) => {
            let required = std::env::var("GEMCNN_REQUIRE_CUDA").is_ok_and(|value| value == "1");
            assert!(!required, "the layers of baselines need a GPU: {problem}");
            println!("layers of baselines skipped on a GPU: {problem}");
        }
    }
    let meshes = meshes();
    let graphs = meshes.each_ref().map(graph);
    let both = [(&meshes[0], &graphs[0]), (&meshes[1], &graphs[1])];
    let count: usize = meshes.iter().map(Mesh::vertex_count).sum();
    let x = random(count * INPUTS, 1);
    let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    for layer in ALL {
        let change = vec![0.0; layer.network::<f64>().1.trained_count()];
        let batch = layer.batch::<f64>(&both);
        let expected = step(&Device::Cpu, layer, &batch, &x, &change, 0.0);
        for device in &devices {
            let batch = layer.batch::<f32>(&both);
            let found = step(device, layer, &batch, &narrow, &change, 0.0);
            assert!((found.0 - expected.0).abs() < 1e-4 * expected.0);
            for (found, expected) in [(&found.1, &expected.1), (&found.2, &expected.2)] {
                let size = expected.iter().map(|e| e * e).sum::<f64>().sqrt();
                let pairs = found.iter().zip(expected);
                let off: f64 = pairs.map(|(&f, e)| (f64::from(f) - e).powi(2)).sum();
                // A maximum may be taken at another place, which moves a little of a gradient.
                assert!(off.sqrt() < 1e-3 * size, "{device:?}, {layer:?}: {off}");
            }
        }
    }
}

/// Features that hardly differ between neighbours, as positions do, still make vertices differ: differences are
/// normalised. A layer without that passes on what it gets.
#[test]
fn small_differences_count() {
    let mesh = bumpy_sphere();
    let graph = graph(&mesh);
    let small = random(mesh.vertex_count() * INPUTS, 1);
    let x: Vec<f64> = small.iter().map(|d| 1.0 + 0.02 * d).collect();
    for layer in [Layer::Feast, Layer::Edge, Layer::Zernike, Layer::Spiral] {
        let (network, mut parameters) = layer.network::<f64>();
        let batch = layer.batch::<f64>(&[(&mesh, &graph)]);
        let mut workspace = Workspace::default();
        let stream = Stream { seed: 1, step: 0 };
        let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
        let x = tape.input(network.input().clone(), &x).unwrap();
        let y = network.forward(&mut tape, (&batch).into(), x).unwrap();
        let y = y.values().unwrap();
        let count = mesh.vertex_count() as f64;
        let deviation = |channel: usize| {
            let values = || y.iter().skip(channel).step_by(OUTPUTS);
            let mean = values().sum::<f64>() / count;
            let squares = values().map(|v| (v - mean).powi(2)).sum::<f64>();
            (squares / count).sqrt()
        };
        let largest = (0..OUTPUTS).map(deviation).fold(0.0, f64::max);
        assert_eq!(largest > 0.1, layer != Layer::Spiral, "{layer:?}: {largest}");
    }
}
