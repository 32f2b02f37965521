//! Data sets: folders of meshes with targets, FAUST, and synthetic bodies.
//!
//! A [`DataConfig`] names a source of meshes, a [`Dataset`] is what was found there, and a
//! [`PreparedSplit`] gives the samples of one of its splits, with geometry and features from a
//! [`Cache`] on disk.

mod augmentation;
mod cache;
mod cache_room;
mod check;
mod classes;
mod comparison;
mod config;
mod content;
mod dataset;
mod description;
mod entry;
mod extras;
mod faust;
mod fields;
#[cfg(test)]
pub(crate) mod fuzz;
mod groups;
mod infer;
mod infer_split;
mod mesh_classes;
mod meshes;
mod motions;
mod npy;
mod open;
mod patches;
mod pattern;
mod preparation;
mod prepared;
mod problems;
mod resampling;
mod source;
mod split;
mod splits;
mod table;
mod target;
mod template;
pub mod vectors;

pub use crate::error::DataError;
pub use augmentation::Augmentation;
pub use cache::{CACHE_VARIABLE, Cache, CacheKey, CacheUsage};
pub use cache_room::{CACHE_LIMIT_VARIABLE, CacheLimit};
pub use check::{Check, ClassCount, SplitCount, ValueRange, check};
pub use classes::Classes;
pub(crate) use classes::listed;
pub use config::{BodiesConfig, DataConfig};
pub use dataset::Dataset;
pub use description::{
    Column, DESCRIPTION_FILE, Description, OneOrMany, PerSplit, SplitDescription, TargetDescription,
};
pub use entry::{EntryReader, EntryWriter};
pub use extras::{Eigenvectors, ExtraConfig, ExtraSource, ImplicitDiffusion};
pub use fields::SurfaceFile;
pub(crate) use fields::connected;
pub use groups::{GroupSource, GroupTable, SplitConfig, ValidationUnit};
pub use meshes::{is_mesh, mesh_files};
pub use motions::{Mirrors, Rotations};
pub use npy::{npy_f32, npy_i64};
pub use patches::{Patches, SparseMaps};
pub use pattern::Pattern;
pub use preparation::{Ball, GaugeChoice, GeometrySettings, HierarchySettings, Preparation};
pub use prepared::PreparedSplit;
pub(crate) use prepared::{Scoring, default_memory, size_in_memory};
pub use split::Split;
pub use table::csv_cell;
pub(crate) use template::TemplateDistances;
