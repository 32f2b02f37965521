//! Every operator on a GPU, forward and backward, against the readable versions in f64 on the CPU. Skips,
//! saying why, where no device works.
//!
//! Every check runs with products in f32 and in tf32, with whole maps and with small tiles at a time,
//! twice: both runs must give the same bits. Results are filled with NaN before, so that a number that is
//! not written is found.

use gemcnn_kernels::cuda::{
    CudaDevice, CudaGraph, DeviceBuffer, DeviceSlice, DeviceSliceMut, ProductMode,
};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{
    Activation, Aggregation, FeatureType, GraphArrays, GraphParts, KernelError, activation,
    aggregate, batch_norm, classifier, cross_entropy, dropout, edges, elementwise, gauge_conv,
    incidence, irrep, linear, mesh_product, norm_gate, pool, regression, regular, self_map,
};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest relative error with products in f32, and in tf32.
const F32: f64 = 1e-5;
const TF32: f64 = 3e-3;

/// A device, or nothing where there is none.
fn device() -> Option<CudaDevice> {
    match CudaDevice::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("GEMCNN_REQUIRE_CUDA").is_ok_and(|value| value == "1");
            assert!(!required, "a GPU is required: {error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// Numbers in [-1, 1) that f32 holds exactly.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| (2.0 * rng.random::<f64>() - 1.0) as f32)
        .collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

/// What went wrong in one test, told at its end.
struct Checks {
    device: CudaDevice,
    failures: Vec<String>,
    worst: [f64; 2],
    count: usize,
}

impl Checks {
    fn new(device: CudaDevice) -> Self {
        Self {
            device,
            failures: Vec::new(),
            worst: [0.0; 2],
            count: 0,
        }
    }

    /// Runs `work` in all modes and compares its results with what is expected.
    fn check<const N: usize>(
        &mut self,
        what: &str,
        expected: [(&str, &[f64]); N],
        work: impl Fn(&CudaDevice) -> [DeviceBuffer<f32>; N],
    ) {
        let device = self.device.clone();
        let default_tile = device.tile_bytes();
        for (place, (mode, tolerance)) in [(ProductMode::F32, F32), (ProductMode::Tf32, TF32)]
            .into_iter()
            .enumerate()
        {
            device.set_product_mode(mode);
            for tile in [default_tile, 1 << 16] {
                device.set_tile_bytes(tile);
                let read = || work(&device).map(|buffer| buffer.to_vec(&device).unwrap());
                let (first, second) = (read(), read());
                for ((name, expected), (found, again)) in
                    expected.iter().zip(first.iter().zip(&second))
                {
                    let label = format!("{what}, {name}, {mode:?}, tiles of {tile} bytes");
                    let error = relative_error(found, expected);
                    self.worst[place] = self.worst[place].max(error);
                    self.count += 1;
                    // NaN is not below any tolerance.
                    if error.is_nan() || error > tolerance {
                        self.failures
                            .push(format!("{label}: relative error {error:e}"));
                    }
                    let bits = |values: &[f32]| -> Vec<u32> {
                        values.iter().map(|value| value.to_bits()).collect()
                    };
                    if bits(found) != bits(again) {
                        self.failures.push(format!("{label}: two runs differ"));
                    }
                }
            }
        }
        device.set_tile_bytes(default_tile);
    }

    fn finish(self, operator: &str) {
        println!(
            "{operator}: {} comparisons, largest relative error {:.2e} (f32), {:.2e} (tf32)",
            self.count, self.worst[0], self.worst[1]
        );
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
    }
}

/// `|found - expected| / |expected|`, where numbers below a tenth on average count as a tenth.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    if found.is_empty() {
        return 0.0;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(&f, e)| f64::from(f) - e));
    let size = squares(&mut expected.iter().copied());
    (difference / size.max(0.01 * found.len() as f64)).sqrt()
}

/// A buffer full of NaN.
fn poisoned(device: &CudaDevice, count: usize) -> DeviceBuffer<f32> {
    device.upload(&vec![f32::NAN; count]).unwrap()
}

fn gauge_graphs() -> Vec<(&'static str, GaugeGraph)> {
    let points = |count: usize| {
        let at = |i: usize| DVec3::new(i as f64, 0.5, 0.0);
        Mesh::new((0..count).map(at).collect(), Default::default()).unwrap()
    };
    let shaken = |mesh: Mesh, seed: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || 0.05 * (rng.random::<f64>() - 0.5);
        mesh.map_vertices(|v| v + DVec3::new(draw(), draw(), draw()))
            .unwrap()
    };
    // A fan with a hub of high degree, and vertices that no face uses.
    let hub = {
        let rim = |i: usize| {
            let angle = 0.3 * i as f64;
            DVec3::new(angle.cos(), angle.sin(), 0.0)
        };
        let vertices = std::iter::once(DVec3::Z).chain((0..24).map(rim)).collect();
        let faces = (1..20u32).map(|i| [0, i, i + 1]).collect::<Vec<_>>();
        Mesh::new(vertices, faces.iter().collect()).unwrap()
    };
    [
        ("closed", shaken(shapes::icosphere(2).unwrap(), 1)),
        (
            "open",
            shaken(shapes::grid(9, 11, Cells::Triangles).unwrap(), 2),
        ),
        ("hub and isolated vertices", hub),
        ("one vertex", points(1)),
        ("no vertex", points(0)),
        (
            "large",
            shaken(shapes::grid(47, 53, Cells::Triangles).unwrap(), 3),
        ),
    ]
    .map(|(name, mesh)| {
        (
            name,
            GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap(),
        )
    })
    .into()
}

fn parts(graph: &GaugeGraph) -> GraphParts<'_> {
    GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
    }
}

/// A graph in both precisions.
struct Graph {
    name: &'static str,
    narrow: GraphArrays<f32>,
    wide: GraphArrays<f64>,
}

/// Graphs one by one, and an unequal batch of all of them.
fn graphs() -> Vec<Graph> {
    let graphs = gauge_graphs();
    let union = |name, members: &[GraphParts<'_>]| Graph {
        name,
        narrow: GraphArrays::union(members).unwrap(),
        wide: GraphArrays::union(members).unwrap(),
    };
    let mut all: Vec<Graph> = graphs
        .iter()
        .map(|(name, graph)| union(name, &[parts(graph)]))
        .collect();
    let small: Vec<GraphParts<'_>> = graphs[..5].iter().map(|(_, graph)| parts(graph)).collect();
    all.push(union("unequal batch", &small));
    all
}

const AGGREGATIONS: [Aggregation; 3] = [
    Aggregation::Sum,
    Aggregation::Mean,
    Aggregation::MeanWithSelf,
];

