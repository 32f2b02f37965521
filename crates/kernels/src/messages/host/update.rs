//! Updates of vertices with their messages, `y = x + phi(x, m)`, tile by tile: nothing but the result leaves the cache.
//!
//! `phi` is a chain of equivariant linear maps with bias, with a regular nonlinearity between them, on features and
//! messages of one type. The first map is a sum of two, of features and of messages. There is no backward pass: in
//! training the layers are operators of their own.

use super::super::OPERATOR;
use super::forward::take;
use crate::error::{check_length, check_rows};
use crate::parallel::{TILE, memory_length, spread, worker_count};
use crate::real::compiled;
use crate::regular::Plan;
use crate::self_map::{Matrices, SelfMap, add_bias};
use crate::{Destination, FeatureType, KernelError, Real, Scratch, irrep_dimension};

/// An update function.
#[derive(Debug)]
pub struct HostUpdate<'a, T: Real> {
    map: SelfMap,
    layers: usize,
    plan: &'a Plan<T>,
}

impl<'a, T: Real> HostUpdate<'a, T> {
    /// An update with `layers` maps; `None` if there are none, or the nonlinearity changes the type.
    pub fn new(layers: usize, plan: &'a Plan<T>) -> Option<Self> {
        let kind = plan.config().input.clone();
        let map = SelfMap { output: plan.config().output(), input: kind, bias: true };
        (layers > 0 && map.input == map.output).then_some(Self { map, layers, plan })
    }

    fn kind(&self) -> &FeatureType {
        &self.map.input
    }

    /// Length of the weights: all matrices, then all biases.
    pub fn weight_count(&self) -> usize {
        (self.layers + 1) * self.map.parameter_count() + self.layers * self.map.bias_count()
    }

    /// The weights of the first map for features and for messages, and those of the other maps.
    fn split(&self, weights: &[T]) -> Vec<Vec<T>> {
        let each = self.map.parameter_count();
        let (first, rest) = weights.split_at(2 * each);
        let mut maps = vec![Vec::with_capacity(each), Vec::with_capacity(each)];
        let mut first = first.iter().copied();
        for (order, channels) in self.kind().orders() {
            for _ in 0..irrep_dimension(order) * channels {
                for map in &mut maps {
                    map.extend(first.by_ref().take(channels));
                }
            }
        }
        let rest = &rest[..(self.layers - 1) * each];
        maps.extend(rest.chunks(each.max(1)).map(<[T]>::to_vec));
        maps
    }
}

/// Overwrites `y` with the updated rows of `x`; `m` are the messages.
pub fn update<T: Real>(
    function: &HostUpdate<'_, T>,
    [x, m]: [&[T]; 2],
    weights: &[T],
    y: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    let width = function.kind().dimension();
    check_rows(OPERATOR, "x", x, x.len() / width.max(1), width)?;
    check_length(OPERATOR, "m", m, x.len())?;
    check_length(OPERATOR, "y", y, x.len())?;
    check_length(OPERATOR, "weights", weights, function.weight_count())?;
    compiled!(update_tiles as fn(&HostUpdate<'_, T>, [&[T]; 2], &[T], &mut [T], &mut Scratch<T>))(
        function,
        [x, m],
        weights,
        y,
        scratch,
    );
    Ok(())
}

fn update_tiles<T: Real>(
    function: &HostUpdate<'_, T>,
    [x, m]: [&[T]; 2],
    weights: &[T],
    y: &mut [T],
    scratch: &mut Scratch<T>,
) {
    if y.is_empty() {
        return;
    }
    let (map, width) = (&function.map, function.kind().dimension());
    let maps = function.split(weights);
    let biases = &weights[maps.len() * map.parameter_count()..];
    let bias = |layer: usize| &biases[layer * map.bias_count()..][..map.bias_count()];
    let (matrix, tile) = (Matrices::<T>::length(map), TILE * width);
    let workers = worker_count(y.len().div_ceil(tile));
    let each = memory_length(workers, 2 * tile);
    let mut memory = scratch.take(maps.len() * matrix + workers * each);
    let maps = maps.iter().map(|weight| Matrices::new(map, weight, take(&mut memory, matrix)));
    let maps: Vec<Matrices<'_, T>> = maps.collect();
    spread(memory.chunks_exact_mut(each), y.chunks_mut(tile).enumerate(), |memory, (index, y)| {
        let rows = index * tile..index * tile + y.len();
        let (sums, values) = memory.split_at_mut(tile);
        let (sums, values) = (&mut sums[..y.len()], &mut values[..y.len()]);
        maps[0].multiply(Destination::Set, &x[rows.clone()], sums);
        maps[1].multiply(Destination::Add, &m[rows.clone()], sums);
        add_bias(sums, width, bias(0));
        for (layer, map) in maps[2..].iter().enumerate() {
            function.plan.apply(sums, values);
            map.multiply(Destination::Set, values, sums);
            add_bias(sums, width, bias(layer + 1));
        }
        for ((y, &sum), &x) in y.iter_mut().zip(&*sums).zip(&x[rows]) {
            *y = x + sum;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::Concatenate;
    use crate::regular::{self, Regular};
    use crate::testing::{check_threads, difference, random};
    use crate::{Activation, self_map};

    /// The layers one after the other.
    fn composed<T: Real>(function: &HostUpdate<'_, T>, [x, m]: [&[T]; 2], weights: &[T]) -> Vec<T> {
        let (kind, each) = (function.kind(), function.map.parameter_count());
        let vertices = x.len() / kind.dimension();
        let mut values = vec![T::zero(); 2 * x.len()];
        let concatenate = Concatenate { first: kind, second: kind, rows: vertices, a: x, b: m, y: &mut values[..] };
        concatenate.on_host().unwrap();
        let (mut matrices, mut biases) = weights.split_at((function.layers + 1) * each);
        for layer in 0..function.layers {
            let mut map = function.map.clone();
            let mut sums = vec![T::zero(); x.len()];
            if layer == 0 {
                map.input = kind.concatenated(kind);
            } else {
                regular::reference::forward(function.plan.config(), &values, &mut sums);
                values = std::mem::replace(&mut sums, vec![T::zero(); x.len()]);
            }
            let weight = matrices.split_off(..map.parameter_count()).unwrap();
            let bias = biases.split_off(..map.bias_count()).unwrap();
            self_map::reference::forward(&map, vertices, &values, weight, bias, &mut sums);
            values = sums;
        }
        values.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
        values
    }

    fn check<T: Real>(tolerance: f64) {
        for (kind, vertices) in [("16x0 + 16x1 + 16x2", 150), ("3x0 + 3x1", 73), ("5x0", 1)] {
            for layers in [1, 2, 3] {
                let kind: FeatureType = kind.parse().unwrap();
                let samples = 2 * kind.highest_order() + 3;
                let plan = Plan::new(&Regular::new(kind.clone(), samples, Activation::Tanh)).unwrap();
                let function = HostUpdate::new(layers, &plan).unwrap();
                let [x, m] = [1, 2].map(|seed| random::<T>(vertices * kind.dimension(), seed));
                let weights: Vec<T> = random(function.weight_count(), 3);
                let run = || {
                    let mut y = vec![T::nan(); x.len()];
                    update(&function, [&x, &m], &weights, &mut y, &mut Scratch::new()).unwrap();
                    y
                };
                let expected = composed(&function, [&x, &m], &weights);
                assert!(difference(&run(), &expected) < tolerance);
                check_threads(run);
            }
        }
    }

    #[test]
    fn updates_equal_their_layers() {
        check::<f32>(1e-5);
        check::<f64>(1e-13);
    }
}
