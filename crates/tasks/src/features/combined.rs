//! Several kinds of features together.

use super::{Feature, FeatureConfig, FeatureError, FieldName, Surface};
use crate::Settings;
use crate::registry::COMBINED;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Several kinds of features, concatenated order by order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combined {
    /// The kinds with their settings.
    pub of: Vec<FeatureConfig>,
}

impl Settings for Combined {
    const KIND: &'static str = COMBINED;
}

impl Feature for Combined {
    fn kind(&self) -> FeatureType {
        let kinds = self.of.iter().map(|feature| feature.kind());
        kinds.fold(FeatureType::default(), |all, kind| all.concatenated(&kind))
    }

    fn eigenvectors(&self) -> [usize; 3] {
        let needs = self.of.iter().map(|feature| feature.eigenvectors());
        needs.fold([0; 3], |most, need| std::array::from_fn(|order| most[order].max(need[order])))
    }

    fn fields(&self) -> Vec<FieldName> {
        let all = self.of.iter().flat_map(|feature| feature.fields());
        all.fold(Vec::new(), |mut fields, field| {
            if !fields.contains(&field) {
                fields.push(field);
            }
            fields
        })
    }

    fn support_radius(&self) -> Option<f64> {
        self.of.iter().find_map(|feature| feature.support_radius())
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let all = self.kind();
        let vertices = surface.mesh.vertex_count();
        let mut values = vec![0.0; vertices * all.dimension()];
        // Channels of each order that are filled so far.
        let mut filled = vec![0; all.multiplicities().len()];
        for feature in &self.of {
            let (kind, part) = (feature.kind(), feature.compute(surface)?);
            if part.len() != vertices * kind.dimension() {
                let name = feature.name();
                return Err(format!("features `{name}` have a wrong number of values").into());
            }
            for (order, channels) in kind.orders() {
                let from = kind.range(order);
                for component in 0..from.len() / channels {
                    let first = all.range(order).start + component * all.multiplicity(order) + filled[order];
                    for vertex in 0..vertices {
                        let row = &part[vertex * kind.dimension()..];
                        let row = &row[from.start + component * channels..][..channels];
                        let at = vertex * all.dimension() + first;
                        values[at..at + channels].copy_from_slice(row);
                    }
                }
                filled[order] += channels;
            }
        }
        Ok(values)
    }
}
