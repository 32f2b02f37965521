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

/// Rotations of some joints, as in [`JOINTS`].
type Joints = &'static [(usize, &'static [Turn])];

/// Poses of one kind.
struct Family {
    /// Joints of the middle and of both sides.
    both: Joints,
    /// Joints of one side, left or right, that differ from `both`.
    one: Joints,
    /// Range of all other joints, relative to [`JOINTS`].
    others: f64,
}

const LEGS_STRAIGHT: [(usize, &[Turn]); 2] = [
    (THIGH, &[turn(Axis::Across, -8.0, 0.0, 5.0), turn(Axis::Front, -6.0, 1.0, 16.0)]),
    (SHIN, &[turn(Axis::Across, 0.0, 2.0, 8.0)]),
];
const ARM_HANGING: (usize, &[Turn]) = (
    UPPER_ARM,
    &[
        turn(Axis::Across, -20.0, 0.0, 12.0),
        turn(Axis::Front, -38.0, -30.0, -18.0),
        turn(Axis::Along, -30.0, 0.0, 40.0),
    ],
);
const ARM_LEVEL: (usize, &[Turn]) = (
    UPPER_ARM,
    &[turn(Axis::Up, -12.0, 0.0, 10.0), turn(Axis::Front, 25.0, 40.0, 50.0), turn(Axis::Along, -45.0, 0.0, 45.0)],
);
const ARM_IN_FRONT: (usize, &[Turn]) = (
    UPPER_ARM,
    &[turn(Axis::Up, -95.0, -80.0, -45.0), turn(Axis::Front, 5.0, 35.0, 60.0), turn(Axis::Along, -60.0, 0.0, 45.0)],
);
const ARM_UP: (usize, &[Turn]) = (
    UPPER_ARM,
    &[turn(Axis::Up, -40.0, -10.0, 10.0), turn(Axis::Front, 75.0, 105.0, 125.0), turn(Axis::Along, -50.0, 0.0, 50.0)],
);
const ARM_AT_HIP: (usize, &[Turn]) = (
    UPPER_ARM,
    &[turn(Axis::Up, 0.0, 12.0, 30.0), turn(Axis::Front, -15.0, -5.0, 5.0), turn(Axis::Along, 55.0, 75.0, 90.0)],
);
const SHOULDER_UP: (usize, &[Turn]) = (CLAVICLE, &[turn(Axis::Front, 8.0, 16.0, 24.0)]);
const ELBOW_STRAIGHT: (usize, &[Turn]) =
    (FOREARM, &[turn(Axis::Elbow, 0.0, 5.0, 25.0), turn(Axis::Along, -60.0, 0.0, 60.0)]);
const ELBOW_BENT: (usize, &[Turn]) =
    (FOREARM, &[turn(Axis::Elbow, 40.0, 80.0, 115.0), turn(Axis::Along, -40.0, 0.0, 40.0)]);
const THIGH_LEVEL: (usize, &[Turn]) = (
    THIGH,
    &[
        turn(Axis::Across, -105.0, -85.0, -65.0),
        turn(Axis::Front, -4.0, 6.0, 35.0),
        turn(Axis::Along, -20.0, 0.0, 30.0),
    ],
);
const KNEE_BENT: (usize, &[Turn]) = (SHIN, &[turn(Axis::Across, 60.0, 85.0, 110.0)]);

