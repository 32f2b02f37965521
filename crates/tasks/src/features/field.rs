//! Fields of the user as features: numbers and vectors that come with the meshes.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::DVec3;
use gemcnn_mesh::remesh::{SurfacePoint, carry_values};
use gemcnn_nn::FeatureType;
use glam::DMat3;

/// A field that features read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldName {
    /// Name in the files.
    pub name: String,
    /// Numbers of each vertex: 1, or 3 for a vector in space.
    pub width: usize,
}

/// Fields of a mesh. Vectors rotate with the mesh; all fields are carried along when it is remeshed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fields(Vec<(FieldName, Vec<f64>)>);

impl Fields {
    /// Collects fields: `width` numbers for each vertex, row after row.
    pub fn new(fields: Vec<(FieldName, Vec<f64>)>) -> Self {
        Self(fields)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field that the preparation has checked.
    fn need(&self, name: &str, width: usize, vertices: usize) -> Result<&[f64], FeatureError> {
        let found = (self.0.iter()).find(|(field, _)| field.name == name && field.width == width);
        match found {
            Some((_, values)) if values.len() == width * vertices => Ok(values),
            Some((_, values)) => {
                let found = values.len();
                Err(format!("field `{name}` has {found} numbers for {vertices} vertices").into())
            }
            None => Err(format!("there is no field `{name}`").into()),
        }
    }

    /// The fields of the vertices of a remeshed mesh.
    pub(crate) fn carried(&self, sources: &[SurfacePoint]) -> Self {
        let carry =
            |(field, values): &(FieldName, Vec<f64>)| (field.clone(), carry_values(sources, field.width, values));
        Self(self.0.iter().map(carry).collect())
    }

    /// The fields of a mesh that is rotated or mirrored.
    pub(crate) fn moved(&self, motion: DMat3) -> Self {
        let mut moved = self.clone();
        let vectors = moved.0.iter_mut().filter(|(field, _)| field.width == 3);
        for vector in vectors.flat_map(|(_, values)| values.chunks_exact_mut(3)) {
            let image = motion * DVec3::from_slice(vector);
            vector.copy_from_slice(&image.to_array());
        }
        moved
    }

    /// Adds names and numbers to a hash.
    pub(crate) fn hash(&self, hasher: &mut blake3::Hasher) {
        for (field, values) in &self.0 {
            hasher.update(format!("{field:?}").as_bytes());
            hasher.update(bytemuck::cast_slice(values));
        }
    }
}

settings! {
    /// A number of each vertex, from the files of the meshes: `field:NAME`.
    Field = "field" {
        /// Name in the files.
        name: String = String::default(),
    }
}

impl Feature for Field {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(1)
    }

    fn fields(&self) -> Vec<FieldName> {
        vec![FieldName { name: self.name.clone(), width: 1 }]
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let vertices = surface.mesh.vertex_count();
        Ok(surface.fields.need(&self.name, 1, vertices)?.to_vec())
    }
}

settings! {
    /// A vector in space of each vertex, from the files of the meshes: `vector:NAME`. The tangential part is a feature
    /// of order 1, the part along the normal a scalar.
    Vector = "vector" {
        /// Name in the files.
        name: String = String::new(),
        /// Adds the part along the normal (default true).
        normal_part: bool = true,
    }
}

impl Feature for Vector {
    fn kind(&self) -> FeatureType {
        FeatureType::new(&[usize::from(self.normal_part), 1])
    }

    fn fields(&self) -> Vec<FieldName> {
        vec![FieldName { name: self.name.clone(), width: 3 }]
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let vertices = surface.mesh.vertex_count();
        let vectors = surface.fields.need(&self.name, 3, vertices)?;
        let mut values = Vec::with_capacity(vertices * self.kind().dimension());
        for (frame, vector) in surface.graph.frames().iter().zip(vectors.chunks_exact(3)) {
            let vector = DVec3::from_slice(vector);
            if self.normal_part {
                values.push(frame.normal.dot(vector));
            }
            values.extend(frame.coefficients(vector));
        }
        Ok(values)
    }
}