#[test]
fn aggregate_and_its_adjoint() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = CudaGraph::new(&device, &graph.narrow).unwrap();
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
            let x = random(vertices * op.input.dimension(), 1);
            let da = random(vertices * op.dimension(), 2);
            let (mut a, mut dx) = (vec![0.0; da.len()], vec![0.0; x.len()]);
            aggregate::reference::forward(&op, &graph.wide, &wide(&x), &mut a).unwrap();
            aggregate::reference::backward(&op, &graph.wide, &wide(&da), &mut dx).unwrap();
            let what = format!("{}, {input}", graph.name);
            checks.check(&what, [("a", &a), ("dx", &dx)], |device| {
                let (x, da) = (device.upload(&x).unwrap(), device.upload(&da).unwrap());
                let mut a = poisoned(device, da.len());
                let mut dx = poisoned(device, x.len());
                aggregate::cuda::forward(device, &op, &on_device, x.view(), a.view_mut()).unwrap();
                aggregate::cuda::backward(device, &op, &on_device, da.view(), dx.view_mut())
                    .unwrap();
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
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"),
        ("3x0", "16x0 + 16x1 + 16x2"),
        ("16x0 + 16x1 + 16x2", "64x0"),
        ("2x0 + 3x1 + 1x3", "5x0 + 1x2"),
        ("1x1", "2x1 + 2x0"),
        ("7x0", "1x0"),
    ];
    for graph in graphs() {
        let on_device = CudaGraph::new(&device, &graph.narrow).unwrap();
        for (case, (input, output)) in types.into_iter().enumerate() {
            if graph.name == "large" && case > 0 {
                continue;
            }
            let op = gauge_conv::GaugeConv {
                rings: 1 + 2 * (case % 2),
                max_radius: 0.3,
                aggregation: AGGREGATIONS[case % 3],
                self_term: case != 4,
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
            let weights = gauge_conv::Weights {
                neighbour: &wn[..],
                self_term: &ws,
                bias: &wb,
            };
            let [dn, ds, db] = &mut sums;
            let gradients = gauge_conv::Weights {
                neighbour: &mut dn[..],
                self_term: ds,
                bias: db,
            };
            let wx = wide(&x);
            gauge_conv::reference::forward(&op, &graph.wide, &wx, weights, &mut y).unwrap();
            gauge_conv::reference::backward(
                &op,
                &graph.wide,
                &wx,
                weights,
                &wide(&dy),
                &mut dx,
                gradients,
            )
            .unwrap();
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
                let (x, dy) = (up(&x), up(&dy));
                let (neighbour, own, bias) = (up(&neighbour), up(&own), up(&bias));
                let weights = gauge_conv::Weights {
                    neighbour: neighbour.view(),
                    self_term: own.view(),
                    bias: bias.view(),
                };
                let mut y = poisoned(device, dy.len());
                let mut dx = poisoned(device, x.len());
                let [mut dn, mut ds, mut db] = before.clone().map(|values| up(&values));
                gauge_conv::cuda::forward(device, &op, &on_device, x.view(), weights, y.view_mut())
                    .unwrap();
                let gradients = gauge_conv::Weights {
                    neighbour: dn.view_mut(),
                    self_term: ds.view_mut(),
                    bias: db.view_mut(),
                };
                gauge_conv::cuda::backward(
                    device,
                    &op,
                    &on_device,
                    x.view(),
                    weights,
                    dy.view(),
                    Some(dx.view_mut()),
                    gradients,
                )
                .unwrap();
                [y, dx, dn, ds, db]
            });
        }
    }
    checks.finish("gauge convolution");
}

const ROWS: [usize; 5] = [0, 1, 63, 500, 2111];

#[test]
fn linear_maps() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (inputs, outputs, bias) in [(16, 256, true), (5, 3, true), (33, 1, false), (1, 7, true)]
        {
            let op = linear::Linear {
                inputs,
                outputs,
                bias,
            };
            let (x, dy) = (random(rows * inputs, 1), random(rows * outputs, 2));
            let weight = random(op.weight_count(), 3);
            let bias = random(op.bias_count(), 4);
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let (mut dw, mut db) = (vec![0.5; weight.len()], vec![0.25; bias.len()]);
            let (wx, ww) = (wide(&x), wide(&weight));
            linear::reference::forward(&op, rows, &wx, &ww, &wide(&bias), &mut y).unwrap();
            linear::reference::backward(&op, rows, &wx, &ww, &wide(&dy), &mut dx, &mut dw, &mut db)
                .unwrap();
            let what = format!("{rows} rows, {inputs} to {outputs}");
            let expected = [("y", &y[..]), ("dx", &dx), ("dweight", &dw), ("dbias", &db)];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, w, b) = (up(&x), up(&dy), up(&weight), up(&bias));
                let (mut y, mut dx) = (poisoned(device, dy.len()), poisoned(device, x.len()));
                let (mut dw, mut db) = (up(&vec![0.5; w.len()]), up(&vec![0.25; b.len()]));
                linear::cuda::forward(
                    device,
                    &op,
                    rows,
                    x.view(),
                    w.view(),
                    b.view(),
                    y.view_mut(),
                )
                .unwrap();
                linear::cuda::backward(
                    device,
                    &op,
                    rows,
                    x.view(),
                    w.view(),
                    dy.view(),
                    Some(dx.view_mut()),
                    dw.view_mut(),
                    db.view_mut(),
                )
                .unwrap();
                [y, dx, dw, db]
            });
        }
    }
    checks.finish("linear");
}

#[test]
fn equivariant_linear_maps() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (input, output, bias) in [
            ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", true),
            ("3x0 + 2x1", "1x1 + 4x2 + 2x0", true),
            ("5x1", "2x0", false),
            ("1x0 + 3x3", "7x3", false),
        ] {
            let op = self_map::SelfMap {
                input: kind(input),
                output: kind(output),
                bias,
            };
            let x = random(rows * op.input.dimension(), 1);
            let dy = random(rows * op.output.dimension(), 2);
            let weight = random(op.parameter_count(), 3);
            let bias = random(op.bias_count(), 4);
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let (mut dw, mut db) = (vec![0.5; weight.len()], vec![0.25; bias.len()]);
            let (wx, ww) = (wide(&x), wide(&weight));
            self_map::reference::forward(&op, rows, &wx, &ww, &wide(&bias), &mut y).unwrap();
            self_map::reference::backward(
                &op,
                rows,
                &wx,
                &ww,
                &wide(&dy),
                &mut dx,
                &mut dw,
                &mut db,
            )
            .unwrap();
            let what = format!("{rows} rows, {input} to {output}");
            let expected = [("y", &y[..]), ("dx", &dx), ("dweight", &dw), ("dbias", &db)];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, w, b) = (up(&x), up(&dy), up(&weight), up(&bias));
                let (mut y, mut dx) = (poisoned(device, dy.len()), poisoned(device, x.len()));
                let (mut dw, mut db) = (up(&vec![0.5; w.len()]), up(&vec![0.25; b.len()]));
                self_map::cuda::forward(
                    device,
                    &op,
                    rows,
                    x.view(),
                    w.view(),
                    b.view(),
                    y.view_mut(),
                )
                .unwrap();
                self_map::cuda::backward(
                    device,
                    &op,
                    rows,
                    x.view(),
                    w.view(),
                    dy.view(),
                    Some(dx.view_mut()),
                    dw.view_mut(),
                    db.view_mut(),
                )
                .unwrap();
                [y, dx, dw, db]
            });
        }
    }
    checks.finish("equivariant linear map");
}

const ACTIVATIONS: [Activation; 5] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Elu,
    Activation::Gelu,
    Activation::Tanh,
];

#[test]
fn activations() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let polynomial = Activation::Polynomial(vec![0.25, -1.0, 0.0, 0.5]);
    for function in ACTIVATIONS.into_iter().chain([polynomial]) {
        for count in [0, 1, 1000, 4097] {
            let (x, dy) = (random(count, 1), random(count, 2));
            let y: Vec<f64> = wide(&x).iter().map(|&x| function.value(x)).collect();
            let dx: Vec<f64> = (wide(&x).iter().zip(wide(&dy)))
                .map(|(&x, dy)| function.slope(x) * dy)
                .collect();
            let what = format!("{function:?}, {count}");
            checks.check(&what, [("y", &y), ("dx", &dx)], |device| {
                let (x, dy) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
                let (mut y, mut dx) = (poisoned(device, count), poisoned(device, count));
                activation::cuda::forward(device, &function, x.view(), y.view_mut()).unwrap();
                activation::cuda::backward(device, &function, x.view(), dy.view(), dx.view_mut())
                    .unwrap();
                [y, dx]
            });
        }
    }
    checks.finish("activation");
}

