//! Data, models, training and experiments through the public interface. One program, because generic code is
//! compiled anew in each.

mod data;
mod equivariance;
mod mnist;
mod models;
mod nonlinearity_cost;
mod training;
