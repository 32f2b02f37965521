//! The same, meshes or vertices in parallel.

use super::transport::ClusterView;
use super::{GLOBAL, Max, MaxBackward, Mean, MeanBackward, NO_VERTEX, Pool, PoolBackward, Unpool, UnpoolBackward};
use crate::parallel::{Loop, piece_length};
use crate::rotated_sum::{Term, add_rotated};
use crate::{FeatureType, Host, KernelError, Real};
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// Smallest number of vertices of a task, over meshes.
const MIN_VERTICES: usize = 1024;
/// The same, over clusters.
const MIN_CLUSTERED: usize = 64;

pub(super) fn mean<T: Real>(Mean { features, meshes, x, y }: Mean<'_, Host<T>>) {
    let channels = features.dimension();
    if channels == 0 {
        return;
    }
    y.par_chunks_mut(channels).enumerate().run(|(mesh, y)| {
        let range = vertices(meshes, mesh);
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
}

pub(super) fn mean_backward<T: Real>(MeanBackward { features, meshes, dy, dx }: MeanBackward<'_, Host<T>>) {
    let channels = features.dimension();
    if channels == 0 {
        return;
    }
    let mut rest = dx;
    for (mesh, dy) in dy.chunks_exact(channels).enumerate() {
        let count = vertices(meshes, mesh).len();
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
}

pub(super) fn max<T: Real>(Max { features, meshes, x, y, arguments }: Max<'_, Host<T>>) {
    let channels = features.dimension();
    if channels == 0 {
        return;
    }
    y.par_chunks_mut(channels).zip(arguments.par_chunks_mut(channels)).enumerate().run(|(mesh, (y, arguments))| {
        let range = vertices(meshes, mesh);
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
}

pub(super) fn max_backward<T: Real>(pass: MaxBackward<'_, Host<T>>) -> Result<(), KernelError> {
    let MaxBackward { features, meshes, arguments, dy, dx } = pass;
    let channels = features.dimension();
    dx.fill(T::zero());
    for (at, (&argument, &dy)) in arguments.iter().zip(dy).enumerate() {
        let (mesh, channel) = (at / channels, at % channels);
        let range = vertices(meshes, mesh);
        if range.contains(&(argument as usize)) {
            dx[argument as usize * channels + channel] = dy;
        } else if !range.is_empty() || argument != NO_VERTEX {
            return Err(KernelError::Setting {
                operator: GLOBAL,
                problem: format!("the saved vertex {argument} is not a vertex of mesh {mesh}"),
            });
        }
    }
    Ok(())
}

fn vertices(meshes: &[u32], mesh: usize) -> Range<usize> {
    meshes[mesh] as usize..meshes[mesh + 1] as usize
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

pub(super) fn pool<T: Real>(Pool { features, clusters, x, y }: Pool<'_, Host<T>>) {
    gather(clusters, features, Weight::Mean, x, y);
}

pub(super) fn pool_backward<T: Real>(PoolBackward { features, clusters, dy, dx }: PoolBackward<'_, Host<T>>) {
    spread(clusters, features, Weight::Mean, dy, dx);
}

pub(super) fn unpool<T: Real>(Unpool { features, clusters, x, y }: Unpool<'_, Host<T>>) {
    spread(clusters, features, Weight::One, x, y);
}

pub(super) fn unpool_backward<T: Real>(UnpoolBackward { features, clusters, dy, dx }: UnpoolBackward<'_, Host<T>>) {
    gather(clusters, features, Weight::One, dy, dx);
}

/// Weight of a member of a cluster.
#[derive(Clone, Copy)]
enum Weight {
    One,
    /// One over the size of the cluster.
    Mean,
}

impl Weight {
    fn of<T: Real>(self, members: &[u32]) -> T {
        match self {
            Self::One => T::one(),
            Self::Mean => T::of((members.len().max(1) as f64).recip()),
        }
    }
}

/// `y_c = w sum_{f in c} rho(g_f) x_f`.
fn gather<T: Real>(clusters: ClusterView<'_, T>, features: &FeatureType, weight: Weight, x: &[T], y: &mut [T]) {
    let dimension = features.dimension();
    if dimension == 0 {
        return;
    }
    let piece = piece_length(clusters.coarse_count(), MIN_CLUSTERED / 4);
    let chunks = y.par_chunks_mut(piece * dimension).enumerate();
    chunks.run(|(index, rows)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (place, y) in rows.chunks_exact_mut(dimension).enumerate() {
                    let members = clusters.cluster(index * piece + place);
                    y.fill(T::zero());
                    for &member in members {
                        let member = member as usize;
                        let x = &x[member * dimension..(member + 1) * dimension];
                        add_rotated(features, &Term::new(member, clusters.phases()[member]), x, y);
                    }
                    let weight = weight.of::<T>(members);
                    y.iter_mut().for_each(|y| *y *= weight);
                }
            },
        );
    });
}

/// `y_f = w rho(-g_f) x_c`.
fn spread<T: Real>(clusters: ClusterView<'_, T>, features: &FeatureType, weight: Weight, x: &[T], y: &mut [T]) {
    let dimension = features.dimension();
    if dimension == 0 {
        return;
    }
    let piece = piece_length(clusters.fine_count(), MIN_CLUSTERED);
    let chunks = y.par_chunks_mut(piece * dimension).enumerate();
    chunks.run(|(index, rows)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (place, y) in rows.chunks_exact_mut(dimension).enumerate() {
                    let vertex = index * piece + place;
                    let cluster = clusters.cluster_of()[vertex] as usize;
                    let x = &x[cluster * dimension..(cluster + 1) * dimension];
                    let [cosine, sine] = clusters.phases()[vertex];
                    y.fill(T::zero());
                    add_rotated(features, &Term::new(cluster, [cosine, -sine]), x, y);
                    let weight = weight.of::<T>(clusters.cluster(cluster));
                    y.iter_mut().for_each(|y| *y *= weight);
                }
            },
        );
    });
}
