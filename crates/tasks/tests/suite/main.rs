//! Data, models and training through the public interface. One program, because generic code is
//! compiled anew in each.

mod data;
mod extension;
mod models;
mod training;
