//! Dropout of whole meshes of a batch.

use super::{check_probability, scale, threshold};
use crate::error::{check_mesh_offsets, check_rows};
use crate::parallel::Loop;
use crate::random::Stream;
use crate::real::compiled;
use crate::{KernelError, Real};
use rayon::prelude::*;

/// Numbers of one task.
const TASK: usize = 1 << 14;

/// `y` = `x` without some of the meshes of a batch; both have rows of `width` numbers, one for each vertex. All rows
/// of mesh `i` are multiplied by `1/(1-p)` if word `i` of the stream is at least `round(p 2^32)`; else they become
/// zero. The map is its own backward pass.
///
/// # Errors
/// A probability outside [0, 1), offsets that do not rise from 0, or buffers of the wrong length.
pub fn drop_meshes<T: Real>(
    probability: f64,
    width: usize,
    stream: Stream,
    mesh_offsets: &[u32],
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    compiled!(drop_blocks as fn(f64, usize, Stream, &[u32], &[T], &mut [T]) -> Result<(), KernelError>)(
        probability,
        width,
        stream,
        mesh_offsets,
        x,
        y,
    )
}

fn drop_blocks<T: Real>(
    probability: f64,
    width: usize,
    stream: Stream,
    mesh_offsets: &[u32],
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check_probability(probability)?;
    let vertices = check_mesh_offsets(mesh_offsets)?;
    check_rows("dropout", "x", x, vertices, width)?;
    check_rows("dropout", "y", y, vertices, width)?;
    for (mesh, bounds) in mesh_offsets.windows(2).enumerate() {
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
    Ok(())
}
