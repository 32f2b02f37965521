//! Human-like bodies: a family of closed surfaces with the same connectivity, of many people in
//! many poses.
//!
//! The body at rest is the smooth union of solids around a skeleton ([`skeleton`], [`surface`]). It
//! is meshed once ([`isosurface`], [`remesh`]). Each further body deforms it to
//! another person ([`person`]), draws a pose ([`pose`]) and moves every vertex with the bones by
//! its skinning weights ([`weights`]). Vertex `i` is the same anatomical point in all bodies.

mod person;
mod pose;
mod remesh;
mod skeleton;
mod surface;
mod weights;

use glam::{DQuat, DVec3};

use self::person::Person;
use self::pose::{Motion, Pose};
use self::remesh::remesh;
use self::skeleton::ANATOMY;
use self::surface::Skin;
use self::weights::SkinWeights;
use super::{ShapeError, require};
use crate::random::Uniform;
use crate::remesh::isosurface::isosurface;
use crate::remesh::triangulation::Triangulation;
use crate::{Adjacency, Faces, Mesh};

/// Lattice spacing of the initial mesh, in metres: finer than any gap or limb.
const LATTICE: f64 = 0.015;
/// Changes the seed of the random numbers of further variety, so that they do not change the others.
const VARIETY_SEED: u64 = 0x5bd1_e995_9d1b_54a3;
/// Smoothing distance of the normals, in metres.
const SMOOTH_NORMALS: f64 = 0.025;

/// Options of a family of bodies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BodyOptions {
    /// Number of vertices of every body, from 500 to 200,000. The default 6,890 is that of the
    /// registered human scans commonly used for correspondence.
    pub vertices: usize,
    /// Seed of people and poses. The connectivity does not depend on it.
    pub seed: u64,
    /// Variation of lengths, girths and relief between people, from 0 (none) to 1 (default).
    pub people: f64,
    /// Range of the poses, from 0 (all bodies at rest) to 1 (default).
    pub poses: f64,
    /// Further variety, from 0 (default: adults without clothes and hair, most of them standing) to 1: also children,
    /// thin and stout limbs, clothes, hair, closed hands, and poses such as sitting, crawling or raised arms.
    pub variety: f64,
}

impl Default for BodyOptions {
    fn default() -> Self {
        Self { vertices: 6890, seed: 0, people: 1.0, poses: 1.0, variety: 0.0 }
    }
}

impl BodyOptions {
    fn check(&self) -> Result<(), ShapeError> {
        require((500..=200_000).contains(&self.vertices), "vertices", self.vertices, "from 500 to 200,000")?;
        for (name, value) in [("people", self.people), ("poses", self.poses), ("variety", self.variety)] {
            require((0.0..=1.0).contains(&value), name, value, "from 0 to 1")?;
        }
        Ok(())
    }
}

/// Declares the parts of the body with their names, in the order of their labels.
macro_rules! body_parts {
    ($($(#[$docs:meta])* $part:ident: $name:literal,)*) => {
        /// A part of the body.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum BodyPart {
            $($(#[$docs])* $part,)*
        }

        impl BodyPart {
            /// All parts, in the order of their labels.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$part),*];

            /// Name of the part, such as `left hand`.
            pub fn name(self) -> &'static str {
                [$($name),*][usize::from(self.label())]
            }
        }
    };
}

body_parts! {
    /// Head and upper half of the neck.
    Head: "head",
    /// Chest, shoulders, belly and hips, down to where the legs leave the trunk.
    Torso: "torso",
    /// From the left armpit to the elbow.
    UpperArmLeft: "left upper arm",
    /// From the right armpit to the elbow.
    UpperArmRight: "right upper arm",
    /// From the left elbow to the wrist.
    ForearmLeft: "left forearm",
    /// From the right elbow to the wrist.
    ForearmRight: "right forearm",
    /// The left hand.
    HandLeft: "left hand",
    /// The right hand.
    HandRight: "right hand",
    /// From where the left leg leaves the trunk to the knee.
    ThighLeft: "left thigh",
    /// From where the right leg leaves the trunk to the knee.
    ThighRight: "right thigh",
    /// From the left knee to the ankle.
    ShinLeft: "left shin",
    /// From the right knee to the ankle.
    ShinRight: "right shin",
    /// The left foot.
    FootLeft: "left foot",
    /// The right foot.
    FootRight: "right foot",
}

impl BodyPart {
    /// Label of the part, from 0: its index in [`BodyPart::ALL`].
    pub fn label(self) -> u8 {
        self as u8
    }

    /// The same part on the other side. Head and torso are their own mirror images.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Head | Self::Torso => self,
            // After the two parts in the middle, left and right alternate.
            _ => Self::ALL[usize::from(self.label() ^ 1)],
        }
    }
}

