//! Matrix features.

use super::{Feature, FeatureError, Surface};
use crate::Settings;
use gemcnn_mesh::features::{MatrixOptions, matrix_features};
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Matrix features, `7x(0,1,2)`. They are invariant under rigid motions and scaling.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {}

impl Settings for Matrix {
    const KIND: &'static str = "matrix";
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
