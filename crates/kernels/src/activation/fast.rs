//! Vectors of values, on all threads.

use super::{Activation, Backward, Forward};
use crate::parallel::Loop;
use crate::{Host, Real};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Values of one task.
const BLOCK: usize = 1 << 12;

pub(super) fn forward<T: Real>(Forward { activation, x, y }: Forward<'_, Host<T>>) {
    y.par_chunks_mut(BLOCK).zip(x.par_chunks(BLOCK)).run(|(y, x)| Arch::new().dispatch(Values { activation, x, y }));
}

pub(super) fn backward<T: Real>(Backward { activation, x, dy, dx }: Backward<'_, Host<T>>) {
    dx.par_chunks_mut(BLOCK).zip(dy.par_chunks(BLOCK)).zip(x.par_chunks(BLOCK)).run(|((dx, dy), x)| {
        Arch::new().dispatch(Slopes { activation, x, dy, dx });
    });
}

/// Applies an activation to consecutive values.
pub(crate) struct Values<'a, T> {
    pub(crate) activation: &'a Activation,
    pub(crate) x: &'a [T],
    pub(crate) y: &'a mut [T],
}

impl<T: Real> WithSimd for Values<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = T::count::<S>();
        for (y, x) in self.y.chunks_mut(width).zip(self.x.chunks(width)) {
            let value = self.activation.values::<T, S>(simd, T::load(simd, x));
            T::store(simd, y, value);
        }
    }
}

/// Multiplies consecutive gradients by the derivatives of an activation.
pub(crate) struct Slopes<'a, T> {
    pub(crate) activation: &'a Activation,
    pub(crate) x: &'a [T],
    pub(crate) dy: &'a [T],
    pub(crate) dx: &'a mut [T],
}

impl<T: Real> WithSimd for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = T::count::<S>();
        let inputs = self.x.chunks(width).zip(self.dy.chunks(width));
        for (dx, (x, dy)) in self.dx.chunks_mut(width).zip(inputs) {
            let (x, dy) = (T::load(simd, x), T::load(simd, dy));
            let gradient = self.activation.slopes_times::<T, S>(simd, x, dy);
            T::store(simd, dx, gradient);
        }
    }
}
