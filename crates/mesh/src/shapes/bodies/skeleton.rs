//! The body at rest: bones, joints and the solids around them.
//!
//! Units are metres; y is up and the body faces +z, so its left is +x. Arms slope down at 40
//! degrees and the legs are apart, so that no limb touches another. Only the middle and the left
//! are defined; the right is the mirror image.

use std::sync::LazyLock;

use glam::{DMat3, DVec3};

use super::BodyPart;

/// Number of bones: 5 in the middle, 7 in the limbs of each side.
pub(super) const BONE_COUNT: usize = 19;
const MIDDLE_BONES: usize = 5;
const LIMB_BONES: usize = 7;

pub(super) const PELVIS: usize = 0;
pub(super) const ABDOMEN: usize = 1;
pub(super) const CHEST: usize = 2;
pub(super) const NECK: usize = 3;
pub(super) const HEAD: usize = 4;
// Bones on the left; see `mirrored_bone` for the right.
pub(super) const CLAVICLE: usize = 5;
pub(super) const UPPER_ARM: usize = 6;
pub(super) const FOREARM: usize = 7;
pub(super) const HAND: usize = 8;
pub(super) const THIGH: usize = 9;
pub(super) const SHIN: usize = 10;
pub(super) const FOOT: usize = 11;

/// The same bone on the other side; a bone of the middle is its own mirror image.
pub(super) fn mirrored_bone(bone: usize) -> usize {
    match bone {
        _ if bone < MIDDLE_BONES => bone,
        _ if bone < MIDDLE_BONES + LIMB_BONES => bone + LIMB_BONES,
        _ => bone - LIMB_BONES,
    }
}

/// Reflects a point or a direction at the plane between left and right.
pub(super) fn mirrored(v: DVec3) -> DVec3 {
    DVec3::new(-v.x, v.y, v.z)
}

/// One bone of the skeleton at rest.
#[derive(Debug, Clone)]
pub(super) struct Bone {
    /// Parent bone, always with a lower index. The pelvis has none.
    pub(super) parent: Option<usize>,
    /// Joint with the parent, the centre of rotation.
    pub(super) joint: DVec3,
    /// Its far end.
    pub(super) tip: DVec3,
    /// Approximate half thickness of the body around the bone.
    pub(super) radius: f64,
    /// Edge length on this bone, relative to the rest of the body.
    pub(super) fineness: f64,
    pub(super) part: BodyPart,
    /// Distance from the joint along the bone at which the part begins; before it, vertices belong to the part of the
    /// parent.
    pub(super) part_start: f64,
}

impl Bone {
    /// The part of a point at rest that moves with this bone.
    pub(super) fn part_at(&self, point: DVec3) -> BodyPart {
        match self.parent.map(|parent| &ANATOMY.bones[parent]) {
            Some(parent) if (point - self.joint).dot(self.axis()) < self.part_start => parent.part,
            _ => self.part,
        }
    }

    /// Unit vector from the joint to the tip.
    pub(super) fn axis(&self) -> DVec3 {
        (self.tip - self.joint).normalize()
    }
}

/// The shape of a solid.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// Union of balls with centres on a segment and radii interpolated between its ends.
    RoundCone { ends: [DVec3; 2], radii: [f64; 2] },
    /// An ellipsoid; the columns of `axes` are its unit axes.
    Ellipsoid { centre: DVec3, axes: DMat3, radii: DVec3 },
}

/// A part of the volume of the body.
#[derive(Debug, Clone)]
pub(super) struct Solid {
    pub(super) form: Form,
    /// The bone it belongs to.
    pub(super) bone: usize,
    /// Blend distance to the solids before this one, in metres.
    pub(super) blend: f64,
}

/// The skeleton at rest and the solids around it.
#[derive(Debug)]
pub(super) struct Anatomy {
    pub(super) bones: Vec<Bone>,
    pub(super) solids: Vec<Solid>,
}

/// The body at rest, from which all bodies are derived.
pub(super) static ANATOMY: LazyLock<Anatomy> = LazyLock::new(|| {
    let mut bones = left_and_middle_bones();
    for bone in MIDDLE_BONES..MIDDLE_BONES + LIMB_BONES {
        let left = &bones[bone];
        let right = Bone {
            parent: left.parent.map(mirrored_bone),
            joint: mirrored(left.joint),
            tip: mirrored(left.tip),
            part: left.part.mirrored(),
            ..left.clone()
        };
        bones.push(right);
    }
    // A limb follows its mirror image, so that both blend with the same body.
    let mut solids = Vec::new();
    for solid in left_and_middle_solids() {
        let right = solid.mirrored();
        solids.push(solid);
        solids.extend(right);
    }
    Anatomy { bones, solids }
});

