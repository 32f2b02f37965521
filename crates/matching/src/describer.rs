//! Ways to match shapes: with a network, or with the spectrum alone.

use crate::correspondence::Judged;
use crate::refine::{RefineOptions, Refined, refine};
use crate::{Evidence, Match, MatchError, Matcher, Shape, spectrum};
use gemcnn_mesh::Mesh;
use gemcnn_nn::Workspace;

/// A way to describe and match shapes.
#[derive(Debug)]
pub enum Describer {
    /// Signatures of the spectrum, and the first eigenvectors with all signs: without a network, for shapes that are
    /// nearly isometric.
    Spectrum,
    /// The descriptors of a network.
    Network(Box<Matcher>),
}

impl From<Matcher> for Describer {
    fn from(matcher: Matcher) -> Self {
        Self::Network(Box::new(matcher))
    }
}

impl Describer {
    /// Sets the descriptors of a shape.
    ///
    /// # Errors
    /// Features that cannot be computed, or a failed GPU operation.
    pub fn describe(&self, workspace: &mut Workspace<f32>, shape: &mut Shape) -> Result<(), MatchError> {
        match self {
            Self::Spectrum => spectrum::describe(shape),
            Self::Network(matcher) => matcher.describe(workspace, shape),
        }
    }

    /// Prepares a mesh, with descriptors.
    ///
    /// # Errors
    /// A mesh that cannot be prepared, or a failed GPU operation.
    pub fn shape(&self, workspace: &mut Workspace<f32>, mesh: &Mesh) -> Result<Shape, MatchError> {
        match self {
            Self::Spectrum => {
                let mut shape = Shape::new(mesh, &Default::default())?;
                spectrum::describe(&mut shape)?;
                Ok(shape)
            }
            Self::Network(matcher) => matcher.shape(workspace, mesh),
        }
    }

    /// Matches two shapes with its descriptors.
    ///
    /// # Errors
    /// Descriptors that are missing or of different widths.
    pub fn matched(&self, a: &Shape, b: &Shape) -> Result<Match, MatchError> {
        match self {
            Self::Network(_) => Match::new(a, b),
            Self::Spectrum => {
                let (refined, _) = self.best(a, b)?;
                let second = refined.forward.clone();
                Match::of_refined(a, b, refined, &second)
            }
        }
    }

    /// The best maps between two shapes with its descriptors, and what speaks for them other than their agreement with
    /// those of a second start.
    pub(crate) fn best(&self, a: &Shape, b: &Shape) -> Result<(Refined, Evidence), MatchError> {
        let refined = match self {
            Self::Spectrum => spectrum::best(a, b)?,
            Self::Network(_) => refine(a, b, &RefineOptions::default())?,
        };
        let evidence = Judged::new(a, b, &refined, &refined.forward).measured.evidence;
        Ok((refined, evidence))
    }

    /// True if a map from this, with its evidence, is good enough to learn from.
    pub(crate) fn accepts(&self, evidence: &Evidence) -> bool {
        evidence.is_accepted() && (matches!(self, Self::Network(_)) || evidence.badness() < spectrum::TRUSTED)
    }
}
