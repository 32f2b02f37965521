//! Random words of a block of rows at a time, then loops over channels.

use super::{DropMeshes, DropUnits, Run, scale, threshold};
use crate::parallel::Loop;
use crate::random::Stream;
use crate::{Host, KernelError, Real};
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

pub(super) fn drop_units<T: Real>(pass: DropUnits<'_, Host<T>>) -> Result<(), KernelError> {
    let DropUnits { op, stream, x, y, .. } = pass;
    let (units, width, runs) = (op.units()?, op.kind.dimension(), &op.runs());
    let task = (TASK_ROWS * width).max(1);
    y.par_chunks_mut(task).zip(x.par_chunks(task)).enumerate().run(|(at, (y, x))| {
        Arch::new().dispatch(DropRows {
            runs,
            units,
            threshold: threshold(op.probability),
            scale: T::of(scale(op.probability)),
            stream,
            first_unit: (at * TASK_ROWS * units) as u64,
            width,
            x,
            y,
        });
    });
    Ok(())
}

/// Numbers of a task of whole meshes.
const TASK: usize = 1 << 14;

pub(super) fn drop_meshes<T: Real>(pass: DropMeshes<'_, Host<T>>) {
    let DropMeshes { probability, width, stream, meshes, x, y } = pass;
    for (mesh, bounds) in meshes.windows(2).enumerate() {
        let kept = u64::from(stream.word(mesh as u64)) >= threshold(probability);
        let factor = T::of(if kept { scale(probability) } else { 0.0 });
        let range = bounds[0] as usize * width..bounds[1] as usize * width;
        let pieces = x[range.clone()].par_chunks(TASK);
        pieces.zip(y[range].par_chunks_mut(TASK)).run(|(x, y)| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * factor;
            }
        });
    }
}
