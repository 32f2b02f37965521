//! Curvature of a surface as features.

use super::positions::centred;
use super::{FeatureField, check_graph};
use crate::geometry::check_length;
use crate::surface::{Derivative, Eigenbasis, Jets, SurfaceError};
use crate::{DVec3, GaugeGraph, Mesh};

/// Curvatures of larger magnitude are clipped, in units of the inverse square root of the area.
const LARGEST: f64 = 60.0;

/// Curvature tensor of a mesh, as a scalar and a field of order 2.
#[derive(Debug, Clone, PartialEq)]
pub struct Curvature {
    /// Mean curvature `(k1 + k2) / 2` of every vertex, positive where the surface is convex with
    /// respect to its normals. Shape `[V]`, of magnitude at most 60.
    pub mean: Vec<f64>,
    /// Traceless part `(s11 - s22) / 2 + i s12` of the shape operator. Shape `[V, 2]`, of magnitude
    /// at most 60.
    pub traceless: Vec<f64>,
}

impl Curvature {
    /// Computes the curvature of a mesh scaled to unit area: the normal component of the second
    /// derivatives of the positions. Unlike derivatives of the normals of a mesh, it converges under
    /// refinement on irregular meshes.
    ///
    /// # Errors
    /// `graph` or `jets` belong to a mesh with another number of vertices, or no face has an area.
    pub fn new(mesh: &Mesh, graph: &GaugeGraph, jets: &Jets) -> Result<Self, SurfaceError> {
        let vertices = jets.vertex_count();
        check_graph(mesh, graph)?;
        let positions: Vec<f64> = centred(mesh)?.iter().flat_map(|x| x.to_array()).collect();
        let traces = jets.apply(0, Derivative::Laplacian, &positions, 3)?;
        let seconds = jets.apply(0, Derivative::RaiseTwice, &positions, 3)?;
        let mut curvature = Self { mean: Vec::with_capacity(vertices), traceless: Vec::with_capacity(2 * vertices) };
        let rows = traces.chunks_exact(6).zip(seconds.chunks_exact(6));
        for (frame, (trace, second)) in graph.frames().iter().zip(rows) {
            // The second fundamental form, positive where the surface bends away from the normal.
            let half = |row: &[f64]| -0.5 * frame.normal.dot(DVec3::from_slice(row));
            curvature.mean.push(half(&trace[..3]).clamp(-LARGEST, LARGEST));
            let traceless = [half(&second[..3]), half(&second[3..])];
            let size = traceless[0].hypot(traceless[1]);
            let scale = (LARGEST / size).min(1.0);
            curvature.traceless.extend(traceless.map(|x| scale * x));
        }
        Ok(curvature)
    }

    /// The curvature after diffusion for the given times, as features of type
    /// `times x 0 + times x 2`. Bases of orders 0 and 2 are needed; the usual times are 1e-3 and
    /// 1e-2.
    ///
    /// # Errors
    /// A basis has another order or another number of vertices.
    pub fn smoothed(
        &self,
        mass: &[f64],
        scalar: &Eigenbasis,
        second: &Eigenbasis,
        times: &[f64],
    ) -> Result<FeatureField, SurfaceError> {
        let vertices = self.mean.len();
        check_length("masses", mass.len(), vertices)?;
        for (basis, order) in [(scalar, 0), (second, 2)] {
            let given = if basis.order == order { basis.vertex_count() } else { 0 };
            check_length("vertices of an eigenbasis of order 0 or 2", given, vertices)?;
        }
        let mean = diffuse(&self.mean, mass, scalar, times);
        let traceless = diffuse(&self.traceless, mass, second, times);
        let count = times.len();
        let mut values = Vec::with_capacity(3 * count * vertices);
        for vertex in 0..vertices {
            values.extend_from_slice(&mean[vertex * count..(vertex + 1) * count]);
            values.extend_from_slice(&traceless[2 * vertex * count..2 * (vertex + 1) * count]);
        }
        Ok(FeatureField { kind: vec![(count, 0), (count, 2)], values })
    }
}

/// Diffusion of one field in an eigenbasis, for several times: shape `[V, times]` or
/// `[V, 2, times]`.
fn diffuse(field: &[f64], mass: &[f64], basis: &Eigenbasis, times: &[f64]) -> Vec<f64> {
    let pairs = basis.len();
    let parts = if basis.order == 0 { 1 } else { 2 };
    let part = |row: &[f64], part: usize, pair: usize| {
        if part < parts { row[part * pairs + pair] } else { 0.0 }
    };
    // Coefficients `Phi^H M f`.
    let mut coefficients = vec![[0.0; 2]; pairs];
    let rows = || basis.vectors.chunks_exact(parts * pairs.max(1));
    for ((row, z), mass) in rows().zip(field.chunks_exact(parts)).zip(mass) {
        let (x, y) = (mass * z[0], if parts == 2 { mass * z[1] } else { 0.0 });
        for (pair, sum) in coefficients.iter_mut().enumerate() {
            let (re, im) = (part(row, 0, pair), part(row, 1, pair));
            sum[0] += re * x + im * y;
            sum[1] += re * y - im * x;
        }
    }
    let decays: Vec<Vec<f64>> =
        times.iter().map(|time| basis.values.iter().map(|l| (-l * time).exp()).collect()).collect();
    let mut result = vec![0.0; field.len() * times.len()];
    let targets = result.chunks_exact_mut((parts * times.len()).max(1));
    for (row, target) in rows().zip(targets) {
        for (index, decays) in decays.iter().enumerate() {
            for (pair, ([x, y], decay)) in coefficients.iter().zip(decays).enumerate() {
                let (re, im) = (part(row, 0, pair), part(row, 1, pair));
                target[index] += decay * (re * x - im * y);
                if parts == 2 {
                    target[times.len() + index] += decay * (re * y + im * x);
                }
            }
        }
    }
    result
}