#[test]
fn batch_normalisation_and_the_regular_nonlinearity() {
    use batch_norm::{BatchNorm, NormGroups, Statistics};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in [1, 63, 500, 2111] {
        for (case, (channels, band, output_band, samples, groups)) in [
            (16, 2, 2, 5, NormGroups::PerChannel),
            (16, 2, 2, 7, NormGroups::PerIrrep),
            (3, 1, 3, 9, NormGroups::PerChannel),
            (1, 4, 2, 101, NormGroups::PerIrrep),
            (200, 0, 0, 1, NormGroups::PerChannel),
            (2, 40, 40, 140, NormGroups::PerChannel),
        ]
        .into_iter()
        .enumerate()
        {
            if case == 5 && rows > 63 {
                continue;
            }
            let input = FeatureType::uniform(channels, band);
            let config = regular::Regular {
                output_band_limit: output_band,
                ..regular::Regular::new(input.clone(), samples, ACTIVATIONS[(case + 1) % 5].clone())
            };
            let norm = BatchNorm {
                epsilon: 0.05,
                ..BatchNorm::new(input.clone(), groups)
            };
            let slots = norm.slots().unwrap();
            let x: Vec<f32> = (random(rows * input.dimension(), 1).iter().enumerate())
                .map(|(i, x)| x + 0.3 * (i % 7) as f32)
                .collect();
            let dy = random(rows * config.output().dimension(), 2);
            let dz = random(x.len(), 6);
            let (gamma, beta) = (random(slots, 3), random(slots, 4));
            let (wx, wdy) = (wide(&x), wide(&dy));
            let statistics = batch_norm::reference::statistics(&norm, rows, &wx);
            let running = Statistics::running(&wide(&gamma), &vec![0.8; slots]);
            let (wide_gamma, wide_beta) = (wide(&gamma), wide(&beta));
            for (origin, statistics) in [("batch", &statistics), ("running", &running)] {
                let normalisation = batch_norm::Normalisation {
                    config: &norm,
                    statistics,
                    gamma: &wide_gamma[..],
                    beta: &wide_beta,
                };
                let mut z = vec![0.0; x.len()];
                batch_norm::reference::forward(&normalisation, &wx, &mut z);
                let zeros = || (vec![0.5; slots], vec![0.25; slots]);
                let backward = |dz: &[f64]| {
                    let (mut dx, (mut dgamma, mut dbeta)) = (vec![0.0; x.len()], zeros());
                    let mut gradients = batch_norm::NormGradients {
                        gamma: &mut dgamma[..],
                        beta: &mut dbeta,
                    };
                    batch_norm::reference::backward(
                        &normalisation,
                        &wx,
                        dz,
                        &mut dx,
                        &mut gradients,
                    );
                    (dx, dgamma, dbeta)
                };
                let (norm_dx, norm_dgamma, norm_dbeta) = backward(&wide(&dz));
                let (mut plain_y, mut plain_dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
                regular::reference::forward(&config, &wx, &mut plain_y);
                regular::reference::backward(&config, &wx, &wdy, &mut plain_dx);
                let (mut y, mut of_z) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
                regular::reference::forward(&config, &z, &mut y);
                regular::reference::backward(&config, &z, &wdy, &mut of_z);
                let (dx, dgamma, dbeta) = backward(&of_z);
                let what = format!("{rows} rows, {input}, {samples} samples, {groups:?}, {origin}");
                let expected = [
                    ("normalised", &z[..]),
                    ("norm dx", &norm_dx),
                    ("norm dgamma", &norm_dgamma),
                    ("norm dbeta", &norm_dbeta),
                    ("plain y", &plain_y),
                    ("plain dx", &plain_dx),
                    ("y", &y),
                    ("dx", &dx),
                    ("dgamma", &dgamma),
                    ("dbeta", &dbeta),
                ];
                checks.check(&what, expected, |device| {
                    let up = |values: &[f32]| device.upload(values).unwrap();
                    let (x, dy, dz) = (up(&x), up(&dy), up(&dz));
                    let (gamma, beta) = (up(&gamma), up(&beta));
                    let constant = up(&vec![0.8; slots]);
                    use batch_norm::cuda as norm_cuda;
                    let statistics = if origin == "batch" {
                        norm_cuda::statistics(device, &norm, rows, x.view()).unwrap()
                    } else {
                        norm_cuda::DeviceStatistics::running(device, gamma.view(), constant.view())
                            .unwrap()
                    };
                    let normalisation = batch_norm::Normalisation {
                        config: &norm,
                        statistics: &statistics,
                        gamma: gamma.view(),
                        beta: beta.view(),
                    };
                    let nan = |count: usize| poisoned(device, count);
                    let mut z = nan(x.len());
                    norm_cuda::forward(device, normalisation, rows, x.view(), z.view_mut())
                        .unwrap();
                    let start = |value: f32| up(&vec![value; slots]);
                    let (mut norm_dx, mut ndg, mut ndb) = (nan(x.len()), start(0.5), start(0.25));
                    let gradients = batch_norm::NormGradients {
                        gamma: ndg.view_mut(),
                        beta: ndb.view_mut(),
                    };
                    norm_cuda::backward(
                        device,
                        normalisation,
                        rows,
                        x.view(),
                        dz.view(),
                        norm_dx.view_mut(),
                        gradients,
                    )
                    .unwrap();
                    use regular::cuda as regular_cuda;
                    let plan = regular_cuda::DevicePlan::new(&config).unwrap();
                    let (mut plain_y, mut plain_dx) = (nan(dy.len()), nan(x.len()));
                    regular_cuda::forward(device, &plan, rows, x.view(), plain_y.view_mut())
                        .unwrap();
                    regular_cuda::backward(
                        device,
                        &plan,
                        rows,
                        x.view(),
                        dy.view(),
                        plain_dx.view_mut(),
                    )
                    .unwrap();
                    let (mut y, mut dx) = (nan(dy.len()), nan(x.len()));
                    regular_cuda::forward_normalised(
                        device,
                        &plan,
                        normalisation,
                        rows,
                        x.view(),
                        y.view_mut(),
                    )
                    .unwrap();
                    let (mut dg, mut db) = (start(0.5), start(0.25));
                    let gradients = batch_norm::NormGradients {
                        gamma: dg.view_mut(),
                        beta: db.view_mut(),
                    };
                    regular_cuda::backward_normalised(
                        device,
                        &plan,
                        normalisation,
                        rows,
                        x.view(),
                        dy.view(),
                        dx.view_mut(),
                        gradients,
                    )
                    .unwrap();
                    [z, norm_dx, ndg, ndb, plain_y, plain_dx, y, dx, dg, db]
                });
            }
        }
    }
    checks.finish("batch normalisation and regular nonlinearity");
}

#[test]
fn running_averages() {
    use batch_norm::{BatchNorm, NormGroups};
    let Some(device) = device() else { return };
    let norm = BatchNorm::new(kind("3x0 + 2x1"), NormGroups::PerIrrep);
    let x = random(77 * 7, 1);
    let expected = batch_norm::reference::statistics(&norm, 77, &wide(&x));
    let (mut mean, mut variance) = (vec![0.5f32; 5], vec![2.0f32; 5]);
    expected
        .update_running(0.1, &mut mean, &mut variance)
        .unwrap();
    let x = device.upload(&x).unwrap();
    let statistics = batch_norm::cuda::statistics(&device, &norm, 77, x.view()).unwrap();
    let (found_mean, found_variance) = statistics.read(&device).unwrap();
    let mut device_mean = device.upload(&[0.5f32; 5]).unwrap();
    let mut device_variance = device.upload(&[2.0f32; 5]).unwrap();
    statistics
        .update_running(
            &device,
            0.1,
            device_mean.view_mut(),
            device_variance.view_mut(),
        )
        .unwrap();
    for slot in 0..5 {
        assert!((found_mean[slot] - expected.mean[slot]).abs() < 1e-12);
        assert!((found_variance[slot] - expected.variance[slot]).abs() < 1e-12);
    }
    assert_eq!(device_mean.to_vec(&device).unwrap(), mean);
    assert_eq!(device_variance.to_vec(&device).unwrap(), variance);
}

#[test]
fn norm_and_gated_nonlinearities() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    for rows in ROWS {
        for (case, output) in ["4x0 + 3x1 + 2x2", "5x1", "3x0"].into_iter().enumerate() {
            let activation = ACTIVATIONS[(case + 2) % 5].clone();
            let norm = norm_gate::NormNonlinearity {
                epsilon: 1e-2,
                ..norm_gate::NormNonlinearity::new(kind(output), activation.clone())
            };
            let gated = norm_gate::GatedNonlinearity {
                output: kind(output),
                activation,
            };
            let width = norm.kind.dimension();
            let x = random(rows * gated.input().dimension(), 1);
            let nx = &x[..rows * width];
            let dy = random(rows * width, 2);
            let bias = random(norm_gate::rotating_irreps(&norm.kind), 3);
            let (wx, wnx, wdy, wb) = (wide(&x), wide(nx), wide(&dy), wide(&bias));
            let zeros = |count: usize| vec![0.0; count];
            let (mut y, mut dx, mut db) = (zeros(dy.len()), zeros(dy.len()), vec![0.5; bias.len()]);
            norm_gate::reference::norm_forward(&norm, &wnx, &wb, &mut y);
            norm_gate::reference::norm_backward(&norm, &wnx, &wb, &wdy, &mut dx, &mut db);
            let (mut gy, mut gdx) = (zeros(dy.len()), zeros(x.len()));
            norm_gate::reference::gated_forward(&gated, &wx, &mut gy);
            norm_gate::reference::gated_backward(&gated, &wx, &wdy, &mut gdx);
            let what = format!("{rows} rows, {output}");
            let expected = [
                ("norm y", &y[..]),
                ("norm dx", &dx),
                ("norm dbias", &db),
                ("gated y", &gy),
                ("gated dx", &gdx),
            ];
            checks.check(&what, expected, |device| {
                let up = |values: &[f32]| device.upload(values).unwrap();
                let nan = |count: usize| poisoned(device, count);
                let (x, nx, dy, bias) = (up(&x), up(nx), up(&dy), up(&bias));
                let (mut y, mut dx) = (nan(dy.len()), nan(dy.len()));
                let mut db = up(&vec![0.5; bias.len()]);
                use norm_gate::cuda;
                cuda::norm_forward(device, &norm, rows, nx.view(), bias.view(), y.view_mut())
                    .unwrap();
                cuda::norm_backward(
                    device,
                    &norm,
                    rows,
                    nx.view(),
                    bias.view(),
                    dy.view(),
                    dx.view_mut(),
                    db.view_mut(),
                )
                .unwrap();
                let (mut gy, mut gdx) = (nan(dy.len()), nan(x.len()));
                cuda::gated_forward(device, &gated, rows, x.view(), gy.view_mut()).unwrap();
                cuda::gated_backward(device, &gated, rows, x.view(), dy.view(), gdx.view_mut())
                    .unwrap();
                [y, dx, db, gy, gdx]
            });
        }
    }
    checks.finish("norm and gated nonlinearities");
}

