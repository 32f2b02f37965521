//! Agreement of the surface operators between meshings of one surface.
//!
//! Smooth surfaces are meshed in two ways at several resolutions. Every operator of
//! [`gemcnn_mesh::surface`], and the features built on them, is applied to the same smooth fields on both meshes. The
//! difference is the relative RMS difference at the vertices of the second mesh, where results of the first one are
//! interpolated. Vectors and tensors are compared in space. Diffusion is for the time 0.01, in units of the area.
//!
//! ```
//! use gemcnn_experiments::operators::{Operator, Settings, run};
//! let report = run(&Settings { subdivisions: vec![2, 3], ..Settings::quick() })?;
//! let gradient = report.rows.iter().filter(|row| row.operator == Operator::Gradient);
//! assert!(gradient.filter(|row| row.vertices > 600).all(|row| row.difference < 0.3));
//! # Ok::<(), gemcnn_tasks::TaskError>(())
//! ```

mod report;
mod results;
mod surface;

pub use report::Report;
pub use results::Operator;
pub use surface::{Meshing, Surface};

use gemcnn_tasks::TaskError;
use rayon::prelude::*;
use results::Results;
use serde::{Deserialize, Serialize};
use std::error::Error;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Resolutions: subdivisions `s` for meshes of about `10 * 4^s` vertices (default 2 to 6: 162 to 40,962 vertices).
    pub subdivisions: Vec<u32>,
    /// Seed of the remeshing (default 1).
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { subdivisions: vec![2, 3, 4, 5, 6], seed: 1 }
    }
}

impl Settings {
    /// A trial of a few seconds: meshes of at most 2,562 vertices.
    pub fn quick() -> Self {
        Self { subdivisions: vec![2, 3, 4], ..Self::default() }
    }
}

/// Difference of one operator between the regular and another meshing of a surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The surface.
    pub surface: Surface,
    /// The other meshing.
    pub meshing: Meshing,
    /// The operator.
    pub operator: Operator,
    /// Number of subdivisions of the regular meshing.
    pub subdivisions: u32,
    /// Number of vertices of both meshings.
    pub vertices: usize,
    /// Relative RMS difference.
    pub difference: f64,
}

/// Compares all operators on all surfaces.
///
/// # Errors
/// Subdivisions out of range, or a mesh on which an operator fails.
pub fn run(settings: &Settings) -> Result<Report, TaskError> {
    let cases: Vec<(u32, Surface)> = settings
        .subdivisions
        .iter()
        .flat_map(|&subdivisions| Surface::ALL.map(|surface| (subdivisions, surface)))
        .collect();
    let rows: Result<Vec<Vec<Row>>, TaskError> = cases
        .into_par_iter()
        .map(|(subdivisions, surface)| {
            compare(surface, subdivisions, settings.seed)
                .map_err(|error| TaskError::setting(format!("{surface:?}"), error.to_string()))
        })
        .collect();
    Ok(Report { settings: settings.clone(), rows: rows?.concat() })
}

fn compare(surface: Surface, subdivisions: u32, seed: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let mesh = surface.regular(subdivisions)?;
    let regular = Results::new(&mesh)?;
    let mut rows = Vec::new();
    for meshing in Meshing::ALL {
        let remeshed = surface.remeshed(&mesh, meshing, seed)?;
        let other = Results::new(&remeshed.mesh)?;
        let differences = regular.differences(&other, &remeshed)?;
        rows.extend(differences.into_iter().map(|(operator, difference)| Row {
            surface,
            meshing,
            operator,
            subdivisions,
            vertices: mesh.vertex_count(),
            difference,
        }));
    }
    Ok(rows)
}
