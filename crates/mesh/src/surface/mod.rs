//! Differential operators of a surface that depend little on its triangles.
//!
//! | item | operator |
//! | --- | --- |
//! | [`SurfaceLaplacian`] | cotangent Laplacian on the intrinsic Delaunay triangulation, lumped mass |
//! | [`SurfaceLaplacian::connection`] | connection Laplacian of fields of any order |
//! | [`ConnectionLaplacian::eigenbasis`] | eigenpairs of lowest eigenvalue |
//! | [`HeatSolver`] | implicit diffusion for fixed times |
//! | [`Evolution`] | heat, wave, Cahn-Hilliard and vector heat equations, step by step in time |
//! | [`Jets`] | first and second derivatives by least squares over the two-ring |
//! | [`HeatArrays`] | mass, Laplacian and gradient as sparse arrays, for networks |
//! | [`SurfaceOperators`] | mass, eigenbases, gradients and jets of a mesh, with storage |
//!
//! All operators refer to the mesh scaled to unit area: masses sum to 1, eigenvalues and
//! derivatives are free of scale. Fields of order 0 are real and have shape `[V, b]`. Fields of
//! order `m > 0` are complex coefficients `z` and have shape `[V, 2, b]`: per vertex the real
//! parts, then the imaginary parts. If the frame of a vertex rotates by `a`, its coefficients
//! become `exp(-i m a) z`. Transport from `q` to `p` multiplies by `exp(i m g_pq)`.
//!
//! Vertices at exactly equal positions are merged into one node. Results are copied back by transport, so coincident
//! vertices have equal values. Vertices that no triangle reaches have those of the nearest node.

mod derived;
mod eigen;
mod error;
mod evolution;
mod heat;
mod heat_arrays;
mod jets;
mod krylov;
mod laplacian;
pub(crate) mod metric;
mod operators;
mod ordering;
mod scalar;
mod sparse;
mod triangulation;

pub use eigen::Eigenbasis;
pub use error::SurfaceError;
pub use evolution::{Equation, Evolution, State};
pub use heat::HeatSolver;
pub(crate) use heat::PointHeat;
pub use heat_arrays::HeatArrays;
pub use jets::{Derivative, Jets};
pub use laplacian::{ConnectionLaplacian, SurfaceLaplacian};
pub use operators::{BasisSource, OperatorOptions, OperatorStoreError, SurfaceOperators};
