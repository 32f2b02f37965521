//! The mesh of the body at rest: even triangles of sizes that suit the anatomy, and an exact number
//! of vertices.
//!
//! The number of vertices follows from the edge length, which is corrected once. The remaining
//! difference is removed at the shortest or longest edges.

use glam::DVec3;
use rayon::prelude::*;

use super::surface::Skin;
use crate::remesh::cut::Cut;
use crate::remesh::remesher::{Guide, Remesher, area};
use crate::remesh::triangulation::Triangulation;

/// Number of steps of the search for the edge length.
const LENGTH_STEPS: usize = 5;
/// Maximum factor between the edge lengths of consecutive rounds.
const STAGE: f64 = 1.4;
/// Number of rounds before and after the correction of the edge length.
const FIRST_ROUNDS: usize = 4;
const LATER_ROUNDS: usize = 3;
/// Number of final rounds that keep the number of vertices.
const POLISH_ROUNDS: usize = 6;

impl Guide for Skin {
    type Place = ();
    const CREASE: f64 = f64::NEG_INFINITY;
    const CHECKS_RELAXATION: bool = false;

    fn normal(&self, at: DVec3, (): ()) -> DVec3 {
        Skin::normal(self, at)
    }

    fn normal_near(&self, [a, b, c]: [DVec3; 3], _: [(); 3]) -> DVec3 {
        Skin::normal(self, (a + b + c) / 3.0)
    }

    fn project(&self, point: DVec3, (): ()) -> (DVec3, ()) {
        (Skin::project(self, point), ())
    }

    fn split_point(&self, middle: DVec3, _: [(); 2]) -> (DVec3, ()) {
        (middle, ())
    }

    fn edge_length(&self, point: DVec3, base: f64) -> f64 {
        Skin::edge_length(self, point, base)
    }
}

/// Remeshes a closed surface near the skin, with edges of about `first_length`, to `vertices`
/// vertices on the skin, or as close to that number as its topology allows.
pub(super) fn remesh(surface: Triangulation, skin: &Skin, first_length: f64, vertices: usize) -> Triangulation {
    let sites = area_sites(&surface);
    let base = base_length(&sites, skin, vertices as f64);
    let cut = Cut::of_closed(surface);
    let mut remesher = Remesher::new(cut, skin, first_length, |_| ());
    // Approach the target length gradually, so that the triangles stay well shaped.
    while remesher.base != base {
        remesher.base = base.clamp(remesher.base / STAGE, remesher.base * STAGE);
        remesher.measure();
        remesher.round();
    }
    for _ in 0..FIRST_ROUNDS {
        remesher.round();
    }
    let reached = remesher.surface.vertex_count() as f64;
    let corrected = vertices as f64 * vertices as f64 / reached;
    remesher.base = base_length(&sites, skin, corrected);
    remesher.measure();
    for _ in 0..LATER_ROUNDS {
        remesher.round();
    }
    remesher.reach_count(vertices);
    for _ in 0..POLISH_ROUNDS {
        remesher.flip_for_angles();
        remesher.relax();
    }
    remesher.flip_for_angles();
    remesher.surface.compacted()
}

/// Centroid and area of every triangle.
fn area_sites(surface: &Triangulation) -> Vec<(DVec3, f64)> {
    surface
        .triangles()
        .map(|triangle| {
            let corners = triangle.map(|v| surface.positions[v as usize]);
            (corners.iter().sum::<DVec3>() / 3.0, area(corners))
        })
        .collect()
}

/// The base edge length for which even triangles of the target sizes have `vertices` vertices. Each
/// vertex corresponds to two triangles of area `sqrt(3) / 4 * length^2`.
fn base_length(sites: &[(DVec3, f64)], skin: &Skin, vertices: f64) -> f64 {
    let count = |base: f64| {
        let density = 2.0 / 3.0_f64.sqrt();
        let shares = sites.par_iter().map(|&(middle, area)| density * area / skin.edge_length(middle, base).powi(2));
        shares.collect::<Vec<f64>>().iter().sum::<f64>()
    };
    // The count is inversely proportional to the squared length, except for thin limbs and large
    // lengths.
    (0..LENGTH_STEPS).fold(0.02, |base, _| base * (count(base) / vertices).sqrt().min(4.0))
}
