//! The native part of the Python package `gemcnn`.
//!
//! Python classes in `python/gemcnn` wrap what is here, and hold the documentation. Functions check their arguments,
//! release the GIL while they work, and run on a pool of threads that belongs to the process.

mod arrays;
mod batch_norm;
mod classifier;
mod convolution;
mod cuda;
mod data;
mod edges;
mod errors;
mod exchange;
mod geometry;
mod graph;
mod hierarchy;
mod matching;
mod mesh;
mod operators;
mod pass;
mod runs;
mod settings;
mod shapes;
mod surface;
mod tensor;
mod threads;
mod view;

use pyo3::prelude::*;

// All state is immutable, atomic, local to a thread, or behind a lock, so threads need no GIL.
#[pymodule(name = "_gemcnn", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    threads::add_to(module)?;
    mesh::add_to(module)?;
    geometry::add_to(module)?;
    hierarchy::add_to(module)?;
    surface::add_to(module)?;
    shapes::add_to(module)?;
    convolution::add_to(module)?;
    edges::add_to(module)?;
    operators::add_to(module)?;
    batch_norm::add_to(module)?;
    classifier::add_to(module)?;
    view::add_to(module)?;
    data::add_to(module)?;
    runs::add_to(module)?;
    matching::add_to(module)
}
