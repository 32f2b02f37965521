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

/// Bumps of bodies of great variety: belly, breast or chest muscle, buttocks, shoulder, calf; nose, chin or beard, hair
/// on top, behind and down the neck, and a bent upper back.
const MORE_BUMPS: [Bump; 12] = [
    Bump { centre: DVec3::new(0.0, 1.06, 0.11), radius: 0.13, height: [0.0; 2], spread: 0.11 },
    Bump { centre: DVec3::new(0.075, 1.30, 0.10), radius: 0.055, height: [0.0; 2], spread: 0.05 },
    Bump { centre: DVec3::new(0.075, 0.905, -0.12), radius: 0.075, height: [0.0; 2], spread: 0.05 },
    Bump { centre: DVec3::new(0.19, 1.40, -0.01), radius: 0.07, height: [0.0; 2], spread: 0.025 },
    Bump { centre: DVec3::new(0.15, 0.37, -0.06), radius: 0.07, height: [0.0; 2], spread: 0.025 },
    Bump { centre: DVec3::new(0.0, 1.63, 0.12), radius: 0.02, height: [0.0; 2], spread: 0.02 },
    Bump { centre: DVec3::new(0.0, 1.56, 0.09), radius: 0.04, height: [0.0; 2], spread: 0.03 },
    Bump { centre: DVec3::new(0.0, 1.75, -0.02), radius: 0.09, height: [0.005; 2], spread: 0.06 },
    Bump { centre: DVec3::new(0.0, 1.66, -0.09), radius: 0.09, height: [0.005; 2], spread: 0.06 },
    Bump { centre: DVec3::new(0.07, 1.63, -0.04), radius: 0.07, height: [0.0; 2], spread: 0.04 },
    Bump { centre: DVec3::new(0.0, 1.52, -0.08), radius: 0.08, height: [0.0; 2], spread: 0.06 },
    Bump { centre: DVec3::new(0.0, 1.36, -0.13), radius: 0.14, height: [0.0; 2], spread: 0.05 },
];

/// Clothes: top, sleeves, trousers and shoes, on both sides. Each is worn or not, and may end before its last bone.
const CLOTHES: [&[usize]; 4] = [&[PELVIS, ABDOMEN, CHEST, CLAVICLE], &[UPPER_ARM, FOREARM], &[THIGH, SHIN], &[FOOT]];
/// Largest thickness of each of the clothes at its ends and between its bones, in metres.
const THICKNESS: [f64; 4] = [0.04, 0.035, 0.055, 0.015];
/// Folds of clothes, relative to their thickness.
const FOLDS: WaveBand = WaveBand { count: 4, wavelengths: [0.1, 0.3], amplitude: 0.14 };

/// Distance from the wrist to the knuckles, and from there to the fingertips, in metres.
const KNUCKLES: f64 = 0.075;
const FINGERS: f64 = 0.115;
/// Largest total angle of curled fingers, and largest relative change of the width of a hand at the fingertips.
const CURL: f64 = 1.9;
const SPREAD: f64 = 0.35;

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
    /// Thickness of every bone with clothes, relative to the range of thicknesses without further variety.
    pub(super) thickness: [f64; BONE_COUNT],
    waves: Vec<Wave>,
    /// Centre, radius and height of each bump.
    bumps: Vec<(DVec3, f64, f64)>,
    further: Option<Further>,
}

/// What only people of further variety have.
struct Further {
    /// Thickness of the clothes at the joint and at the tip of every bone.
    clothes: [[f64; 2]; BONE_COUNT],
    folds: Vec<Wave>,
    /// Angle of the curled fingers and change of the width of the hand, left and right.
    hands: [[f64; 2]; 2],
}

/// Proportions of a person, relative to the body at rest.
struct Proportions {
    stature: f64,
    lengths: [f64; BONE_COUNT],
    girths: [f64; BONE_COUNT],
    /// From left to right.
    widths: [f64; BONE_COUNT],
}

