//! Data, models and training through the public API. One program, so that generic code is compiled once.

mod baselines;
mod damage;
mod data;
mod elements;
mod extension;
mod groups;
mod layouts;
mod models;
mod operators;
mod selection;
mod spheres;
mod training;
