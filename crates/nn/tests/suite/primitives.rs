//! The primitives that layers are composed of: gradients, types, and compositions.

use crate::common::{batch, kind, random};
use crate::cuda_training::{devices, gpu, relative_error, size};
use crate::gradients::check;
use gemcnn_kernels::{Resolve, elementwise};
use gemcnn_nn::layers::{EquivariantLinear, EquivariantLinearConfig, Linear, LinearConfig};
use gemcnn_nn::{
    Aggregation, BasisBatch, BasisParts, Builder, Context, Device, EdgeFrame, FeatureType, Grouping, IncidenceBatch,
    IncidenceParts, KernelError, Levels, Module, NnError, Operator, Parameters, Real, Reduce, Storage, Stream, Tape,
    Var, Workspace,
};
use std::sync::Arc;

const FRAMES: [EdgeFrame; 2] = [EdgeFrame::Vertex, EdgeFrame::Edge];
const AGGREGATIONS: [Aggregation; 3] = [Aggregation::Sum, Aggregation::Mean, Aggregation::MeanWithSelf];
const STREAM: Stream = Stream { seed: 3, step: 0 };

/// Something that a tape of any lifetime can borrow.
fn forever<V>(value: V) -> &'static V {
    Box::leak(Box::new(value))
}

fn map<T: Real>(input: &str, output: &str, parameters: &mut Parameters<T>) -> EquivariantLinear {
    let name = format!("map{}", parameters.iter().len());
    let config = EquivariantLinearConfig::new(kind(input), kind(output));
    config.init(&name, &mut Builder::new(parameters, 1)).unwrap()
}

#[test]
fn irreps() {
    let text = "2x0 + 2x1 + 4x3";
    check("norm", text, &mut Parameters::new(), &|tape, _, x| tape.irrep_norm(1e-3, x));
    for grouping in [Grouping::Irreps, Grouping::Heads(2), Grouping::Heads(1)] {
        let mut parameters = Parameters::new();
        let other = map(text, text, &mut parameters);
        check("dot", text, &mut parameters, &|tape, levels, x| {
            let y = other.forward(tape, levels, x.clone())?;
            tape.irrep_dot(grouping, x, y)
        });
        check("scale", text, &mut parameters, &|tape, levels, x| {
            let y = other.forward(tape, levels, x.clone())?;
            let factors = tape.irrep_dot(grouping, x.clone(), y)?;
            tape.irrep_scale(grouping, x, factors)
        });
    }
}

#[test]
fn edges() {
    let text = "2x0 + 2x1 + 2x2";
    for frame in FRAMES {
        check("gather", text, &mut Parameters::new(), &|tape, levels, x| tape.gather_edges(frame, levels.graph()?, x));
        check("spread", text, &mut Parameters::new(), &|tape, levels, x| tape.spread_edges(frame, levels.graph()?, x));
        for aggregation in AGGREGATIONS {
            let config = Arc::new(Reduce { aggregation, heads: 2, ..Reduce::sum(kind(text), frame) });
            check("reduce", text, &mut Parameters::new(), &|tape, levels, x| {
                let values = tape.gather_edges(frame, levels.graph()?, x)?;
                tape.reduce_edges(&config, levels.graph()?, values)
            });
            let mut parameters = Parameters::new();
            let scalars = map(text, "2x0", &mut parameters);
            check("weighted", text, &mut parameters, &|tape, levels, x| {
                let graph = levels.graph()?;
                let weights = scalars.forward(tape, levels, x.clone())?;
                let weights = tape.gather_edges(EdgeFrame::Vertex, graph, weights)?;
                let values = tape.gather_edges(frame, graph, x)?;
                tape.reduce_edges_weighted(&config, graph, values, weights)
            });
        }
    }
    check("softmax", "3x0", &mut Parameters::new(), &|tape, levels, x| {
        let scores = tape.gather_edges(EdgeFrame::Vertex, levels.graph()?, x)?;
        tape.edge_softmax(levels.graph()?, scores)
    });
    check("row softmax", "5x0", &mut Parameters::new(), &|tape, _, x| tape.softmax(x));
    // Pairs of rows as one: the gradient goes back to the row that each number is from.
    check("rows", "3x0", &mut Parameters::new(), &|tape, _, x| {
        let rows = x.rows();
        let y = tape.softmax(x.with_rows(rows / 2)?)?;
        y.with_rows(rows)
    });
}

