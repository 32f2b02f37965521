//! Mean and maximum of scalars over the vertices of each mesh of a batch.
//!
//! ```text
//! mean:  y_m = 1/|m| sum_{v in m} x_v        dx_v = dy_m / |m|
//! max:   y_m = max_{v in m} x_v              dx_v = dy_m where v is the saved argument, else 0
//! ```
//!
//! for `x` `[vertices, channels]` and `y` `[meshes, channels]`, channel by channel. A mesh without vertices
//! gives 0. Only scalars can be pooled: components in different frames cannot be added or compared without
//! transport.
//!
//! The mean is summed in f64 and saves nothing. The maximum saves the vertex that attains it, the lowest
//! one in ties. NaN counts as larger than any number.

use crate::error::{Length, check_count, check_length, check_mesh_offsets};
use crate::parallel::{Loop, piece_length};
use crate::real::compiled;
use crate::{FeatureType, KernelError, Real};
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// The saved vertex of the maximum over a mesh without vertices.
pub const NO_VERTEX: u32 = u32::MAX;

/// Smallest number of vertices of a task.
const MIN_VERTICES: usize = 1024;
const OPERATOR: &str = "global pooling";

/// Mean over each mesh. `mesh_offsets` holds the first vertex of each mesh, then the number of vertices, as
/// [`GraphArrays::mesh_offsets`](crate::GraphArrays::mesh_offsets).
///
/// ```
/// use gemcnn_kernels::FeatureType;
/// use gemcnn_kernels::pool::global::mean;
/// let mut y = [0.0; 3];
/// mean(&[0, 2, 2, 3], &FeatureType::scalars(1), &[1.0, 3.0, 5.0], &mut y)?;
/// assert_eq!(y, [2.0, 0.0, 5.0]);
/// # Ok::<(), gemcnn_kernels::KernelError>(())
/// ```
pub fn mean<T: Real>(mesh_offsets: &[u32], features: &FeatureType, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    compiled!(mean_rows as fn(&[u32], &FeatureType, &[T], &mut [T]) -> Result<(), KernelError>)(
        mesh_offsets,
        features,
        x,
        y,
    )
}

fn mean_rows<T: Real>(mesh_offsets: &[u32], features: &FeatureType, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    let channels = check(mesh_offsets, features, ("x", x), ("y", y))?;
    if channels == 0 {
        return Ok(());
    }
    y.par_chunks_mut(channels).enumerate().run(|(mesh, y)| {
        let range = vertices(mesh_offsets, mesh);
        let rows = &x[range.start * channels..range.end * channels];
        let partial: Vec<Vec<f64>> = rows
            .par_chunks(piece_length(range.len(), MIN_VERTICES) * channels)
            .map(|rows| {
                Arch::new().dispatch(
                    #[inline(always)]
                    || sum_of_rows(rows, channels),
                )
            })
            .collect();
        for (channel, y) in y.iter_mut().enumerate() {
            let sum: f64 = partial.iter().map(|sums| sums[channel]).sum();
            *y = T::of(sum / range.len().max(1) as f64);
        }
    });
    Ok(())
}

/// `dx` from `dy` of [`mean`].
pub fn mean_backward<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    compiled!(mean_backward_rows as fn(&[u32], &FeatureType, &[T], &mut [T]) -> Result<(), KernelError>)(
        mesh_offsets,
        features,
        dy,
        dx,
    )
}

fn mean_backward_rows<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    let channels = check(mesh_offsets, features, ("dx", &*dx), ("dy", dy))?;
    if channels == 0 {
        return Ok(());
    }
    let mut rest = dx;
    for (mesh, dy) in dy.chunks_exact(channels).enumerate() {
        let count = vertices(mesh_offsets, mesh).len();
        let rows = rest.split_off_mut(..count * channels).unwrap_or_default();
        let share = T::of((count.max(1) as f64).recip());
        let piece = piece_length(count, MIN_VERTICES) * channels;
        rows.par_chunks_mut(piece).run(|rows| {
            for row in rows.chunks_exact_mut(channels) {
                for (dx, &dy) in row.iter_mut().zip(dy) {
                    *dx = dy * share;
                }
            }
        });
    }
    Ok(())
}

/// Maximum over each mesh, and the vertex that attains it (`[meshes, channels]`, for the backward pass).
pub fn max<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    x: &[T],
    y: &mut [T],
    arguments: &mut [u32],
) -> Result<(), KernelError> {
    compiled!(max_rows as fn(&[u32], &FeatureType, &[T], &mut [T], &mut [u32]) -> Result<(), KernelError>)(
        mesh_offsets,
        features,
        x,
        y,
        arguments,
    )
}

