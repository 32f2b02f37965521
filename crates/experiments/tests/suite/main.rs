//! Experiments through the public API. One program, so that generic code is compiled once.

mod equivariance;
mod mnist;
mod nonlinearity_cost;
