//! The rows of the table: networks and their input features.

use crate::runs::named;
use gemcnn_tasks::features::{Matrix, Reltan, Shot, Xyz};
use gemcnn_tasks::models::{
    AcnnModel, AngularModel, AttentionModel, EdgeModel, FeastModel, GemModel, GeodesicModel, GraphModel, HermesModel,
    MonetModel, SpiralModel, ZernikeModel,
};
use gemcnn_tasks::{FeatureConfig, ModelConfig, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A network with its input features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// ACNN on SHOT descriptors.
    Acnn,
    /// Geodesic CNN on SHOT descriptors.
    Geodesic,
    /// MoNet on SHOT descriptors.
    Monet,
    /// FeaStNet on positions.
    Feast,
    /// ZerNet on positions.
    Zernike,
    /// SpiralNet++ on positions.
    Spiral,
    /// EdgeConv on positions. Not in the paper.
    Edge,
    /// Isotropic convolutions on positions.
    GraphXyz,
    /// Isotropic convolutions on SHOT descriptors.
    GraphShot,
    /// Convolutions in SHOT frames on positions.
    AngularXyz,
    /// Convolutions in SHOT frames on SHOT descriptors.
    AngularShot,
    /// The paper's network on positions.
    Gem,
    /// The paper's network on positions, with its last features read as scalars.
    GemBroken,
    /// The paper's network on matrix features. Not in the paper.
    GemMatrix,
    /// The paper's network on relative tangential features. Not in the paper.
    GemReltan,
    /// Attention over neighbours on positions. Not in the paper.
    Attention,
    /// Nonlinear messages on positions. Not in the paper.
    Hermes,
}

/// An accuracy that the paper reports on FAUST, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PaperResult {
    /// Mean accuracy.
    pub accuracy: f64,
    /// Standard error of the mean over three runs; `None` for numbers that the paper cites.
    pub standard_error: Option<f64>,
}

impl fmt::Display for PaperResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standard_error {
            Some(error) => write!(f, "{:.2} ± {error}", self.accuracy),
            None => write!(f, "{:.1}, cited", self.accuracy),
        }
    }
}

impl Row {
    /// All rows, in the order of the table.
    pub const ALL: [Self; 17] = [
        Self::Acnn,
        Self::Geodesic,
        Self::Monet,
        Self::Feast,
        Self::Zernike,
        Self::Spiral,
        Self::Edge,
        Self::GraphXyz,
        Self::GraphShot,
        Self::AngularXyz,
        Self::AngularShot,
        Self::Gem,
        Self::GemBroken,
        Self::GemMatrix,
        Self::GemReltan,
        Self::Attention,
        Self::Hermes,
    ];

    /// Its word, the network and the features in the table, and the paper's accuracy with its standard error.
    #[rustfmt::skip]
    fn entry(self) -> (&'static str, &'static str, &'static str, Option<PaperResult>) {
        let result = |accuracy, standard_error| Some(PaperResult { accuracy, standard_error });
        let cited = |accuracy| result(accuracy, None);
        let measured = |accuracy, error| result(accuracy, Some(error));
        let angular = "Non-equivariant CNN (SHOT frames)";
        match self {
            Self::Acnn => ("acnn", "ACNN", "SHOT", cited(62.4)),
            Self::Geodesic => ("geodesic", "Geodesic CNN", "SHOT", cited(65.4)),
            Self::Monet => ("monet", "MoNet", "SHOT", cited(73.8)),
            Self::Feast => ("feast", "FeaStNet", "XYZ", cited(98.7)),
            Self::Zernike => ("zernike", "ZerNet", "XYZ", cited(96.9)),
            Self::Spiral => ("spiral", "SpiralNet++", "XYZ", cited(99.8)),
            Self::Edge => ("edge", "EdgeConv", "XYZ", None),
            Self::GraphXyz => ("graph-xyz", "Graph CNN", "XYZ", measured(1.40, 0.5)),
            Self::GraphShot => ("graph-shot", "Graph CNN", "SHOT", measured(23.80, 8.0)),
            Self::AngularXyz => ("angular-xyz", angular, "XYZ", measured(73.00, 4.0)),
            Self::AngularShot => ("angular-shot", angular, "SHOT", measured(75.11, 2.4)),
            Self::Gem => ("gem", "GEM-CNN", "XYZ", measured(99.73, 0.04)),
            Self::GemBroken => ("gem-broken", "GEM-CNN (broken symmetry)", "XYZ", measured(99.89, 0.02)),
            Self::GemMatrix => ("gem-matrix", "GEM-CNN", "matrix", None),
            Self::GemReltan => ("gem-reltan", "GEM-CNN", "RelTan", None),
            Self::Attention => ("attention", "Attention (EMAN)", "XYZ", None),
            Self::Hermes => ("hermes", "Messages (Hermes)", "XYZ", None),
        }
    }

    /// Name of the network in the paper.
    pub fn network_name(self) -> &'static str {
        self.entry().1
    }

    /// Name of the input features.
    pub fn features_name(self) -> &'static str {
        self.entry().2
    }

    /// The input features.
    pub fn features(self) -> FeatureConfig {
        match self.features_name() {
            "SHOT" => Shot::default().into(),
            "matrix" => Matrix::default().into(),
            "RelTan" => Reltan::default().into(),
            _ => Xyz::default().into(),
        }
    }

    /// The network.
    pub fn model(self) -> ModelConfig {
        match self {
            Self::Acnn => AcnnModel::default().into(),
            Self::Geodesic => GeodesicModel::default().into(),
            Self::Monet => MonetModel::default().into(),
            Self::Feast => FeastModel::default().into(),
            Self::Zernike => ZernikeModel::default().into(),
            Self::Spiral => SpiralModel::default().into(),
            Self::Edge => EdgeModel::default().into(),
            Self::GraphXyz | Self::GraphShot => GraphModel::default().into(),
            Self::AngularXyz | Self::AngularShot => AngularModel::default().into(),
            Self::Gem | Self::GemMatrix | Self::GemReltan => GemModel::default().into(),
            Self::GemBroken => GemModel { broken_symmetry: true, ..GemModel::default() }.into(),
            Self::Attention => AttentionModel::default().into(),
            Self::Hermes => HermesModel::default().into(),
        }
    }

    /// The accuracy in the paper's table of shape correspondence.
    pub fn paper(self) -> Option<PaperResult> {
        self.entry().3
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().0)
    }
}

impl FromStr for Row {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        named("row", &Self::ALL, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_tasks::Task;

    /// Features of the table are those of the recipe of each network, where it is a published one.
    #[test]
    fn published_networks_have_their_features() {
        for row in Row::ALL {
            assert_eq!(row.to_string().parse::<Row>().unwrap(), row);
            let recipe = row.model().recipe(Task::Correspondence);
            if row.paper().is_some_and(|paper| paper.standard_error.is_none()) {
                assert_eq!(recipe.features, row.features(), "{row}");
                assert_eq!(recipe.batch, 1, "{row}");
            }
        }
    }
}