const SHOULDER: DVec3 = DVec3::new(0.172, 1.405, -0.018);
const ELBOW: DVec3 = DVec3::new(0.392, 1.222, -0.026);
const WRIST: DVec3 = DVec3::new(0.590, 1.056, -0.006);
const FINGERTIPS: DVec3 = DVec3::new(0.728, 0.940, 0.010);
const HIP: DVec3 = DVec3::new(0.092, 0.915, 0.0);
const KNEE: DVec3 = DVec3::new(0.138, 0.500, 0.008);
const ANKLE: DVec3 = DVec3::new(0.172, 0.085, -0.022);
const TOES: DVec3 = DVec3::new(0.205, 0.028, 0.155);

fn left_and_middle_bones() -> Vec<Bone> {
    let bone = |parent, joint, tip, radius, fineness, part| {
        // Legs begin where they leave the trunk, arms outside the armpit, the head half way up the neck.
        let part_start = match parent {
            Some(PELVIS) if part == BodyPart::ThighLeft => 0.1,
            Some(CLAVICLE) => 0.04,
            Some(CHEST) if part == BodyPart::Head => 0.05,
            _ => f64::NEG_INFINITY,
        };
        Bone { parent, joint, tip, radius, fineness, part, part_start }
    };
    let middle = |y, z| DVec3::new(0.0, y, z);
    let [lumbar, thoracic, cervical, atlas, crown] = [
        middle(1.045, -0.01),
        middle(1.20, -0.015),
        middle(1.465, -0.025),
        middle(1.555, -0.005),
        middle(1.755, 0.015),
    ];
    vec![
        bone(None, middle(0.945, 0.0), lumbar, 0.13, 1.0, BodyPart::Torso),
        bone(Some(PELVIS), lumbar, thoracic, 0.12, 1.0, BodyPart::Torso),
        bone(Some(ABDOMEN), thoracic, cervical, 0.13, 1.0, BodyPart::Torso),
        bone(Some(CHEST), cervical, atlas, 0.056, 0.9, BodyPart::Head),
        bone(Some(NECK), atlas, crown, 0.085, 0.72, BodyPart::Head),
        bone(Some(CHEST), DVec3::new(0.025, 1.425, -0.005), SHOULDER, 0.06, 1.0, BodyPart::Torso),
        bone(Some(CLAVICLE), SHOULDER, ELBOW, 0.047, 1.0, BodyPart::UpperArmLeft),
        bone(Some(UPPER_ARM), ELBOW, WRIST, 0.036, 0.9, BodyPart::ForearmLeft),
        bone(Some(FOREARM), WRIST, FINGERTIPS, 0.03, 0.62, BodyPart::HandLeft),
        bone(Some(PELVIS), HIP, KNEE, 0.075, 1.0, BodyPart::ThighLeft),
        bone(Some(THIGH), KNEE, ANKLE, 0.05, 1.0, BodyPart::ShinLeft),
        bone(Some(SHIN), ANKLE, TOES, 0.035, 0.72, BodyPart::FootLeft),
    ]
}

