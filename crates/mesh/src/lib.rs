//! Surface meshes in, gauge geometry out.

mod mesh;
mod points;
mod polygon;
pub mod render;
pub mod shapes;

pub use glam::DVec3;
pub use mesh::{Faces, Mesh, MeshError};
pub use points::{Found, PointIndex};
