//! Results of all operators on one mesh.

use gemcnn_mesh::features::{Curvature, heat_kernel_signatures, signature_times};
use gemcnn_mesh::remesh::{Remeshed, carry_values};
use gemcnn_mesh::surface::{Derivative, HeatSolver, Jets, SurfaceLaplacian};
use gemcnn_mesh::{DVec3, Frame, GaugeGraph, GeodesicSolver, GeometryOptions, Mesh};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// Time of the diffusion, in units of the area.
const TIME: f64 = 0.01;
/// Eigenpairs for the signatures and for smoothing. They reach far beyond `1 / TIME`, so that it does not matter where
/// the last eigenspace is cut.
const PAIRS: usize = 64;
/// Eigenvalues that are compared.
const COMPARED: usize = 32;
/// Sources of distances.
const SOURCES: usize = 4;

/// What is compared between two meshings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The 32 lowest eigenvalues of the Laplacian.
    Eigenvalues0,
    /// The 32 lowest eigenvalues of the connection Laplacian of order 1.
    Eigenvalues1,
    /// The 32 lowest eigenvalues of the connection Laplacian of order 2.
    Eigenvalues2,
    /// Heat kernel signatures at 16 times.
    HeatKernel,
    /// Diffusion of a scalar.
    Diffusion0,
    /// Diffusion of a vector field.
    Diffusion1,
    /// Diffusion of a field of order 2.
    Diffusion2,
    /// `M^-1 L f` at the vertices.
    Laplacian,
    /// `M^-1 L f` after diffusion.
    SmoothedLaplacian,
    /// Gradient of a scalar by jets.
    Gradient,
    /// Second derivatives of a scalar by jets.
    Hessian,
    /// Mean curvature and traceless shape operator.
    Curvature,
    /// The curvature after diffusion.
    SmoothedCurvature,
    /// Geodesic distances from four points.
    Geodesics,
}

impl Operator {
    /// The name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eigenvalues0 => "eigenvalues, order 0",
            Self::Eigenvalues1 => "eigenvalues, order 1",
            Self::Eigenvalues2 => "eigenvalues, order 2",
            Self::HeatKernel => "heat kernel signatures",
            Self::Diffusion0 => "diffusion, order 0",
            Self::Diffusion1 => "diffusion, order 1",
            Self::Diffusion2 => "diffusion, order 2",
            Self::Laplacian => "Laplacian at vertices",
            Self::SmoothedLaplacian => "Laplacian, diffused",
            Self::Gradient => "gradient by jets",
            Self::Hessian => "Hessian by jets",
            Self::Curvature => "curvature",
            Self::SmoothedCurvature => "curvature, diffused",
            Self::Geodesics => "geodesic distances",
        }
    }
}

/// A smooth function of the place.
fn scalar(p: DVec3) -> f64 {
    (2.0 * p.x + 1.0).sin() * (1.5 * p.y).cos() + 0.5 * p.z
}

/// A smooth vector field, whose tangential part is taken.
fn vector(p: DVec3) -> DVec3 {
    DVec3::new((2.0 * p.y).cos(), (1.5 * p.z).sin() + 0.5, p.x)
}

/// Results of all operators on one mesh.
pub(super) struct Results {
    mass: Vec<f64>,
    eigenvalues: Vec<(Operator, Vec<f64>)>,
    /// Numbers per vertex that do not depend on frames: the operator, how many, and all of them.
    fields: Vec<(Operator, usize, Vec<f64>)>,
    geodesics: GeodesicSolver,
}

impl Results {
    pub(super) fn new(mesh: &Mesh) -> Result<Self, Box<dyn Error>> {
        let graph = GaugeGraph::new(mesh, &GeometryOptions::default())?;
        let frames = graph.frames();
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let mass = laplacian.mass();
        let values: Vec<f64> = mesh.vertices().iter().map(|&p| scalar(p)).collect();
        let tangential = || {
            let fields = mesh.vertices().iter().zip(frames);
            fields.map(|(&p, frame)| frame.coefficients(vector(p)))
        };
        let first: Vec<f64> = tangential().flatten().collect();
        let second: Vec<f64> = tangential().flat_map(|[x, y]| [x * x - y * y, 2.0 * x * y]).collect();
        let mut fields = Vec::new();
        let heat = HeatSolver::new(&laplacian, 0, frames, &[TIME])?;
        let diffused = |field: &[f64]| heat.solve(0, field, 1);
        fields.push((Operator::Diffusion0, 1, diffused(&values)?));
        let first = HeatSolver::new(&laplacian, 1, frames, &[TIME])?.solve(0, &first, 1)?;
        fields.push((Operator::Diffusion1, 3, vectors(frames, &first)));
        let second = HeatSolver::new(&laplacian, 2, frames, &[TIME])?.solve(0, &second, 1)?;
        fields.push((Operator::Diffusion2, 9, tensors(frames, &second)));
        let applied = laplacian.connection(0, frames)?.apply(&values, 1)?;
        let applied: Vec<f64> = applied.iter().zip(mass).map(|(x, m)| x / m).collect();
        fields.push((Operator::SmoothedLaplacian, 1, diffused(&applied)?));
        fields.push((Operator::Laplacian, 1, applied));
        let jets = Jets::new(&laplacian, frames)?;
        let gradient = jets.gradient(&values, 1)?;
        fields.push((Operator::Gradient, 3, vectors(frames, &gradient)));
        let traceless = jets.apply(0, Derivative::RaiseTwice, &values, 1)?;
        let trace = jets.apply(0, Derivative::Laplacian, &values, 1)?;
        let trace: Vec<f64> = trace.chunks_exact(2).map(|z| z[0]).collect();
        let hessian = joined(&trace, &tensors(frames, &traceless));
        fields.push((Operator::Hessian, 10, hessian));
        let curvature = Curvature::new(mesh, &graph, &jets)?;
        let traceless = tensors(frames, &curvature.traceless);
        let tensor = joined(&curvature.mean, &traceless);
        fields.push((Operator::Curvature, 10, tensor));
        let basis = |order| laplacian.connection(order, frames)?.eigenbasis(PAIRS);
        let bases = [basis(0)?, basis(1)?, basis(2)?];
        let smoothed = curvature.smoothed(mass, &bases[0], &bases[2], &[TIME])?;
        let mean: Vec<f64> = smoothed.rows().map(|row| row[0]).collect();
        let traceless: Vec<f64> = smoothed.rows().flat_map(|row| [row[1], row[2]]).collect();
        let tensor = joined(&mean, &tensors(frames, &traceless));
        fields.push((Operator::SmoothedCurvature, 10, tensor));
        let signatures = heat_kernel_signatures(&bases[0], &signature_times());
        fields.push((Operator::HeatKernel, signature_times().len(), signatures));
        let operators = [Operator::Eigenvalues0, Operator::Eigenvalues1, Operator::Eigenvalues2];
        let lowest = bases.map(|basis| basis.values[..COMPARED.min(basis.len())].to_vec());
        Ok(Self {
            eigenvalues: operators.into_iter().zip(lowest).collect(),
            fields,
            geodesics: GeodesicSolver::new(mesh)?,
            mass: laplacian.mass().to_vec(),
        })
    }