#[test]
fn dropout_draws_the_masks_of_the_cpu() {
    let Some(device) = device() else { return };
    for (unit, text) in [
        (dropout::DropoutUnit::Irrep, "5x0 + 3x1 + 2x2"),
        (dropout::DropoutUnit::Channel, "4x0 + 4x1 + 4x2"),
    ] {
        for probability in [0.0, 0.3, 0.999] {
            let config = dropout::Dropout {
                kind: kind(text),
                unit,
                probability,
            };
            let stream = Stream {
                seed: 0xfedc_ba98_7654_3210,
                step: 0x1_0000_0007,
            };
            for rows in ROWS {
                let x = random(rows * config.kind.dimension(), 1);
                let mut expected = vec![0.0f32; x.len()];
                dropout::reference::forward(&config, stream, &x, &mut expected).unwrap();
                let x = device.upload(&x).unwrap();
                let mut y = poisoned(&device, x.len());
                let salt = 0x0123_4567_89ab_cdef;
                let unsalted = Stream {
                    seed: stream.seed ^ salt,
                    ..stream
                };
                let on_device = dropout::cuda::DeviceStream::new(&device, unsalted).unwrap();
                let words = (&on_device, salt);
                dropout::cuda::forward(&device, &config, words, rows, x.view(), y.view_mut())
                    .unwrap();
                assert_eq!(y.to_vec(&device).unwrap(), expected, "{text}, {rows} rows");
            }
        }
    }
}

#[test]
fn elementwise_operators() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let (first, second) = (kind("3x0 + 2x1"), kind("1x0 + 4x1 + 2x3"));
    let both = first.concatenated(&second);
    let slice = elementwise::Slice {
        kind: both.clone(),
        channels: vec![1..3, 0..5],
    };
    let narrow = slice.output().unwrap();
    for rows in ROWS {
        let a = random(rows * first.dimension(), 1);
        let b = random(rows * second.dimension(), 2);
        let y = random(rows * both.dimension(), 3);
        let dy = random(rows * narrow.dimension(), 4);
        let angles: Vec<f32> = random(rows, 5).iter().map(|a| 4.0 * a).collect();
        let (wa, wb, wy) = (wide(&a), wide(&b), wide(&y));
        let mut concatenated = vec![0.0; y.len()];
        elementwise::reference::concatenate(&first, &second, rows, &wa, &wb, &mut concatenated);
        let (mut split_a, mut split_b) = (vec![0.0; a.len()], vec![0.0; b.len()]);
        elementwise::split(&first, &second, rows, &wy, &mut split_a, &mut split_b).unwrap();
        let (mut sliced, mut unsliced) = (vec![0.0; dy.len()], vec![0.0; y.len()]);
        elementwise::reference::slice(&slice, &narrow, rows, &wy, &mut sliced);
        elementwise::unslice(&slice, rows, &wide(&dy), &mut unsliced).unwrap();
        let mut rotated = vec![0.0; y.len()];
        elementwise::reference::rotate(&both, &wide(&angles), &wy, &mut rotated);
        let sum: Vec<f64> = wy.iter().map(|y| 2.0 * y).collect();
        let scaled: Vec<f64> = wy.iter().map(|y| -0.75 * y).collect();
        let expected = [
            ("concatenate", &concatenated[..]),
            ("split, first", &split_a),
            ("split, second", &split_b),
            ("slice", &sliced),
            ("unslice", &unsliced),
            ("rotate", &rotated),
            ("add", &sum),
            ("accumulate", &sum),
            ("scale", &scaled),
        ];
        checks.check(&format!("{rows} rows"), expected, |device| {
            use elementwise::cuda;
            let up = |values: &[f32]| device.upload(values).unwrap();
            let nan = |count: usize| poisoned(device, count);
            let (a, b, y, dy, angles) = (up(&a), up(&b), up(&y), up(&dy), up(&angles));
            let mut joined = nan(y.len());
            cuda::concatenate(
                device,
                &first,
                &second,
                rows,
                a.view(),
                b.view(),
                joined.view_mut(),
            )
            .unwrap();
            let (mut split_a, mut split_b) = (nan(a.len()), nan(b.len()));
            cuda::split(
                device,
                &first,
                &second,
                rows,
                y.view(),
                split_a.view_mut(),
                split_b.view_mut(),
            )
            .unwrap();
            let (mut sliced, mut unsliced) = (nan(dy.len()), nan(y.len()));
            cuda::slice(device, &slice, rows, y.view(), sliced.view_mut()).unwrap();
            cuda::unslice(device, &slice, rows, dy.view(), unsliced.view_mut()).unwrap();
            let mut rotated = nan(y.len());
            cuda::rotate(device, &both, angles.view(), y.view(), rotated.view_mut()).unwrap();
            let (mut sum, mut scaled) = (nan(y.len()), nan(y.len()));
            cuda::add(device, y.view(), y.view(), sum.view_mut()).unwrap();
            let mut accumulated = device.buffer(y.len()).unwrap();
            device.copy(y.view(), accumulated.view_mut()).unwrap();
            cuda::accumulate(device, y.view(), accumulated.view_mut()).unwrap();
            cuda::scale(device, -0.75, y.view(), scaled.view_mut()).unwrap();
            [
                joined,
                split_a,
                split_b,
                sliced,
                unsliced,
                rotated,
                sum,
                accumulated,
                scaled,
            ]
        });
    }
    checks.finish("elementwise");
}

/// Labels of which some are to be ignored, and weights of classes.
fn targets(rows: usize, classes: usize) -> (Vec<u32>, Vec<f32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let labels = (0..rows)
        .map(|row| match row % 5 {
            4 => cross_entropy::IGNORE,
            _ => rng.random_range(0..classes as u32),
        })
        .collect();
    let weights = (0..classes).map(|class| (class % 3) as f32 * 0.5).collect();
    (labels, weights)
}

