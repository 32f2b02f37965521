//! Poses: joint angles within anatomical limits, the resulting motion of every bone, and a
//! collision test of the limbs.

use glam::{DQuat, DVec3};

use super::person::Person;
use super::skeleton::{
    ABDOMEN, ANATOMY, BONE_COUNT, CHEST, CLAVICLE, FOOT, FOREARM, HAND, HEAD, NECK, PELVIS, SHIN, THIGH, UPPER_ARM,
    mirrored_bone,
};
use crate::random::Uniform;

/// Factor that narrows the range each time a pose is resampled because of a collision.
const EASING: f64 = 0.985;
/// Maximum number of draws; the range is then almost zero and the body is at rest.
const MAX_DRAWS: usize = 400;
/// Bones this close in the skeleton touch by construction and are not tested for collisions.
const NEIGHBOURHOOD: usize = 2;
/// Fractions of a bone's length to test, and fraction of its thickness that must stay free.
const PROBES: [f64; 4] = [0.3, 0.55, 0.8, 1.0];
const CLEARANCE: f64 = 0.8;

/// A rotation about one axis of a joint. Angles are in degrees from the body at rest.
struct Turn {
    axis: Axis,
    low: f64,
    /// Natural angle of the joint; half of all draws lie on each side.
    natural: f64,
    high: f64,
}

/// Rotation axes for the left side; rotations on the right are mirrored.
#[derive(Clone, Copy)]
enum Axis {
    /// From right to left through the body: positive angles bend an upward bone forwards.
    Across,
    /// Upwards: positive angles rotate the body to its left, and a left arm backwards.
    Up,
    /// Forwards: positive angles lift a left arm, and a left leg sideways.
    Front,
    /// Along the bone: a twist.
    Along,
    /// Hinge of the elbow: positive angles move the forearm forwards.
    Elbow,
}

const fn turn(axis: Axis, low: f64, natural: f64, high: f64) -> Turn {
    Turn { axis, low, natural, high }
}

/// Rotations of each joint of the middle and the left, outermost first: the last is applied first.
const JOINTS: [(usize, &[Turn]); 12] = [
    (
        PELVIS,
        &[turn(Axis::Up, -35.0, 0.0, 35.0), turn(Axis::Across, -6.0, 2.0, 14.0), turn(Axis::Front, -6.0, 0.0, 6.0)],
    ),
    (
        ABDOMEN,
        &[turn(Axis::Up, -18.0, 0.0, 18.0), turn(Axis::Across, -14.0, 2.0, 28.0), turn(Axis::Front, -14.0, 0.0, 14.0)],
    ),
    (
        CHEST,
        &[turn(Axis::Up, -18.0, 0.0, 18.0), turn(Axis::Across, -10.0, 1.0, 20.0), turn(Axis::Front, -10.0, 0.0, 10.0)],
    ),
    (
        NECK,
        &[turn(Axis::Up, -25.0, 0.0, 25.0), turn(Axis::Across, -15.0, 0.0, 20.0), turn(Axis::Front, -12.0, 0.0, 12.0)],
    ),
    (
        HEAD,
        &[turn(Axis::Up, -25.0, 0.0, 25.0), turn(Axis::Across, -15.0, 0.0, 15.0), turn(Axis::Front, -8.0, 0.0, 8.0)],
    ),
    (CLAVICLE, &[turn(Axis::Up, -12.0, 0.0, 10.0), turn(Axis::Front, -6.0, 0.0, 18.0)]),
    (
        UPPER_ARM,
        &[
            turn(Axis::Up, -85.0, -12.0, 25.0),
            turn(Axis::Front, -34.0, -14.0, 80.0),
            turn(Axis::Along, -45.0, 0.0, 45.0),
        ],
    ),
    (FOREARM, &[turn(Axis::Elbow, 0.0, 20.0, 100.0), turn(Axis::Along, -30.0, 0.0, 30.0)]),
    (
        HAND,
        &[turn(Axis::Front, -35.0, 0.0, 35.0), turn(Axis::Up, -15.0, 0.0, 15.0), turn(Axis::Along, -30.0, 0.0, 30.0)],
    ),
    (
        THIGH,
        &[
            turn(Axis::Across, -80.0, -6.0, 22.0),
            turn(Axis::Front, -8.0, 2.0, 32.0),
            turn(Axis::Along, -25.0, 0.0, 25.0),
        ],
    ),
    (SHIN, &[turn(Axis::Across, 0.0, 10.0, 100.0)]),
    (FOOT, &[turn(Axis::Across, -18.0, 0.0, 28.0), turn(Axis::Up, -12.0, 0.0, 12.0)]),
];