/// Attention of each vertex over its neighbours.
#[derive(Debug)]
struct Attention {
    query: EquivariantLinear,
    key: EquivariantLinear,
    value: EquivariantLinear,
    reduce: Arc<Reduce>,
}

impl Attention {
    fn new<T: Real>(input: &str, output: &str, parameters: &mut Parameters<T>) -> Self {
        Self {
            query: map(input, "2x0 + 2x1", parameters),
            key: map(input, "2x0 + 2x1", parameters),
            value: map(input, output, parameters),
            reduce: Arc::new(Reduce { heads: 2, ..Reduce::sum(kind(output), EdgeFrame::Vertex) }),
        }
    }
}

impl<T: Real> Module<T> for Attention {
    fn input(&self) -> &FeatureType {
        Module::<T>::input(&self.query)
    }

    fn output(&self) -> &FeatureType {
        &self.reduce.features
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let (graph, frame) = (levels.graph()?, EdgeFrame::Vertex);
        let query = self.query.forward(tape, levels, x.clone())?;
        let query = tape.spread_edges(frame, graph, query)?;
        let key = self.key.forward(tape, levels, x.clone())?;
        let key = tape.gather_edges(frame, graph, key)?;
        let scores = tape.irrep_dot(Grouping::Heads(2), query, key)?;
        let weights = tape.edge_softmax(graph, scores)?;
        let value = self.value.forward(tape, levels, x)?;
        let value = tape.gather_edges(frame, graph, value)?;
        tape.reduce_edges_weighted(&self.reduce, graph, value, weights)
    }
}

/// Irreps times a function of their norms.
#[derive(Debug)]
struct NormGate {
    kind: FeatureType,
    gates: Linear,
}

impl<T: Real> Module<T> for NormGate {
    fn input(&self) -> &FeatureType {
        &self.kind
    }

    fn output(&self) -> &FeatureType {
        &self.kind
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let norms = tape.irrep_norm(1e-6, x.clone())?;
        let gates = self.gates.forward(tape, levels, norms)?;
        tape.irrep_scale(Grouping::Irreps, x, gates)
    }
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= tolerance * e.abs().max(1.0), "{what}: {f} {e}");
    }
}

/// Random columns that are orthonormal with weights, `[vertices, columns]` or `[vertices, 2, columns]`, by
/// Gram-Schmidt.
fn orthonormal(weights: &[f64], columns: usize, complex: bool, seed: u64) -> Vec<f64> {
    let (vertices, parts) = (weights.len(), if complex { 2 } else { 1 });
    let mut basis: Vec<Vec<[f64; 2]>> = Vec::new();
    // <a, b> = sum w conj(a) b
    let inner = |a: &[[f64; 2]], b: &[[f64; 2]]| -> [f64; 2] {
        let pairs = a.iter().zip(b).zip(weights);
        pairs.fold([0.0; 2], |[re, im], ((a, b), w)| {
            [re + w * (a[0] * b[0] + a[1] * b[1]), im + w * (a[0] * b[1] - a[1] * b[0])]
        })
    };
    for column in 0..columns {
        let numbers = random::<f64>(2 * vertices, seed + column as u64);
        let imaginary = if complex { 1.0 } else { 0.0 };
        let mut new: Vec<[f64; 2]> = numbers.chunks(2).map(|z| [z[0], imaginary * z[1]]).collect();
        for old in &basis {
            let [re, im] = inner(old, &new);
            for (new, old) in new.iter_mut().zip(old) {
                new[0] -= re * old[0] - im * old[1];
                new[1] -= re * old[1] + im * old[0];
            }
        }
        let norm = inner(&new, &new)[0].sqrt();
        new.iter_mut().flatten().for_each(|v| *v /= norm);
        basis.push(new);
    }
    let stride = parts * columns;
    let entry = |place: usize| {
        let (vertex, rest) = (place / stride, place % stride);
        basis[rest % columns][vertex][rest / columns]
    };
    (0..vertices * stride).map(entry).collect()
}

