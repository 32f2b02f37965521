//! Fields that are carried along a map, from B to A.

use crate::Match;
use gemcnn_mesh::remesh::{carry_attribute, carry_values};
use gemcnn_mesh::{AttributeValues, DVec3, VertexAttribute, vector_name};

/// Columns of bytes that are colours.
const COLOURS: [&str; 4] = ["red", "green", "blue", "alpha"];

impl Match {
    /// Carries columns of the vertices of B to those of A. Numbers with a fraction, such as texture coordinates, and
    /// colours are interpolated; other integers are labels, and taken from the nearest vertex. Three columns whose
    /// names differ in `x`, `y` and `z` are a [vector](Self::transfer_vectors).
    ///
    /// # Panics
    /// If a column has fewer values than B has vertices.
    pub fn transfer(&self, columns: &[VertexAttribute]) -> Vec<VertexAttribute> {
        let mut carried = Vec::with_capacity(columns.len());
        let mut rest = columns;
        while let [first, others @ ..] = rest {
            if let [x, y, z, after @ ..] = rest
                && [x, y, z].iter().all(|column| is_fraction(column))
                && vector_name([&x.name, &y.name, &z.name]).is_some()
            {
                let values = (0..x.values.len()).map(|v| [x, y, z].map(|column| column.values.to_f64(v)));
                let vectors = self.transfer_vectors(&values.map(DVec3::from_array).collect::<Vec<_>>());
                carried.extend([x, y, z].iter().enumerate().map(|(axis, column)| {
                    let values = vectors.iter().map(|vector| vector[axis]);
                    let values = match column.values {
                        AttributeValues::F32(_) => AttributeValues::F32(values.map(|value| value as f32).collect()),
                        _ => AttributeValues::F64(values.collect()),
                    };
                    VertexAttribute::new(column.name.clone(), values)
                }));
                rest = after;
                continue;
            }
            let values = match &first.values {
                AttributeValues::U8(bytes) if COLOURS.contains(&&*first.name) => {
                    let bytes: Vec<f64> = bytes.iter().map(|&byte| f64::from(byte)).collect();
                    let mixed = carry_values(&self.forward, 1, &bytes);
                    AttributeValues::U8(mixed.iter().map(|value| value.round() as u8).collect())
                }
                values => carry_attribute(&self.forward, values),
            };
            carried.push(VertexAttribute::new(first.name.clone(), values));
            rest = others;
        }
        carried
    }

    /// Carries vectors in space at the vertices of B to those of A: they are interpolated and turned like the surface, not
    /// stretched.
    ///
    /// # Panics
    /// If there are fewer vectors than B has vertices.
    pub fn transfer_vectors(&self, vectors: &[DVec3]) -> Vec<DVec3> {
        let turned = |(point, [on_a, on_b]): (&gemcnn_mesh::remesh::SurfacePoint, &[gemcnn_mesh::Frame; 2])| {
            let vector = point.position(vectors);
            on_a.vector(on_b.coefficients(vector)) + on_b.normal.dot(vector) * on_a.normal
        };
        self.forward.iter().zip(&self.frames).map(turned).collect()
    }
}

fn is_fraction(column: &VertexAttribute) -> bool {
    matches!(column.values, AttributeValues::F32(_) | AttributeValues::F64(_))
}
