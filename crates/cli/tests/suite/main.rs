//! The command as a user runs it. One program, because each costs a link.

mod bench;
#[cfg(unix)]
mod browser;
mod cache;
mod cut_off;
mod data;
mod elements;
mod experiment;
mod experiment_mnist;
mod experiment_pde;
mod experiment_sweeps;
mod folder;
mod matching;
mod mesh;
mod models;
mod train;
#[cfg(unix)]
mod view;
#[cfg(unix)]
mod view_run;