/// A family of registered bodies: they share the connectivity and the meaning of every vertex. Each
/// index is a different person in a different pose.
///
/// Units are metres. y is up and the feet are on the plane `y = 0`. The body at rest faces +z, the
/// others approximately.
///
/// ```
/// use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
/// let family = BodyFamily::new(&BodyOptions { vertices: 1000, ..BodyOptions::default() })?;
/// let (a, b) = (family.body(0), family.body(1));
/// assert_eq!(a.vertex_count(), 1000);
/// assert_eq!(a.faces(), b.faces());
/// assert_ne!(a.vertices(), b.vertices());
/// # Ok::<(), gemcnn_mesh::shapes::ShapeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BodyFamily {
    options: BodyOptions,
    template: Mesh,
    /// Vertices of the template in the coordinates of the skeleton.
    at_rest: Vec<DVec3>,
    /// Smoothed outward normals of the template, the direction of the relief of people.
    normals: Vec<DVec3>,
    /// Approximate half thickness of the body at every vertex.
    radii: Vec<f64>,
    weights: SkinWeights,
    parts: Vec<BodyPart>,
}

impl BodyFamily {
    /// Meshes the body at rest and computes its skinning weights.
    ///
    /// # Errors
    /// The number of vertices is not in 500 to 200,000, or a variation is not in 0 to 1.
    pub fn new(options: &BodyOptions) -> Result<Self, ShapeError> {
        options.check()?;
        let skin = Skin::new();
        let [low, high] = skin.bounds();
        let (positions, triangles) = isosurface(|p| skin.distance(p), low, high, LATTICE);
        let surface = remesh(Triangulation::new(positions, &triangles), &skin, LATTICE, options.vertices);
        require(
            surface.vertex_count() == options.vertices,
            "vertices",
            options.vertices,
            "a number of vertices for which meshing succeeds: try a few more",
        )?;
        let rest = numbered(surface)?;
        let adjacency = Adjacency::one_ring(&rest)
            .expect("a mesh under 200,000 vertices has fewer edges than 32-bit indices address");
        let weights = SkinWeights::new(&rest, &adjacency, &skin);
        let vertices = 0..rest.vertex_count();
        let radii = vertices.clone().map(|vertex| {
            let shares = weights.of(vertex).iter();
            shares.map(|&(bone, weight)| weight * ANATOMY.bones[bone as usize].radius).sum()
        });
        let parts = vertices.map(|vertex| {
            let (heaviest, _) = weights.of(vertex)[0];
            ANATOMY.bones[heaviest as usize].part_at(rest.vertices()[vertex])
        });
        let (radii, parts) = (radii.collect(), parts.collect());
        let normals = smoothed_normals(&rest, &adjacency, &skin);
        let (at_rest, faces) = rest.into_parts();
        let mut standing = at_rest.clone();
        stand_on_floor(&mut standing);
        Ok(Self { options: *options, template: Mesh::new(standing, faces)?, at_rest, normals, radii, weights, parts })
    }

    /// Options of the family.
    pub fn options(&self) -> &BodyOptions {
        &self.options
    }

    /// The body at rest: arms and legs slightly spread, feet on the floor, facing +z.
    pub fn template(&self) -> &Mesh {
        &self.template
    }

    /// The body part of every vertex.
    pub fn segments(&self) -> &[BodyPart] {
        &self.parts
    }

    /// The body with index `index`. Its person and pose depend only on the seed and the index.
    pub fn body(&self, index: u64) -> Mesh {
        let BodyOptions { seed, people, poses, variety, .. } = self.options;
        let mut uniform = Uniform::of_stream(seed, index);
        let (person, pose) = if variety > 0.0 {
            let mut further = Uniform::of_stream(seed ^ VARIETY_SEED, index);
            let person = Person::draw(&mut uniform, people, Some((&mut further, variety)));
            let pose = pose::draw_from_families(&mut further, &person, poses, variety);
            (person, pose)
        } else {
            let person = Person::draw(&mut uniform, people, None);
            let pose = pose::draw(&mut uniform, &person, poses);
            (person, pose)
        };
        let mut vertices: Vec<DVec3> =
            (0..self.template.vertex_count()).map(|vertex| self.placed(vertex, &person, &pose)).collect();
        stand_on_floor(&mut vertices);
        Mesh::new(vertices, self.template.faces().clone()).expect("bounded motions of finite points are finite")
    }

