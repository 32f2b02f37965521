//! Descriptors from a trained network.

use crate::{MatchError, Shape, ShapeOptions};
use gemcnn_mesh::Mesh;
use gemcnn_nn::Workspace;
use gemcnn_tasks::train::{BundledModel, TrainedModel};
use gemcnn_tasks::{Task, TaskError};

/// Name of the bundled model whose descriptors are for human bodies.
const BODIES: &str = "bodies-match";

/// Prepares shapes with the descriptors of a network that was trained for correspondence.
///
/// ```
/// use gemcnn_matching::{Match, Matcher};
/// use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
/// use gemcnn_nn::Workspace;
/// let family = BodyFamily::new(&BodyOptions { vertices: 500, ..BodyOptions::default() })?;
/// let (matcher, mut workspace) = (Matcher::of_bodies()?, Workspace::default());
/// let [a, b] = matcher.shapes(&mut workspace, [&family.body(1), &family.body(2)]);
/// assert_eq!(Match::new(&a?, &b?)?.forward.len(), 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Matcher {
    model: TrainedModel,
}

impl Matcher {
    /// The matcher with the bundled model for human bodies.
    ///
    /// # Errors
    /// None in a program that was built without changes.
    pub fn of_bodies() -> Result<Self, MatchError> {
        let model = BundledModel::named(BODIES).ok_or_else(|| MatchError::Network(format!("{BODIES} is missing")))?;
        Self::new(model.open().map_err(refuse)?)
    }

    /// A matcher with a model of your own.
    ///
    /// # Errors
    /// A model that is not for correspondence, or does not work on eigenvectors of surfaces alone.
    pub fn new(model: TrainedModel) -> Result<Self, MatchError> {
        let preparation = model.preparation();
        let problem = if model.config.task != Task::Correspondence {
            "matching needs a model for correspondence; `gemcnn train matching` trains one"
        } else if model.network.split_head().is_none() {
            "matching needs a model that ends with a linear layer"
        } else if preparation.hierarchy.is_some() || preparation.eigenpairs()[0] == 0 || !preparation.geometry.normalise
        {
            "matching needs a model on surfaces, such as `diffusion`, and normalised meshes"
        } else {
            return Ok(Self { model });
        };
        Err(MatchError::Network(problem.into()))
    }

    /// The options with which shapes are prepared: as many eigenvectors as the network knows.
    pub fn options(&self) -> ShapeOptions {
        ShapeOptions { eigenpairs: self.model.preparation().eigenpairs()[0], ..ShapeOptions::default() }
    }

    /// Prepares a mesh, with descriptors.
    ///
    /// # Errors
    /// A mesh that cannot be prepared, or a failed GPU operation.
    pub fn shape(&self, workspace: &mut Workspace<f32>, mesh: &Mesh) -> Result<Shape, MatchError> {
        let mut shape = Shape::new(mesh, &self.options())?;
        self.describe(workspace, &mut shape)?;
        Ok(shape)
    }

    /// Prepares two meshes at a time.
    pub fn shapes(&self, workspace: &mut Workspace<f32>, [a, b]: [&Mesh; 2]) -> [Result<Shape, MatchError>; 2] {
        let options = self.options();
        let (a, b) = rayon::join(|| Shape::new(a, &options), || Shape::new(b, &options));
        [a, b].map(|shape| {
            let mut shape = shape?;
            self.describe(workspace, &mut shape)?;
            Ok(shape)
        })
    }

    /// Sets the descriptors of a shape that was prepared with [`options`](Self::options).
    ///
    /// # Errors
    /// Features that cannot be computed, or a failed GPU operation.
    pub fn describe(&self, workspace: &mut Workspace<f32>, shape: &mut Shape) -> Result<(), MatchError> {
        let sample = self.model.sample_on("mesh", shape.surface(), shape.graph(), shape.operators()).map_err(refuse)?;
        let (_, rows) = self.model.embedding(workspace, &sample).map_err(refuse)?;
        shape.set_descriptors(rows)
    }
}

fn refuse(error: TaskError) -> MatchError {
    MatchError::Network(error.to_string())
}
