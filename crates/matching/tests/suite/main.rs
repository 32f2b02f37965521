//! Tests of matching through the public interface.

mod bodies;
mod refine;
mod shape;
