//! Conversion between vectors in space and features of order 1.

use gemcnn_mesh::{DVec3, Frame};

/// Tangential parts of vectors, as coefficients in the frames of their vertices. `vectors` has the same number of
/// vectors for each vertex, vertex after vertex; the result has that many channels of order 1.
///
/// ```
/// use gemcnn_mesh::{DVec3, Frame};
/// use gemcnn_tasks::data::vectors;
/// let frame = Frame { e1: DVec3::X, e2: DVec3::Y, normal: DVec3::Z };
/// let features = vectors::in_frames(&[frame], &[DVec3::new(1.0, 2.0, 9.0)]);
/// assert_eq!(features, [1.0, 2.0]);
/// assert_eq!(vectors::in_space(&[frame], &features), [DVec3::new(1.0, 2.0, 0.0)]);
/// ```
pub fn in_frames(frames: &[Frame], vectors: &[DVec3]) -> Vec<f32> {
    let channels = vectors.len() / frames.len().max(1);
    let mut features = vec![0.0; 2 * channels * frames.len()];
    if channels == 0 {
        return features;
    }
    let rows = features.chunks_exact_mut(2 * channels);
    for ((row, vectors), frame) in rows.zip(vectors.chunks_exact(channels)).zip(frames) {
        let (first, second) = row.split_at_mut(channels);
        for ((x, y), &vector) in first.iter_mut().zip(second).zip(vectors) {
            [*x, *y] = frame.coefficients(vector).map(|value| value as f32);
        }
    }
    features
}

/// Tangent vectors in space from features of order 1: the inverse of [`in_frames`].
pub fn in_space(frames: &[Frame], features: &[f32]) -> Vec<DVec3> {
    let channels = features.len() / (2 * frames.len()).max(1);
    if channels == 0 {
        return Vec::new();
    }
    let rows = features.chunks_exact(2 * channels).zip(frames);
    rows.flat_map(|(row, frame)| {
        let (first, second) = row.split_at(channels);
        first.iter().zip(second).map(|(&x, &y)| frame.vector([x.into(), y.into()]))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};

    #[test]
    fn tangent_vectors_come_back_and_normal_parts_do_not() {
        let mesh = shapes::icosphere(1).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        let frames = graph.frames();
        let wind = |p: &DVec3| [DVec3::Z.cross(*p) + *p, p.cross(DVec3::X)];
        let vectors: Vec<DVec3> = mesh.vertices().iter().flat_map(wind).collect();
        let features = in_frames(frames, &vectors);
        assert_eq!(features.len(), 4 * frames.len());
        for (index, vector) in in_space(frames, &features).into_iter().enumerate() {
            let normal = frames[index / 2].normal;
            let tangent = vectors[index].reject_from_normalized(normal);
            assert!((vector - tangent).length() < 1e-6);
        }
        assert_eq!(in_space(&[], &[]), []);
    }
}
