//! Whole messages on the CPU, layers included.
//!
//! ```text
//! y_p = 1/|N(p)| sum_q rho(theta_pq) phi(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)
//! ```
//!
//! `phi` is a chain of linear maps, each followed by a regular nonlinearity with as many samples as components. Its
//! maps to samples and back are multiplied into the weights before and after it, so that rows of edges hold samples and
//! only the pointwise function is left.
//!
//! The first map is linear in both vertices, and rotations are harmonics of their angle. So it is applied to vertices,
//! once for each harmonic, and an edge only adds these products with `t = (1, cos, sin, cos 2, ...)` of its angles:
//!
//! ```text
//! W [rho(-theta_pq) x_p | rho(g_pq - theta_pq) x_q] + b = sum_k t_k(theta_pq) C_p[k] + t_k(g_pq - theta_pq) D_q[k]
//! sum_q rho(theta_pq) v_pq = sum_k Q_k sum_q t_k(theta_pq) v_pq,      Q_k the projection to components
//! ```
//!
//! `C` and the sums exist for one tile of vertices, rows of edges for one chunk of its edges; they stay in the cache.
//! `D` exists for all vertices; its rows are computed when an edge first needs them. Products skip zeros of their left
//! factor: with ReLU, about half of it.
//!
//! The backward pass computes the layers again. The gradients of `C` and `D` are sums over edges with the same factors.
//! That of `D` is a gather over the reversed edges: the gradients of the first sums are stored for a piece of the edges
//! at a time.
//!
//! Weights are those of all maps, `[outputs, inputs]` each, then all biases.

mod backward;
mod edges;
mod folded;
mod forward;
mod neighbours;
#[cfg(test)]
mod tests;
mod update;

pub use update::{HostUpdate, update};

use super::OPERATOR;
use crate::complex::is_whole;
use crate::error::{check_length, check_rows};
use crate::linear::Linear;
use crate::real::compiled;
use crate::regular::{Plan, harmonic, projection_weight};
use crate::{Activation, FeatureType, GraphView, KernelError, Real, Scratch, irrep_dimension};

/// One layer of a message function: a linear map and the nonlinearity that follows it.
#[derive(Debug, Clone, Copy)]
pub struct HostLayer<'a, T: Real> {
    /// The linear map.
    pub map: &'a Linear,
    /// The nonlinearity.
    pub plan: &'a Plan<T>,
}

/// A message function that is computed in one pass over the edges.
#[derive(Debug)]
pub struct HostChain<'a, T: Real> {
    orders: Vec<Order>,
    /// Numbers of the features.
    dimension: usize,
    /// Harmonics of the angles of edges: up to the highest order of the features, and to that of messages.
    harmonics: [usize; 2],
    layers: Vec<Layer<'a, T>>,
}

/// One order of the features, and its part of the stacked weights of one vertex: `components x channels` rows of as
/// many harmonics as components.
#[derive(Debug, Clone, Copy)]
struct Order {
    components: usize,
    channels: usize,
    /// Its start in the features.
    start: usize,
    /// Its first harmonic.
    harmonic: usize,
    /// Start of its stacked weights.
    stacked: usize,
}

/// A layer on samples.
#[derive(Debug)]
struct Layer<'a, T> {
    map: &'a Linear,
    activation: &'a Activation,
    channels: usize,
    components: usize,
    /// Length of a row of samples: a multiple of [`PAD`], with zeros after the last sample.
    row: usize,
    /// Matrices `[samples, components]` to samples and to components.
    synthesis: Vec<T>,
    projection: Vec<T>,
}

/// Rows are padded to a multiple of this: of the lanes of all vectors.
const PAD: usize = 16;

impl Order {
    /// Rows and, with `row` numbers for each harmonic, columns of the stacked weights.
    fn size(&self, row: usize) -> [usize; 2] {
        [self.components * self.channels, self.components * row]
    }

    /// True if the weights act as complex numbers, with `columns` columns that are whole vectors.
    fn is_complex<T: Real>(&self, columns: usize) -> bool {
        self.components == 2 && is_whole::<T>(columns)
    }
}