/// Bases of four columns for the two meshes of [`batch`], with weights.
fn bases<T: Real>(complex: bool) -> BasisBatch<T> {
    let batch = batch::<T>();
    let meshes: Vec<(Vec<f64>, Vec<f64>)> = (0..batch.mesh_count())
        .map(|mesh| {
            let vertices = batch.vertices_of(mesh).len();
            let weights = random::<f64>(vertices, 40 + mesh as u64);
            let weights: Vec<f64> = weights.iter().map(|w| 1.5 + w).collect();
            (orthonormal(&weights, 4, complex, 10 * mesh as u64), weights)
        })
        .collect();
    let parts: Vec<BasisParts<'_>> = (meshes.iter())
        .map(|(values, weights)| BasisParts { vertices: weights.len(), values, weights: Some(weights) })
        .collect();
    let bases = if complex { BasisBatch::complex(4, &parts) } else { BasisBatch::real(4, &parts) };
    bases.unwrap()
}

#[test]
fn projections() {
    for (complex, text) in [(false, "3x0"), (true, "2x3")] {
        let basis = forever(bases::<f64>(complex));
        check("projection", text, &mut Parameters::new(), &|tape, _, x| tape.project(basis, x));
        check("expansion", text, &mut Parameters::new(), &|tape, _, x| {
            let y = tape.project(basis, x)?;
            let y = tape.scale(0.3, y)?;
            tape.expand(basis, y)
        });
        // What a basis spans is kept.
        let (kind, parameters) = (kind(text), Parameters::new());
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let coefficients = random::<f64>(basis.row_count() * kind.dimension(), 5);
        let y = tape.input(kind.clone(), &coefficients).unwrap();
        let x = tape.expand(basis, y).unwrap();
        let again = tape.project(basis, x.clone()).unwrap();
        assert_close(&again.values().unwrap(), &coefficients, 1e-12, "coefficients");
        let kept = tape.expand(basis, again).unwrap();
        assert_close(&kept.values().unwrap(), &x.values().unwrap(), 1e-12, "features");
    }
}

/// A complex basis that rotates with the frames gives coefficients that do not depend on them.
#[test]
fn coefficients_do_not_depend_on_frames() {
    let (vertices, columns, text) = (30, 3, "2x1");
    let weights = vec![1.0; vertices];
    let values = orthonormal(&weights, columns, true, 1);
    let x = random::<f64>(vertices * kind(text).dimension(), 2);
    let angles = random::<f64>(vertices, 3);
    let project = |values: &[f64], x: &[f64]| {
        let part = BasisParts { vertices, values, weights: None };
        let basis = BasisBatch::<f64>::complex(columns, &[part]).unwrap();
        let (mut workspace, parameters) = (Workspace::default(), Parameters::new());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(kind(text), x).unwrap();
        let y = tape.project(&basis, x).unwrap();
        y.values().unwrap().to_vec()
    };
    let rotate = |kind: &FeatureType, values: &[f64]| {
        let mut rotated = values.to_vec();
        elementwise::rotate(kind, &angles, values, &mut rotated).unwrap();
        rotated
    };
    let rotated_basis = rotate(&FeatureType::new(&[0, columns]), &values);
    let found = project(&rotated_basis, &rotate(&kind(text), &x));
    assert_close(&found, &project(&values, &x), 1e-12, "coefficients");
}

/// 25 rows of up to three of the vertices of [`batch`].
fn incidence<T: Real>(angles: bool) -> IncidenceBatch<T> {
    let columns = batch::<T>().vertex_count();
    let offsets: Vec<u32> = (0..=25u32).map(|row| row * (row + 9) / 20).collect();
    let entries = offsets[25] as usize;
    let indices: Vec<u32> = (0..entries).map(|e| (e * 17 % columns) as u32).collect();
    let numbers = random::<f64>(entries, 6);
    let parts = IncidenceParts {
        columns,
        offsets: &offsets,
        indices: &indices,
        angles: angles.then_some(&numbers[..]),
        weights: None,
    };
    IncidenceBatch::new(&[parts]).unwrap()
}

