//! The equations of the experiment, with their time steps and random initial states.

use crate::names::names;
use crate::random::Draws;
use gemcnn_mesh::surface::{self, State};
use gemcnn_mesh::{DVec3, Frame};
use serde::{Deserialize, Serialize};

/// Width of the interface between phases, in square roots of the area.
const INTERFACE: f64 = 0.04;

/// An equation on surfaces of unit area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equation {
    /// Diffusion of a scalar.
    Heat,
    /// Waves of a scalar, from rest.
    Wave,
    /// Separation of two phases.
    CahnHilliard,
    /// Diffusion of a tangent vector field.
    VectorHeat,
}

names!(Equation, "equation", { Heat: "heat", Wave: "wave", CahnHilliard: "cahn-hilliard", VectorHeat: "vector-heat" });

impl Equation {
    /// The equation of the solver.
    pub(super) fn dynamics(self) -> surface::Equation {
        match self {
            Self::Heat => surface::Equation::Heat,
            Self::Wave => surface::Equation::Wave,
            Self::CahnHilliard => surface::Equation::CahnHilliard { width: INTERFACE },
            Self::VectorHeat => surface::Equation::VectorHeat,
        }
    }

    /// Time between two states, and steps of the solver in it.
    pub(super) fn step(self) -> (f64, usize) {
        match self {
            Self::Heat | Self::VectorHeat => (2.5e-4, 2),
            Self::Wave => (0.02, 4),
            Self::CahnHilliard => (5e-4, 5),
        }
    }

    /// Random initial states, one column for each generator.
    pub(super) fn start(self, points: &[DVec3], frames: &[Frame], draws: &mut [Draws]) -> State {
        let columns = draws.len();
        let (bumps, widths, strength) = match self {
            Self::CahnHilliard => (60, [0.04, 0.08], 0.8),
            Self::Heat | Self::Wave | Self::VectorHeat => (6, [0.08, 0.16], 1.0),
        };
        let parts = 1 + self.dynamics().order();
        let mut values = vec![0.0; points.len() * parts * columns];
        for (column, draws) in draws.iter_mut().enumerate() {
            let mean = draws.uniform(-0.3, 0.3);
            let bumps: Vec<Bump> = (0..bumps).map(|_| Bump::random(points, widths, draws)).collect();
            for (vertex, (&point, frame)) in points.iter().zip(frames).enumerate() {
                let sum: DVec3 = bumps.iter().map(|bump| bump.at(point)).sum();
                let parts: &[f64] = match self {
                    Self::Heat | Self::Wave => &[strength * sum.x],
                    Self::CahnHilliard => &[(mean + strength * sum.x).tanh()],
                    Self::VectorHeat => &frame.coefficients(strength * sum),
                };
                for (part, &value) in parts.iter().enumerate() {
                    values[(vertex * parts.len() + part) * columns + column] = value;
                }
            }
        }
        State {
            rates: match self {
                Self::Wave => vec![0.0; values.len()],
                _ => Vec::new(),
            },
            values,
        }
    }
}

/// A Gaussian around a vertex, times a random vector.
struct Bump {
    centre: DVec3,
    width: f64,
    height: DVec3,
}

impl Bump {
    fn random(points: &[DVec3], [low, high]: [f64; 2], draws: &mut Draws) -> Self {
        let vertex = draws.uniform(0.0, points.len() as f64) as usize;
        Self { centre: points[vertex.min(points.len() - 1)], width: draws.uniform(low, high), height: draws.shift() }
    }

    fn at(&self, point: DVec3) -> DVec3 {
        let distance = point.distance_squared(self.centre);
        self.height * (-0.5 * distance / (self.width * self.width)).exp()
    }
}
