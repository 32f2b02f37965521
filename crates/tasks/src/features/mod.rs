//! Input features, chosen by name and open to kinds from outside.

mod matrix;
mod reltan;
mod shot;
mod xyz;

pub use matrix::Matrix;
pub use reltan::Reltan;
pub use shot::Shot;
pub use xyz::Xyz;

use crate::registry::{Choice, Chosen, Registry, Settings, filled, parser};
use gemcnn_mesh::{GaugeGraph, Mesh, NormalWeighting};
use gemcnn_nn::FeatureType;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// A mesh with its geometry: the input of a feature computation.
#[derive(Debug, Clone, Copy)]
pub struct Surface<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Its gauge graph. Features of order above 0 are coefficients in its frames.
    pub graph: &'a GaugeGraph,
    /// Weighting of its normals.
    pub normals: NormalWeighting,
}

/// Why features cannot be computed: any error.
pub type FeatureError = Box<dyn std::error::Error + Send + Sync>;

/// A kind of input features: a function of the surface.
pub trait Feature: fmt::Debug + Send + Sync {
    /// Type of the features of each vertex.
    fn kind(&self) -> FeatureType;

    /// Features of all vertices, row after row in the order of the vertices. The mesh is as in its file, after the
    /// random rotation if there is one. Meshes are prepared in parallel. The same mesh must give the same bits
    /// on any number of threads.
    ///
    /// # Errors
    /// A mesh for which the features are not defined.
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError>;

    /// Radius of the support in units of the mesh, which SHOT frames then share. Other features leave the
    /// default.
    fn support_radius(&self) -> Option<f64> {
        None
    }
}

impl Chosen for dyn Feature {
    fn registry() -> &'static Registry<Self> {
        static FEATURES: LazyLock<Registry<dyn Feature>> = LazyLock::new(|| {
            Registry::new(
                "features",
                &[
                    (Xyz::KIND, parser!(Xyz, dyn Feature)),
                    (Shot::KIND, parser!(Shot, dyn Feature)),
                    (Matrix::KIND, parser!(Matrix, dyn Feature)),
                    (Reltan::KIND, parser!(Reltan, dyn Feature)),
                ],
            )
        });
        &FEATURES
    }
}

/// Makes a kind of features available to configurations.
///
/// ```
/// # use gemcnn_nn::FeatureType;
/// use gemcnn_tasks::features::{self, Feature, FeatureError, Surface};
/// use gemcnn_tasks::{FeatureConfig, Settings};
///
/// /// Number of neighbours of each vertex.
/// #[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
/// struct Degree {}
///
/// impl Settings for Degree {
///     const KIND: &'static str = "degree";
/// }
///
/// impl Feature for Degree {
///     fn kind(&self) -> FeatureType {
///         FeatureType::scalars(1)
///     }
///
///     fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
///         let vertices = 0..surface.graph.vertex_count();
///         Ok(vertices.map(|v| surface.graph.row(v).len() as f64).collect())
///     }
/// }
///
/// features::register::<Degree>();
/// assert_eq!(FeatureConfig::of_kind("degree")?.kind().dimension(), 1);
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
pub fn register<F: Feature + Settings>() {
    <dyn Feature>::registry().add(F::KIND, parser!(F, dyn Feature));
}

/// Input features and their settings: the `[features]` table of a configuration.
///
/// ```
/// use gemcnn_tasks::FeatureConfig;
/// let config: FeatureConfig = toml::from_str("kind = 'reltan'\nnormal_part = true")?;
/// assert_eq!(config.kind().to_string(), "2x0 + 2x1");
/// # Ok::<(), toml::de::Error>(())
/// ```
pub type FeatureConfig = Choice<dyn Feature>;

impl<F: Feature + Settings> From<F> for FeatureConfig {
    fn from(feature: F) -> Self {
        let settings = filled(&feature).unwrap_or_default();
        Self::from_parts(F::KIND, settings, Arc::new(feature))
    }
}

impl Default for FeatureConfig {
    /// Positions.
    fn default() -> Self {
        Xyz::default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes::Cells;
    use gemcnn_mesh::{GeometryOptions, shapes};

    #[test]
    fn every_kind_has_the_type_that_it_says_and_survives_toml() {
        let mesh = shapes::torus(24, 12, 2.0, 0.7, Cells::Triangles).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        for (kind, dimension) in [("xyz", 3), ("shot", 352), ("matrix", 35), ("reltan", 4)] {
            let config = FeatureConfig::of_kind(kind).unwrap();
            assert_eq!(config.kind().dimension(), dimension);
            let surface = Surface {
                mesh: &mesh,
                graph: &graph,
                normals: NormalWeighting::default(),
            };
            let values = config.compute(surface).unwrap();
            assert_eq!(values.len(), mesh.vertex_count() * dimension);
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<FeatureConfig>(&text).unwrap(), config);
        }
        assert!(FeatureConfig::of_kind("xzy").is_err());
        assert!(toml::from_str::<FeatureConfig>("kind = 'xyz'\nradius = 1.0").is_err());
    }
}
