//! The definitions, in f64, entry by entry.

use crate::pool::NO_VERTEX;
use crate::pool::fast::above;
use crate::pool::transport::ClusterView;
use crate::{FeatureType, Real, irrep_dimension};

/// [`Mean`](crate::pool::Mean).
pub fn mean<T: Real>(mesh_offsets: &[u32], features: &FeatureType, x: &[T], y: &mut [T]) {
    let channels = features.dimension();
    for (at, y) in y.iter_mut().enumerate() {
        let (mesh, channel) = (at / channels, at % channels);
        let vertices = mesh_offsets[mesh] as usize..mesh_offsets[mesh + 1] as usize;
        let count = vertices.len();
        let sum: f64 = vertices.map(|v| x[v * channels + channel].as_f64()).sum();
        *y = T::of(if count == 0 { 0.0 } else { sum / count as f64 });
    }
}

/// [`Max`](crate::pool::Max).
pub fn max<T: Real>(mesh_offsets: &[u32], features: &FeatureType, x: &[T], y: &mut [T], arguments: &mut [u32]) {
    let channels = features.dimension();
    for (at, (y, argument)) in y.iter_mut().zip(arguments).enumerate() {
        let (mesh, channel) = (at / channels, at % channels);
        (*y, *argument) = (T::zero(), NO_VERTEX);
        for vertex in mesh_offsets[mesh]..mesh_offsets[mesh + 1] {
            let value = x[vertex as usize * channels + channel];
            if *argument == NO_VERTEX || above(value, *y) {
                (*y, *argument) = (value, vertex);
            }
        }
    }
}

/// [`Pool`](crate::pool::Pool).
pub fn pool<T: Real>(clusters: ClusterView<'_, T>, features: &FeatureType, x: &[T], y: &mut [T]) {
    let dimension = features.dimension();
    for cluster in 0..clusters.coarse_count() {
        let members = clusters.cluster(cluster);
        let mut sum = vec![0.0; dimension];
        for &member in members {
            let row = &x[member as usize * dimension..][..dimension];
            let moved = turned(features, angle(clusters, member as usize), row);
            sum.iter_mut().zip(moved).for_each(|(sum, x)| *sum += x);
        }
        for (i, sum) in sum.into_iter().enumerate() {
            y[cluster * dimension + i] = T::of(sum / members.len().max(1) as f64);
        }
    }
}

/// [`Unpool`](crate::pool::Unpool).
pub fn unpool<T: Real>(clusters: ClusterView<'_, T>, features: &FeatureType, x: &[T], y: &mut [T]) {
    let dimension = features.dimension();
    for vertex in 0..clusters.fine_count() {
        let cluster = clusters.cluster_of()[vertex] as usize;
        let row = &x[cluster * dimension..][..dimension];
        let moved = turned(features, -angle(clusters, vertex), row);
        for (i, value) in moved.into_iter().enumerate() {
            y[vertex * dimension + i] = T::of(value);
        }
    }
}

fn angle<T: Real>(clusters: ClusterView<'_, T>, vertex: usize) -> f64 {
    let [cosine, sine] = clusters.phases()[vertex];
    sine.as_f64().atan2(cosine.as_f64())
}

/// `rho(angle) x`.
fn turned<T: Real>(features: &FeatureType, angle: f64, x: &[T]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for (order, channels) in features.orders() {
        let start = features.range(order).start;
        let (sine, cosine) = (order as f64 * angle).sin_cos();
        for at in start..start + channels {
            if irrep_dimension(order) == 1 {
                y[at] = x[at].as_f64();
            } else {
                let (a, b) = (x[at].as_f64(), x[at + channels].as_f64());
                y[at] = cosine * a - sine * b;
                y[at + channels] = sine * a + cosine * b;
            }
        }
    }
    y
}