#[test]
fn incidences() {
    for (angles, text) in [(false, "3x0"), (true, "1x0 + 2x1 + 1x2")] {
        let incidence = forever(incidence::<f64>(angles));
        for aggregation in AGGREGATIONS {
            check("incidence", text, &mut Parameters::new(), &|tape, _, x| {
                tape.apply_incidence(aggregation, incidence, x)
            });
            check("transposed", text, &mut Parameters::new(), &|tape, _, x| {
                let y = tape.apply_incidence(Aggregation::Sum, incidence, x)?;
                tape.apply_incidence_transposed(aggregation, incidence, y)
            });
        }
    }
}

#[test]
fn types_know_what_is_equivariant() {
    let batch = batch::<f64>();
    let (real, complex) = (bases::<f64>(false), bases::<f64>(true));
    let faces = incidence::<f64>(false);
    let (rows, edges) = (batch.vertex_count(), batch.edge_count());
    let (mut workspace, parameters) = (Workspace::default(), Parameters::new());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let mut input = |text: &str, rows: usize| {
        let zeros = vec![0.0; rows * kind(text).dimension()];
        tape.input(kind(text), &zeros).unwrap()
    };
    let (vectors, scalars, mixed) = (input("2x1", rows), input("2x0", rows), input("1x0 + 1x1", rows));
    let (edge_vectors, edge_scalars) = (input("2x1", edges), input("4x0", edges));

    let norms = tape.irrep_norm(1e-3, mixed.clone()).unwrap();
    assert_eq!(*norms.kind(), kind("2x0"));
    let at_vertex = tape.gather_edges(EdgeFrame::Vertex, &batch, vectors.clone());
    assert_eq!(*at_vertex.unwrap().kind(), kind("2x1"));
    let at_edge = tape.gather_edges(EdgeFrame::Edge, &batch, vectors.clone());
    assert_eq!(*at_edge.unwrap().kind(), kind("4x0"));
    let reduce = Arc::new(Reduce::sum(kind("2x1"), EdgeFrame::Edge));
    let reduced = tape.reduce_edges(&reduce, &batch, edge_scalars.clone());
    assert_eq!(*reduced.unwrap().kind(), kind("2x1"));

    let wrong_type = |found: Result<Var<f64>, NnError>| {
        let error = found.unwrap_err();
        assert!(matches!(error, NnError::Type { .. }), "{error}");
    };
    wrong_type(tape.edge_softmax(&batch, edge_vectors.clone()));
    wrong_type(tape.reduce_edges(&reduce, &batch, edge_vectors));
    wrong_type(tape.irrep_dot(Grouping::Irreps, vectors.clone(), mixed.clone()));
    wrong_type(tape.irrep_scale(Grouping::Heads(1), vectors.clone(), scalars.clone()));
    wrong_type(tape.irrep_scale(Grouping::Irreps, scalars.clone(), vectors.clone()));
    wrong_type(tape.project(&real, vectors.clone()));
    wrong_type(tape.apply_incidence(Aggregation::Mean, &faces, vectors));
    for refused in [mixed, scalars.clone()] {
        let error = tape.project(&complex, refused).unwrap_err();
        assert!(matches!(error, NnError::Kernel(KernelError::Setting { .. })), "{error}");
    }
    for rows in [0, 7] {
        let error = scalars.clone().with_rows(rows).unwrap_err();
        assert!(matches!(error, NnError::Size { .. }), "{error}");
    }
    let error = tape.edge_softmax(&batch, scalars).unwrap_err();
    assert!(matches!(error, NnError::Size { .. }), "{error}");
}

