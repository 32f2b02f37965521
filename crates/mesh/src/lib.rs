//! Surface meshes and their gauge geometry.
//!
//! [`Mesh::read`] reads a mesh file, [`MeshReport`] reports size, topology and defects,
//! [`repair()`] repairs the mesh, and [`GaugeGraph`] holds the geometry that a gauge equivariant
//! network needs.

mod attribute;
mod classes;
mod cloud;
mod defects;
mod deformation;
mod edges;
mod farthest;
pub mod features;
mod geodesic;
mod geometry;
mod hierarchy;
mod io;
mod mesh;
mod normalisation;
mod orientation;
pub mod patches;
mod points;
mod polygon;
mod random;
mod relief;
pub mod remesh;
mod repair;
mod report;
pub mod shapes;
pub mod surface;
mod symmetric;
mod triangulate;

pub use attribute::{AttributeValues, VertexAttribute};
pub use cloud::connect_points;
pub use deformation::{Deformation, uniform_rotation};
pub use farthest::farthest_points;
pub use geodesic::{GeodesicError, GeodesicSolver};
pub use geometry::{
    Adjacency, Frame, Gauge, GaugeGraph, GeometryError, GeometryOptions, NeighbourWeights, Neighbourhood,
    NormalTrouble, NormalWeighting, StoreError, vertex_areas, vertex_normals,
};
pub use glam::DVec3;
pub use hierarchy::{Clusters, Hierarchy, HierarchyError, HierarchyOptions, Level};
pub use io::{
    FORMATS, FileError, FileFormat, FileProblem, Format, Location, MeshFile, PlyEncoding, SharedFolder, Stores,
    ValueFile, WriteOptions, data_files, has_mesh_name, has_value_name, is_leftover, one_of, parse_mesh,
    parse_mesh_file, parse_values, read_file, read_mesh, read_text, read_values, readable_formats, remove_leftovers,
    stored_in, vector_name, writable_extensions, write_atomically, write_mesh, write_mesh_with_faces,
};
pub use mesh::{Faces, Mesh, MeshError};
pub use normalisation::normalised;
pub use points::{Neighbour, PointIndex};
pub use polygon::vector_area;
pub use relief::Relief;
pub use repair::{Repair, RepairError, RepairStep, Repaired, repair};
pub use report::{MeshReport, TroubleExamples};
pub use triangulate::triangulate;
