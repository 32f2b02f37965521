//! Input features, chosen by name and open to kinds from outside.

pub use field::{FieldName, Fields};

use crate::registry::{Choice, Chosen, Registry, Settings, filled, kinds, parser};
use gemcnn_mesh::surface::{Eigenbasis, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, Mesh, NormalWeighting};
use gemcnn_nn::FeatureType;
use rand_chacha::ChaCha8Rng;
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
    /// Operators of the surface with the eigenvectors that the model and the features need; `None` if they need none.
    pub operators: Option<&'a SurfaceOperators>,
    /// Fields from the file of the mesh that the features ask for.
    pub fields: &'a Fields,
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

    /// Number of eigenvectors of orders 0, 1 and 2 of the Laplacians that the features need (default: none). They are
    /// then in [`Surface::operators`], possibly with more for the model.
    fn eigenvectors(&self) -> [usize; 3] {
        [0; 3]
    }

    /// Fields from the files of the meshes that the features need (default: none). They are then in
    /// [`Surface::fields`].
    fn fields(&self) -> Vec<FieldName> {
        Vec::new()
    }

    /// Columns that a step of training sets to 0, after features are scaled, drawn for each mesh (default: none).
    fn dropped(&self, random: &mut ChaCha8Rng) -> Vec<usize> {
        let _ = random;
        Vec::new()
    }

    /// Radius of the support in units of the mesh, which SHOT frames then share. Other features leave the
    /// default.
    fn support_radius(&self) -> Option<f64> {
        None
    }
}

kinds! {
    "features": Feature {
        xyz: Xyz;
        shot: Shot;
        matrix: Matrix;
        reltan: Reltan;
        heat_kernel: HeatKernel;
        wave_kernel: WaveKernel;
        curvature: Curvature;
        position: Position;
        field: Field, Vector;
        combined: Combined;
    }
}

/// The eigenvectors of an order, which the preparation computes for features that ask for them.
fn need<'a>(surface: Surface<'a>, order: usize) -> Result<&'a Eigenbasis, FeatureError> {
    let basis = surface.operators.and_then(|operators| operators.basis(order));
    basis.ok_or_else(|| format!("there are no eigenvectors of order {order}").into())
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
    use gemcnn_mesh::surface::OperatorOptions;
    use gemcnn_mesh::{GeometryOptions, shapes};
    use rand::SeedableRng;

    #[test]
    fn every_kind_has_the_type_that_it_says_and_survives_toml() {
        let mesh = shapes::torus(24, 12, 2.0, 0.7, Cells::Triangles).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        let options = OperatorOptions { eigenpairs: [30, 0, 20], ..Default::default() };
        let operators = SurfaceOperators::new(&mesh, &graph, &options).unwrap();
        for (kind, dimension) in [
            ("xyz", 3),
            ("shot", 352),
            ("matrix", 35),
            ("reltan", 4),
            ("hks", 16),
            ("wks", 16),
            ("curvature", 6),
            ("position", 4),
        ] {
            let config = FeatureConfig::of_kind(kind).unwrap();
            assert_eq!(config.kind().dimension(), dimension);
            let surface = Surface {
                mesh: &mesh,
                graph: &graph,
                normals: NormalWeighting::default(),
                operators: Some(&operators),
                fields: &Fields::default(),
            };
            let values = config.compute(surface).unwrap();
            assert_eq!(values.len(), mesh.vertex_count() * dimension);
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<FeatureConfig>(&text).unwrap(), config);
        }
        let combined = r#"kind = "combined"
            of = [{ kind = "position" }, { kind = "curvature", times = [0.01] }, { kind = "xyz" }]"#;
        let combined: FeatureConfig = toml::from_str(combined).unwrap();
        assert_eq!(combined.kind().to_string(), "6x0 + 1x1 + 1x2");
        assert_eq!(combined.eigenvectors(), [128, 0, 64]);
        let surface = Surface {
            mesh: &mesh,
            graph: &graph,
            normals: NormalWeighting::default(),
            operators: Some(&operators),
            fields: &Fields::default(),
        };
        let all = combined.compute(surface).unwrap();
        let position = Position::default().compute(surface).unwrap();
        let (row, part) = (&all[10 * 5..], &position[4 * 5..]);
        // Scalars of all kinds come first, in order; the last three are the coordinates.
        assert_eq!(row[..2], part[..2]);
        assert_eq!(row[3..6], mesh.vertices()[5].to_array());
        assert_eq!(row[6..8], part[2..4]);
        // Kinds are left out as a whole: scalars 0 and 1 and the vector, scalar 2 and the tensor, or the coordinates.
        let kinds = [vec![0, 1, 6, 7], vec![2, 8, 9], vec![3, 4, 5]];
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert!((0..20).all(|_| combined.dropped(&mut random).is_empty()));
        let text = r#"kind = "combined"
            of = ["position", { kind = "curvature", times = [0.01] }, "xyz"]
            drop = 0.6"#;
        let dropping: FeatureConfig = toml::from_str(text).unwrap();
        assert_eq!(dropping.compute(surface).unwrap(), all);
        let mut counts = [0; 3];
        for _ in 0..500 {
            let dropped = dropping.dropped(&mut random);
            assert!(dropped.len() < 10);
            let mut left = dropped.len();
            for (kind, count) in kinds.iter().zip(&mut counts) {
                let is_whole = kind.iter().all(|column| dropped.contains(column));
                left -= if is_whole { kind.len() } else { 0 };
                *count += usize::from(is_whole);
            }
            assert_eq!(left, 0);
        }
        // 0.6, less the third of the cases without any kind in which this one is taken back.
        assert!(counts.iter().all(|&count| (230..300).contains(&count)), "{counts:?}");
        let too_much: FeatureConfig = toml::from_str(&text.replace("0.6", "1.0")).unwrap();
        assert!(too_much.compute(surface).is_err());
        // Without operators there is an error instead of a panic.
        let bare = Surface { operators: None, ..surface };
        assert!(combined.compute(bare).is_err());
        assert!(FeatureConfig::of_kind("xzy").is_err());
        assert!(toml::from_str::<FeatureConfig>("kind = 'xyz'\nradius = 1.0").is_err());
    }
}