    /// Position of a vertex of the template for the given person and pose.
    fn placed(&self, vertex: usize, person: &Person, pose: &Pose) -> DVec3 {
        let shares = self.weights.of(vertex);
        let relieved = person.surface(self.at_rest[vertex], self.normals[vertex], self.radii[vertex], shares);
        let shaped = shares.iter().map(|&(bone, weight)| weight * person.bones[bone as usize].place(relieved)).sum();
        blended(shares, pose, shaped)
    }
}

/// Mean of the normals within about `SMOOTH_NORMALS` of each vertex. It is short where the normals
/// differ, so that relief hardly moves a nose, an ear or a fingertip.
fn smoothed_normals(mesh: &Mesh, adjacency: &Adjacency, skin: &Skin) -> Vec<DVec3> {
    let edges = (0..mesh.vertex_count()).flat_map(|v| {
        let neighbours = adjacency.neighbours_of(v).iter();
        neighbours.map(move |&n| mesh.vertices()[v].distance(mesh.vertices()[n as usize]))
    });
    let mean_edge = edges.sum::<f64>() / adjacency.edge_count() as f64;
    // The variance of each step is about one squared edge length.
    let steps = (SMOOTH_NORMALS / mean_edge).powi(2).ceil() as usize;
    let first = mesh.vertices().iter().map(|&p| skin.normal(p)).collect();
    (0..steps).fold(first, |normals: Vec<DVec3>, _| {
        let mean_around = |v: usize| {
            let neighbours = adjacency.neighbours_of(v).iter();
            let sum: DVec3 = neighbours.map(|&n| normals[n as usize]).sum();
            (sum + normals[v]) / (adjacency.row(v).len() + 1) as f64
        };
        (0..normals.len()).map(mean_around).collect()
    })
}

/// Moves a point by the weighted mean of the dual quaternions of the bones' motions, which
/// preserves the volume at bent and twisted joints.
fn blended(shares: &[(u8, f64)], pose: &Pose, p: DVec3) -> DVec3 {
    let heaviest = pose[shares[0].0 as usize].rotation;
    let zero = DQuat::from_xyzw(0.0, 0.0, 0.0, 0.0);
    let (mut real, mut dual) = (zero, zero);
    for &(bone, weight) in shares {
        let Motion { rotation, shift } = pose[bone as usize];
        // q and -q are the same rotation; all quaternions of a vertex must lie in the same half
        // space.
        let weight = if rotation.dot(heaviest) < 0.0 { -weight } else { weight };
        let shift = DQuat::from_xyzw(shift.x, shift.y, shift.z, 0.0);
        real += rotation * weight;
        dual += shift * rotation * (0.5 * weight);
    }
    let norm = real.length();
    let (real, dual) = (real / norm, dual / norm);
    let shift = dual * real.conjugate() * 2.0;
    real * p + DVec3::new(shift.x, shift.y, shift.z)
}

/// The final mesh, numbered along a space-filling curve (Morton order of the vertices in 2 mm
/// steps). Neighbours have close indices, and the order does not depend on the construction of the
/// mesh.
fn numbered(surface: Triangulation) -> Result<Mesh, ShapeError> {
    let positions = &surface.positions;
    let low = positions.iter().fold(DVec3::INFINITY, |low, &p| low.min(p));
    let code = |p: DVec3| {
        let steps = ((p - low) / 0.002).to_array().map(|s| s as u64);
        (0..16).fold(0u64, |code, bit| {
            let digit = (0..3).map(|axis| (steps[axis] >> bit & 1) << axis).sum::<u64>();
            code | digit << (3 * bit)
        })
    };
    let mut order: Vec<u32> = (0..positions.len() as u32).collect();
    order.sort_by_cached_key(|&v| (code(positions[v as usize]), v));
    let mut place = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old as usize] = new as u32;
    }
    let mut triangles: Vec<[u32; 3]> = surface
        .triangles()
        .map(|triangle| {
            let mut triangle = triangle.map(|v| place[v as usize]);
            let lowest = (0..3).min_by_key(|&i| triangle[i]).unwrap_or(0);
            triangle.rotate_left(lowest);
            triangle
        })
        .collect();
    triangles.sort_unstable();
    let vertices = order.iter().map(|&v| positions[v as usize]).collect();
    Ok(Mesh::new(vertices, triangles.iter().collect::<Faces>())?)
}

/// Moves the body vertically so that its lowest vertex has height 0.
fn stand_on_floor(vertices: &mut [DVec3]) {
    let lowest = vertices.iter().map(|v| v.y).fold(f64::INFINITY, f64::min);
    vertices.iter_mut().for_each(|v| v.y -= lowest);
}
