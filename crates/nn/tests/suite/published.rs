//! Convolutions and a residual block with weights of the method's published PyTorch code, against its numbers
//! (fixtures/golden). Its convolution differs from [`GemConv`] in form, not in what it can express:
//!
//! - features are `[vertex, channel, component]`;
//! - `weight` is `[ring, in channel, in component, out channel, out component]`, applied to the transported features as a
//!   row vector: the transpose of `K(0)`, with channels outermost;
//! - `self_weight` is `[basis, in, out]`; its second basis element of an order is `[[0, -1], [1, 0]]`, so our `b` is its
//!   negative;
//! - `bias` `[out channel, out component]` is added to every message before it is rotated by `theta`: a kernel on a
//!   constant scalar. So the layer here gets one more scalar channel, which is 1 everywhere: its neighbour weights are the
//!   bias for each ring, its self weights the scalar part;
//! - messages are summed next to a self term ([`Aggregation::Sum`]), or averaged. With self loops in the edge list the
//!   self term is one of them: [`Aggregation::MeanWithSelf`]; without them there is none: [`Aggregation::Mean`];
//! - with several rings, weights are interpolated on `r / max_r`, with the largest radius of the batch.

use gemcnn_fixtures::{GOLDEN_MESHES, Golden};
use gemcnn_nn::layers::{GemConv, GemConvConfig, Nonlinearity, Regular};
use gemcnn_nn::{
    Aggregation, Archive, Builder, FeatureType, GraphBatch, Levels, Module, NnError, Parameters, Stream, Tape, Var,
    Workspace, irrep_dimension,
};

/// Numbers of a channel of orders 0 to 2.
const COMPONENTS: usize = 5;

/// Exchanges the last two axes of `[vertex, a, b]`.
fn transposed(values: &[f64], a: usize, b: usize) -> Vec<f64> {
    let number = |at: usize| {
        let (row, rest) = (at / (a * b), at % (a * b));
        values[row * a * b + rest % a * b + rest / a]
    };
    (0..values.len()).map(number).collect()
}

/// Golden numbers, also as an archive.
struct Published {
    golden: Golden,
    archive: Archive,
}

impl Published {
    fn read(name: &str) -> Self {
        let golden = Golden::read(name);
        let archive = Archive::from_bytes(golden.bytes()).unwrap();
        Self { golden, archive }
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.archive.tensor(name).unwrap()
    }

    fn batch(&self) -> GraphBatch<f64> {
        GraphBatch::new([&self.golden.graph()]).unwrap()
    }

    fn max_radius(&self, edges: &str) -> f64 {
        self.numbers(&format!("{edges}.r")).into_iter().fold(0.0, f64::max)
    }

    /// The first rings of a convolution.
    fn conv(&self, prefix: &str, rings: usize) -> StoredConv {
        let shape = |name: &str| self.archive.shape(&format!("{prefix}{name}"));
        let &[_, inputs, _, outputs, _] = shape("weight").unwrap() else { panic!("the weight has five axes") };
        let nested = "self_weight.weight";
        let names = ["weight", if shape(nested).is_some() { nested } else { "self_weight" }, "bias"];
        let mut tensors = names.map(|name| self.numbers(&format!("{prefix}{name}")));
        tensors[0].truncate(rings * inputs * outputs * COMPONENTS * COMPONENTS);
        StoredConv { rings, inputs, outputs, tensors }
    }
}

/// The weight, the self weight and the bias of a published convolution.
#[derive(Clone)]
struct StoredConv {
    rings: usize,
    inputs: usize,
    outputs: usize,
    tensors: [Vec<f64>; 3],
}

impl StoredConv {
    /// The same with each number replaced by its place (from 1) in the list of all numbers.
    fn places(&self) -> Self {
        let mut places = self.clone();
        for (number, place) in places.tensors.iter_mut().flatten().zip(1..) {
            *number = f64::from(place);
        }
        places
    }

    /// The layer. Orders above 0 of the features are `scale` times the published ones: with features `z = D x` the
    /// convolution is `D K D^-1`.
    fn layer(
        &self,
        (aggregation, max_radius, scale): (Aggregation, f64, f64),
        name: &str,
        parameters: &mut Parameters<f64>,
    ) -> GemConv {
        let [input, output] = [self.inputs, self.outputs].map(|channels| FeatureType::uniform(channels, 2));
        let config = GemConvConfig {
            aggregation,
            rings: self.rings,
            max_radius,
            self_term: aggregation != Aggregation::Mean,
            bias: false,
            ..GemConvConfig::new(input.concatenated(&FeatureType::scalars(1)), output)
        };
        let conv = config.init(name, &mut Builder::new(parameters, 0)).unwrap();
        let weights = conv.weights();
        self.fill_neighbour(scale, parameters.get_mut(weights.neighbour).value_mut());
        if let Some(id) = weights.self_term {
            self.fill_self(parameters.get_mut(id).value_mut());
        }
        conv
    }