fn max_rows<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    x: &[T],
    y: &mut [T],
    arguments: &mut [u32],
) -> Result<(), KernelError> {
    let channels = check(mesh_offsets, features, ("x", x), ("y", y))?;
    check_length(OPERATOR, "arguments", arguments, y.len())?;
    if channels == 0 {
        return Ok(());
    }
    y.par_chunks_mut(channels).zip(arguments.par_chunks_mut(channels)).enumerate().run(|(mesh, (y, arguments))| {
        let range = vertices(mesh_offsets, mesh);
        let piece = piece_length(range.len(), MIN_VERTICES);
        let partial: Vec<Vec<(T, u32)>> = x[range.start * channels..range.end * channels]
            .par_chunks(piece * channels)
            .enumerate()
            .map(|(index, rows)| largest_of_rows(rows, channels, range.start + index * piece))
            .collect();
        for (channel, (y, argument)) in y.iter_mut().zip(arguments).enumerate() {
            let pieces = partial.iter().map(|largest| largest[channel]);
            let largest = pieces.reduce(|a, b| if above(b.0, a.0) { b } else { a });
            (*y, *argument) = largest.unwrap_or((T::zero(), NO_VERTEX));
        }
    });
    Ok(())
}

/// `dx` from `dy` of [`max`], with the saved vertices.
///
/// # Errors
/// As [`mean`], or a saved vertex outside of its mesh.
pub fn max_backward<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    arguments: &[u32],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    compiled!(max_backward_rows as fn(&[u32], &FeatureType, &[u32], &[T], &mut [T]) -> Result<(), KernelError>)(
        mesh_offsets,
        features,
        arguments,
        dy,
        dx,
    )
}

fn max_backward_rows<T: Real>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    arguments: &[u32],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    let channels = check(mesh_offsets, features, ("dx", &*dx), ("dy", dy))?;
    check_length(OPERATOR, "arguments", arguments, dy.len())?;
    dx.fill(T::zero());
    for (at, (&argument, &dy)) in arguments.iter().zip(dy).enumerate() {
        let (mesh, channel) = (at / channels, at % channels);
        let range = vertices(mesh_offsets, mesh);
        if range.contains(&(argument as usize)) {
            dx[argument as usize * channels + channel] = dy;
        } else if !range.is_empty() || argument != NO_VERTEX {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("the saved vertex {argument} is not a vertex of mesh {mesh}"),
            });
        }
    }
    Ok(())
}

/// Checks that features are scalars and that offsets rise, and sizes; returns the number of channels.
pub(super) fn check<S: Length>(
    mesh_offsets: &[u32],
    features: &FeatureType,
    (x_name, x): (&'static str, S),
    (y_name, y): (&'static str, S),
) -> Result<usize, KernelError> {
    if !features.is_scalar() {
        return Err(KernelError::Setting {
            operator: OPERATOR,
            problem: format!(
                "{features} has components that depend on the frames; only scalars can be pooled over a mesh"
            ),
        });
    }
    let (vertices, channels) = (check_mesh_offsets(mesh_offsets)?, features.dimension());
    let meshes = mesh_offsets.len() - 1;
    check_count(OPERATOR, x_name, x.length(), vertices * channels)?;
    check_count(OPERATOR, y_name, y.length(), meshes * channels)?;
    Ok(channels)
}

fn vertices(mesh_offsets: &[u32], mesh: usize) -> Range<usize> {
    mesh_offsets[mesh] as usize..mesh_offsets[mesh + 1] as usize
}

#[inline(always)]
fn sum_of_rows<T: Real>(rows: &[T], channels: usize) -> Vec<f64> {
    let mut sums = vec![0.0; channels];
    for row in rows.chunks_exact(channels) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += x.as_f64();
        }
    }
    sums
}

fn largest_of_rows<T: Real>(rows: &[T], channels: usize, first: usize) -> Vec<(T, u32)> {
    let mut largest = vec![(T::neg_infinity(), first as u32); channels];
    for (place, row) in rows.chunks_exact(channels).enumerate() {
        for (largest, &x) in largest.iter_mut().zip(row) {
            if above(x, largest.0) {
                *largest = (x, (first + place) as u32);
            }
        }
    }
    largest
}

/// True if `a` is larger than `b`, with NaN the largest.
pub(super) fn above<T: Real>(a: T, b: T) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}
