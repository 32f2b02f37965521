//! Variation between people: lengths and girths of bones, and the relief of the skin. All of it is
//! applied to the body at rest.

use std::f64::consts::TAU;

use glam::{DMat3, DVec3};

use super::skeleton::{
    ABDOMEN, ANATOMY, BONE_COUNT, CHEST, CLAVICLE, FOOT, FOREARM, HAND, HEAD, NECK, PELVIS, SHIN, THIGH, UPPER_ARM,
    mirrored, mirrored_bone,
};
use crate::random::Uniform;

/// A band of waves of the relief: their number, their wavelengths in metres, and the amplitude of
/// each relative to the half thickness of the limb.
struct WaveBand {
    count: usize,
    wavelengths: [f64; 2],
    amplitude: f64,
}

/// Broad variation of the soft tissue.
const BROAD_WAVES: WaveBand = WaveBand { count: 10, wavelengths: [0.3, 0.8], amplitude: 0.028 };
/// Small detail, as in scanned bodies.
const DETAIL_WAVES: WaveBand = WaveBand { count: 20, wavelengths: [0.05, 0.13], amplitude: 0.0045 };

/// A bump of the skin with a height that varies between people; mirrored unless it is in the
/// middle.
struct Bump {
    centre: DVec3,
    radius: f64,
    /// Height in metres on a lean and on a stout person.
    height: [f64; 2],
    /// Variation of the height in either direction, in metres.
    spread: f64,
}

const BUMPS: [Bump; 4] = [
    Bump { centre: DVec3::new(0.0, 1.075, 0.10), radius: 0.12, height: [-0.008, 0.05], spread: 0.01 },
    Bump { centre: DVec3::new(0.07, 1.305, 0.10), radius: 0.05, height: [0.004, 0.016], spread: 0.014 },
    Bump { centre: DVec3::new(0.075, 0.905, -0.12), radius: 0.07, height: [-0.002, 0.012], spread: 0.01 },
    Bump { centre: DVec3::new(0.15, 0.99, 0.0), radius: 0.07, height: [0.0, 0.02], spread: 0.006 },
];

/// Deformation of the body around a bone.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoneShape {
    /// Joint of the body at rest.
    from: DVec3,
    /// The same joint of this person.
    pub(super) joint: DVec3,
    stretch: DMat3,
}

impl BoneShape {
    /// Maps a point of the body at rest to this person.
    pub(super) fn place(&self, p: DVec3) -> DVec3 {
        self.joint + self.stretch * (p - self.from)
    }

    /// Maps a point of this person to the body at rest.
    pub(super) fn unplace(&self, p: DVec3) -> DVec3 {
        self.from + self.stretch.inverse() * (p - self.joint)
    }
}

struct Wave {
    vector: DVec3,
    phase: f64,
    amplitude: f64,
}

/// A random person.
pub(super) struct Person {
    pub(super) bones: [BoneShape; BONE_COUNT],
    waves: Vec<Wave>,
    /// Centre, radius and height of each bump.
    bumps: Vec<(DVec3, f64, f64)>,
}

