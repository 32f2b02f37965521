//! Surface meshes in, gauge geometry out.

mod geometry;
mod hierarchy;
mod mesh;
mod points;
mod polygon;
pub mod render;
pub mod shapes;

pub use geometry::{
    Adjacency, Frame, Gauge, GaugeGraph, GeometryError, GeometryOptions, Neighbourhood,
    NormalTrouble, NormalWeighting, StoreError, vertex_normals,
};
pub use glam::DVec3;
pub use hierarchy::{
    Clusters, Hierarchy, HierarchyError, HierarchyOptions, Level, farthest_points,
};
pub use mesh::{Faces, Mesh, MeshError};
pub use points::{Found, PointIndex};
