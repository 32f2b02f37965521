//! Matrix features.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::features::{MatrixOptions, matrix_features};
use gemcnn_nn::FeatureType;

settings! {
    /// Matrix features, `7x(0,1,2)`. They are invariant under rigid motions and scaling.
    Matrix = "matrix" {}
}

impl Feature for Matrix {
    fn kind(&self) -> FeatureType {
        FeatureType::uniform(7, 2)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let Surface { mesh, graph, .. } = surface;
        Ok(matrix_features(mesh, graph, &MatrixOptions::default())?.values)
    }
}
