//! An input feature: the angle defect of each vertex, a discrete Gaussian curvature.

use gemcnn_nn::FeatureType;
use gemcnn_tasks::Settings;
use gemcnn_tasks::features::{Feature, FeatureError, Surface};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// `2 pi` minus the sum of the corner angles at the vertex, `1x0`. It is invariant under rigid motions and
/// scaling.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AngleDefect {
    /// Divides by the area of a third of the faces at the vertex, which gives a curvature (default false).
    /// The feature then changes with the scale of a mesh.
    pub per_area: bool,
}

impl Settings for AngleDefect {
    const KIND: &'static str = "angle_defect";
}

impl Feature for AngleDefect {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(1)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let points = surface.mesh.vertices();
        let mut defect = vec![TAU; points.len()];
        let mut area = vec![0.0; points.len()];
        for face in surface.mesh.faces().iter() {
            for (place, &vertex) in face.iter().enumerate() {
                let corner = |step: usize| points[face[(place + step) % face.len()] as usize];
                let (a, b) = (corner(1) - corner(0), corner(face.len() - 1) - corner(0));
                let cross = a.cross(b).length();
                defect[vertex as usize] -= cross.atan2(a.dot(b));
                area[vertex as usize] += cross / 6.0;
            }
        }
        if self.per_area {
            for (defect, area) in defect.iter_mut().zip(&area).filter(|(_, area)| **area > 0.0) {
                *defect /= area;
            }
        }
        Ok(defect)
    }
}