fn left_and_middle_solids() -> Vec<Solid> {
    let at = DVec3::new;
    // Axes of the hand: along the fingers, through the palm, from thumb to little finger.
    let along_hand = (FINGERTIPS - WRIST).normalize();
    let through_palm = DVec3::Z.cross(along_hand).normalize();
    let hand = DMat3::from_cols(along_hand, through_palm, along_hand.cross(through_palm));
    let level = DMat3::IDENTITY;
    let leaning = |degrees: f64| DMat3::from_rotation_x(degrees.to_radians());
    vec![
        // Trunk.
        ellipsoid(PELVIS, at(0.0, 0.945, -0.004), level, at(0.163, 0.115, 0.108), 0.0),
        ellipsoid(ABDOMEN, at(0.0, 1.085, 0.004), level, at(0.134, 0.16, 0.098), 0.09),
        ellipsoid(CHEST, at(0.0, 1.27, -0.012), leaning(-4.0), at(0.152, 0.19, 0.112), 0.08),
        ellipsoid(CHEST, at(0.068, 1.325, 0.058), level, at(0.075, 0.058, 0.045), 0.05),
        ellipsoid(PELVIS, at(0.072, 0.905, -0.052), level, at(0.082, 0.085, 0.075), 0.05),
        // Shoulders and neck.
        round_cone(CLAVICLE, at(0.05, 1.415, -0.02), SHOULDER, 0.066, 0.056, 0.06),
        round_cone(CHEST, at(0.0, 1.48, -0.03), at(0.10, 1.43, -0.03), 0.05, 0.045, 0.05),
        round_cone(NECK, at(0.0, 1.44, -0.025), at(0.0, 1.57, 0.0), 0.062, 0.054, 0.04),
        // Head: skull, jaw, nose, ear.
        ellipsoid(HEAD, at(0.0, 1.655, 0.008), level, at(0.077, 0.102, 0.096), 0.035),
        ellipsoid(HEAD, at(0.0, 1.592, 0.034), leaning(-15.0), at(0.058, 0.062, 0.066), 0.04),
        round_cone(HEAD, at(0.0, 1.66, 0.096), at(0.0, 1.622, 0.113), 0.009, 0.013, 0.02),
        ellipsoid(HEAD, at(0.078, 1.638, 0.0), level, at(0.011, 0.032, 0.02), 0.012),
        // Arm.
        round_cone(UPPER_ARM, SHOULDER, ELBOW, 0.056, 0.038, 0.045),
        ellipsoid(UPPER_ARM, SHOULDER.lerp(ELBOW, 0.5), arm_axes(), at(0.1, 0.046, 0.05), 0.05),
        round_cone(FOREARM, ELBOW, WRIST, 0.039, 0.027, 0.03),
        ellipsoid(FOREARM, ELBOW.lerp(WRIST, 0.28), arm_axes(), at(0.09, 0.042, 0.044), 0.04),
        // Hand: palm, fingers held together, thumb.
        ellipsoid(HAND, WRIST + 0.055 * along_hand, hand, at(0.062, 0.021, 0.043), 0.03),
        ellipsoid(HAND, WRIST + 0.122 * along_hand, hand, at(0.066, 0.017, 0.036), 0.02),
        round_cone(
            HAND,
            WRIST + 0.03 * along_hand + at(0.0, 0.0, 0.022),
            WRIST + 0.092 * along_hand + at(0.0, 0.0, 0.068),
            0.016,
            0.0115,
            0.014,
        ),
        // Leg.
        round_cone(THIGH, at(0.092, 0.885, 0.0), KNEE, 0.087, 0.053, 0.05),
        ellipsoid(THIGH, at(0.108, 0.76, 0.014), level, at(0.079, 0.15, 0.08), 0.05),
        round_cone(SHIN, KNEE, ANKLE, 0.051, 0.035, 0.04),
        ellipsoid(SHIN, at(0.148, 0.37, -0.022), level, at(0.05, 0.12, 0.05), 0.05),
        // Foot: heel, instep, ball and toes.
        round_cone(FOOT, at(0.170, 0.036, -0.05), at(0.196, 0.034, 0.09), 0.034, 0.034, 0.03),
        round_cone(FOOT, at(0.172, 0.085, -0.015), at(0.195, 0.036, 0.10), 0.034, 0.026, 0.03),
        ellipsoid(FOOT, at(0.203, 0.029, 0.115), level, at(0.047, 0.026, 0.068), 0.02),
    ]
}

/// Axes of the arm muscles: along the arm, and two across.
fn arm_axes() -> DMat3 {
    let along = (WRIST - SHOULDER).normalize();
    let across = DVec3::Z.cross(along).normalize();
    DMat3::from_cols(along, across, along.cross(across))
}

fn round_cone(bone: usize, from: DVec3, to: DVec3, from_radius: f64, to_radius: f64, blend: f64) -> Solid {
    let form = Form::RoundCone { ends: [from, to], radii: [from_radius, to_radius] };
    Solid { form, bone, blend }
}

fn ellipsoid(bone: usize, centre: DVec3, axes: DMat3, radii: DVec3, blend: f64) -> Solid {
    let form = Form::Ellipsoid { centre, axes, radii };
    Solid { form, bone, blend }
}

