//! Experiments through the public interface. One program, because generic code is compiled anew in each.

mod equivariance;
mod mnist;
mod nonlinearity_cost;
