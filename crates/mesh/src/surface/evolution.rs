//! Time-dependent equations.

use super::error::check_field;
use super::laplacian::ConnectionLaplacian;
use super::{HeatSolver, SurfaceError, SurfaceLaplacian};
use crate::Frame;
use std::f64::consts::SQRT_2;

/// Weight of the linear term that the Cahn-Hilliard scheme adds. The energy falls with steps of any size as long as
/// `|u| <= sqrt((2 * 2 + 1) / 3) = 1.29`.
const STABILISATION: f64 = 2.0;
/// Relative error at which the linear solver of the Cahn-Hilliard scheme stops.
const TOLERANCE: f64 = 1e-9;

/// An equation on a surface of unit area. `A` is the positive Laplacian; borders are free (no flux).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Equation {
    /// Diffusion of scalars: `u' = -A u`.
    Heat,
    /// Waves of speed 1: `u'' = -A u`.
    Wave,
    /// Separation of two phases, `u = -1` and `u = 1`: `u' = -A (u^3 - u + w^2 A u)`.
    CahnHilliard {
        /// Width `w` of the interface: the profile is `tanh(x / (sqrt(2) w))`.
        width: f64,
    },
    /// Diffusion of tangent vectors by the connection Laplacian of order 1.
    VectorHeat,
}

impl Equation {
    /// Order of the fields: 0 for scalars, 1 for tangent vectors.
    pub fn order(self) -> usize {
        usize::from(self == Self::VectorHeat)
    }
}

/// Fields at one time, of shape `[V, b]` (scalars) or `[V, 2, b]` (vectors).
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The fields.
    pub values: Vec<f64>,
    /// Their time derivatives, for the wave equation; empty for others.
    pub rates: Vec<f64>,
}

/// Steps of an equation in time by implicit schemes, with matrices that are factored once.
///
/// | equation | scheme | order | exact to rounding |
/// | --- | --- | --- | --- |
/// | heat, vector heat | two-stage diagonally implicit Runge-Kutta, L-stable | 2 | mass (scalars) |
/// | wave | trapezoidal rule (Newmark with average acceleration) | 2 | energy |
/// | Cahn-Hilliard | stabilised semi-implicit Euler | 1 | mass; the energy falls |
///
/// ```
/// use gemcnn_mesh::surface::{Equation, Evolution, State, SurfaceLaplacian};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(3)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let laplacian = SurfaceLaplacian::new(&mesh)?;
/// let heat = Evolution::new(&laplacian, Equation::Heat, graph.frames(), 1e-3)?;
/// let values: Vec<f64> = mesh.vertices().iter().map(|p| p.z).collect();
/// let mut state = State { values, rates: Vec::new() };
/// heat.advance(&mut state, 1)?;
/// // The eigenvalue of z on a sphere of unit area is 8 pi.
/// let expected = (-8e-3 * std::f64::consts::PI).exp() * mesh.vertices()[0].z;
/// assert!((state.values[0] - expected).abs() < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Evolution<'a> {
    laplacian: &'a SurfaceLaplacian,
    connection: ConnectionLaplacian<'a>,
    solver: HeatSolver<'a>,
    equation: Equation,
    step: f64,
}

impl<'a> Evolution<'a> {
    /// Prepares steps of the given size.
    ///
    /// # Errors
    /// The step or the width of the interface is not positive, `frames` is not one frame per vertex, or the matrix
    /// cannot be factored.
    pub fn new(
        laplacian: &'a SurfaceLaplacian,
        equation: Equation,
        frames: &[Frame],
        step: f64,
    ) -> Result<Self, SurfaceError> {
        if !(step > 0.0 && step.is_finite()) {
            return Err(SurfaceError::BadTime { time: step });
        }
        let times = match equation {
            Equation::Heat | Equation::VectorHeat => vec![(1.0 - 1.0 / SQRT_2) * step],
            Equation::Wave => vec![0.25 * step * step],
            Equation::CahnHilliard { width } if width > 0.0 => Splitting::new(step, width).times,
            Equation::CahnHilliard { width } => return Err(SurfaceError::BadTime { time: width }),
        };
        let order = equation.order();
        Ok(Self {
            laplacian,
            connection: laplacian.connection(order, frames)?,
            solver: HeatSolver::new(laplacian, order, frames, &times)?,
            equation,
            step,
        })
    }

    /// Advances all columns of a state by one step.
    pub fn advance(&self, state: &mut State, columns: usize) -> Result<(), SurfaceError> {
        self.check(state, columns)?;
        let values = &mut state.values;
        match self.equation {
            Equation::Heat | Equation::VectorHeat => {
                // With S = (1 + g h A)^-1, g = 1 - 1/sqrt(2), the step is S ((1 + sqrt 2) S - sqrt 2).
                let mut stage = self.solver.solve(0, values, columns)?;
                for (stage, value) in stage.iter_mut().zip(&*values) {
                    *stage = (1.0 + SQRT_2) * *stage - SQRT_2 * value;
                }
                *values = self.solver.solve(0, &stage, columns)?;
            }
            Equation::Wave => {
                // The mean m of the old and the new state solves (1 + h^2 A / 4) m = u + h v / 2.
                let pairs = values.iter().zip(&state.rates);
                let start: Vec<f64> = pairs.map(|(u, v)| u + 0.5 * self.step * v).collect();
                let mean = self.solver.solve(0, &start, columns)?;
                for ((u, v), m) in values.iter_mut().zip(&mut state.rates).zip(mean) {
                    *v = 4.0 * (m - *u) / self.step - *v;
                    *u = 2.0 * m - *u;
                }
            }
            Equation::CahnHilliard { width } => {
                let change = self.separate(values, width, columns)?;
                for (value, change) in values.iter_mut().zip(change) {
                    *value += change;
                }
            }
        }
        Ok(())
    }

