//! Weights of the method's published PyTorch code, saved as safetensors.
//!
//! Its convolution differs from [`GemConv`] in form, not in what it can
//! express:
//!
//! - `weight` is `[ring, in channel, in component, out channel, out component]`, applied to the
//!   transported features as a row vector: the transpose of `K(0)`, with channels outermost;
//! - `self_weight` is `[basis, in, out]`; its second basis element of an order is
//!   `[[0, -1], [1, 0]]`, so our `b` is its negative;
//! - `bias` `[out channel, out component]` is added to every message before it is rotated by
//!   `theta`: a kernel on a constant scalar. So the layer here gets one more scalar channel, which is 1
//!   everywhere: its neighbour weights are the bias for each ring, its self weights the scalar part;
//! - messages are averaged. With self loops in the edge list the self term is one of them:
//!   [`Aggregation::MeanWithSelf`]; without them there is no self term: [`Aggregation::Mean`];
//! - with several rings, weights are interpolated on `r / max_r`; give that `max_r`, which the
//!   published code takes from the batch unless it is told.
//!
//! Features there are `[vertex, channel, component]`; [`to_layout`] and [`from_layout`] convert.

use gemcnn_nn::layers::{GemConv, GemConvConfig};
use gemcnn_nn::{
    Aggregation, Archive, Builder, FeatureType, GraphBatch, Module, NnError, Parameters, Real, Tape, Var,
    irrep_dimension,
};

/// An error about something stored.
fn setting(what: impl Into<String>, problem: impl Into<String>) -> NnError {
    NnError::Setting { what: what.into(), problem: problem.into() }
}

/// What the weights do not tell of a published convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedOptions {
    /// Whether its edge lists hold self loops.
    pub self_loops: bool,
    /// Radius of the last ring; not used with one ring.
    pub max_radius: f64,
    /// Whether features of order above 0 are stored multiplied by the square root of 2. The published
    /// nonlinearity samples with an orthonormal matrix; on features `z = D x`, `D = diag(1, sqrt 2)`, the
    /// [`Regular`](gemcnn_nn::layers::Regular) nonlinearity does the same for functions
    /// with `f(c s) = c f(s)` for `c > 0`, such as ReLU. The convolution on `z` is `D K D^-1`.
    pub scaled_orders: bool,
}

/// A convolution of the published code.
#[derive(Debug, Clone)]
pub struct PublishedConv {
    conv: GemConv,
    input: FeatureType,
}

impl PublishedConv {
    /// Reads `{prefix}weight`, `{prefix}self_weight` (also `{prefix}self_weight.weight`) and
    /// `{prefix}bias`, and adds the parameters of the layer under `name`.
    ///
    /// # Errors
    /// Tensors that are missing or whose shapes do not fit together.
    pub fn from_published<T: Real>(
        archive: &Archive,
        prefix: &str,
        options: &PublishedOptions,
        name: &str,
        parameters: &mut Parameters<T>,
    ) -> Result<Self, NnError> {
        let stored = Stored::<T>::read(archive, prefix)?;
        let (input, output) = (stored.input(), stored.output());
        let config = GemConvConfig {
            aggregation: match options.self_loops {
                true => Aggregation::MeanWithSelf,
                false => Aggregation::Mean,
            },
            rings: stored.rings,
            max_radius: options.max_radius,
            self_term: options.self_loops,
            bias: false,
            ..GemConvConfig::new(with_constant(&input), output.clone())
        };
        let conv = config.init(name, &mut Builder::new(parameters, 0))?;
        let weights = conv.weights();
        let scale = if options.scaled_orders { 2f64.sqrt() } else { 1.0 };
        let neighbour = parameters.get_mut(weights.neighbour).value_mut();
        stored.fill_neighbour(scale, neighbour);
        if let Some(id) = weights.self_term {
            stored.fill_self(parameters.get_mut(id).value_mut());
        }
        Ok(Self { conv, input })
    }