/// Output and gradients of a model of all primitives.
fn all_primitives<T: Real>(device: &Device) -> Vec<Vec<T>> {
    let batch = batch::<T>();
    let levels = Levels::from(&batch);
    let (real, complex, pairs) = (bases::<T>(false), bases::<T>(true), incidence::<T>(true));
    let mut parameters = Parameters::<T>::new();
    let attention = Attention::new("2x0 + 2x1", "2x0 + 2x1", &mut parameters);
    let gates = LinearConfig::new(4, 4).init("gates", &mut Builder::new(&mut parameters, 1));
    let block = NormGate { kind: kind("2x0 + 2x1"), gates: gates.unwrap() };
    let (scalars, vectors) = (map("2x0 + 2x1", "3x0", &mut parameters), map("2x0 + 2x1", "2x1", &mut parameters));
    let reduce = Arc::new(Reduce::sum(kind("2x0 + 2x1"), EdgeFrame::Edge));
    let x = random::<T>(batch.vertex_count() * 6, 1);
    let target = random::<T>(batch.vertex_count() * 7, 2);
    let mut workspace = Workspace::new(device.clone());
    let mut tape = Tape::training(&mut workspace, &mut parameters, STREAM);
    let mut run = || {
        let x = tape.tracked_input(kind("2x0 + 2x1"), &x)?;
        let y = attention.forward(&mut tape, levels, x.clone())?;
        let y = block.forward(&mut tape, levels, y)?;
        let edges = tape.spread_edges(EdgeFrame::Edge, &batch, y)?;
        let y = tape.reduce_edges(&reduce, &batch, edges)?;
        let y = tape.apply_incidence(Aggregation::Mean, &pairs, y)?;
        let y = tape.apply_incidence_transposed(Aggregation::Sum, &pairs, y)?;
        let y = tape.add(x.clone(), y)?;
        let s = scalars.forward(&mut tape, levels, y.clone())?;
        let s = tape.project(&real, s)?;
        let s = tape.expand(&real, s)?;
        let s = tape.softmax(s)?;
        let v = vectors.forward(&mut tape, levels, y)?;
        let v = tape.project(&complex, v)?;
        let v = tape.expand(&complex, v)?;
        Ok::<_, NnError>((x, tape.concatenate(s, v)?))
    };
    let (x, y) = run().unwrap();
    let output = y.values().unwrap().to_vec();
    let loss = tape.mean_square(y, &target).unwrap();
    let gradients = tape.backward_to(&loss, &[&x]).unwrap();
    let mut all = vec![output, gradients[0].to_vec()];
    drop(gradients);
    parameters.move_to_host().unwrap();
    all.extend(parameters.iter().map(|entry| entry.gradient().to_vec()));
    all
}

#[test]
fn devices_agree_with_f64_on_the_cpu() {
    let expected = all_primitives::<f64>(&Device::Cpu);
    for device in devices("primitives") {
        let found = all_primitives::<f32>(&device);
        assert_eq!(found.len(), expected.len());
        let largest = expected[2..].iter().map(|e| size(e)).fold(0.0, f64::max);
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // The gradient of the bias of the keys is zero, because softmax ignores constants.
            let scale = size(expected) / size(expected).max(1e-3 * largest);
            let error = relative_error(found, expected) * scale;
            println!("{device:?}: result {place} differs by {error:.1e}");
            assert!(error < 1e-4);
        }
    }
}

/// An operator without a CUDA version.
struct Square;

impl<T: Real> Operator<T> for Square {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, ()), NnError> {
        let mut y = context.buffer(x.values_len())?;
        context.executor().cpu_only("square")?;
        let pairs = y.view_mut().host()?.iter_mut().zip(x.host()?);
        pairs.for_each(|(y, &x)| *y = x * x);
        Ok((Var::new(x.kind().clone(), x.rows(), y), ()))
    }

    fn backward(
        &self,
        _: &mut Context<'_, T>,
        (): (),
        _: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        Ok([None])
    }
}

#[test]
fn an_operator_for_the_cpu_refuses_a_gpu() {
    let square = |device: Device| {
        let (mut workspace, parameters) = (Workspace::<f32>::new(device), Parameters::new());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(kind("1x0"), &[3.0]).unwrap();
        let y = tape.apply(Square, [x])?;
        Ok::<_, NnError>(y.values()?.to_vec())
    };
    assert_eq!(square(Device::Cpu).unwrap(), [9.0]);
    let Some(device) = gpu("an operator for the CPU") else { return };
    let error = square(device).unwrap_err();
    let refused = matches!(error, NnError::Kernel(KernelError::NoCudaVersion { operator: "square" }));
    assert!(refused, "{error}");
}