    /// Energy of each column: `|u|^2 / 2` for diffusion, kinetic and elastic energy of waves, and
    /// `(u^2 - 1)^2 / 4 + w^2 |grad u|^2 / 2` for Cahn-Hilliard, integrated over the surface.
    pub fn energy(&self, state: &State, columns: usize) -> Result<Vec<f64>, SurfaceError> {
        self.check(state, columns)?;
        let values = &state.values;
        let curved = self.positive_laplacian(values, columns)?;
        let density = |at: usize| {
            let u = values[at];
            match self.equation {
                Equation::Heat | Equation::VectorHeat => 0.5 * u * u,
                Equation::Wave => 0.5 * (state.rates[at].powi(2) + u * curved[at]),
                Equation::CahnHilliard { width } => 0.25 * (u * u - 1.0).powi(2) + 0.5 * width * width * u * curved[at],
            }
        };
        let mut energy = vec![0.0; columns];
        let width = columns * (1 + self.equation.order());
        for (vertex, mass) in self.laplacian.mass().iter().enumerate() {
            for at in 0..width {
                energy[at % columns] += mass * density(vertex * width + at);
            }
        }
        Ok(energy)
    }

    fn check(&self, state: &State, columns: usize) -> Result<(), SurfaceError> {
        let vertices = self.laplacian.vertex_count();
        check_field(self.equation.order(), vertices, &state.values, columns)?;
        match self.equation {
            Equation::Wave => check_field(0, vertices, &state.rates, columns),
            _ => Ok(()),
        }
    }

    /// `A u`: the Laplacian divided by the masses.
    fn positive_laplacian(&self, field: &[f64], columns: usize) -> Result<Vec<f64>, SurfaceError> {
        let mut result = self.connection.apply(field, columns)?;
        let width = columns * (1 + self.equation.order());
        let mass = self.laplacian.node_mass();
        let nodes = self.laplacian.node_of_vertex().iter();
        for (row, &node) in result.chunks_exact_mut(width.max(1)).zip(nodes) {
            row.iter_mut().for_each(|value| *value /= mass[node as usize]);
        }
        Ok(result)
    }

    /// Change of `u` in a step of Cahn-Hilliard: the solution `d` of
    /// `(1 + h A (s + w^2 A)) d = -h A (u^3 - u + w^2 A u)`.
    fn separate(&self, values: &[f64], width: f64, columns: usize) -> Result<Vec<f64>, SurfaceError> {
        let h = self.step;
        let mut potential = self.positive_laplacian(values, columns)?;
        for (potential, u) in potential.iter_mut().zip(values) {
            *potential = -h * (width * width * *potential + u * u * u - u);
        }
        let right = self.positive_laplacian(&potential, columns)?;
        let splitting = Splitting::new(h, width);
        let mut change = vec![0.0; right.len()];
        let mut residual = right.clone();
        for round in 0..splitting.rounds {
            if round > 0 {
                let mut inner = self.positive_laplacian(&change, columns)?;
                for (inner, d) in inner.iter_mut().zip(&change) {
                    *inner = h * (STABILISATION * d + width * width * *inner);
                }
                let product = self.positive_laplacian(&inner, columns)?;
                for (at, residual) in residual.iter_mut().enumerate() {
                    *residual = right[at] - change[at] - product[at];
                }
            }
            let half = self.solver.solve(0, &residual, columns)?;
            let last = splitting.times.len() - 1;
            let whole = self.solver.solve(last, &half, columns)?;
            for (change, correction) in change.iter_mut().zip(whole) {
                *change += splitting.relaxation * correction;
            }
        }
        Ok(change)
    }
}

/// The operator `1 + s h A + w^2 h A^2` of a Cahn-Hilliard step as a product `(1 + t A) (1 + t' A)`. Where the factors
/// are complex, `t = t' = w sqrt h` makes a preconditioner: the quotient lies between the lowest `(1 + k) / 2`, with `k
/// = s sqrt h / (2 w)`, and 1, and every round of Richardson's iteration reduces the error at least to a third.
struct Splitting {
    /// One time for both factors, or two.
    times: Vec<f64>,
    rounds: usize,
    relaxation: f64,
}

impl Splitting {
    fn new(step: f64, width: f64) -> Self {
        let (half_sum, product) = (0.5 * STABILISATION * step, step * width * width);
        let discriminant = half_sum * half_sum - product;
        if discriminant >= 0.0 {
            let large = half_sum + discriminant.sqrt();
            return Self { times: vec![large, product / large], rounds: 1, relaxation: 1.0 };
        }
        let lowest = 0.5 * (1.0 + half_sum / product.sqrt());
        let contraction = (1.0 - lowest) / (1.0 + lowest);
        Self {
            times: vec![product.sqrt()],
            rounds: (TOLERANCE.ln() / contraction.ln()).ceil().max(1.0) as usize,
            relaxation: 2.0 / (1.0 + lowest),
        }
    }
}