impl Proportions {
    /// Multiplies length and girth of a bone on both sides.
    fn scale(&mut self, bone: usize, length: f64, girth: f64) {
        let mirror = mirrored_bone(bone);
        let sides = if mirror == bone { &[bone][..] } else { &[bone, mirror] };
        for &side in sides {
            self.lengths[side] *= length;
            self.girths[side] *= girth;
        }
    }

    /// From children to heavy adults, from short and stout to long and thin limbs.
    fn broaden(&mut self, uniform: &mut Uniform, variety: f64) {
        // Most people are no children.
        let child = 0.5 * variety * uniform.unit().powi(3);
        // A factor up to 1 + `most` or down to its inverse.
        let mut factor = |most: f64| (1.0 + variety * most).powf(uniform.signed());
        let [limbs, trunk, head, legs, arms] = [factor(0.3), factor(0.2), factor(0.12), factor(0.12), factor(0.1)];
        let extremities = factor(0.25);
        let mut scale = |bone, length: f64, girth: f64, spread: [f64; 2]| {
            let [long, thick] = spread.map(&mut factor);
            self.scale(bone, length * long, girth * thick);
        };
        scale(PELVIS, 1.0, trunk, [0.08, 0.10]);
        scale(ABDOMEN, 1.0, trunk, [0.12, 0.12]);
        scale(CHEST, 1.0, trunk, [0.08, 0.12]);
        scale(NECK, 1.0 - 0.4 * child, limbs.sqrt(), [0.25, 0.15]);
        scale(HEAD, head * (1.0 + 0.7 * child), head * (1.0 + 0.7 * child), [0.08, 0.06]);
        scale(CLAVICLE, 1.0 - 0.2 * child, limbs.sqrt(), [0.15, 0.1]);
        scale(UPPER_ARM, arms * (1.0 - 0.3 * child), limbs, [0.08, 0.15]);
        scale(FOREARM, arms * (1.0 - 0.3 * child), limbs, [0.08, 0.15]);
        scale(HAND, extremities, extremities, [0.08, 0.08]);
        scale(THIGH, legs * (1.0 - 0.35 * child), limbs, [0.08, 0.12]);
        scale(SHIN, legs * (1.0 - 0.35 * child), limbs, [0.08, 0.15]);
        scale(FOOT, extremities, extremities, [0.12, 0.1]);
        self.stature *= (1.0 - 0.8 * child) * factor(0.05);
        for bone in [PELVIS, ABDOMEN, CHEST, HEAD] {
            let trunk = 1.0 + 0.06 * variety;
            self.widths[bone] = if bone == HEAD { factor(0.08) } else { trunk * factor(0.14) };
        }
    }
}

impl Further {
    fn draw(uniform: &mut Uniform, variety: f64) -> Self {
        let mut clothes = [[0.0; 2]; BONE_COUNT];
        for (bones, most) in CLOTHES.into_iter().zip(THICKNESS) {
            let worn = if uniform.unit() < 0.6 { variety * most } else { 0.0 };
            let ends_early = bones.len() > 1 && uniform.unit() < 0.3;
            let mut at_joint = worn * uniform.unit();
            for &bone in &bones[..bones.len() - usize::from(ends_early)] {
                let at_tip = worn * uniform.unit();
                for side in [bone, mirrored_bone(bone)] {
                    clothes[side] = [at_joint, at_tip];
                }
                at_joint = at_tip;
            }
        }
        let folds = FOLDS.draw(uniform, 1.0);
        let mut hand = || [variety * CURL * uniform.unit().powi(2), variety * SPREAD * uniform.signed()];
        let left = hand();
        let other = hand();
        let right = if uniform.unit() < 0.5 { left } else { other };
        Self { clothes, folds, hands: [left, right] }
    }