    /// Convolves.
    ///
    /// # Shapes
    /// `x`: one row of [`input`](Self::input) for each vertex; result: one row of
    /// [`output`](Self::output).
    pub fn forward<'a, T: Real>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        x.expect_kind("input of a published convolution", &self.input)?;
        let ones = vec![T::one(); x.rows()];
        let one = tape.input(FeatureType::scalars(1), &ones)?;
        // The constant comes after the other scalars.
        let x = tape.concatenate(x, one)?;
        self.conv.forward(tape, batch.into(), x)
    }

    /// Type of the input, without the constant channel.
    pub fn input(&self) -> &FeatureType {
        &self.input
    }

    /// Type of the output.
    pub fn output(&self) -> &FeatureType {
        &self.conv.config().output
    }
}

/// Refuses what has no equivariant counterpart in a published residual block: a skip map with a bias
/// on every component.
///
/// # Errors
/// The tensor that is in the way, and what to do.
pub fn check_residual_block(archive: &Archive, prefix: &str) -> Result<(), NnError> {
    let bias = format!("{prefix}lin.bias");
    if archive.shape(&bias).is_some() {
        return Err(setting(
            format!("tensor `{bias}`"),
            "the skip map adds a bias to every component, which is not gauge equivariant; no layer \
             here can express it. Train the block anew with an equivariant skip map",
        ));
    }
    Ok(())
}

fn with_constant(kind: &FeatureType) -> FeatureType {
    kind.concatenated(&FeatureType::scalars(1))
}

/// The tensors of a published convolution.
struct Stored<T> {
    rings: usize,
    inputs: usize,
    input_order: usize,
    outputs: usize,
    output_order: usize,
    weight: Vec<T>,
    self_weight: Vec<T>,
    bias: Vec<T>,
}

impl<T: Real> Stored<T> {
    fn read(archive: &Archive, prefix: &str) -> Result<Self, NnError> {
        let bad = |name: &str, shape: &[usize], expected: String| {
            let problem = format!("has the shape {shape:?}, but should have {expected}");
            setting(format!("tensor `{prefix}{name}`"), problem)
        };
        let shape = |name: &str| {
            let full = format!("{prefix}{name}");
            let missing = || setting(format!("tensor `{full}`"), "is missing");
            archive.shape(&full).map(<[usize]>::to_vec).ok_or_else(missing)
        };
        let weight_shape = shape("weight")?;
        let [rings, inputs, input_size, outputs, output_size] = weight_shape[..] else {
            let expected = "[ring, in, in component, out, out component]";
            return Err(bad("weight", &weight_shape, expected.into()));
        };
        if input_size % 2 == 0 || output_size % 2 == 0 || rings == 0 {
            let expected = "an odd number of components, at least one ring";
            return Err(bad("weight", &weight_shape, expected.into()));
        }
        let nested = "self_weight.weight";
        let self_name = match archive.shape(&format!("{prefix}{nested}")) {
            Some(_) => nested,
            None => "self_weight",
        };
        let self_shape = shape(self_name)?;
        let expected = [input_size.min(output_size), inputs, outputs];
        if self_shape != expected {
            return Err(bad(self_name, &self_shape, format!("{expected:?}")));
        }
        let bias_shape = shape("bias")?;
        if bias_shape != [outputs, output_size] {
            let expected = format!("{:?}", [outputs, output_size]);
            return Err(bad("bias", &bias_shape, expected));
        }
        Ok(Self {
            rings,
            inputs,
            input_order: input_size / 2,
            outputs,
            output_order: output_size / 2,
            weight: archive.tensor(&format!("{prefix}weight"))?,
            self_weight: archive.tensor(&format!("{prefix}{self_name}"))?,
            bias: archive.tensor(&format!("{prefix}bias"))?,
        })
    }

    fn input(&self) -> FeatureType {
        FeatureType::uniform(self.inputs, self.input_order)
    }

    fn output(&self) -> FeatureType {
        FeatureType::uniform(self.outputs, self.output_order)
    }

