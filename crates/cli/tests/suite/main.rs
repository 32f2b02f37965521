//! The command as a user runs it. One program, because each costs a link.

mod bench;
mod bodies_experiment;
#[cfg(unix)]
mod browser;
mod cut_off;
mod data;
mod elements;
mod experiment;
mod experiment_mnist;
mod mesh;
mod models;
mod pde;
mod train;
#[cfg(unix)]
mod view;
#[cfg(unix)]
mod view_run;
