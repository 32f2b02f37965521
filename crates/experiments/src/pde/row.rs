//! The rows of the table: networks with about the same number of parameters.

use super::samples::Coordinates;
use crate::runs::named;
use gemcnn_tasks::models::{
    AttentionModel, DiffusionModel, GemModel, GraphModel, HermesModel, ModelSpec, SurfaceModel,
};
use gemcnn_tasks::{Element, ModelConfig, Task, TaskError};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Channels of the network `gem`, whose number of parameters is that of all rows.
const CHANNELS: usize = 16;

/// A network of the table.
#[derive(Clone, Copy)]
pub struct Row(&'static Network);

struct Network {
    name: &'static str,
    /// True if it reads and predicts tangent vectors. Others read the coordinates of vectors in space.
    has_vectors: bool,
    /// Base learning rate, for scalars and for vectors.
    rates: [f64; 2],
    /// The model of a width.
    model: fn(usize) -> ModelConfig,
}

impl Network {
    const fn new(name: &'static str, has_vectors: bool, rates: [f64; 2], model: fn(usize) -> ModelConfig) -> Self {
        Self { name, has_vectors, rates, model }
    }
}

/// One entry for each row. The size of the first one is the size of all.
static NETWORKS: [Network; 6] = [
    Network::new("gem", true, [5e-3; 2], |channels| {
        GemModel { channels, batch_norm: false, head: 0, dropout: 0.0, ..Default::default() }.into()
    }),
    Network::new("attention", true, [5e-3, 2e-3], |channels| {
        AttentionModel { channels, heads: 1, batch_norm: false, head: 0, dropout: 0.0, ..Default::default() }.into()
    }),
    Network::new("hermes", true, [5e-3; 2], |channels| {
        HermesModel { channels, batch_norm: false, head: 0, dropout: 0.0, ..Default::default() }.into()
    }),
    Network::new("diffusion", false, [2e-3; 2], |channels| {
        DiffusionModel { channels, dropout: 0.0, ..Default::default() }.into()
    }),
    Network::new("surface", true, [2e-3; 2], |width| {
        let channels = [width, width.div_ceil(4), width.div_ceil(8)];
        SurfaceModel { channels, ..Default::default() }.into()
    }),
    Network::new("graph", false, [5e-3; 2], |width| {
        GraphModel { width: Some(width), batch_norm: false, head: 0, dropout: 0.0, ..Default::default() }.into()
    }),
];

impl Row {
    /// The rows of the table.
    pub fn all() -> Vec<Self> {
        NETWORKS.iter().map(Self).collect()
    }

    /// How it sees the states of an equation.
    pub(super) fn coordinates(self, order: usize) -> Coordinates {
        match (order, self.0.has_vectors) {
            (0, _) => Coordinates::Scalars,
            (_, true) => Coordinates::Frames,
            (_, false) => Coordinates::Space,
        }
    }

    /// Base learning rate for states of an order.
    pub(super) fn rate(self, order: usize) -> f64 {
        self.0.rates[usize::from(order > 0)]
    }

    /// The model for an equation: of the width for which its number of parameters is closest to that of the first row.
    pub(super) fn model(self, order: usize) -> Result<ModelConfig, TaskError> {
        let first = Self(&NETWORKS[0]);
        let target = first.count(CHANNELS, order)?;
        let (mut low, mut high) = (1, 2);
        while self.count(high, order)? < target {
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = (low + high) / 2;
            match self.count(middle, order)? < target {
                true => low = middle,
                false => high = middle,
            }
        }
        let distance = |width| Ok::<_, TaskError>(self.count(width, order)?.abs_diff(target));
        let width = if distance(low)? < distance(high)? { low } else { high };
        Ok((self.0.model)(width))
    }

    /// Number of parameters of the model of a width.
    fn count(self, width: usize, order: usize) -> Result<usize, TaskError> {
        let spec = self.spec(order);
        let (_, parameters) = (self.0.model)(width).init(&spec, 0)?;
        Ok(parameters.trained_count())
    }

    /// Input and output of the model for an equation.
    pub(super) fn spec(self, order: usize) -> ModelSpec {
        let coordinates = self.coordinates(order);
        ModelSpec {
            input: coordinates.input(),
            task: Task::Regression,
            per: Element::Vertex,
            outputs: coordinates.output(),
        }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.name)
    }
}

impl FromStr for Row {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        named("row", &Self::all(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_same_number_of_parameters_within_a_tenth() {
        for order in [0, 1] {
            let target = Row::all()[0].count(CHANNELS, order).unwrap() as f64;
            for row in Row::all() {
                let model = row.model(order).unwrap();
                let (_, parameters) = model.init(&row.spec(order), 0).unwrap();
                let ratio = parameters.trained_count() as f64 / target;
                assert!((ratio - 1.0).abs() < 0.1, "{row}, order {order}: {ratio}");
                assert_eq!(row.to_string().parse::<Row>().unwrap(), row);
            }
        }
        assert!("gems".parse::<Row>().is_err());
    }
}