    /// Thickness of the clothes at a point of the body at rest.
    fn thickness(&self, p: DVec3, shares: &[(u8, f64)]) -> f64 {
        let thickness = shares.iter().map(|&(bone, weight)| {
            let [at_joint, at_tip] = self.clothes[bone as usize];
            let bone = &ANATOMY.bones[bone as usize];
            let along = (p - bone.joint).dot(bone.axis()) / bone.joint.distance(bone.tip);
            weight * (at_joint + along.clamp(0.0, 1.0) * (at_tip - at_joint))
        });
        thickness.sum::<f64>() * (1.0 + sum_of_waves(&self.folds, p))
    }
}

/// Curls the fingers of the left hand towards the palm and spreads or narrows them.
fn with_fingers(p: DVec3, [curl, spread]: [f64; 2]) -> DVec3 {
    let hand = &ANATOMY.bones[HAND];
    let along = hand.axis();
    let back = DVec3::Z.cross(along).normalize();
    let thumbwards = along.cross(back);
    let from_wrist = p - hand.joint;
    let reach = (from_wrist.dot(along) - KNUCKLES) / FINGERS;
    if reach <= 0.0 {
        return p;
    }
    // The middle of the fingers bends to an arc of its own length.
    let curl = curl.max(1e-3);
    let radius = FINGERS / curl;
    let (sin, cos) = (curl * reach).sin_cos();
    let height = radius + from_wrist.dot(back);
    let aside = from_wrist.dot(thumbwards) * (1.0 + spread * reach);
    hand.joint + along * (KNUCKLES + height * sin) + back * (height * cos - radius) + thumbwards * aside
}

impl Person {
    /// Draws a person. `variety` ranges from 0 (the body at rest) to 1. `further` is the source of random numbers and
    /// the amount, from 0 to 1, of what goes beyond standing adults without clothes and hair.
    pub(super) fn draw(uniform: &mut Uniform, variety: f64, mut further: Option<(&mut Uniform, f64)>) -> Self {
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
        let mut waves: Vec<Wave> =
            [BROAD_WAVES, DETAIL_WAVES].iter().flat_map(|band| band.draw(uniform, variety)).collect();
        let mut proportions = Proportions { stature, lengths, girths, widths: [1.0; BONE_COUNT] };
        let further = further.as_mut().map(|(uniform, amount)| {
            let amount = variety * *amount;
            proportions.broaden(uniform, amount);
            for bump in &MORE_BUMPS {
                // A few of the bumps are large.
                let height = amount * (bump.height[0] + bump.spread * uniform.signed().max(0.0).powi(2));
                bumps.push((bump.centre, bump.radius, height));
                if bump.centre.x != 0.0 {
                    bumps.push((mirrored(bump.centre), bump.radius, height));
                }
            }
            // From smooth surfaces to rough ones.
            let (broad, detail) = waves.split_at_mut(BROAD_WAVES.count);
            for waves in [broad, detail] {
                let factor = (1.0 + amount).powf(uniform.signed());
                waves.iter_mut().for_each(|wave| wave.amplitude *= factor);
            }
            Further::draw(uniform, amount)
        });
        let mut thickness = [1.0; BONE_COUNT];
        if let Some(further) = &further {
            for (bone, thickness) in thickness.iter_mut().enumerate() {
                let [at_joint, at_tip] = further.clothes[bone];
                *thickness =
                    proportions.girths[bone] / girths[bone] + at_joint.midpoint(at_tip) / ANATOMY.bones[bone].radius;
            }
        }
        Self { bones: proportions.bones(), thickness, waves, bumps, further }
    }

    /// A point of the body at rest, with this person's skin or clothes and hands: the skin is moved along `normal`.
    /// The half thickness of the limb is `radius`, and `shares` are the weights of the bones.
    pub(super) fn surface(&self, p: DVec3, normal: DVec3, radius: f64, shares: &[(u8, f64)]) -> DVec3 {
        let relief = self.relief(p, radius);
        let Some(further) = &self.further else { return p + relief * normal };
        let p_on_clothes = p + (relief + further.thickness(p, shares)) * normal;
        match shares[0].0 as usize {
            HAND => with_fingers(p_on_clothes, further.hands[0]),
            bone if bone == mirrored_bone(HAND) => mirrored(with_fingers(mirrored(p_on_clothes), further.hands[1])),
            _ => p_on_clothes,
        }
    }

