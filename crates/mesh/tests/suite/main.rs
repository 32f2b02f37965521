//! Meshes through the public interface. One program, because it is faster to build.

mod bodies;
mod common;
mod features;
mod files;
mod files_formats;
mod files_lenient;
mod files_written;
mod geodesic;
mod geometry;
mod golden_geometry;
mod hierarchy;
mod patches;
mod remesh;
mod report;
mod samples;
mod shapes;
mod shot;
mod surface;
mod verdicts;
mod weights;