/// A rigid motion: a rotation about the origin, then a translation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Motion {
    pub(super) rotation: DQuat,
    pub(super) shift: DVec3,
}

impl Motion {
    fn apply(&self, p: DVec3) -> DVec3 {
        self.rotation * p + self.shift
    }

    fn undo(&self, p: DVec3) -> DVec3 {
        self.rotation.inverse() * (p - self.shift)
    }
}

/// Motion of every bone of a person.
pub(super) type Pose = [Motion; BONE_COUNT];

/// Draws poses until one has no collisions. `variety` ranges from 0 (at rest) to 1.
pub(super) fn draw(uniform: &mut Uniform, person: &Person, variety: f64) -> Pose {
    let mut range = variety;
    for _ in 0..MAX_DRAWS {
        let pose = motions(person, &draw_turns(uniform, range));
        if !clashes(person, &pose) {
            return pose;
        }
        range *= EASING;
    }
    motions(person, &[DQuat::IDENTITY; BONE_COUNT])
}

/// Draws one rotation per joint.
fn draw_turns(uniform: &mut Uniform, range: f64) -> [DQuat; BONE_COUNT] {
    let mut turns = [DQuat::IDENTITY; BONE_COUNT];
    for (bone, joint) in &JOINTS {
        let mirror = mirrored_bone(*bone);
        let sides = if mirror == *bone { &[(*bone, false)][..] } else { &[(*bone, false), (mirror, true)] };
        for &(side, is_right) in sides {
            for turn in *joint {
                turns[side] *= turn.draw(uniform, *bone, range, is_right);
            }
        }
    }
    turns
}

impl Turn {
    fn draw(&self, uniform: &mut Uniform, bone: usize, range: f64, is_right: bool) -> DQuat {
        // Extremes are rarer than angles near the natural pose.
        let at = uniform.signed();
        let at = at * at.abs().sqrt();
        let side = if at < 0.0 { self.natural - self.low } else { self.high - self.natural };
        let angle = (range * (self.natural + side * at)).to_radians();
        let axis = match self.axis {
            Axis::Across => DVec3::X,
            Axis::Up => DVec3::Y,
            Axis::Front => DVec3::Z,
            Axis::Along => ANATOMY.bones[bone].axis(),
            Axis::Elbow => ANATOMY.bones[bone].axis().cross(DVec3::Z).normalize(),
        };
        // A reflection reverses the sense of rotation and the component of the axis across the
        // body.
        let axis = if is_right { DVec3::new(axis.x, -axis.y, -axis.z) } else { axis };
        DQuat::from_axis_angle(axis, angle)
    }
}

/// Rotates every bone about its joint and applies the motion of its parent.
fn motions(person: &Person, turns: &[DQuat; BONE_COUNT]) -> Pose {
    let mut pose = [Motion { rotation: DQuat::IDENTITY, shift: DVec3::ZERO }; BONE_COUNT];
    for (index, bone) in ANATOMY.bones.iter().enumerate() {
        let joint = person.bones[index].joint;
        let (rotation, goes_to) = match bone.parent {
            Some(parent) => (pose[parent].rotation * turns[index], pose[parent].apply(joint)),
            None => (turns[index], joint),
        };
        let rotation = rotation.normalize();
        pose[index] = Motion { rotation, shift: goes_to - rotation * joint };
    }
    pose
}