impl<'a, T: Real> HostChain<'a, T> {
    /// The layers of a message function on features of type `input`; `None` if they do not fit together, if there are
    /// no features, or if a nonlinearity has not as many samples as components.
    pub fn new(input: &FeatureType, layers: &[HostLayer<'a, T>]) -> Option<Self> {
        let mut inputs = 2 * input.dimension();
        if inputs == 0 {
            return None;
        }
        let mut rows = Vec::with_capacity(layers.len());
        for &HostLayer { map, plan } in layers {
            let config = plan.config();
            let (kind, samples) = (&config.input, config.samples);
            let components = 2 * kind.highest_order() + 1;
            let width = kind.dimension();
            let fits = map.inputs == inputs && map.outputs == width && width > 0;
            if !fits || kind != &config.output() || samples != components {
                return None;
            }
            let entry = |at: usize| harmonic(at / components, at % components, samples);
            let weight = |at: usize| projection_weight(at % components, samples);
            let places = 0..samples * components;
            rows.push(Layer {
                map,
                activation: &config.activation,
                channels: kind.multiplicity(0),
                components,
                row: width.next_multiple_of(PAD),
                synthesis: places.clone().map(|at| T::of(entry(at))).collect(),
                projection: places.map(|at| T::of(entry(at) * weight(at))).collect(),
            });
            inputs = width;
        }
        let (first, last) = (rows.first()?.row, rows.last()?.components);
        let (mut orders, mut stacked) = (Vec::new(), 0);
        for (order, channels) in input.orders() {
            let order = Order {
                components: irrep_dimension(order),
                channels,
                start: input.range(order).start,
                harmonic: (2 * order).saturating_sub(1),
                stacked,
            };
            stacked += order.size(first).iter().product::<usize>();
            orders.push(order);
        }
        Some(Self {
            orders,
            dimension: input.dimension(),
            harmonics: [2 * input.highest_order() + 1, last],
            layers: rows,
        })
    }

    /// Length of the weights.
    pub fn weight_count(&self) -> usize {
        let count = |layer: &Layer<'_, T>| layer.map.weight_count() + layer.map.bias_count();
        self.layers.iter().map(count).sum()
    }

    fn first(&self) -> &Layer<'a, T> {
        &self.layers[0]
    }

    fn last(&self) -> &Layer<'a, T> {
        &self.layers[self.layers.len() - 1]
    }

    /// Numbers of a message.
    fn output(&self) -> usize {
        self.last().map.outputs
    }

    /// Length of a row of `C` or `D`.
    fn first_row(&self) -> usize {
        self.harmonics[0] * self.first().row
    }

    /// Length of a row of the sums of messages.
    fn last_row(&self) -> usize {
        self.harmonics[1] * self.last().row
    }

    /// Length of the stacked weights of one vertex.
    fn stacked(&self) -> usize {
        let size = |order: &Order| order.size(self.first().row).iter().product::<usize>();
        self.orders.iter().map(size).sum()
    }

    fn check(
        &self,
        graph: GraphView<'_, T>,
        x: &[T],
        weights: &[T],
        (name, y): (&'static str, &[T]),
    ) -> Result<(), KernelError> {
        let vertices = graph.vertex_count();
        check_rows(OPERATOR, "x", x, vertices, self.dimension)?;
        check_rows(OPERATOR, name, y, vertices, self.output())?;
        check_length(OPERATOR, "weights", weights, self.weight_count())
    }
}

/// Overwrites `y` with the mean of the messages to each vertex.
pub fn send<T: Real>(
    chain: &HostChain<'_, T>,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    y: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    chain.check(graph, x, weights, ("y", y))?;
    compiled!(forward::send as fn(&HostChain<'_, T>, GraphView<'_, T>, &[T], &[T], &mut [T], &mut Scratch<T>))(
        chain, graph, x, weights, y, scratch,
    );
    Ok(())
}

/// Overwrites `dx` if it is given, and adds to the gradients of the weights.
#[allow(clippy::too_many_arguments)]
pub fn send_backward<T: Real>(
    chain: &HostChain<'_, T>,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    dy: &[T],
    dx: Option<&mut [T]>,
    gradients: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    chain.check(graph, x, weights, ("dy", dy))?;
    check_length(OPERATOR, "gradients", gradients, weights.len())?;
    if let Some(dx) = &dx {
        check_length(OPERATOR, "dx", dx, x.len())?;
    }
    compiled!(
        backward::send_backward
            as fn(&HostChain<'_, T>, GraphView<'_, T>, &[T], &[T], &[T], Option<&mut [T]>, &mut [T], &mut Scratch<T>)
    )(chain, graph, x, weights, dy, dx, gradients, scratch);
    Ok(())
}
