//! What a network sees of a mesh.

use crate::TaskError;
use gemcnn_mesh::features::shot::{self, DESCRIPTOR_LENGTH, ShotOptions};
use gemcnn_mesh::features::{
    FeatureField, MatrixOptions, RelativeTangentialOptions, matrix_features, positions,
    relative_tangential,
};
use gemcnn_mesh::{GaugeGraph, GeometryError, Mesh, NormalWeighting};
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which input features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Positions: 3x0. They tell how a mesh lies in space.
    #[default]
    Xyz,
    /// SHOT descriptors: 352x0. They do not change when a mesh is moved.
    Shot,
    /// Matrix features: 7x(0,1,2). They do not change when a mesh is moved or scaled.
    Matrix,
    /// Relative tangential features: 1x1 for each power. They do not change when a mesh is moved or
    /// scaled.
    Reltan,
}

impl FeatureKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Xyz, Self::Shot, Self::Matrix, Self::Reltan];

    fn word(self) -> &'static str {
        match self {
            Self::Xyz => "xyz",
            Self::Shot => "shot",
            Self::Matrix => "matrix",
            Self::Reltan => "reltan",
        }
    }
}

impl fmt::Display for FeatureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for FeatureKind {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        let named = |kind: &Self| kind.word() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            TaskError::setting("features", format!("`{text}` is not one of {all}"))
        })
    }
}

/// Input features and their settings.
///
/// ```
/// use gemcnn_tasks::FeatureConfig;
/// let config: FeatureConfig = toml::from_str("kind = 'reltan'\nnormal_part = true")?;
/// assert_eq!(config.kind().to_string(), "2x0 + 2x1");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureConfig {
    /// Which features.
    pub kind: FeatureKind,
    /// SHOT: radius of the support in the units of the mesh; a tenth of the root of its area, if not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<f64>,
    /// Relative tangential features: the relative power of each channel.
    pub powers: Vec<f64>,
    /// Relative tangential features: with a scalar of the normal direction beside each vector.
    pub normal_part: bool,
}

impl Default for FeatureConfig {
    fn default() -> Self {
        let reltan = RelativeTangentialOptions::default();
        Self {
            kind: FeatureKind::default(),
            radius: None,
            powers: reltan.powers,
            normal_part: reltan.normal_part,
        }
    }
}

impl FeatureConfig {
    /// Features of a kind with default settings.
    pub fn new(kind: FeatureKind) -> Self {
        Self {
            kind,
            ..Default::default()
        }
    }

    /// Type of the features of each vertex.
    pub fn kind(&self) -> FeatureType {
        match self.kind {
            FeatureKind::Xyz => FeatureType::scalars(3),
            FeatureKind::Shot => FeatureType::scalars(DESCRIPTOR_LENGTH),
            FeatureKind::Matrix => FeatureType::uniform(7, 2),
            FeatureKind::Reltan => {
                let vectors = self.powers.len();
                let scalars = if self.normal_part { vectors } else { 0 };
                FeatureType::new(&[scalars, vectors])
            }
        }
    }

    /// Features of all vertices of a mesh with this geometry and these normals, row after row.
    ///
    /// # Errors
    /// A mesh that has no such features.
    pub fn compute(
        &self,
        mesh: &Mesh,
        graph: &GaugeGraph,
        normals: NormalWeighting,
    ) -> Result<Vec<f32>, GeometryError> {
        let field = self.field(mesh, graph, normals)?;
        Ok(field.values.iter().map(|&value| value as f32).collect())
    }

    fn field(
        &self,
        mesh: &Mesh,
        graph: &GaugeGraph,
        normals: NormalWeighting,
    ) -> Result<FeatureField, GeometryError> {
        match self.kind {
            FeatureKind::Xyz => Ok(positions(mesh)),
            FeatureKind::Shot => shot::descriptors(mesh, &self.shot(normals)),
            FeatureKind::Matrix => matrix_features(mesh, graph, &MatrixOptions::default()),
            FeatureKind::Reltan => relative_tangential(
                mesh,
                graph,
                &RelativeTangentialOptions {
                    powers: self.powers.clone(),
                    normal_part: self.normal_part,
                },
            ),
        }
    }

    pub(crate) fn shot(&self, normals: NormalWeighting) -> ShotOptions {
        ShotOptions {
            radius: self.radius,
            normals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes::Cells;
    use gemcnn_mesh::{GeometryOptions, shapes};

    #[test]
    fn every_kind_has_the_type_that_it_says() {
        let mesh = shapes::torus(24, 12, 2.0, 0.7, Cells::Triangles).unwrap();
        let options = GeometryOptions::default();
        let graph = GaugeGraph::new(&mesh, &options).unwrap();
        for kind in FeatureKind::ALL {
            for normal_part in [false, true] {
                let config = FeatureConfig {
                    normal_part,
                    ..FeatureConfig::new(kind)
                };
                let field = config.field(&mesh, &graph, options.normals).unwrap();
                let orders: Vec<_> = config.kind().orders().map(|(n, m)| (m, n)).collect();
                assert_eq!(field.kind, orders, "{kind}");
                let features = config.compute(&mesh, &graph, options.normals).unwrap();
                let width = config.kind().dimension();
                assert_eq!(features.len(), width * mesh.vertex_count());
            }
            assert_eq!(kind.to_string().parse::<FeatureKind>().unwrap(), kind);
        }
    }
}