#[test]
fn cross_entropy_of_logits() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for (rows, classes) in [(0, 3), (1, 2), (77, 10), (700, 33), (9, 6890), (3, 40_000)] {
        let (labels, class_weights) = targets(rows, classes);
        let logits: Vec<f32> = random(rows * classes, 1).iter().map(|z| 4.0 * z).collect();
        let wide_weights = wide(&class_weights);
        for weighted in [false, true] {
            let narrow = cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: weighted.then_some(&class_weights[..]),
            };
            let reference = cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: weighted.then_some(&wide_weights[..]),
            };
            let wide_logits = wide(&logits);
            let score = cross_entropy::reference::forward(&reference, &wide_logits).unwrap();
            let mut dlogits = vec![0.0; logits.len()];
            let dloss = 1000.0;
            cross_entropy::reference::backward(&reference, &wide_logits, dloss, &mut dlogits)
                .unwrap();
            let on_device = cross_entropy::cuda::DeviceTargets::new(&device, &narrow).unwrap();
            let z = device.upload(&logits).unwrap();
            let found = cross_entropy::cuda::forward(&device, &on_device, z.view()).unwrap();
            let found = found.read(&device).unwrap();
            assert!(
                (found.loss - score.loss).abs() <= 1e-6 * score.loss.abs().max(1.0),
                "{rows} x {classes}: {found:?}, {score:?}"
            );
            assert_eq!(
                (found.correct, found.counted),
                (score.correct, score.counted)
            );
            let what = format!("{rows} x {classes}, weighted {weighted}");
            checks.check(&what, [("dlogits", &dlogits)], |device| {
                let mut dz = poisoned(device, logits.len());
                cross_entropy::cuda::backward(device, &on_device, z.view(), dloss, dz.view_mut())
                    .unwrap();
                [dz]
            });
        }
    }
    checks.finish("cross-entropy");
}

#[test]
fn fused_classifier() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for (rows, classes, channels) in [
        (0, 3, 4),
        (1, 2, 3),
        (77, 10, 16),
        (1500, 33, 5),
        (40, 6890, 64),
        (3, 40_000, 8),
    ] {
        let (labels, class_weights) = targets(rows, classes);
        let h = random(rows * channels, 1);
        let weight = random(classes * channels, 2);
        let bias = random(classes, 3);
        let (wh, ww, wb, wc) = (wide(&h), wide(&weight), wide(&bias), wide(&class_weights));
        let reference = classifier::Classifier {
            channels,
            weight: &ww,
            bias: &wb,
            targets: cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: Some(&wc),
            },
        };
        let (mut dh, mut dw, mut db) = (
            vec![0.0; h.len()],
            vec![0.5; weight.len()],
            vec![0.25; bias.len()],
        );
        let gradients = classifier::Gradients {
            features: &mut dh[..],
            weight: &mut dw,
            bias: &mut db,
        };
        let (mut predictions, mut ranks) = (vec![0; rows], vec![0; rows]);
        let dloss = 100.0;
        let score = classifier::reference::loss_and_gradients(
            &reference,
            &wh,
            dloss,
            gradients,
            classifier::Rows {
                predictions: Some(&mut predictions),
                ranks: Some(&mut ranks),
            },
        )
        .unwrap();
        let on_device = cross_entropy::cuda::DeviceTargets::new(
            &device,
            &cross_entropy::Targets {
                classes,
                labels: &labels,
                class_weights: Some(&class_weights),
            },
        )
        .unwrap();
        let (device_weight, device_bias) = (
            device.upload(&weight).unwrap(),
            device.upload(&bias).unwrap(),
        );
        let map = classifier::cuda::Classifier {
            channels,
            weight: device_weight.view(),
            bias: device_bias.view(),
            targets: &on_device,
        };
        let features = device.upload(&h).unwrap();
        device.set_product_mode(ProductMode::F32);
        let mut found_predictions = device.upload(&vec![7u32; rows]).unwrap();
        let mut found_ranks = device.upload(&vec![7u32; rows]).unwrap();
        let found = classifier::cuda::evaluate(
            &device,
            &map,
            features.view(),
            classifier::cuda::Rows {
                predictions: Some(found_predictions.view_mut()),
                ranks: Some(found_ranks.view_mut()),
            },
        )
        .unwrap()
        .read(&device)
        .unwrap();
        assert!(
            (found.loss - score.loss).abs() <= 1e-5 * score.loss.abs().max(1.0),
            "{rows} x {classes}: {found:?}, {score:?}"
        );
        assert_eq!(
            (found.correct, found.counted),
            (score.correct, score.counted)
        );
        assert_eq!(found_predictions.to_vec(&device).unwrap(), predictions);
        // Logits that are equal but for rounding may come in another order.
        for (found, expected) in found_ranks.to_vec(&device).unwrap().iter().zip(&ranks) {
            assert!(found.abs_diff(*expected) <= 2, "{found} {expected}");
        }
        let what = format!("{rows} x {classes}, {channels} channels");
        let expected = [("dh", &dh[..]), ("dweight", &dw), ("dbias", &db)];
        checks.check(&what, expected, |device| {
            let mut dh = poisoned(device, h.len());
            let mut dw = device.upload(&vec![0.5; weight.len()]).unwrap();
            let mut db = device.upload(&vec![0.25; bias.len()]).unwrap();
            let gradients = classifier::Gradients {
                features: dh.view_mut(),
                weight: dw.view_mut(),
                bias: db.view_mut(),
            };
            let loss = classifier::cuda::loss_and_gradients(
                device,
                &map,
                features.view(),
                dloss,
                gradients,
                classifier::cuda::Rows::default(),
            )
            .unwrap()
            .read(device)
            .unwrap();
            assert!((loss.loss - score.loss).abs() <= TF32 * score.loss.abs().max(1.0));
            [dh, dw, db]
        });
    }
    checks.finish("classifier");
}

#[test]
fn regression_losses() {
    use regression::{Penalty, Regression};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    let features = kind("3x0 + 2x1 + 1x2");
    for rows in ROWS {
        for (penalty, masked) in [
            (Penalty::MeanSquare, false),
            (Penalty::MeanSquare, true),
            (Penalty::L1, false),
            (Penalty::L1, true),
        ] {
            let mask: Vec<bool> = (0..rows).map(|row| row % 3 != 1).collect();
            let loss = Regression {
                features: &features,
                penalty,
                mask: masked.then_some(&mask),
            };
            let x = random(rows * features.dimension(), 1);
            let target = random(x.len(), 2);
            let (wx, wt) = (wide(&x), wide(&target));
            let expected = regression::reference::forward(&loss, &wx, &wt).unwrap();
            let mut dx = vec![0.0; x.len()];
            let dloss = 50.0 * rows as f64;
            regression::reference::backward(&loss, &wx, &wt, dloss, &mut dx).unwrap();
            let on_device = regression::cuda::DeviceRegression::new(&device, &loss, rows).unwrap();
            let (x, target) = (device.upload(&x).unwrap(), device.upload(&target).unwrap());
            let found = regression::cuda::forward(&device, &on_device, x.view(), target.view());
            let found = found.unwrap().to_vec(&device).unwrap()[0];
            assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            let what = format!("{rows} rows, {penalty:?}, masked {masked}");
            checks.check(&what, [("dx", &dx)], |device| {
                let mut dx = poisoned(device, x.len());
                let (x, target) = (x.view(), target.view());
                regression::cuda::backward(device, &on_device, x, target, dloss, dx.view_mut())
                    .unwrap();
                [dx]
            });
        }
    }
    checks.finish("regression");
}

