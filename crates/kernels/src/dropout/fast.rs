//! Random words of a block of rows at a time, then loops over channels.

use super::{Dropout, Run, scale, threshold};
use crate::Real;
use crate::parallel::Loop;
use crate::random::Stream;
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Rows of one task.
const TASK_ROWS: usize = 64;

struct DropRows<'a, T> {
    runs: &'a [Run],
    units: usize,
    threshold: u64,
    scale: T,
    stream: Stream,
    first_unit: u64,
    width: usize,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> NullaryFnOnce for DropRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let rows = self.x.len() / self.width;
        let mut words = vec![0u32; rows * self.units];
        self.stream.fill(self.first_unit, &mut words);
        let factors: Vec<T> = (words.iter())
            .map(|&word| if u64::from(word) >= self.threshold { self.scale } else { T::zero() })
            .collect();
        let rows = self.x.chunks_exact(self.width).zip(self.y.chunks_exact_mut(self.width));
        for ((x, y), factors) in rows.zip(factors.chunks_exact(self.units)) {
            for run in self.runs {
                let place = run.start..run.start + run.channels;
                let factors = &factors[run.unit..run.unit + run.channels];
                let places = x[place.clone()].iter().zip(&mut y[place]);
                for ((&x, y), &factor) in places.zip(factors) {
                    *y = x * factor;
                }
            }
        }
    }
}

pub(super) fn forward<T: Real>(config: &Dropout, stream: Stream, units: usize, x: &[T], y: &mut [T]) {
    let width = config.kind.dimension();
    let runs = &config.runs();
    let task = (TASK_ROWS * width).max(1);
    y.par_chunks_mut(task).zip(x.par_chunks(task)).enumerate().run(|(at, (y, x))| {
        Arch::new().dispatch(DropRows {
            runs,
            units,
            threshold: threshold(config.probability),
            scale: T::of(scale(config.probability)),
            stream,
            first_unit: (at * TASK_ROWS * units) as u64,
            width,
            x,
            y,
        });
    });
}