    /// Height of this person's skin above that of the body at rest, at the point `p` of the latter,
    /// where the half thickness of the limb is `radius`.
    fn relief(&self, p: DVec3, radius: f64) -> f64 {
        let waves = sum_of_waves(&self.waves, p);
        let bumps = self.bumps.iter();
        let bumps: f64 =
            bumps.map(|&(centre, reach, height)| height * (-p.distance_squared(centre) / (reach * reach)).exp()).sum();
        radius * waves + bumps
    }
}

impl WaveBand {
    fn draw(&self, uniform: &mut Uniform, variety: f64) -> Vec<Wave> {
        let [short, long] = self.wavelengths;
        let wave = |_| {
            let wavelength = short * (long / short).powf(0.5 + 0.5 * uniform.signed());
            Wave {
                vector: TAU / wavelength * direction(uniform),
                phase: TAU * uniform.signed(),
                amplitude: variety * self.amplitude,
            }
        };
        (0..self.count).map(wave).collect()
    }
}

fn sum_of_waves(waves: &[Wave], p: DVec3) -> f64 {
    waves.iter().map(|wave| wave.amplitude * (wave.vector.dot(p) + wave.phase).sin()).sum()
}

/// A direction drawn uniformly from the sphere.
fn direction(uniform: &mut Uniform) -> DVec3 {
    let z = uniform.signed();
    let (sin, cos) = (TAU * uniform.signed()).sin_cos();
    let level = (1.0 - z * z).max(0.0).sqrt();
    DVec3::new(level * cos, level * sin, z)
}

impl Proportions {
    /// Scales every bone by its length along its axis and by its girth across, joint by joint.
    fn bones(&self) -> [BoneShape; BONE_COUNT] {
        let mut shapes = [BoneShape { from: DVec3::ZERO, joint: DVec3::ZERO, stretch: DMat3::IDENTITY }; BONE_COUNT];
        for (index, bone) in ANATOMY.bones.iter().enumerate() {
            let axis = bone.axis();
            let along = DMat3::from_cols(axis * axis.x, axis * axis.y, axis * axis.z);
            let across = DMat3::IDENTITY - along;
            let stretch = (across * self.girths[index] + along * self.lengths[index]) * self.stature;
            shapes[index] = BoneShape {
                from: bone.joint,
                joint: bone.parent.map_or(self.stature * bone.joint, |parent| shapes[parent].place(bone.joint)),
                stretch: DMat3::from_diagonal(DVec3::new(self.widths[index], 1.0, 1.0)) * stretch,
            };
        }
        shapes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_variety_everyone_is_the_body_at_rest() {
        let person = Person::draw(&mut Uniform::new(3), 0.0, None);
        let p = DVec3::new(0.1, 1.1, 0.1);
        assert_eq!(person.relief(p, 0.1), 0.0);
        for (shape, bone) in person.bones.iter().zip(&ANATOMY.bones) {
            assert!(shape.place(p).distance(p) < 1e-15);
            assert!(shape.joint.distance(bone.joint) < 1e-15);
        }
    }

    #[test]
    fn bones_stay_joined_and_places_can_be_taken_back() {
        let person = Person::draw(&mut Uniform::new(5), 1.0, None);
        let p = DVec3::new(0.1, 1.1, 0.1);
        for (shape, bone) in person.bones.iter().zip(&ANATOMY.bones) {
            assert!(shape.unplace(shape.place(p)).distance(p) < 1e-12);
            let Some(parent) = bone.parent else { continue };
            let on_parent = person.bones[parent].place(bone.joint);
            assert!(shape.joint.distance(on_parent) < 1e-12);
        }
    }
}