#[test]
fn pooling_over_meshes() {
    use pool::global;
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = CudaGraph::new(&device, &graph.narrow).unwrap();
        let offsets = graph.wide.mesh_offsets();
        for channels in [1, 5, 64, 300] {
            let features = FeatureType::scalars(channels);
            let x = random(graph.wide.vertex_count() * channels, 1);
            let dy = random(graph.wide.mesh_count() * channels, 2);
            let (wx, wdy) = (wide(&x), wide(&dy));
            let (mut mean, mut max) = (vec![0.0; dy.len()], vec![0.0; dy.len()]);
            let mut arguments = vec![0; dy.len()];
            pool::reference::mean(offsets, &features, &wx, &mut mean).unwrap();
            pool::reference::max(offsets, &features, &wx, &mut max, &mut arguments).unwrap();
            let (mut mean_dx, mut max_dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            global::mean_backward(offsets, &features, &wdy, &mut mean_dx).unwrap();
            global::max_backward(offsets, &features, &arguments, &wdy, &mut max_dx).unwrap();
            let what = format!("{}, {channels} channels", graph.name);
            let expected = [
                ("mean", &mean[..]),
                ("mean dx", &mean_dx),
                ("max", &max),
                ("max dx", &max_dx),
            ];
            checks.check(&what, expected, |device| {
                use pool::cuda;
                let (x, dy) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
                let nan = |count: usize| poisoned(device, count);
                let (mut mean, mut max) = (nan(dy.len()), nan(dy.len()));
                let (mut mean_dx, mut max_dx) = (nan(x.len()), nan(x.len()));
                let mut found: DeviceBuffer<u32> = device.zeros(dy.len()).unwrap();
                let graph = &on_device;
                cuda::mean(device, graph, &features, x.view(), mean.view_mut()).unwrap();
                cuda::mean_backward(device, graph, &features, dy.view(), mean_dx.view_mut())
                    .unwrap();
                let (max_view, found_view) = (max.view_mut(), found.view_mut());
                cuda::max(device, graph, &features, x.view(), max_view, found_view).unwrap();
                cuda::max_backward(
                    device,
                    graph,
                    &features,
                    found.view(),
                    dy.view(),
                    max_dx.view_mut(),
                )
                .unwrap();
                assert_eq!(found.to_vec(device).unwrap(), arguments);
                [mean, mean_dx, max, max_dx]
            });
        }
    }
    checks.finish("pooling over meshes");
}

#[test]
fn pooling_with_transport() {
    use pool::transport::{self, ClusterArrays, ClusterParts};
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
    let parts = ClusterParts {
        offsets: &offsets,
        members: &members,
        cluster_of: &cluster_of,
        transport: &angles,
    };
    let narrow = ClusterArrays::<f32>::union(&[parts, parts]).unwrap();
    let wide_clusters = ClusterArrays::<f64>::union(&[parts, parts]).unwrap();
    let on_device = pool::cuda::DeviceClusters::new(&device, &narrow).unwrap();
    for text in ["16x0 + 16x1 + 16x2", "1x0", "3x1 + 1x4"] {
        let features = kind(text);
        let fine = random(2 * fine as usize * features.dimension(), 1);
        let coarse = random(2 * sizes.len() * features.dimension(), 2);
        let (wf, wc) = (wide(&fine), wide(&coarse));
        let (mut pooled, mut unpooled) = (vec![0.0; coarse.len()], vec![0.0; fine.len()]);
        pool::reference::pool(&wide_clusters, &features, &wf, &mut pooled).unwrap();
        pool::reference::unpool(&wide_clusters, &features, &wc, &mut unpooled).unwrap();
        let (mut pool_dx, mut unpool_dx) = (vec![0.0; fine.len()], vec![0.0; coarse.len()]);
        transport::pool_backward(&wide_clusters, &features, &wc, &mut pool_dx).unwrap();
        transport::unpool_backward(&wide_clusters, &features, &wf, &mut unpool_dx).unwrap();
        let expected = [
            ("pool", &pooled[..]),
            ("pool dx", &pool_dx),
            ("unpool", &unpooled),
            ("unpool dx", &unpool_dx),
        ];
        checks.check(text, expected, |device| {
            use pool::cuda;
            let (x, c) = (
                device.upload(&fine).unwrap(),
                device.upload(&coarse).unwrap(),
            );
            let nan = |count: usize| poisoned(device, count);
            let (mut pooled, mut pool_dx) = (nan(c.len()), nan(x.len()));
            let (mut unpooled, mut unpool_dx) = (nan(x.len()), nan(c.len()));
            let k = &on_device;
            cuda::pool(device, k, &features, x.view(), pooled.view_mut()).unwrap();
            cuda::pool_backward(device, k, &features, c.view(), pool_dx.view_mut()).unwrap();
            cuda::unpool(device, k, &features, c.view(), unpooled.view_mut()).unwrap();
            cuda::unpool_backward(device, k, &features, x.view(), unpool_dx.view_mut()).unwrap();
            [pooled, pool_dx, unpooled, unpool_dx]
        });
    }
    checks.finish("pooling with transport");
}

#[test]
fn invariants_of_irreps() {
    use irrep::Grouping::{Heads, Irreps};
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
            let features = kind(text);
            let (a, b) = (
                random(rows * features.dimension(), 1),
                random(rows * features.dimension(), 2),
            );
            let s = random(rows * grouping.count(&features), 3);
            let d = random(rows * Irreps.count(&features), 4);
            let (wa, wb, ws) = (wide(&a), wide(&b), wide(&s));
            let (mut norm, mut dnorm) = (vec![0.0; d.len()], vec![0.0; a.len()]);
            let (mut dot, mut scale) = (vec![0.0; s.len()], vec![0.0; a.len()]);
            irrep::reference::norm(&features, 1e-3, rows, &wa, &mut norm);
            irrep::reference::norm_backward(&features, 1e-3, rows, &wa, &wide(&d), &mut dnorm);
            irrep::reference::dot(&features, grouping, rows, &wa, &wb, &mut dot);
            irrep::reference::scale(&features, grouping, rows, &wa, &ws, &mut scale);
            // Gradients of both products are products again.
            let mut scale_b = vec![0.0; a.len()];
            irrep::reference::scale(&features, grouping, rows, &wb, &ws, &mut scale_b);
            let expected = [
                ("norm", &norm[..]),
                ("norm dx", &dnorm),
                ("dot", &dot),
                ("dot da", &scale_b),
                ("dot db", &scale),
                ("scale", &scale),
                ("scale dx", &scale_b),
                ("scale dfactors", &dot),
            ];
            checks.check(&format!("{rows} rows of {text}"), expected, |device| {
                use irrep::cuda;
                let up = |values: &[f32]| device.upload(values).unwrap();
                let nan = |count: usize| poisoned(device, count);
                let (a, b, s, d) = (up(&a), up(&b), up(&s), up(&d));
                let (f, g) = (&features, grouping);
                let (mut norm, mut dnorm) = (nan(d.len()), nan(a.len()));
                cuda::norm(device, f, 1e-3, rows, a.view(), norm.view_mut()).unwrap();
                let (x, dy) = (a.view(), d.view());
                cuda::norm_backward(device, f, 1e-3, rows, x, dy, dnorm.view_mut()).unwrap();
                let (mut dot, mut da, mut db) = (nan(s.len()), nan(a.len()), nan(a.len()));
                cuda::dot(device, f, g, rows, a.view(), b.view(), dot.view_mut()).unwrap();
                let (x, y, dy) = (a.view(), b.view(), s.view());
                let wanted = (Some(da.view_mut()), Some(db.view_mut()));
                cuda::dot_backward(device, f, g, rows, x, y, dy, wanted.0, wanted.1).unwrap();
                let (mut scale, mut dx, mut ds) = (nan(a.len()), nan(a.len()), nan(s.len()));
                cuda::scale(device, f, g, rows, a.view(), s.view(), scale.view_mut()).unwrap();
                let (x, y, dy) = (a.view(), s.view(), b.view());
                let wanted = (Some(dx.view_mut()), Some(ds.view_mut()));
                cuda::scale_backward(device, f, g, rows, x, y, dy, wanted.0, wanted.1).unwrap();
                [norm, dnorm, dot, da, db, scale, dx, ds]
            });
        }
    }
    checks.finish("invariants of irreps");
}

