//! Relative tangential features (RelTan).

use super::{FeatureField, check_graph};
use crate::{DVec3, GaugeGraph, GeometryError, Mesh};
use rayon::prelude::*;

/// Options of [`relative_tangential`].
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeTangentialOptions {
    /// The relative power `a` of each channel. With 1, all neighbours have equal weight; smaller
    /// powers give more weight to far neighbours, larger powers to near ones.
    pub powers: Vec<f64>,
    /// Add the normal component of each channel's vector as a scalar (default false). It
    /// distinguishes ridges from valleys, which the tangent component does not. Not part of the
    /// published features.
    pub normal_part: bool,
}

impl Default for RelativeTangentialOptions {
    /// Powers 0.5 and 0.7, the larger set of the published experiments; tangent components only.
    fn default() -> Self {
        Self { powers: vec![0.5, 0.7], normal_part: false }
    }
}

/// The relative tangential features (RelTan) of Basu et al., *Equivariant Mesh Attention Networks*
/// (2022). For each power `a`, with `d = q - p`, `r = |d|`, `k` the number of neighbours and `P`
/// the projection onto the tangent plane,
///
/// ```text
/// f_p = k^(-3/2) * (sum_q r^(a - 1)) * (sum_q P d / r^a),
/// ```
///
/// This is a tangent vector, of order 1. The type is `1x1` for each power, or `1x0 + 1x1` with the
/// [normal part](RelativeTangentialOptions::normal_part), which uses `n . d` instead of `P d`. The
/// features are invariant under rigid motion and scaling of the mesh. Neighbours at the position of
/// the vertex have no direction and are ignored; the features are zero if there are no others.
///
/// ```
/// use gemcnn_mesh::features::{RelativeTangentialOptions, relative_tangential};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let field = relative_tangential(&mesh, &graph, &RelativeTangentialOptions::default())?;
/// assert_eq!(field.kind, [(2, 1)]);
/// assert_eq!(field.values.len(), 4 * mesh.vertex_count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The graph has a different number of vertices than the mesh, or a power is not finite.
pub fn relative_tangential(
    mesh: &Mesh,
    graph: &GaugeGraph,
    options: &RelativeTangentialOptions,
) -> Result<FeatureField, GeometryError> {
    check_graph(mesh, graph)?;
    let powers = &options.powers;
    if let Some(index) = powers.iter().position(|power| !power.is_finite()) {
        return Err(GeometryError::NotFinite { what: "relative power", index });
    }
    let channels = powers.len();
    let mut kind = vec![(channels, 1)];
    if options.normal_part {
        kind.insert(0, (channels, 0));
    }
    let mut field = FeatureField { kind, values: Vec::new() };
    let dimension = field.dimension();
    field.values = vec![0.0; dimension * mesh.vertex_count()];
    field.values.par_chunks_exact_mut(dimension.max(1)).with_min_len(256).enumerate().for_each(|(p, row)| {
        let frame = &graph.frames()[p];
        let tangent = dimension - 2 * channels;
        for (channel, &power) in powers.iter().enumerate() {
            let vector = weighted_vector(mesh, graph, p, power);
            let [x, y] = frame.coefficients(vector);
            row[tangent + channel] = x;
            row[tangent + channels + channel] = y;
            if options.normal_part {
                row[channel] = frame.normal.dot(vector);
            }
        }
    });
    Ok(field)
}

/// `k^(-3/2) (sum_q r^(a - 1)) (sum_q d / r^a)`, as a vector in space.
fn weighted_vector(mesh: &Mesh, graph: &GaugeGraph, p: usize, power: f64) -> DVec3 {
    let edges = || graph.row(p).filter(|&edge| graph.radius()[edge] > 0.0);
    // The formula is invariant under scaling: the first edge length as the unit avoids overflow.
    let Some(unit) = edges().next().map(|edge| graph.radius()[edge]) else { return DVec3::ZERO };
    let (mut count, mut weights, mut sum) = (0.0f64, 0.0, DVec3::ZERO);
    for edge in edges() {
        let q = graph.neighbours()[edge] as usize;
        let radius = graph.radius()[edge] / unit;
        let vector = (mesh.vertices()[q] - mesh.vertices()[p]) / unit;
        count += 1.0;
        weights += radius.powf(power - 1.0);
        sum += vector / radius.powf(power);
    }
    count.powf(-1.5) * weights * sum
}
