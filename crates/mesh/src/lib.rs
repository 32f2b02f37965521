//! Surface meshes in, gauge geometry out.

mod attribute;
mod io;
mod mesh;
mod points;
mod polygon;

pub use attribute::{AttributeValues, VertexAttribute};
pub use glam::DVec3;
pub use io::{
    FileError, FileFormat, FileProblem, Location, MeshFile, PlyEncoding, WriteOptions, parse_mesh,
    read_mesh, write_atomically, write_mesh,
};
pub use mesh::{Faces, Mesh, MeshError};
pub use points::{Found, PointIndex};
