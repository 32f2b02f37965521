//! Tests of matching through the public interface.

mod bodies;
mod correspondence;
mod learn;
mod refine;
mod shape;

use gemcnn_matching::ShapeOptions;

/// Small meshes as they are.
const AS_GIVEN: ShapeOptions = ShapeOptions { eigenpairs: 150, direct: 10_000, simplified: 5_000, subdivided: 0 };