    /// Ours is `[ring, D_out, D_in + 1]`, the constant after the scalars; orders above 0 of the
    /// features are `scale` times the published ones.
    fn fill_neighbour(&self, scale: f64, ours: &mut [T]) {
        let scale = |component: usize| if component == 0 { 1.0 } else { scale };
        let (input, output) = (self.input(), self.output());
        let (input_size, output_size) = (2 * self.input_order + 1, 2 * self.output_order + 1);
        let columns = input.dimension() + 1;
        for ring in 0..self.rings {
            for i in 0..self.outputs {
                for n in 0..output_size {
                    let row = place(&output, n, i);
                    let row = &mut ours[(ring * output.dimension() + row) * columns..][..columns];
                    for j in 0..self.inputs {
                        for m in 0..input_size {
                            let theirs =
                                (((ring * self.inputs + j) * input_size + m) * self.outputs + i) * output_size + n;
                            let column = place(&input, m, j);
                            let shifted = column + usize::from(column >= self.inputs);
                            row[shifted] = self.weight[theirs] * T::of(scale(n) / scale(m));
                        }
                    }
                    row[self.inputs] = self.bias[i * output_size + n] * T::of(scale(n));
                }
            }
        }
    }

    /// Ours is order after order: `[out, in + 1]` for scalars with the bias in the last column, then
    /// `a [out, in]` and `b [out, in]`.
    fn fill_self(&self, ours: &mut [T]) {
        let theirs = |basis: usize, j: usize, i: usize| self.self_weight[(basis * self.inputs + j) * self.outputs + i];
        let output_size = 2 * self.output_order + 1;
        let mut rest = ours.iter_mut();
        for order in 0..=self.input_order.min(self.output_order) {
            for part in 0..irrep_dimension(order) {
                for i in 0..self.outputs {
                    for j in 0..self.inputs + usize::from(order == 0) {
                        let value = match (order, part) {
                            (0, _) if j == self.inputs => self.bias[i * output_size],
                            (0, _) => theirs(0, j, i),
                            (order, 0) => theirs(2 * order - 1, j, i),
                            (order, _) => -theirs(2 * order, j, i),
                        };
                        if let Some(place) = rest.next() {
                            *place = value;
                        }
                    }
                }
            }
        }
    }
}

/// Where component `component` (0, 1a, 1b, 2a, ...) of a channel lies in a row of a uniform type.
fn place(kind: &FeatureType, component: usize, channel: usize) -> usize {
    let order = component.div_ceil(2);
    let second = component > 0 && component.is_multiple_of(2);
    kind.range(order).start + usize::from(second) * kind.multiplicity(order) + channel
}

/// Features `[vertex, channel, component]` of the published code as rows of a uniform type.
///
/// # Errors
/// A type whose orders have different multiplicities, or a number of values that is no multiple of its
/// dimension.
pub fn to_layout<T: Real>(kind: &FeatureType, published: &[T]) -> Result<Vec<T>, NnError> {
    permuted(kind, published, |ours, theirs, row, values| {
        row[ours] = values[theirs];
    })
}

/// Rows of a uniform type as features `[vertex, channel, component]` of the published code.
pub fn from_layout<T: Real>(kind: &FeatureType, rows: &[T]) -> Result<Vec<T>, NnError> {
    permuted(kind, rows, |ours, theirs, row, values| {
        row[theirs] = values[ours];
    })
}

fn permuted<T: Real>(
    kind: &FeatureType,
    values: &[T],
    copy: impl Fn(usize, usize, &mut [T], &[T]),
) -> Result<Vec<T>, NnError> {
    let Some(channels) = kind.uniform_multiplicity().filter(|&channels| channels > 0) else {
        return Err(setting(format!("type {kind}"), "the published code has the same multiplicity for every order"));
    };
    let (width, components) = (kind.dimension(), kind.dimension() / channels);
    if !values.len().is_multiple_of(width) {
        return Err(NnError::Size {
            what: format!("numbers in rows of {kind}"),
            expected: values.len() / width * width,
            found: values.len(),
        });
    }
    let mut result = vec![T::zero(); values.len()];
    for (row, values) in result.chunks_exact_mut(width).zip(values.chunks_exact(width)) {
        for channel in 0..channels {
            for component in 0..components {
                let ours = place(kind, component, channel);
                copy(ours, channel * components + component, row, values);
            }
        }
    }
    Ok(result)
}