    /// Relative RMS difference of every operator from the results on another mesh, whose vertices were carried from
    /// this one. Values of this mesh are interpolated at the vertices of the other.
    pub(super) fn differences(&self, other: &Self, carried: &Remeshed) -> Result<Vec<(Operator, f64)>, Box<dyn Error>> {
        let mut differences = Vec::new();
        for ((operator, ours), (_, theirs)) in self.eigenvalues.iter().zip(&other.eigenvalues) {
            // The constants have eigenvalue 0.
            let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 1e-6);
            let squares: Vec<f64> = pairs.map(|(a, b)| (a / b - 1.0).powi(2)).collect();
            let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
            differences.push((*operator, mean.sqrt()));
        }
        for ((operator, width, ours), (_, _, theirs)) in self.fields.iter().zip(&other.fields) {
            let ours = carry_values(&carried.sources, *width, ours);
            differences.push((*operator, relative(&ours, theirs, *width, &other.mass)));
        }
        let vertices = other.mass.len();
        let sources: Vec<usize> = (0..SOURCES).map(|i| i * vertices / SOURCES).collect();
        let mut theirs = vec![0.0; vertices * SOURCES];
        let mut ours = theirs.clone();
        let rows = other.geodesics.distances_from_each(&sources)?;
        for (column, (row, &source)) in rows.iter().zip(&sources).enumerate() {
            // Distances are interpolated at both ends.
            let point = carried.sources[source];
            let corners = point.corners.map(|corner| corner as usize);
            let corners = self.geodesics.distances_from_each(&corners)?;
            for (corner, weight) in corners.iter().zip(point.weights) {
                let distances = carry_values(&carried.sources, 1, corner);
                for (at, distance) in distances.iter().enumerate() {
                    ours[at * SOURCES + column] += weight * distance;
                }
            }
            for (at, distance) in row.iter().enumerate() {
                theirs[at * SOURCES + column] = *distance;
            }
        }
        let difference = relative(&ours, &theirs, SOURCES, &other.mass);
        differences.push((Operator::Geodesics, difference));
        Ok(differences)
    }
}

/// `|a - b| / |b|` in the norm of the mass, for `width` numbers per vertex.
fn relative(a: &[f64], b: &[f64], width: usize, mass: &[f64]) -> f64 {
    let [mut difference, mut size] = [0.0; 2];
    let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
    for ((a, b), mass) in rows.zip(mass) {
        difference += mass * a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        size += mass * b.iter().map(|b| b * b).sum::<f64>();
    }
    (difference / size).sqrt()
}

/// A field of order 1 as vectors in space.
fn vectors(frames: &[Frame], field: &[f64]) -> Vec<f64> {
    let rows = frames.iter().zip(field.chunks_exact(2));
    rows.flat_map(|(frame, z)| frame.vector([z[0], z[1]]).to_array()).collect()
}

/// A field of order 2 as traceless symmetric matrices in space, nine numbers per vertex.
fn tensors(frames: &[Frame], field: &[f64]) -> Vec<f64> {
    let rows = frames.iter().zip(field.chunks_exact(2));
    rows.flat_map(|(frame, z)| {
        let [a, b] = [[z[0], z[1]], [z[1], -z[0]]].map(|row| frame.vector(row));
        let (e1, e2) = (frame.e1.to_array(), frame.e2.to_array());
        [0, 1, 2].map(|row| (e1[row] * a + e2[row] * b).to_array())
    })
    .flatten()
    .collect()
}

/// A scalar and nine numbers per vertex.
fn joined(scalars: &[f64], matrices: &[f64]) -> Vec<f64> {
    let rows = scalars.iter().zip(matrices.chunks_exact(9));
    rows.flat_map(|(scalar, row)| std::iter::once(scalar).chain(row)).copied().collect()
}