    /// Ours is `[ring, D_out, D_in + 1]`, the constant after the scalars.
    fn fill_neighbour(&self, scale: f64, ours: &mut [f64]) {
        let scale = |component: usize| if component == 0 { 1.0 } else { scale };
        let (inputs, outputs, [weight, _, bias]) = (self.inputs, self.outputs, &self.tensors);
        let rows = ours.chunks_exact_mut(COMPONENTS * inputs + 1).enumerate();
        for (row, numbers) in rows {
            let (ring, row) = (row / (COMPONENTS * outputs), row % (COMPONENTS * outputs));
            let (n, i) = (row / outputs, row % outputs);
            for from in 0..COMPONENTS * inputs {
                let (m, j) = (from / inputs, from % inputs);
                let theirs = (((ring * inputs + j) * COMPONENTS + m) * outputs + i) * COMPONENTS + n;
                numbers[from + usize::from(m > 0)] = weight[theirs] * scale(n) / scale(m);
            }
            numbers[inputs] = bias[i * COMPONENTS + n] * scale(n);
        }
    }

    /// Ours is order after order: `[out, in + 1]` for scalars with the bias in the last column, then `a [out, in]` and
    /// `b [out, in]`.
    fn fill_self(&self, ours: &mut [f64]) {
        let (inputs, outputs, [_, own, bias]) = (self.inputs, self.outputs, &self.tensors);
        let mut rest = ours.iter_mut();
        for (order, part) in (0..3).flat_map(|order| (0..irrep_dimension(order)).map(move |part| (order, part))) {
            let (basis, sign) = ((2 * order + part).saturating_sub(1), if part == 0 { 1.0 } else { -1.0 });
            for (i, j) in (0..outputs).flat_map(|i| (0..inputs + usize::from(order == 0)).map(move |j| (i, j))) {
                *rest.next().unwrap() = match j == inputs {
                    true => bias[i * COMPONENTS],
                    false => sign * own[(basis * inputs + j) * outputs + i],
                };
            }
        }
        assert!(rest.next().is_none());
    }
}

/// Convolves with the constant channel, which comes after the other scalars.
fn convolve<'a>(
    conv: &GemConv,
    tape: &mut Tape<'a, f64>,
    batch: &'a GraphBatch<f64>,
    x: Var<f64>,
) -> Result<Var<f64>, NnError> {
    let one = tape.input(FeatureType::scalars(1), &vec![1.0; x.rows()])?;
    let x = tape.concatenate(x, one)?;
    conv.forward(tape, batch.into(), x)
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-10, "{what}, {place}: {f} is not {e}");
    }
}

const STREAM: Stream = Stream { seed: 0, step: 0 };

