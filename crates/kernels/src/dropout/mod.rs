//! Gauge equivariant dropout of whole irreps.
//!
//! A unit is one irrep of one vertex, both components together, or one channel of one vertex over
//! all orders ([`DropoutUnit`]). Units are counted vertex by vertex, in a vertex order by order,
//! channel by channel. Unit `i` is kept if word `i` of the [`Stream`] is at least
//! `round(p 2^32)`, and then multiplied by `1/(1-p)`; else it becomes zero.
//!
//! The map is linear and diagonal, so it is its own backward pass (`dx = dropout(dy)` with the same
//! stream). Masks are never stored; they are computed again from the stream.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{MeshOffsets, Meshes, arguments, kinds};
use crate::error::check_mesh_offsets;
use crate::random::Stream;
use crate::{FeatureType, KernelError};

const OPERATOR: &str = "dropout";

kinds! {
    /// Random numbers: a stream, which has a salt on a GPU.
    Draws = Stream, (&'a cuda::DeviceStream, u64);
}

/// What is dropped as a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropoutUnit {
    /// One irrep: both components of one channel of one order.
    Irrep,
    /// One channel with all its orders: all samples of a channel of the regular nonlinearity. All orders
    /// must have the same multiplicity.
    Channel,
}

/// Settings of a dropout.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// Type of input and output.
    pub kind: FeatureType,
    /// What is dropped as a unit.
    pub unit: DropoutUnit,
    /// Probability of dropping a unit, in [0, 1).
    pub probability: f64,
}

impl Dropout {
    /// Number of units of a vertex.
    ///
    /// # Errors
    /// A probability out of range, or [`DropoutUnit::Channel`] where multiplicities differ.
    pub fn units(&self) -> Result<usize, KernelError> {
        check_probability(self.probability)?;
        match self.unit {
            DropoutUnit::Irrep => Ok(self.kind.multiplicities().iter().sum()),
            DropoutUnit::Channel if self.kind == FeatureType::default() => Ok(0),
            DropoutUnit::Channel => {
                let uniform = self.kind.uniform_multiplicity();
                uniform.ok_or_else(|| KernelError::Setting {
                    operator: OPERATOR,
                    problem: format!(
                        "dropping channels needs the same multiplicity for every order, but the \
                         type is {}; drop irreps",
                        self.kind
                    ),
                })
            }
        }
    }

    /// First unit, channels and start of every run of channels in a row (one per component).
    fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut first = 0;
        for (order, channels) in self.kind.orders() {
            let unit = match self.unit {
                DropoutUnit::Irrep => first,
                DropoutUnit::Channel => 0,
            };
            for start in self.kind.range(order).step_by(channels) {
                runs.push(Run { unit, start, channels });
            }
            first += channels;
        }
        runs
    }
}

fn check_probability(probability: f64) -> Result<(), KernelError> {
    match (0.0..1.0).contains(&probability) {
        true => Ok(()),
        false => Err(KernelError::Setting {
            operator: OPERATOR,
            problem: format!("probability {probability} must be at least 0 and below 1"),
        }),
    }
}

/// A unit is kept if its word is at least this.
pub(crate) fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(32)).round() as u64
}

/// Factor of the kept units.
pub(crate) fn scale(probability: f64) -> f64 {
    1.0 / (1.0 - probability)
}

/// The channels of one component of an order.
#[derive(Debug, Clone, Copy)]
struct Run {
    unit: usize,
    start: usize,
    channels: usize,
}

arguments! {
    /// `y` = `x` with units dropped. With the same stream it is its own backward pass.
    DropUnits = drop_units(OPERATOR) {
        op: &'a Dropout, rows: usize;
        stream: Draws,
        x: read[rows, op.kind.dimension()],
        y: write[rows, op.kind.dimension()];
        op.units()?;
    }

    /// `y` = `x` with the features of whole meshes dropped, those of mesh `i` by word `i` of the stream. With the same
    /// stream it is its own backward pass.
    DropMeshes = drop_meshes(OPERATOR) {
        probability: f64, width: usize;
        stream: Draws,
        meshes: Meshes,
        x: read[vertices, width],
        y: write[vertices, width];
        check_probability(probability)?;
        let vertices = check_mesh_offsets(meshes.mesh_offsets())?;
    }
}
