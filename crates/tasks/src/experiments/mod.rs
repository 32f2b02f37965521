//! The experiments of the paper, from data to table and figure.

pub mod bodies;