/// The result `edges.result` of a golden mesh.
fn check_conv(mesh: &str, (edges, result): (&str, &str), rings: usize, aggregation: Aggregation) {
    let published = Published::read(mesh);
    let (batch, mut stored) = (published.batch(), published.conv("", rings));
    let mut names = vec!["weight", "self_weight"];
    if result.ends_with("nobias") {
        stored.tensors[2].fill(0.0);
    } else {
        names.push("bias");
    }
    let settings = (aggregation, published.max_radius(edges), 1.0);
    let mut parameters = Parameters::new();
    let conv = stored.layer(settings, "conv", &mut parameters);
    let x = transposed(&published.numbers("x"), stored.inputs, COMPONENTS);
    let cotangent = transposed(&published.numbers("c"), stored.outputs, COMPONENTS);
    // The tape borrows it, so it has to outlive the tape.
    let mut target = Vec::new();
    let mut workspace = Workspace::default();
    let mut tape = Tape::training(&mut workspace, &mut parameters, STREAM);
    let x = tape.tracked_input(FeatureType::uniform(stored.inputs, 2), &x).unwrap();
    let y = convolve(&conv, &mut tape, &batch, x.clone()).unwrap();

    let what = format!("{mesh}, {edges}.{result}");
    let expected = |name: &str| published.numbers(&format!("{edges}.{result}.{name}"));
    let found = transposed(&y.values().unwrap(), COMPONENTS, stored.outputs);
    assert_close(&found, &expected("y"), &format!("{what}.y"));

    // The mean over rows of |y - t|^2 with t = y - c rows / 2 has the gradient c.
    let rows = y.rows() as f64;
    target.extend(y.values().unwrap().iter().zip(&cotangent).map(|(y, c)| y - 0.5 * rows * c));
    let loss = tape.mean_square(y, &target).unwrap();
    let gradients = tape.backward_to(&loss, &[&x]).unwrap();
    let found = transposed(&gradients[0], COMPONENTS, stored.inputs);
    assert_close(&found, &expected("dx"), &format!("{what}.dx"));

    // Where each stored number went, with which sign: from a layer of their places.
    let mut placed = Parameters::new();
    stored.places().layer(settings, "conv", &mut placed);
    let mut found = vec![0.0; stored.tensors.iter().map(Vec::len).sum()];
    for (entry, place) in parameters.iter().zip(placed.iter()) {
        for (gradient, place) in entry.gradient().iter().zip(place.value()) {
            found[place.abs() as usize - 1] += gradient * place.signum();
        }
    }
    let mut rest = &found[..];
    for (name, tensor) in names.iter().zip(&stored.tensors) {
        let (part, later) = rest.split_at(tensor.len());
        assert_close(part, &expected(&format!("d{name}")), &format!("{what}.d{name}"));
        rest = later;
    }
}

/// With self loops; and without, on closed meshes, where boundary edges in one direction do not occur. The paper's form
/// is a sum over neighbours and a self term, without bias.
#[test]
fn convolutions_equal_the_published_code() {
    for (rings, result) in [(1, "conv_r1"), (2, "conv_r2")] {
        let check = |edges, aggregation| move |mesh: &&str| check_conv(mesh, (edges, result), rings, aggregation);
        GOLDEN_MESHES.iter().for_each(check("edges_B", Aggregation::MeanWithSelf));
        GOLDEN_MESHES[..3].iter().for_each(check("edges_A", Aggregation::Mean));
    }
    let paper = ("edges_B", "conv_sum_nobias");
    GOLDEN_MESHES.iter().for_each(|mesh| check_conv(mesh, paper, 1, Aggregation::Sum));
}

/// The published nonlinearity samples with an orthonormal matrix; on features `z = D x`, `D = diag(1, sqrt 2)`, the
/// [`Regular`] nonlinearity does the same for functions with `f(c s) = c f(s)` for `c > 0`, such as ReLU.
#[test]
fn a_residual_block_equals_the_published_code() {
    for mesh in GOLDEN_MESHES {
        let published = Published::read(mesh);
        let batch = published.batch();
        let settings = (Aggregation::MeanWithSelf, published.max_radius("edges_B"), 2f64.sqrt());
        let mut parameters = Parameters::new();
        let [first, second] = ["conv1", "conv2"].map(|name| {
            let prefix = format!("block_4to4.param.{name}.");
            let rings = published.archive.shape(&format!("{prefix}weight")).unwrap()[0];
            published.conv(&prefix, rings).layer(settings, name, &mut parameters)
        });
        let kind = FeatureType::uniform(4, 2);
        let act = Regular::relu(7).init("act", &kind, &mut Builder::new(&mut parameters, 0)).unwrap();
        let scale = |values: &mut [f64], factor: f64| {
            for row in values.chunks_mut(kind.dimension()) {
                row[4..].iter_mut().for_each(|v| *v *= factor);
            }
        };
        let mut x = transposed(&published.numbers("x"), 4, COMPONENTS);
        scale(&mut x, 2f64.sqrt());
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(kind.clone(), &x).unwrap();
        let y = convolve(&first, &mut tape, &batch, x.clone()).unwrap();
        let y = act.forward(&mut tape, Levels::from(&batch), y).unwrap();
        let y = convolve(&second, &mut tape, &batch, y).unwrap();
        let y = tape.add(y, x).unwrap();
        let y = act.forward(&mut tape, Levels::from(&batch), y).unwrap();
        let mut y = y.values().unwrap().to_vec();
        scale(&mut y, 0.5f64.sqrt());
        assert_close(&transposed(&y, COMPONENTS, 4), &published.numbers("block_4to4.y"), mesh);
    }
}
