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

/// Share of the bodies of full variety whose pose is of a family.
const FAMILY_SHARE: f64 = 0.75;
/// Difference between left and right in poses of families that are nearly symmetric, relative to the range.
const ASYMMETRY: f64 = 0.2;

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

impl Axis {
    const fn turn(self, low: i16, natural: i16, high: i16) -> Turn {
        Turn { axis: self, low: low as f64, natural: natural as f64, high: high as f64 }
    }
}

const fn across(low: i16, natural: i16, high: i16) -> Turn {
    Axis::Across.turn(low, natural, high)
}

const fn up(low: i16, natural: i16, high: i16) -> Turn {
    Axis::Up.turn(low, natural, high)
}

const fn front(low: i16, natural: i16, high: i16) -> Turn {
    Axis::Front.turn(low, natural, high)
}

const fn along(low: i16, natural: i16, high: i16) -> Turn {
    Axis::Along.turn(low, natural, high)
}

const fn elbow(low: i16, natural: i16, high: i16) -> Turn {
    Axis::Elbow.turn(low, natural, high)
}

/// A bone and the rotations of its joint, outermost first: the last is applied first.
type Joint = (usize, &'static [Turn]);

/// Rotations of each joint of the middle and the left, outermost first: the last is applied first.
const JOINTS: [Joint; 12] = [
    (PELVIS, &[up(-35, 0, 35), across(-6, 2, 14), front(-6, 0, 6)]),
    (ABDOMEN, &[up(-18, 0, 18), across(-14, 2, 28), front(-14, 0, 14)]),
    (CHEST, &[up(-18, 0, 18), across(-10, 1, 20), front(-10, 0, 10)]),
    (NECK, &[up(-25, 0, 25), across(-15, 0, 20), front(-12, 0, 12)]),
    (HEAD, &[up(-25, 0, 25), across(-15, 0, 15), front(-8, 0, 8)]),
    (CLAVICLE, &[up(-12, 0, 10), front(-6, 0, 18)]),
    (UPPER_ARM, &[up(-85, -12, 25), front(-34, -14, 80), along(-45, 0, 45)]),
    (FOREARM, &[elbow(0, 20, 100), along(-30, 0, 30)]),
    (HAND, &[front(-35, 0, 35), up(-15, 0, 15), along(-30, 0, 30)]),
    (THIGH, &[across(-80, -6, 22), front(-8, 2, 32), along(-25, 0, 25)]),
    (SHIN, &[across(0, 10, 100)]),
    (FOOT, &[across(-18, 0, 28), up(-12, 0, 12)]),
];

/// Poses of one kind.
struct Family {
    /// Joints of the middle and of both sides.
    both: &'static [Joint],
    /// Joints of one side, left or right, that differ from `both`.
    one: &'static [Joint],
    /// Range of all other joints, relative to [`JOINTS`].
    others: f64,
}

/// Poses whose two sides have the same ranges.
const fn of_both(both: &'static [Joint], others: f64) -> Family {
    Family { both, one: &[], others }
}

const THIGH_STRAIGHT: Joint = (THIGH, &[across(-8, 0, 5), front(-6, 1, 16)]);
const KNEE_STRAIGHT: Joint = (SHIN, &[across(0, 2, 8)]);
const ARM_HANGING: Joint = (UPPER_ARM, &[across(-20, 0, 12), front(-38, -30, -18), along(-30, 0, 40)]);
const ARM_LEVEL: Joint = (UPPER_ARM, &[up(-12, 0, 10), front(25, 40, 50), along(-45, 0, 45)]);
const ARM_IN_FRONT: Joint = (UPPER_ARM, &[up(-95, -80, -45), front(5, 35, 60), along(-60, 0, 45)]);
const ARM_UP: Joint = (UPPER_ARM, &[up(-40, -10, 10), front(75, 105, 125), along(-50, 0, 50)]);
const ARM_AT_HIP: Joint = (UPPER_ARM, &[up(0, 12, 30), front(-15, -5, 5), along(55, 75, 90)]);
const SHOULDER_UP: Joint = (CLAVICLE, &[front(8, 16, 24)]);
const ELBOW_STRAIGHT: Joint = (FOREARM, &[elbow(0, 5, 25), along(-60, 0, 60)]);
const ELBOW_BENT: Joint = (FOREARM, &[elbow(40, 80, 115), along(-40, 0, 40)]);
const THIGH_LEVEL: Joint = (THIGH, &[across(-105, -85, -65), front(-4, 6, 35), along(-20, 0, 30)]);
const KNEE_BENT: Joint = (SHIN, &[across(60, 85, 110)]);

/// Families of poses, each as likely as any other.
const FAMILIES: [Family; 20] = [
    // Standing, arms hanging, slightly spread or level.
    of_both(&[ARM_HANGING, ELBOW_STRAIGHT, THIGH_STRAIGHT, KNEE_STRAIGHT], 0.4),
    of_both(&[(UPPER_ARM, &[up(-10, 0, 10), front(-25, -6, 15)]), ELBOW_STRAIGHT, THIGH_STRAIGHT, KNEE_STRAIGHT], 0.15),
    of_both(&[ARM_LEVEL, ELBOW_STRAIGHT, THIGH_STRAIGHT, KNEE_STRAIGHT], 0.15),
    // Both arms or one arm overhead; forearms upwards; arms in front; hands near the hips.
    of_both(&[SHOULDER_UP, ARM_UP, ELBOW_STRAIGHT], 0.6),
    of_both(&[SHOULDER_UP, ARM_UP, ELBOW_BENT], 0.6),
    Family { both: &[ARM_HANGING], one: &[SHOULDER_UP, ARM_UP, ELBOW_STRAIGHT], others: 0.7 },
    of_both(&[(UPPER_ARM, &[up(-35, -5, 10), front(15, 40, 60), along(-95, -75, -40)]), ELBOW_BENT], 0.6),
    of_both(&[ARM_IN_FRONT, ELBOW_STRAIGHT], 0.6),
    of_both(&[ARM_IN_FRONT, ELBOW_BENT], 0.7),
    of_both(&[ARM_AT_HIP, ELBOW_BENT, THIGH_STRAIGHT, KNEE_STRAIGHT], 0.4),
    // Sitting, also with level arms; squatting; kneeling on both knees or one.
    of_both(&[THIGH_LEVEL, KNEE_BENT], 0.8),
    of_both(&[THIGH_LEVEL, (SHIN, &[across(0, 20, 60)]), ARM_IN_FRONT], 0.6),
    of_both(
        &[
            (ABDOMEN, &[across(0, 15, 35)]),
            (THIGH, &[across(-125, -105, -70), front(0, 12, 35), along(0, 10, 30)]),
            (SHIN, &[across(80, 110, 130)]),
            (FOOT, &[across(-30, -15, 10)]),
            ARM_IN_FRONT,
        ],
        0.7,
    ),
    of_both(
        &[
            (THIGH, &[across(-50, -10, 15), front(-4, 2, 20)]),
            (SHIN, &[across(75, 100, 125)]),
            (FOOT, &[across(0, 25, 45)]),
        ],
        0.8,
    ),
    // Hands and knees; bending forwards; lying with the limbs out.
    of_both(
        &[
            (PELVIS, &[across(60, 80, 100)]),
            (NECK, &[across(-35, -15, 10)]),
            THIGH_LEVEL,
            KNEE_BENT,
            (FOOT, &[across(0, 25, 45)]),
            ARM_IN_FRONT,
            ELBOW_STRAIGHT,
            (HAND, &[front(0, 45, 75)]),
        ],
        0.5,
    ),
    of_both(
        &[
            (PELVIS, &[across(15, 35, 60)]),
            (ABDOMEN, &[across(10, 25, 40), up(-15, 0, 15)]),
            (CHEST, &[across(5, 18, 30)]),
            (THIGH, &[across(-70, -35, -10), front(-4, 4, 20)]),
            (UPPER_ARM, &[across(-110, -55, 0), front(-38, -28, -5)]),
        ],
        0.6,
    ),
    of_both(
        &[
            (PELVIS, &[across(-100, -90, -80)]),
            (UPPER_ARM, &[up(-10, 5, 25), front(-20, 30, 110), along(-80, 0, 80)]),
            ELBOW_STRAIGHT,
            (THIGH, &[across(-15, 0, 12), front(0, 18, 50)]),
        ],
        0.5,
    ),
    // Walking and running; kicking forwards and sideways.
    Family {
        both: &[
            (UPPER_ARM, &[across(-60, -25, -5), front(-38, -28, -15)]),
            (FOREARM, &[elbow(5, 40, 110)]),
            (THIGH, &[across(0, 12, 30), front(-4, 0, 8)]),
            (SHIN, &[across(5, 30, 100)]),
        ],
        one: &[
            (UPPER_ARM, &[across(0, 20, 50), front(-36, -26, -12)]),
            (THIGH, &[across(-90, -35, -10), front(-4, 0, 8)]),
        ],
        others: 0.5,
    },
    Family {
        both: &[THIGH_STRAIGHT, KNEE_STRAIGHT],
        one: &[(THIGH, &[across(-110, -75, -40), front(-4, 4, 20)]), (SHIN, &[across(0, 20, 110)])],
        others: 1.0,
    },
    Family {
        both: &[THIGH_STRAIGHT, KNEE_STRAIGHT],
        one: &[(THIGH, &[front(15, 40, 70), across(-30, 0, 15)]), (SHIN, &[across(0, 10, 90)])],
        others: 1.0,
    },
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
    without_clashes(person, variety, |range| draw_turns(uniform, range))
}

/// Draws poses of one family, or like [`draw`], until one has no collisions. `families` ranges from 0 (none) to 1.
pub(super) fn draw_from_families(uniform: &mut Uniform, person: &Person, variety: f64, families: f64) -> Pose {
    let is_of_family = uniform.unit() < FAMILY_SHARE * families;
    let family = &FAMILIES[uniform.below(FAMILIES.len())];
    match is_of_family {
        true => without_clashes(person, variety, |range| family.draw_turns(uniform, range)),
        false => draw(uniform, person, variety),
    }
}

fn without_clashes(person: &Person, variety: f64, mut draw_turns: impl FnMut(f64) -> [DQuat; BONE_COUNT]) -> Pose {
    let mut range = variety;
    for _ in 0..MAX_DRAWS {
        let pose = motions(person, &draw_turns(range));
        if !clashes(person, &pose) {
            return pose;
        }
        range *= EASING;
    }
    motions(person, &[DQuat::IDENTITY; BONE_COUNT])
}

/// A bone of the middle, or of the left and the right; the last is true on the right.
fn sides(bone: usize) -> impl Iterator<Item = (usize, bool)> {
    let mirror = mirrored_bone(bone);
    let right = (mirror != bone).then_some((mirror, true));
    std::iter::once((bone, false)).chain(right)
}

/// Draws one rotation per joint.
fn draw_turns(uniform: &mut Uniform, range: f64) -> [DQuat; BONE_COUNT] {
    let mut turns = [DQuat::IDENTITY; BONE_COUNT];
    for (bone, joint) in &JOINTS {
        for (side, is_right) in sides(*bone) {
            for turn in *joint {
                turns[side] *= turn.rotation(uniform.signed(), *bone, range, is_right);
            }
        }
    }
    turns
}

impl Family {
    /// Draws one rotation per joint. In about half of all poses both sides are nearly mirror images.
    fn draw_turns(&self, uniform: &mut Uniform, range: f64) -> [DQuat; BONE_COUNT] {
        let find = |joints: &'static [Joint], bone| joints.iter().find(|joint| joint.0 == bone).map(|joint| joint.1);
        let one_is_right = uniform.unit() < 0.5;
        let asymmetry = if uniform.unit() < 0.5 { 1.0 } else { ASYMMETRY };
        let mut turns = [DQuat::IDENTITY; BONE_COUNT];
        for &(bone, joint) in &JOINTS {
            let mut common = [0.0; 3];
            common.fill_with(|| uniform.signed());
            for (side, is_right) in sides(bone) {
                let own = find(self.one, bone).filter(|_| is_right == one_is_right);
                let (joint, range) = match own.or_else(|| find(self.both, bone)) {
                    Some(joint) => (joint, range),
                    None => (joint, self.others * range),
                };
                for (turn, common) in joint.iter().zip(common) {
                    let at = (1.0 - asymmetry) * common + asymmetry * uniform.signed();
                    turns[side] *= turn.rotation(at, bone, range, is_right);
                }
            }
        }
        turns
    }
}

impl Turn {
    /// The rotation of a joint for a number from -1, the lowest angle, to 1, the highest.
    fn rotation(&self, at: f64, bone: usize, range: f64, is_right: bool) -> DQuat {
        // Extremes are rarer than angles near the natural pose.
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
        let clearance = CLEARANCE * bone.radius * person.thickness[limb];
        let mut solids = ANATOMY.solids.iter().filter(|solid| bones_between(limb, solid.bone) > NEIGHBOURHOOD);
        let probes = PROBES.map(|along| {
            let shaped = person.bones[limb].place(bone.joint.lerp(bone.tip, along));
            pose[limb].apply(shaped)
        });
        solids.any(|solid| {
            probes.iter().any(|&probe| {
                let on_rest = person.bones[solid.bone].unplace(pose[solid.bone].undo(probe));
                solid.distance(on_rest) < clearance
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
            let person = Person::draw(&mut Uniform::new(seed), 1.0, None);
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
        let lift = elbow(90, 90, 90);
        let [left, right] = [false, true].map(|is_right| lift.rotation(0.5, FOREARM, 1.0, is_right));
        let axis = ANATOMY.bones[FOREARM].axis();
        assert!((right * mirrored(axis)).distance(mirrored(left * axis)) < 1e-12);
        assert!((left * axis).z > 0.9);
    }
}