#[test]
fn features_on_edges() {
    use edges::EdgeFrame;
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for graph in graphs() {
        let on_device = CudaGraph::new(&device, &graph.narrow).unwrap();
        let (vertices, edge_count) = (graph.wide.vertex_count(), graph.wide.edge_count());
        for (case, (text, heads)) in [
            ("16x0 + 16x1 + 16x2", 4),
            ("3x0 + 7x1 + 1x3", 1),
            ("5x0", 5),
            ("33x2", 3),
        ]
        .into_iter()
        .enumerate()
        {
            for frame in [EdgeFrame::Vertex, EdgeFrame::Edge] {
                let op = edges::Reduce {
                    aggregation: AGGREGATIONS[case % 3],
                    heads,
                    ..edges::Reduce::sum(kind(text), frame)
                };
                let features = &op.features;
                let x = random(vertices * features.dimension(), 1);
                let v = random(edge_count * features.dimension(), 2);
                let w = random(edge_count * heads, 3);
                let (wx, wv, ww) = (wide(&x), wide(&v), wide(&w));
                let at_edges = || vec![0.0; v.len()];
                let at_vertices = || vec![0.0; x.len()];
                let (mut gather, mut gather_dx) = (at_edges(), at_vertices());
                edges::reference::gather(features, frame, &graph.wide, &wx, &mut gather);
                edges::reference::gather_backward(
                    features,
                    frame,
                    &graph.wide,
                    &wv,
                    &mut gather_dx,
                );
                let (mut spread, mut spread_dx) = (at_edges(), at_vertices());
                edges::reference::spread(features, frame, &graph.wide, &wx, &mut spread);
                let sum = edges::Reduce::sum(features.clone(), frame);
                edges::reference::reduce(&sum, &graph.wide, &wv, None, &mut spread_dx);
                // The weights of odd cases are ones.
                let given = (case % 2 == 0).then_some(&ww[..]);
                let (mut reduce, mut dv, mut dw) = (at_vertices(), at_edges(), vec![0.0; w.len()]);
                edges::reference::reduce(&op, &graph.wide, &wv, given, &mut reduce);
                edges::reference::reduce_backward(
                    &op,
                    &graph.wide,
                    &wv,
                    given,
                    &wx,
                    &mut dv,
                    &mut dw,
                );
                let (mut soft, mut soft_dx) = (vec![0.0; w.len()], vec![0.0; w.len()]);
                let scores: Vec<f32> = w.iter().map(|w| 300.0 * w).collect();
                edges::reference::softmax(heads, &graph.wide, &wide(&scores), &mut soft);
                edges::reference::softmax_backward(heads, &graph.wide, &ww, &ww, &mut soft_dx);
                let expected = [
                    ("gather", &gather[..]),
                    ("gather dx", &gather_dx),
                    ("spread", &spread),
                    ("spread dx", &spread_dx),
                    ("reduce", &reduce),
                    ("reduce dvalues", &dv),
                    ("reduce dweights", &dw),
                    ("softmax", &soft),
                    ("softmax dx", &soft_dx),
                ];
                let what = format!("{}, {text}, {frame:?}", graph.name);
                checks.check(&what, expected, |device| {
                    use edges::cuda;
                    let up = |values: &[f32]| device.upload(values).unwrap();
                    let (x, v, w, scores) = (up(&x), up(&v), up(&w), up(&scores));
                    let (f, g) = (features, &on_device);
                    let at_edges = || poisoned(device, v.len());
                    let at_vertices = || poisoned(device, x.len());
                    let (mut gather, mut gather_dx) = (at_edges(), at_vertices());
                    cuda::gather(device, f, frame, g, x.view(), gather.view_mut()).unwrap();
                    cuda::gather_backward(device, f, frame, g, v.view(), gather_dx.view_mut())
                        .unwrap();
                    let (mut spread, mut spread_dx) = (at_edges(), at_vertices());
                    cuda::spread(device, f, frame, g, x.view(), spread.view_mut()).unwrap();
                    cuda::spread_backward(device, f, frame, g, v.view(), spread_dx.view_mut())
                        .unwrap();
                    let given = (case % 2 == 0).then_some(w.view());
                    let (mut reduce, mut dv) = (at_vertices(), at_edges());
                    let mut dw = poisoned(device, w.len());
                    cuda::reduce(device, &op, g, v.view(), given, reduce.view_mut()).unwrap();
                    let wanted = (Some(dv.view_mut()), Some(dw.view_mut()));
                    let (values, dy) = (v.view(), x.view());
                    cuda::reduce_backward(
                        device,
                        &op,
                        g,
                        Some(values),
                        given,
                        dy,
                        wanted.0,
                        wanted.1,
                    )
                    .unwrap();
                    let mut soft = poisoned(device, w.len());
                    let mut soft_dx = poisoned(device, w.len());
                    cuda::softmax(device, heads, g, scores.view(), soft.view_mut()).unwrap();
                    let (y, dy) = (w.view(), w.view());
                    cuda::softmax_backward(device, heads, g, y, dy, soft_dx.view_mut()).unwrap();
                    [
                        gather, gather_dx, spread, spread_dx, reduce, dv, dw, soft, soft_dx,
                    ]
                });
            }
        }
    }
    checks.finish("features on edges");
}

#[test]
fn products_with_the_bases_of_meshes() {
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
            let op = mesh_product::MeshProduct {
                features: kind(text),
                columns,
                complex,
            };
            let width = op.features.dimension();
            let basis = random(vertices * columns * if complex { 2 } else { 1 }, 1);
            let weights: Vec<f32> = random(vertices, 2).iter().map(|w| 1.0 + w).collect();
            let (x, y) = (
                random(vertices * width, 3),
                random(meshes * columns * width, 4),
            );
            let (wb, ww, wx, wy) = (wide(&basis), wide(&weights), wide(&x), wide(&y));
            let at_rows = || vec![0.0; y.len()];
            let (mut project, mut weighted) = (at_rows(), at_rows());
            mesh_product::reference::project(&op, offsets, &wb, None, &wx, &mut project);
            mesh_product::reference::project(&op, offsets, &wb, Some(&ww), &wx, &mut weighted);
            let mut expand = vec![0.0; x.len()];
            mesh_product::reference::expand(&op, offsets, &wb, &wy, &mut expand);
            let dx: Vec<f64> = (expand.iter().enumerate())
                .map(|(at, value)| ww[at / width] * value)
                .collect();
            let expected = [
                ("project", &project[..]),
                ("project with weights", &weighted),
                ("project dx", &dx),
                ("expand", &expand),
                ("expand dy", &project),
            ];
            let what = format!("{offsets:?}, {columns} columns, {text}");
            checks.check(&what, expected, |device| {
                use mesh_product::cuda;
                let up = |values: &[f32]| device.upload(values).unwrap();
                let (b, w, x, y) = (up(&basis), up(&weights), up(&x), up(&y));
                let (b, w, o) = (b.view(), Some(w.view()), offsets);
                let at_rows = || poisoned(device, y.len());
                let (mut project, mut weighted, mut dy) = (at_rows(), at_rows(), at_rows());
                let (mut dx, mut expand) = (poisoned(device, x.len()), poisoned(device, x.len()));
                cuda::project(device, &op, o, b, None, x.view(), project.view_mut()).unwrap();
                cuda::project(device, &op, o, b, w, x.view(), weighted.view_mut()).unwrap();
                cuda::project_backward(device, &op, o, b, w, y.view(), dx.view_mut()).unwrap();
                cuda::expand(device, &op, o, b, y.view(), expand.view_mut()).unwrap();
                cuda::expand_backward(device, &op, o, b, x.view(), dy.view_mut()).unwrap();
                [project, weighted, dx, expand, dy]
            });
        }
    }
    checks.finish("products with the bases of meshes");
}

