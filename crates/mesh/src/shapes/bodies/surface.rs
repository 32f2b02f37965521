//! The skin of the body at rest: the smooth union of all solids, as an implicit function that is
//! negative inside.

use glam::DVec3;

use super::skeleton::{ANATOMY, Anatomy, Solid};

/// Step of the finite differences of the gradient, in metres.
const STEP: f64 = 1e-4;
/// Distance from the solids of a bone over which its edge length applies, in metres.
const SIZE_REACH: f64 = 0.025;
/// Maximum edge length relative to the half thickness of a limb: about five edges go around it.
const LONGEST_EDGE: f64 = 1.35;

/// A point within `NEAR` metres of the skin is not affected by solids farther away than `FAR`,
/// which is more than the reach of two consecutive blends.
const NEAR: f64 = 0.03;
const FAR: f64 = 0.22;

/// The smooth union of the solids.
pub(super) struct Skin {
    anatomy: &'static Anatomy,
    /// Bounding ball of each solid.
    balls: Vec<(DVec3, f64)>,
}

impl Skin {
    pub(super) fn new() -> Self {
        Self { anatomy: &ANATOMY, balls: ANATOMY.solids.iter().map(Solid::ball).collect() }
    }

    /// Bounding box of the body with a margin.
    pub(super) fn bounds(&self) -> [DVec3; 2] {
        let ends = self.anatomy.bones.iter().flat_map(|bone| [bone.joint, bone.tip]);
        let (low, high) = ends.fold((DVec3::INFINITY, DVec3::NEG_INFINITY), |(low, high), p| (low.min(p), high.max(p)));
        [low - 0.14, high + 0.14]
    }

    /// Approximate signed distance to the skin, negative inside.
    pub(super) fn distance(&self, p: DVec3) -> f64 {
        let nearby = union(self.nearby_solids(p), p);
        if nearby < NEAR { nearby } else { union(self.anatomy.solids.iter(), p) }
    }

    /// Solids that may be closer to `p` than `FAR`.
    fn nearby_solids(&self, p: DVec3) -> impl Iterator<Item = &Solid> {
        let pairs = self.anatomy.solids.iter().zip(&self.balls);
        pairs
            .filter(move |(_, (centre, radius))| p.distance_squared(*centre) < (radius + FAR) * (radius + FAR))
            .map(|(solid, _)| solid)
    }

    /// Gradient of the distance, by finite differences towards the corners of a tetrahedron.
    fn gradient(&self, p: DVec3) -> DVec3 {
        const CORNERS: [DVec3; 4] = [
            DVec3::new(1.0, 1.0, 1.0),
            DVec3::new(1.0, -1.0, -1.0),
            DVec3::new(-1.0, 1.0, -1.0),
            DVec3::new(-1.0, -1.0, 1.0),
        ];
        let differences = CORNERS.map(|corner| corner * self.distance(p + STEP * corner));
        differences.iter().sum::<DVec3>() / (4.0 * STEP)
    }

    /// The outward normal at a point of the skin.
    pub(super) fn normal(&self, p: DVec3) -> DVec3 {
        self.gradient(p).normalize_or(DVec3::Y)
    }

    /// Projects `p` onto the skin to first order: one Newton step along the gradient, damped where
    /// the gradient is small (midway between two limbs).
    pub(super) fn project(&self, p: DVec3) -> DVec3 {
        let gradient = self.gradient(p);
        p - gradient * (self.distance(p) / gradient.length_squared().max(0.25))
    }

    /// The bone with the nearest solids.
    pub(super) fn nearest_bone(&self, p: DVec3) -> usize {
        let solids = self.anatomy.solids.iter();
        solids
            .map(|solid| (solid.distance(p), solid.bone))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(0, |(_, bone)| bone)
    }

    /// Target edge length near `p`, where `base` is the edge length on the trunk. It is smaller at
    /// the head, hands and feet, and limited by the thickness of limbs.
    pub(super) fn edge_length(&self, p: DVec3, base: f64) -> f64 {
        let (mut total, mut weights) = (0.0, 0.0);
        for solid in self.nearby_solids(p) {
            let bone = &self.anatomy.bones[solid.bone];
            let weight = (-solid.distance(p).max(0.0) / SIZE_REACH).exp();
            total += weight * (base * bone.fineness).min(LONGEST_EDGE * bone.radius);
            weights += weight;
        }
        if weights > 0.0 { total / weights } else { base }
    }
}

/// Smooth minimum of the distances to the given solids.
fn union<'a>(solids: impl Iterator<Item = &'a Solid>, p: DVec3) -> f64 {
    solids.fold(f64::INFINITY, |union, solid| smooth_minimum(union, solid.distance(p), solid.blend))
}

/// Smooth minimum of two numbers, twice differentiable. It is up to `blend / 6` below the minimum
/// if the numbers differ by less than `blend`.
fn smooth_minimum(a: f64, b: f64, blend: f64) -> f64 {
    let nearness = (blend - (a - b).abs()).max(0.0);
    if nearness == 0.0 {
        return a.min(b);
    }
    a.min(b) - nearness.powi(3) / (6.0 * blend * blend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::bodies::skeleton::{HEAD, PELVIS, mirrored};

    #[test]
    fn projection_lands_on_the_skin_and_the_skin_is_symmetric() {
        let skin = Skin::new();
        for p in [
            DVec3::new(0.10, 1.3, 0.13),
            DVec3::new(0.48, 1.10, 0.0),
            DVec3::new(0.12, 0.55, 0.06),
            DVec3::new(0.03, 1.72, 0.08),
        ] {
            let on_skin = skin.project(skin.project(skin.project(p)));
            assert!(skin.distance(on_skin).abs() < 1e-4);
            assert!((skin.distance(p) - skin.distance(mirrored(p))).abs() < 1e-12);
            let outward = on_skin + 0.005 * skin.normal(on_skin);
            assert!((skin.distance(outward) - 0.005).abs() < 1e-3);
        }
    }

    #[test]
    fn leaving_out_far_solids_changes_nothing() {
        let skin = Skin::new();
        for i in 0..20_000 {
            let [x, y, z] = [0.754_877, 0.569_840, 0.438_579].map(|step| (step * f64::from(i)) % 1.0);
            let p = DVec3::new(0.9 * x, 1.9 * y, 0.4 * z - 0.2);
            let full = union(ANATOMY.solids.iter(), p);
            assert!((skin.distance(p) - full).abs() < 1e-9, "{p}");
        }
    }

    #[test]
    fn hands_are_finer_and_thin_limbs_keep_edges_around_them() {
        let skin = Skin::new();
        let [trunk, hand] = [DVec3::new(0.0, 1.1, 0.1), DVec3::new(0.7, 0.96, 0.0)];
        assert!(skin.edge_length(hand, 0.01) < 0.75 * skin.edge_length(trunk, 0.01));
        assert!(skin.edge_length(hand, 1.0) < 0.06);
        assert_eq!(skin.nearest_bone(DVec3::new(0.0, 1.7, 0.05)), HEAD);
        assert_eq!(skin.nearest_bone(DVec3::new(0.0, 0.9, 0.1)), PELVIS);
    }

    #[test]
    fn the_smooth_minimum_is_a_minimum_away_from_ties() {
        assert_eq!(smooth_minimum(1.0, 3.0, 1.0), 1.0);
        assert_eq!(smooth_minimum(2.0, 2.0, 0.0), 2.0);
        assert!((smooth_minimum(2.0, 2.0, 0.6) - 1.9).abs() < 1e-12);
    }
}
