//! Settings as text in stored configurations.

use gemcnn_kernels::FeatureType;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// A feature type as `16x0 + 16x1`.
pub(crate) fn serialize<S: Serializer>(kind: &FeatureType, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(kind)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FeatureType, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// A feature type, or nothing.
pub(crate) mod optional {
    use super::FeatureType;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        kind: &Option<FeatureType>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match kind {
            Some(kind) => super::serialize(kind, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<FeatureType>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

/// An activation as its name, a polynomial as its coefficients.
pub(crate) mod activation {
    use gemcnn_kernels::Activation;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Stored {
        Identity,
        Relu,
        Elu,
        Gelu,
        Tanh,
        Polynomial(Vec<f64>),
    }

    pub(crate) fn serialize<S: Serializer>(
        activation: &Activation,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = match activation {
            Activation::Identity => Stored::Identity,
            Activation::Relu => Stored::Relu,
            Activation::Elu => Stored::Elu,
            Activation::Gelu => Stored::Gelu,
            Activation::Tanh => Stored::Tanh,
            Activation::Polynomial(coefficients) => Stored::Polynomial(coefficients.clone()),
        };
        stored.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Activation, D::Error> {
        Ok(match Stored::deserialize(from)? {
            Stored::Identity => Activation::Identity,
            Stored::Relu => Activation::Relu,
            Stored::Elu => Activation::Elu,
            Stored::Gelu => Activation::Gelu,
            Stored::Tanh => Activation::Tanh,
            Stored::Polynomial(coefficients) => Activation::Polynomial(coefficients),
        })
    }
}

/// An aggregation as its name.
pub(crate) mod aggregation {
    use gemcnn_kernels::Aggregation;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Stored {
        Sum,
        Mean,
        MeanWithSelf,
    }

    pub(crate) fn serialize<S: Serializer>(
        aggregation: &Aggregation,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = match aggregation {
            Aggregation::Sum => Stored::Sum,
            Aggregation::Mean => Stored::Mean,
            Aggregation::MeanWithSelf => Stored::MeanWithSelf,
        };
        stored.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Aggregation, D::Error> {
        Ok(match Stored::deserialize(from)? {
            Stored::Sum => Aggregation::Sum,
            Stored::Mean => Aggregation::Mean,
            Stored::MeanWithSelf => Aggregation::MeanWithSelf,
        })
    }
}