#[test]
fn incidences_with_transport() {
    use incidence::{IncidenceArrays, IncidenceParts};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    // Rows of 0 to 6 entries, and columns without any.
    let (mut offsets, mut indices) = (vec![0], Vec::new());
    for row in 0..333u32 {
        indices.extend((0..row * 3 % 7).map(|i| (row * 5 + i / 2 * 3) % 150));
        offsets.push(indices.len() as u32);
    }
    let angles: Vec<f64> = random(indices.len(), 1)
        .iter()
        .map(|&a| 3.0 * f64::from(a))
        .collect();
    let plain = IncidenceParts::faces(152, &offsets, &indices);
    let rotating = IncidenceParts {
        angles: Some(&angles),
        ..plain
    };
    let none = IncidenceParts::faces(0, &[0], &[]);
    for (name, parts) in [
        ("empty", &[none][..]),
        ("without angles", &[plain]),
        ("union", &[rotating, none, plain]),
    ] {
        let wide_arrays = IncidenceArrays::<f64>::union(parts).unwrap();
        let narrow = IncidenceArrays::<f32>::union(parts).unwrap();
        let on_device = incidence::cuda::DeviceIncidence::new(&device, &narrow).unwrap();
        for (case, text) in ["16x0 + 16x1 + 16x2", "5x0", "3x1 + 1x4"]
            .into_iter()
            .enumerate()
        {
            let (features, mode) = (kind(text), AGGREGATIONS[case]);
            let r = random(narrow.row_count() * features.dimension(), 2);
            let c = random(narrow.column_count() * features.dimension(), 3);
            let (wr, wc) = (wide(&r), wide(&c));
            let (f, g) = (&features, &wide_arrays);
            let mut expected = [&r, &c, &c, &r].map(|like| vec![0.0; like.len()]);
            let [apply, apply_dx, transposed, transposed_dx] = &mut expected;
            incidence::reference::apply(f, mode, g, &wc, apply, false);
            incidence::reference::apply(f, mode, g, &wr, apply_dx, true);
            incidence::reference::apply_transposed(f, mode, g, &wr, transposed, false);
            incidence::reference::apply_transposed(f, mode, g, &wc, transposed_dx, true);
            let expected = [
                ("apply", &expected[0][..]),
                ("apply dx", &expected[1]),
                ("transposed", &expected[2]),
                ("transposed dx", &expected[3]),
            ];
            checks.check(&format!("{name}, {text}"), expected, |device| {
                use incidence::cuda;
                let (r, c) = (device.upload(&r).unwrap(), device.upload(&c).unwrap());
                let nan = |count: usize| poisoned(device, count);
                let (mut apply, mut apply_dx) = (nan(r.len()), nan(c.len()));
                let (mut transposed, mut transposed_dx) = (nan(c.len()), nan(r.len()));
                let g = &on_device;
                cuda::apply(device, f, mode, g, c.view(), apply.view_mut()).unwrap();
                cuda::apply_backward(device, f, mode, g, r.view(), apply_dx.view_mut()).unwrap();
                cuda::apply_transposed(device, f, mode, g, r.view(), transposed.view_mut())
                    .unwrap();
                let dx = transposed_dx.view_mut();
                cuda::apply_transposed_backward(device, f, mode, g, c.view(), dx).unwrap();
                [apply, apply_dx, transposed, transposed_dx]
            });
        }
    }
    checks.finish("incidences with transport");
}

#[test]
fn optimisers() {
    use gemcnn_kernels::cuda::optimiser::{DeviceOptimiser, Parameter, Step};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let lengths = [5000, 1, 33, 0, 4096];
    let adam = |apart: bool, step: u64| Step::Adam {
        rate: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        apart,
        step,
    };
    let sgd = |_: u64| Step::Sgd {
        rate: 0.05,
        momentum: 0.9,
        weight_decay: 0.1,
    };
    type Rule<'a> = &'a dyn Fn(u64) -> Step;
    let rules: [(&str, Rule<'_>); 3] = [
        ("adam", &|step| adam(false, step)),
        ("adam w", &|step| adam(true, step)),
        ("sgd", &sgd),
    ];
    for (name, rule) in rules {
        let total: usize = lengths.iter().sum();
        let start = random(total, 1);
        let gradients: Vec<Vec<f32>> = (0..3).map(|step| random(total, 10 + step)).collect();
        let decays = |place: usize| place != 1;
        let mut expected = wide(&start);
        let (mut first, mut second) = (vec![0.0; total], vec![0.0; total]);
        for (step, gradient) in gradients.iter().enumerate() {
            let mut place = 0;
            for (tensor, &length) in lengths.iter().enumerate() {
                for i in place..place + length {
                    let (w, g) = (expected[i], f64::from(gradient[i]));
                    let decay = if decays(tensor) { 0.1 } else { 0.0 };
                    let t = step as i32 + 1;
                    if name == "sgd" {
                        first[i] = 0.9 * first[i] + g + decay * w;
                        expected[i] = w - 0.05 * first[i];
                        continue;
                    }
                    let apart = name == "adam w";
                    let g = if apart { g } else { g + decay * w };
                    first[i] = 0.9 * first[i] + 0.1 * g;
                    second[i] = 0.999 * second[i] + 0.001 * g * g;
                    let m = first[i] / (1.0 - 0.9f64.powi(t));
                    let v: f64 = second[i] / (1.0 - 0.999f64.powi(t));
                    let shrunk = if apart { w - 0.01 * decay * w } else { w };
                    expected[i] = shrunk - 0.01 * m / (v.sqrt() + 1e-8);
                }
                place += length;
            }
        }
        checks.check(
            name,
            [("values", &expected), ("moments", &first)],
            |device| {
                let mut optimiser = DeviceOptimiser::new(device, &lengths).unwrap();
                let mut values: Vec<DeviceBuffer<f32>> = Vec::new();
                let mut place = 0;
                for length in lengths {
                    values.push(device.upload(&start[place..place + length]).unwrap());
                    place += length;
                }
                for (step, gradient) in gradients.iter().enumerate() {
                    let gradient = device.upload(gradient).unwrap();
                    let mut place = 0;
                    let parameters: Vec<Parameter<'_>> = values
                        .iter_mut()
                        .enumerate()
                        .map(|(tensor, value)| {
                            let length = value.len();
                            place += length;
                            Parameter {
                                value: value.view_mut(),
                                gradient: gradient.view().slice(place - length..place),
                                decays: decays(tensor),
                            }
                        })
                        .collect();
                    let step = rule(step as u64 + 1);
                    optimiser.step(device, step, &parameters).unwrap();
                }
                let all: Vec<f32> = values
                    .iter()
                    .flat_map(|value| value.to_vec(device).unwrap())
                    .collect();
                let mut moments = vec![0.0; total];
                device.read(optimiser.moments()[0], &mut moments).unwrap();
                [
                    device.upload(&all).unwrap(),
                    device.upload(&moments).unwrap(),
                ]
            },
        );
    }
    checks.finish("optimisers");
}

#[test]
fn memory_is_reused_and_too_much_is_told() {
    use gemcnn_kernels::cuda::CudaError;
    let Some(device) = device() else { return };
    let first = device.memory();
    for _ in 0..10 {
        let buffer: DeviceBuffer<f32> = device.zeros(1_000_000).unwrap();
        assert_eq!(buffer.len(), 1_000_000);
    }
    let after = device.memory();
    assert_eq!(after.allocations, first.allocations + 1);
    assert_eq!(after.live, first.live);
    assert!(after.peak >= 4_000_000);
    let error = device.buffer::<f32>(1 << 44).unwrap_err();
    assert!(matches!(error, CudaError::OutOfMemory { .. }), "{error}");
    println!("{error}");
    // The device goes on working.
    assert_eq!(
        device.upload(&[1u32, 2]).unwrap().to_vec(&device).unwrap(),
        [1, 2]
    );
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    use gemcnn_kernels::cuda::CudaError;
    let Some(device) = device() else { return };
    let op = linear::Linear {
        inputs: 2,
        outputs: 2,
        bias: false,
    };
    let nothing = DeviceSlice::empty();
    let error = linear::cuda::forward(
        &device,
        &op,
        3,
        nothing,
        nothing,
        nothing,
        DeviceSliceMut::empty(),
    )
    .unwrap_err();
    assert!(matches!(
        error,
        CudaError::Kernel(KernelError::Length { .. })
    ));
}