impl Solid {
    /// The mirror image, or `None` for a solid in the middle, which is its own mirror image.
    fn mirrored(&self) -> Option<Self> {
        let form = match &self.form {
            Form::RoundCone { ends, .. } if ends.iter().all(|end| end.x == 0.0) => return None,
            Form::Ellipsoid { centre, .. } if centre.x == 0.0 => return None,
            Form::RoundCone { ends, radii } => Form::RoundCone { ends: ends.map(mirrored), radii: *radii },
            Form::Ellipsoid { centre, axes, radii } => Form::Ellipsoid {
                centre: mirrored(*centre),
                axes: DMat3::from_cols(mirrored(axes.x_axis), mirrored(axes.y_axis), mirrored(axes.z_axis)),
                radii: *radii,
            },
        };
        Some(Self { form, bone: mirrored_bone(self.bone), blend: self.blend })
    }

    /// Centre and radius of a bounding ball.
    pub(super) fn ball(&self) -> (DVec3, f64) {
        match &self.form {
            Form::RoundCone { ends, radii } => {
                (ends[0].midpoint(ends[1]), 0.5 * ends[0].distance(ends[1]) + radii[0].max(radii[1]))
            }
            Form::Ellipsoid { centre, radii, .. } => (*centre, radii.max_element()),
        }
    }

    /// Signed distance to the surface, negative inside. To first order for an ellipsoid.
    pub(super) fn distance(&self, p: DVec3) -> f64 {
        match &self.form {
            Form::RoundCone { ends, radii } => {
                // The distance to the ball at t is sqrt((s - t)^2 + rho^2) - r(t), with s along the
                // axis and rho from it. It is convex in t, with its minimum at s - t = rho *
                // tan(slope).
                let along = ends[1] - ends[0];
                let length = along.length();
                let s = (p - ends[0]).dot(along) / length;
                let rho = (p.distance_squared(ends[0]) - s * s).max(0.0).sqrt();
                let sine = (radii[0] - radii[1]) / length;
                let t = (s - rho * sine / (1.0 - sine * sine).sqrt()).clamp(0.0, length);
                (s - t).hypot(rho) - radii[0] + sine * t
            }
            Form::Ellipsoid { centre, axes, radii } => {
                // With g(q) = |q / r|, the first-order distance is (g - 1) / |grad g|. It is scaled
                // by g to stay close to the distance far away, and is never less than the distance
                // to the bounding ball.
                let q = axes.transpose() * (p - centre) / radii;
                let g = q.length();
                let slope = (q / radii).length();
                if slope < 1e-9 {
                    -radii.min_element()
                } else {
                    let ball = p.distance(*centre) - radii.max_element();
                    (g * (g - 1.0) / slope).max(ball)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bones_hang_on_earlier_ones_and_mirror_each_other() {
        let bones = &ANATOMY.bones;
        assert_eq!(bones.len(), BONE_COUNT);
        for (index, bone) in bones.iter().enumerate() {
            assert_eq!(bone.parent.is_none(), index == PELVIS);
            assert!(bone.parent.is_none_or(|parent| parent < index));
            let twin = &bones[mirrored_bone(index)];
            assert_eq!(mirrored(twin.joint), bone.joint);
            assert_eq!(twin.part.mirrored(), bone.part);
            assert_eq!(mirrored_bone(mirrored_bone(index)), index);
        }
    }

    #[test]
    fn distances_are_right_on_and_beside_the_solids() {
        let cone = round_cone(0, DVec3::ZERO, DVec3::X * 2.0, 0.5, 0.25, 0.0);
        // Beyond the ends, and beside the axis where the nearest ball is shifted towards the end.
        assert!((cone.distance(DVec3::X * -1.0) - 0.5).abs() < 1e-12);
        assert!((cone.distance(DVec3::X * 4.0) - 1.75).abs() < 1e-12);
        let p = DVec3::new(1.0, 1.0, 0.0);
        let least = (0..=2_000_000)
            .map(|i| {
                let t = f64::from(i) * 1e-6;
                p.distance(DVec3::X * t) - 0.5 + 0.125 * t
            })
            .fold(f64::INFINITY, f64::min);
        assert!((cone.distance(p) - least).abs() < 1e-9);

        let axes = DMat3::from_rotation_z(0.3);
        let egg = ellipsoid(0, DVec3::ONE, axes, DVec3::new(0.3, 0.2, 0.1), 0.0);
        for (axis, radius) in [(axes.x_axis, 0.3), (axes.y_axis, 0.2), (axes.z_axis, 0.1)] {
            let outside = egg.distance(DVec3::ONE + axis * (radius + 0.01));
            assert!((outside - 0.01).abs() < 2e-3, "{outside}");
            assert!(egg.distance(DVec3::ONE + axis * radius).abs() < 1e-12);
        }
        assert!(egg.distance(DVec3::ONE) < 0.0);
    }
}