impl Person {
    /// Draws a person. `variety` ranges from 0 (the body at rest) to 1.
    pub(super) fn draw(uniform: &mut Uniform, variety: f64) -> Self {
        // The mean of two uniform numbers makes extremes rarer.
        let mut draw = |spread: f64| variety * spread * 0.5 * (uniform.signed() + uniform.signed());
        let stature = 1.0 + draw(0.13);
        let stoutness = draw(1.0);
        let mut lengths = [1.0; BONE_COUNT];
        let mut girths = [1.0; BONE_COUNT];
        let mut vary = |bones: &[usize], length: f64, girth: f64, stout: f64| {
            let (length, girth) = (1.0 + draw(length), 1.0 + draw(girth) + stout * stoutness);
            for &bone in bones {
                for side in [bone, mirrored_bone(bone)] {
                    lengths[side] = length;
                    girths[side] = girth;
                }
            }
        };
        vary(&[PELVIS], 0.05, 0.08, 0.16);
        vary(&[ABDOMEN], 0.08, 0.08, 0.24);
        vary(&[CHEST], 0.05, 0.08, 0.18);
        vary(&[NECK], 0.12, 0.08, 0.12);
        vary(&[HEAD], 0.06, 0.05, 0.03);
        vary(&[CLAVICLE], 0.14, 0.06, 0.10);
        vary(&[UPPER_ARM], 0.09, 0.10, 0.20);
        vary(&[FOREARM], 0.09, 0.09, 0.12);
        vary(&[HAND], 0.08, 0.07, 0.05);
        vary(&[THIGH], 0.09, 0.09, 0.20);
        vary(&[SHIN], 0.09, 0.09, 0.12);
        vary(&[FOOT], 0.08, 0.06, 0.04);

        let mut bumps = Vec::new();
        for bump in &BUMPS {
            let [lean, stout] = bump.height;
            let height = variety * lean.midpoint(stout) + 0.5 * (stout - lean) * stoutness + draw(bump.spread);
            bumps.push((bump.centre, bump.radius, height));
            if bump.centre.x != 0.0 {
                bumps.push((mirrored(bump.centre), bump.radius, height));
            }
        }
        let mut waves = Vec::new();
        for band in [BROAD_WAVES, DETAIL_WAVES] {
            let [short, long] = band.wavelengths;
            for _ in 0..band.count {
                let wavelength = short * (long / short).powf(0.5 + 0.5 * uniform.signed());
                waves.push(Wave {
                    vector: TAU / wavelength * direction(uniform),
                    phase: TAU * uniform.signed(),
                    amplitude: variety * band.amplitude,
                });
            }
        }
        Self { bones: shaped_bones(stature, &lengths, &girths), waves, bumps }
    }

    /// Height of this person's skin above that of the body at rest, at the point `p` of the latter,
    /// where the half thickness of the limb is `radius`.
    pub(super) fn relief(&self, p: DVec3, radius: f64) -> f64 {
        let waves = self.waves.iter();
        let waves: f64 = waves.map(|wave| wave.amplitude * (wave.vector.dot(p) + wave.phase).sin()).sum();
        let bumps = self.bumps.iter();
        let bumps: f64 =
            bumps.map(|&(centre, reach, height)| height * (-p.distance_squared(centre) / (reach * reach)).exp()).sum();
        radius * waves + bumps
    }
}

/// A direction drawn uniformly from the sphere.
fn direction(uniform: &mut Uniform) -> DVec3 {
    let z = uniform.signed();
    let (sin, cos) = (TAU * uniform.signed()).sin_cos();
    let level = (1.0 - z * z).max(0.0).sqrt();
    DVec3::new(level * cos, level * sin, z)
}

/// Scales every bone by its length along its axis and by its girth across, joint by joint.
fn shaped_bones(stature: f64, lengths: &[f64; BONE_COUNT], girths: &[f64; BONE_COUNT]) -> [BoneShape; BONE_COUNT] {
    let mut shapes = [BoneShape { from: DVec3::ZERO, joint: DVec3::ZERO, stretch: DMat3::IDENTITY }; BONE_COUNT];
    for (index, bone) in ANATOMY.bones.iter().enumerate() {
        let axis = bone.axis();
        let along = DMat3::from_cols(axis * axis.x, axis * axis.y, axis * axis.z);
        let across = DMat3::IDENTITY - along;
        shapes[index] = BoneShape {
            from: bone.joint,
            joint: bone.parent.map_or(stature * bone.joint, |parent| shapes[parent].place(bone.joint)),
            stretch: (across * girths[index] + along * lengths[index]) * stature,
        };
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_variety_everyone_is_the_body_at_rest() {
        let person = Person::draw(&mut Uniform::new(3), 0.0);
        let p = DVec3::new(0.1, 1.1, 0.1);
        assert_eq!(person.relief(p, 0.1), 0.0);
        for (shape, bone) in person.bones.iter().zip(&ANATOMY.bones) {
            assert!(shape.place(p).distance(p) < 1e-15);
            assert!(shape.joint.distance(bone.joint) < 1e-15);
        }
    }

    #[test]
    fn bones_stay_joined_and_places_can_be_taken_back() {
        let person = Person::draw(&mut Uniform::new(5), 1.0);
        let p = DVec3::new(0.1, 1.1, 0.1);
        for (shape, bone) in person.bones.iter().zip(&ANATOMY.bones) {
            assert!(shape.unplace(shape.place(p)).distance(p) < 1e-12);
            let Some(parent) = bone.parent else { continue };
            let on_parent = person.bones[parent].place(bone.joint);
            assert!(shape.joint.distance(on_parent) < 1e-12);
        }
    }
}
