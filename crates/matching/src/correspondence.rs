//! Maps between the given vertices of two meshes.

use crate::embedding::{Embedding, embeddings};
use crate::evidence::{Measured, measure};
use crate::refine::{FunctionalMap, RefineOptions, Refined, refine};
use crate::{Evidence, MatchError, Shape};
use gemcnn_mesh::Frame;
use gemcnn_mesh::remesh::SurfacePoint;

/// The second start, with which the result is compared.
const SECOND: RefineOptions = RefineOptions { first: 20, step: 40, last: 100, alpha: 0.3 };

/// Maps between two meshes, in both directions.
///
/// ```
/// use gemcnn_matching::{Match, Matcher};
/// use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
/// use gemcnn_nn::Workspace;
/// let family = BodyFamily::new(&BodyOptions { vertices: 500, ..BodyOptions::default() })?;
/// let (matcher, mut workspace) = (Matcher::of_bodies()?, Workspace::default());
/// let [a, b] = matcher.shapes(&mut workspace, [&family.body(1), &family.body(2)]);
/// let found = Match::new(&a?, &b?)?;
/// assert_eq!(found.forward.len(), 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The point on B of every vertex of A.
    pub forward: Vec<SurfacePoint>,
    /// The point on A of every vertex of B.
    pub backward: Vec<SurfacePoint>,
    /// The linear map from functions on B to functions on A, as coefficients of eigenvectors.
    pub functional_map: FunctionalMap,
    /// What speaks for the map and against it.
    pub evidence: Evidence,
    /// Confidence of every vertex of A, from 0 to 1.
    pub confidence: Vec<f32>,
    /// Tangent frames on A, and the frames on B that they are mapped to, for every vertex of A.
    pub(crate) frames: Vec<[Frame; 2]>,
}

impl Match {
    /// Matches two shapes with descriptors. Vertices are those of the meshes that the shapes were made from.
    ///
    /// # Errors
    /// Descriptors that are missing or of different widths.
    pub fn new(a: &Shape, b: &Shape) -> Result<Self, MatchError> {
        let refined = refine(a, b, &RefineOptions::default())?;
        let second = refine(a, b, &SECOND)?.forward;
        Self::of_refined(a, b, refined, &second)
    }

    /// The match of refined maps. `second` is the map from another start, with which they are compared.
    pub(crate) fn of_refined(a: &Shape, b: &Shape, refined: Refined, second: &[u32]) -> Result<Self, MatchError> {
        let Judged { on_a, on_b, images, measured } = Judged::new(a, b, &refined, second);
        let origins = on_a.nearest(&on_b, &vertices(refined.backward.len()), &refined.backward);
        let [points_a, points_b] = [a.on_copy()?, b.on_copy()?];
        let nearest: Option<Vec<u32>> =
            points_a.as_ref().map(|points| points.iter().map(SurfacePoint::nearest_corner).collect());
        let at = |vertex: u32| nearest.as_ref().map_or(vertex, |nearest| nearest[vertex as usize]) as usize;
        let cleaned = 0..nearest.as_ref().map_or(images.len(), Vec::len) as u32;
        let confidence: Vec<f32> = cleaned.clone().map(|vertex| measured.confidence[at(vertex)]).collect();
        let frames = cleaned.map(|vertex| [a.graph().frames()[at(vertex)], measured.turned[at(vertex)]]);
        Ok(Self {
            forward: carried([a, b], [&on_a, &on_b], points_a, &refined.forward, images)?,
            backward: carried([b, a], [&on_b, &on_a], points_b, &refined.backward, origins)?,
            functional_map: refined.functional_map,
            evidence: measured.evidence,
            confidence: a.for_given(&confidence),
            frames: a.for_given(&frames.collect::<Vec<_>>()),
        })
    }

    /// The nearest vertex of B for every vertex of A.
    pub fn vertices(&self) -> Vec<u32> {
        self.forward.iter().map(SurfacePoint::nearest_corner).collect()
    }

    /// The nearest vertex of A for every vertex of B.
    pub fn inverse(&self) -> Vec<u32> {
        self.backward.iter().map(SurfacePoint::nearest_corner).collect()
    }
}

/// A map with what speaks for it and against it.
pub(crate) struct Judged {
    on_a: Embedding,
    on_b: Embedding,
    images: Vec<SurfacePoint>,
    pub(crate) measured: Measured,
}

impl Judged {
    /// `second` is the map from another start, with which the map is compared.
    pub(crate) fn new(a: &Shape, b: &Shape, refined: &Refined, second: &[u32]) -> Self {
        let (on_a, on_b) = embeddings(a, b, &refined.functional_map);
        let images = on_b.nearest(&on_a, &vertices(refined.forward.len()), &refined.forward);
        let measured = measure(a, b, refined, &images, second);
        Self { on_a, on_b, images, measured }
    }
}

fn vertices(count: usize) -> Vec<SurfacePoint> {
    (0..count as u32).map(SurfacePoint::vertex).collect()
}

/// The points of one given mesh for the vertices of another, from those of the surfaces that were matched.
fn carried(
    [from, to]: [&Shape; 2],
    [on_from, on_to]: [&Embedding; 2],
    on_copy: Option<Vec<SurfacePoint>>,
    map: &[u32],
    images: Vec<SurfacePoint>,
) -> Result<Vec<SurfacePoint>, MatchError> {
    let images = on_copy.map_or(images, |points| on_to.nearest(on_from, &points, map));
    Ok(from.for_given(&to.to_given(images)?))
}
