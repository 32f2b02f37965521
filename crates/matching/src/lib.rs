//! Correspondences between two surfaces, from descriptors of their vertices.
//!
//! A [`Shape`] is a mesh that is prepared for matching: cleaned, scaled to unit area, with eigenvectors of its Laplacian
//! and a row of descriptors for each vertex. A [`Matcher`] takes them from a trained network.
//!
//! [`refine`] turns them into maps in both directions by bijective spectral refinement: for `k = 10, 20, ..., 150`
//! eigenvectors `Phi` with masses `M`,
//!
//! ```text
//! C_AB = Phi_A^T M_A Phi_B[T_AB],   C_BA = Phi_B^T M_B Phi_A[T_BA],   C = (C_AB + C_BA^T) / 2,
//! P = Phi_A C,   Q = Phi_B C^T,   S = 2 P Phi_B^T + w F_A F_B^T,   w = alpha sqrt(2 k),
//! T_AB(a) = argmax_b S_ab - (|Phi_B(b)|^2 + |Q(b)|^2) / 2,
//! T_BA(b) = argmax_a S_ab - (|P(a)|^2 + |Phi_A(a)|^2) / 2.
//! ```
//!
//! [`Match`] gives the maps for the vertices of the given meshes, as points of faces, with [`Evidence`] for and against them.
//!
//! [`learn`] trains a network on the maps between the meshes of a collection without known correspondences.
//!
//! `F` are the descriptors, rows of unit length. Without them `T_AB(a)` is the nearest row of `[Phi_B, Q]` to that of
//! `[P, Phi_A]`. One product gives both maps ([`gemcnn_kernels::best_pairs`]).

mod collection;
mod correspondence;
mod describer;
mod embedding;
mod error;
mod evidence;
mod learn;
mod matcher;
mod refine;
mod shape;
mod spectrum;
mod transfer;

pub use correspondence::Match;
pub use describer::Describer;
pub use error::MatchError;
pub use evidence::{Doubt, Evidence, Verdict};
pub use learn::{FOUND, LearnError, LearnOptions, Place, Start, known_correspondences, learn};
pub use matcher::Matcher;
pub use refine::{FunctionalMap, RefineOptions, Refined, refine};
pub use shape::{Note, Shape, ShapeOptions};