/// Families of poses, each as likely as any other.
const FAMILIES: [Family; 20] = [
    // Standing, arms hanging, slightly spread or level.
    Family { both: &[ARM_HANGING, ELBOW_STRAIGHT, LEGS_STRAIGHT[0], LEGS_STRAIGHT[1]], one: &[], others: 0.4 },
    Family {
        both: &[
            (UPPER_ARM, &[turn(Axis::Up, -10.0, 0.0, 10.0), turn(Axis::Front, -25.0, -6.0, 15.0)]),
            ELBOW_STRAIGHT,
            LEGS_STRAIGHT[0],
            LEGS_STRAIGHT[1],
        ],
        one: &[],
        others: 0.15,
    },
    Family { both: &[ARM_LEVEL, ELBOW_STRAIGHT, LEGS_STRAIGHT[0], LEGS_STRAIGHT[1]], one: &[], others: 0.15 },
    // Both arms or one arm overhead; forearms upwards; arms in front; hands near the hips.
    Family { both: &[SHOULDER_UP, ARM_UP, ELBOW_STRAIGHT], one: &[], others: 0.6 },
    Family { both: &[SHOULDER_UP, ARM_UP, ELBOW_BENT], one: &[], others: 0.6 },
    Family { both: &[ARM_HANGING], one: &[SHOULDER_UP, ARM_UP, ELBOW_STRAIGHT], others: 0.7 },
    Family {
        both: &[
            (
                UPPER_ARM,
                &[
                    turn(Axis::Up, -35.0, -5.0, 10.0),
                    turn(Axis::Front, 15.0, 40.0, 60.0),
                    turn(Axis::Along, -95.0, -75.0, -40.0),
                ],
            ),
            ELBOW_BENT,
        ],
        one: &[],
        others: 0.6,
    },
    Family { both: &[ARM_IN_FRONT, ELBOW_STRAIGHT], one: &[], others: 0.6 },
    Family { both: &[ARM_IN_FRONT, ELBOW_BENT], one: &[], others: 0.7 },
    Family { both: &[ARM_AT_HIP, ELBOW_BENT, LEGS_STRAIGHT[0], LEGS_STRAIGHT[1]], one: &[], others: 0.4 },
    // Sitting, also with level arms; squatting; kneeling on both knees or one.
    Family { both: &[THIGH_LEVEL, KNEE_BENT], one: &[], others: 0.8 },
    Family {
        both: &[THIGH_LEVEL, (SHIN, &[turn(Axis::Across, 0.0, 20.0, 60.0)]), ARM_IN_FRONT],
        one: &[],
        others: 0.6,
    },
    Family {
        both: &[
            (ABDOMEN, &[turn(Axis::Across, 0.0, 15.0, 35.0)]),
            (
                THIGH,
                &[
                    turn(Axis::Across, -125.0, -105.0, -70.0),
                    turn(Axis::Front, 0.0, 12.0, 35.0),
                    turn(Axis::Along, 0.0, 10.0, 30.0),
                ],
            ),
            (SHIN, &[turn(Axis::Across, 80.0, 110.0, 130.0)]),
            (FOOT, &[turn(Axis::Across, -30.0, -15.0, 10.0)]),
            ARM_IN_FRONT,
        ],
        one: &[],
        others: 0.7,
    },
    Family {
        both: &[
            (THIGH, &[turn(Axis::Across, -50.0, -10.0, 15.0), turn(Axis::Front, -4.0, 2.0, 20.0)]),
            (SHIN, &[turn(Axis::Across, 75.0, 100.0, 125.0)]),
            (FOOT, &[turn(Axis::Across, 0.0, 25.0, 45.0)]),
        ],
        one: &[],
        others: 0.8,
    },
    // Hands and knees; bending forwards; lying with the limbs out.
    Family {
        both: &[
            (PELVIS, &[turn(Axis::Across, 60.0, 80.0, 100.0)]),
            (NECK, &[turn(Axis::Across, -35.0, -15.0, 10.0)]),
            THIGH_LEVEL,
            KNEE_BENT,
            (FOOT, &[turn(Axis::Across, 0.0, 25.0, 45.0)]),
            ARM_IN_FRONT,
            ELBOW_STRAIGHT,
            (HAND, &[turn(Axis::Front, 0.0, 45.0, 75.0)]),
        ],
        one: &[],
        others: 0.5,
    },
    Family {
        both: &[
            (PELVIS, &[turn(Axis::Across, 15.0, 35.0, 60.0)]),
            (ABDOMEN, &[turn(Axis::Across, 10.0, 25.0, 40.0), turn(Axis::Up, -15.0, 0.0, 15.0)]),
            (CHEST, &[turn(Axis::Across, 5.0, 18.0, 30.0)]),
            (THIGH, &[turn(Axis::Across, -70.0, -35.0, -10.0), turn(Axis::Front, -4.0, 4.0, 20.0)]),
            (UPPER_ARM, &[turn(Axis::Across, -110.0, -55.0, 0.0), turn(Axis::Front, -38.0, -28.0, -5.0)]),
        ],
        one: &[],
        others: 0.6,
    },
    Family {
        both: &[
            (PELVIS, &[turn(Axis::Across, -100.0, -90.0, -80.0)]),
            (
                UPPER_ARM,
                &[
                    turn(Axis::Up, -10.0, 5.0, 25.0),
                    turn(Axis::Front, -20.0, 30.0, 110.0),
                    turn(Axis::Along, -80.0, 0.0, 80.0),
                ],
            ),
            ELBOW_STRAIGHT,
            (THIGH, &[turn(Axis::Across, -15.0, 0.0, 12.0), turn(Axis::Front, 0.0, 18.0, 50.0)]),
        ],
        one: &[],
        others: 0.5,
    },
    // Walking and running; kicking forwards and sideways.
    Family {
        both: &[
            (UPPER_ARM, &[turn(Axis::Across, -60.0, -25.0, -5.0), turn(Axis::Front, -38.0, -28.0, -15.0)]),
            (FOREARM, &[turn(Axis::Elbow, 5.0, 40.0, 110.0)]),
            (THIGH, &[turn(Axis::Across, 0.0, 12.0, 30.0), turn(Axis::Front, -4.0, 0.0, 8.0)]),
            (SHIN, &[turn(Axis::Across, 5.0, 30.0, 100.0)]),
        ],
        one: &[
            (UPPER_ARM, &[turn(Axis::Across, 0.0, 20.0, 50.0), turn(Axis::Front, -36.0, -26.0, -12.0)]),
            (THIGH, &[turn(Axis::Across, -90.0, -35.0, -10.0), turn(Axis::Front, -4.0, 0.0, 8.0)]),
        ],
        others: 0.5,
    },
    Family {
        both: &[LEGS_STRAIGHT[0], LEGS_STRAIGHT[1]],
        one: &[
            (THIGH, &[turn(Axis::Across, -110.0, -75.0, -40.0), turn(Axis::Front, -4.0, 4.0, 20.0)]),
            (SHIN, &[turn(Axis::Across, 0.0, 20.0, 110.0)]),
        ],
        others: 1.0,
    },
    Family {
        both: &[LEGS_STRAIGHT[0], LEGS_STRAIGHT[1]],
        one: &[
            (THIGH, &[turn(Axis::Front, 15.0, 40.0, 70.0), turn(Axis::Across, -30.0, 0.0, 15.0)]),
            (SHIN, &[turn(Axis::Across, 0.0, 10.0, 90.0)]),
        ],
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
        let find = |joints: Joints, bone| joints.iter().find(|joint| joint.0 == bone).map(|joint| joint.1);
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
        let lift = turn(Axis::Elbow, 90.0, 90.0, 90.0);
        let [left, right] = [false, true].map(|is_right| lift.rotation(0.5, FOREARM, 1.0, is_right));
        let axis = ANATOMY.bones[FOREARM].axis();
        assert!((right * mirrored(axis)).distance(mirrored(left * axis)) < 1e-12);
        assert!((left * axis).z > 0.9);
    }
}