/// True if a limb of the posed person collides with another limb, the trunk or the head. Points on
/// the axis of each limb are tested against the solids of all bones that are not close in the
/// skeleton.
fn clashes(person: &Person, pose: &Pose) -> bool {
    let limbs = [UPPER_ARM, FOREARM, HAND, THIGH, SHIN, FOOT];
    limbs.iter().flat_map(|&limb| [limb, mirrored_bone(limb)]).any(|limb| {
        let bone = &ANATOMY.bones[limb];
        let mut solids = ANATOMY.solids.iter().filter(|solid| bones_between(limb, solid.bone) > NEIGHBOURHOOD);
        let probes = PROBES.map(|along| {
            let shaped = person.bones[limb].place(bone.joint.lerp(bone.tip, along));
            pose[limb].apply(shaped)
        });
        solids.any(|solid| {
            probes.iter().any(|&probe| {
                let on_rest = person.bones[solid.bone].unplace(pose[solid.bone].undo(probe));
                solid.distance(on_rest) < CLEARANCE * bone.radius
            })
        })
    })
}

/// Number of joints between two bones.
fn bones_between(a: usize, b: usize) -> usize {
    let (mut a, mut b, mut joints) = (a, b, 0);
    // A parent has a lower index than its children, so the higher of the two moves up.
    while a != b {
        let higher = if a > b { &mut a } else { &mut b };
        *higher = ANATOMY.bones[*higher].parent.unwrap_or(PELVIS);
        joints += 1;
    }
    joints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::bodies::skeleton::mirrored;

    #[test]
    fn the_way_between_bones_goes_through_their_common_ancestor() {
        assert_eq!(bones_between(HEAD, HEAD), 0);
        assert_eq!(bones_between(HAND, CHEST), 4);
        assert_eq!(bones_between(THIGH, mirrored_bone(THIGH)), 2);
        assert_eq!(bones_between(FOOT, HAND), 9);
    }

    #[test]
    fn everyone_at_rest_is_free_of_clashes_and_crossed_legs_are_not() {
        for seed in 0..50 {
            let person = Person::draw(&mut Uniform::new(seed), 1.0);
            let at_rest = [DQuat::IDENTITY; BONE_COUNT];
            assert!(!clashes(&person, &motions(&person, &at_rest)));
            let mut crossed = at_rest;
            crossed[THIGH] = DQuat::from_rotation_z(-0.5);
            assert!(clashes(&person, &motions(&person, &crossed)));
        }
    }

    #[test]
    fn turns_stay_within_their_limits_and_hinges_bend_one_way() {
        let mut uniform = Uniform::new(1);
        for _ in 0..500 {
            let turns = draw_turns(&mut uniform, 1.0);
            for (shin, forearm) in [(SHIN, FOREARM), (mirrored_bone(SHIN), mirrored_bone(FOREARM))] {
                let shin = turns[shin] * DVec3::NEG_Y;
                assert!(shin.z <= 1e-12 && shin.x.abs() < 1e-12, "{shin}");
                let axis = ANATOMY.bones[forearm].axis();
                let bent = turns[forearm] * axis;
                assert!(bent.z - axis.z >= -0.2, "{bent}");
            }
            for (bone, joint) in &JOINTS {
                let most: f64 = joint.iter().map(|turn| turn.high.max(-turn.low)).sum();
                for side in [*bone, mirrored_bone(*bone)] {
                    let angle = turns[side].angle_between(DQuat::IDENTITY).to_degrees();
                    assert!(angle <= most + 1e-9);
                }
            }
        }
    }

    #[test]
    fn both_sides_turn_as_mirror_images() {
        let lift = turn(Axis::Elbow, 90.0, 90.0, 90.0);
        let [left, right] = [false, true].map(|is_right| lift.draw(&mut Uniform::new(0), FOREARM, 1.0, is_right));
        let axis = ANATOMY.bones[FOREARM].axis();
        assert!((right * mirrored(axis)).distance(mirrored(left * axis)) < 1e-12);
        assert!((left * axis).z > 0.9);
    }
}
