//! Several kinds of features together.

use super::{Feature, FeatureConfig, FeatureError, FieldName, Surface};
use crate::Settings;
use crate::registry::COMBINED;
use crate::registry::is_default;
use gemcnn_nn::FeatureType;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Several kinds of features, concatenated order by order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combined {
    /// The kinds with their settings.
    pub of: Vec<FeatureConfig>,
    /// Probability that a kind is left out of a mesh in a step of training: all its channels are 0. One kind at least
    /// stays (default 0).
    #[serde(default, skip_serializing_if = "is_default")]
    pub drop: f64,
}

impl Combined {
    /// The columns of each kind in a row.
    fn columns(&self) -> Vec<Vec<usize>> {
        let all = Feature::kind(self);
        // Channels of each order that are filled so far.
        let mut filled = vec![0; all.multiplicities().len()];
        let columns = self.of.iter().map(|feature| {
            let kind = feature.kind();
            let mut columns = Vec::with_capacity(kind.dimension());
            for (order, channels) in kind.orders() {
                for component in 0..kind.range(order).len() / channels {
                    let first = all.range(order).start + component * all.multiplicity(order) + filled[order];
                    columns.extend(first..first + channels);
                }
                filled[order] += channels;
            }
            columns
        });
        columns.collect()
    }
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
        if !(0.0..1.0).contains(&self.drop) {
            return Err(format!("`drop` is {}, but must be at least 0 and below 1", self.drop).into());
        }
        let width = self.kind().dimension();
        let vertices = surface.mesh.vertex_count();
        let mut values = vec![0.0; vertices * width];
        for (feature, columns) in self.of.iter().zip(self.columns()) {
            let (kind, part) = (feature.kind(), feature.compute(surface)?);
            if part.len() != vertices * kind.dimension() {
                let name = feature.name();
                return Err(format!("features `{name}` have a wrong number of values").into());
            }
            for (row, part) in values.chunks_exact_mut(width.max(1)).zip(part.chunks_exact(columns.len().max(1))) {
                columns.iter().zip(part).for_each(|(&column, &value)| row[column] = value);
            }
        }
        Ok(values)
    }

    fn dropped(&self, random: &mut ChaCha8Rng) -> Vec<usize> {
        if self.drop <= 0.0 || self.of.is_empty() {
            return Vec::new();
        }
        let mut is_dropped: Vec<bool> = self.of.iter().map(|_| random.random::<f64>() < self.drop).collect();
        if is_dropped.iter().all(|&dropped| dropped) {
            is_dropped[random.random_range(0..self.of.len())] = false;
        }
        let columns = self.columns().into_iter().zip(is_dropped);
        columns.filter(|(_, dropped)| *dropped).flat_map(|(columns, _)| columns).collect()
    }
}
