//! Tests of matching through the public interface.

mod bodies;
mod correspondence;
mod refine;
mod shape;
