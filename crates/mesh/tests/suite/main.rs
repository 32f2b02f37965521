//! Meshes through the public interface. One program, because it is faster to build.

mod bodies;
mod features;
mod files;
mod files_lenient;
mod geodesic;
mod geometry;
mod golden_geometry;
mod hierarchy;
mod remesh;
mod report;
mod shapes;
mod shot;
mod surface;
mod verdicts;
