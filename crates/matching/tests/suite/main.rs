//! Tests of matching through the public interface.

mod bodies;
mod correspondence;
mod learn;
mod refine;
mod shape;
