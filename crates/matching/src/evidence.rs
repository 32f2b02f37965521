//! What speaks for a map and against it.

use crate::refine::{FunctionalMap, Refined};
use crate::shape::Shape;
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::{DVec3, Frame};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt;

/// Distance on surfaces of unit area up to which two points count as the same.
const NEAR: f64 = 0.05;
/// Distance from which on two maps disagree.
const APART: f64 = 0.1;
/// An edge is torn if its image is longer than this and twice its length.
const TORN: f64 = 0.1;
/// Largest factor between areas that counts as undistorted.
const DISTORTED: f64 = 4.0;

/// Measures of a map from A to B. Shares are of the area.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evidence {
    /// `|C C^T - I| / sqrt(k)` of the first 30 eigenvectors: 0 for a map that keeps areas.
    pub orthogonality: f64,
    /// Share of the surface whose points return to within 0.05 when mapped to the other one and back: the smaller of
    /// both sides.
    pub bijectivity: f64,
    /// Share of A on which a refinement from another start gives the same point, up to 0.1.
    pub agreement: f64,
    /// Share of A on which the map turns a surface over, so that left and right are exchanged.
    pub reversed: f64,
    /// Share of A at which neighbours are mapped to points far from each other.
    pub torn: f64,
    /// Share of A on which areas change by more than a factor of 4.
    pub distorted: f64,
    /// Mean product of the descriptors of points and their images: at most 1.
    pub likeness: f64,
}

/// What a map is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against the map.
    Good,
    /// Parts of the map are probably wrong.
    Doubtful,
    /// The surfaces are not of one kind, or the map is wrong as a whole.
    Meaningless,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Doubtful => "doubtful",
            Self::Meaningless => "meaningless",
        })
    }
}

/// Something that speaks against a map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Doubt {
    /// Name of the field of [`Evidence`].
    pub measure: &'static str,
    /// How much is wrong, usually a share of the area.
    pub share: f64,
    /// True beyond the limit for maps that mean nothing.
    pub is_grave: bool,
    text: &'static str,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} % {}", 100.0 * self.share, self.text)
    }
}

/// Shares from which on a measure is a doubt, and a grave one. They are chosen on pairs of synthetic bodies, and of
/// bodies with parts of bodies and with other shapes.
const LIMITS: [(&str, f64, f64, &str); 7] = [
    ("orthogonality", 0.15, f64::INFINITY, "deviation of the functional map from one that keeps areas"),
    ("bijectivity", 0.1, f64::INFINITY, "of a surface do not return to their place when mapped there and back"),
    ("agreement", 0.2, 0.55, "of A are mapped elsewhere from a second start"),
    ("reversed", 0.1, 0.2, "of A have left and right exchanged"),
    ("torn", 0.05, 0.18, "of A have neighbours that are mapped far from each other"),
    ("distorted", 0.35, f64::INFINITY, "of A change in area by more than a factor of 4"),
    ("likeness", 0.45, 0.6, "difference between the descriptors of points and of their images"),
];
/// Measures that say something of the descriptors.
const DESCRIPTORS: [&str; 2] = ["agreement", "likeness"];
/// Number of grave doubts from which on a map means nothing.
const GRAVE: usize = 2;

impl Evidence {
    /// What speaks against the map.
    pub fn doubts(&self) -> Vec<Doubt> {
        let shares = [
            self.orthogonality,
            1.0 - self.bijectivity,
            1.0 - self.agreement,
            self.reversed,
            self.torn,
            self.distorted,
            1.0 - self.likeness,
        ];
        // A share that is not a number is a doubt.
        let beyond = |(share, (measure, doubtful, grave, text)): (f64, (&'static str, f64, f64, &'static str))| {
            let is_grave = share > grave;
            (share.is_nan() || share > doubtful).then_some(Doubt { measure, share, is_grave, text })
        };
        shares.into_iter().zip(LIMITS).filter_map(beyond).collect()
    }

    /// What the map is worth: one doubt makes it doubtful, two grave ones meaningless.
    pub fn verdict(&self) -> Verdict {
        let doubts = self.doubts();
        match doubts.iter().filter(|doubt| doubt.is_grave).count() {
            GRAVE.. => Verdict::Meaningless,
            _ if doubts.is_empty() => Verdict::Good,
            _ => Verdict::Doubtful,
        }
    }

    /// How far a map is from one that keeps areas and orientation and can be inverted: without the measures of
    /// descriptors. 0 is best.
    pub(crate) fn badness(&self) -> f64 {
        self.orthogonality + (1.0 - self.bijectivity) + self.reversed + self.torn + self.distorted
    }

    /// True if neither areas, orientation nor the way back speak against the map.
    pub(crate) fn is_accepted(&self) -> bool {
        self.doubts().iter().all(|doubt| DESCRIPTORS.contains(&doubt.measure))
    }

    /// The verdict and the main measures in one line.
    pub fn summary(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        format!(
            "{}; {} return, {} agree with a second start, {} reversed, {} torn",
            self.verdict(),
            percent(self.bijectivity),
            percent(self.agreement),
            percent(self.reversed),
            percent(self.torn)
        )
    }
}

/// The measures of single vertices of A.
pub(crate) struct Measured {
    pub(crate) evidence: Evidence,
    /// Confidence of every vertex, from 0 to 1.
    pub(crate) confidence: Vec<f32>,
    /// Directions in B of the frame axes of every vertex of A, and its normal.
    pub(crate) turned: Vec<Frame>,
}

/// Compares a map with its inverse, with one from another start, and with a smooth one that keeps areas.
pub(crate) fn measure(a: &Shape, b: &Shape, map: &Refined, images: &[SurfacePoint], second: &[u32]) -> Measured {
    let [on_a, on_b] = [a, b].map(|shape| shape.surface().vertices());
    let returns = |from: &[DVec3], there: &[u32], back: &[u32]| -> Vec<f64> {
        let home = |(place, &image): (&DVec3, &u32)| place.distance(from[back[image as usize] as usize]);
        from.iter().zip(there).map(home).collect()
    };
    let returns_a = returns(on_a, &map.forward, &map.backward);
    let returns_b = returns(on_b, &map.backward, &map.forward);
    let differences: Vec<f64> = (map.forward.iter().zip(second))
        .map(|(&first, &second)| on_b[first as usize].distance(on_b[second as usize]))
        .collect();
    let locals = locals(a, b, images);
    let orientation = smoothed(a, &locals.iter().map(|local| local.orientation).collect::<Vec<_>>());
    let share = |shape: &Shape, holds: &dyn Fn(usize) -> bool| {
        let mass = &shape.basis().mass;
        let found = mass.iter().enumerate().filter(|&(vertex, _)| holds(vertex)).map(|(_, &mass)| f64::from(mass));
        // An empty sum is -0.
        found.fold(0.0, |sum, mass| sum + mass)
            / mass.iter().map(|&mass| f64::from(mass)).sum::<f64>().max(f64::MIN_POSITIVE)
    };
    let width = a.descriptors().width;
    let [rows_a, rows_b] = [a, b].map(|shape| &shape.descriptors().rows);
    let likeness = |(vertex, &image): (usize, &u32)| {
        let products = rows_a[vertex * width..][..width]
            .iter()
            .zip(&rows_b[image as usize * width..][..width])
            .map(|(x, y)| f64::from(x * y));
        f64::from(a.basis().mass[vertex]) * products.sum::<f64>()
    };
    let area: f64 = a.basis().mass.iter().map(|&mass| f64::from(mass)).sum();
    let evidence = Evidence {
        orthogonality: orthogonality(&map.functional_map),
        bijectivity: share(a, &|v| returns_a[v] < NEAR).min(share(b, &|v| returns_b[v] < NEAR)),
        agreement: share(a, &|v| differences[v] < APART),
        reversed: share(a, &|v| orientation[v] < 0.0),
        torn: share(a, &|v| locals[v].torn),
        distorted: share(a, &|v| !(1.0 / DISTORTED..DISTORTED).contains(&locals[v].area)),
        likeness: map.forward.iter().enumerate().map(likeness).sum::<f64>() / area.max(f64::MIN_POSITIVE),
    };
    let near = |distance: f64, scale: f64| (1.0 + (distance / scale).powi(2)).recip();
    let confidence = |vertex: usize| {
        let upright = (0.5 + 0.5 * orientation[vertex]).clamp(0.0, 1.0);
        (near(returns_a[vertex], NEAR) * near(differences[vertex], APART) * upright) as f32
    };
    Measured {
        evidence,
        confidence: (0..on_a.len()).map(confidence).collect(),
        turned: locals.into_iter().map(|local| local.turned).collect(),
    }
}

fn orthogonality(map: &FunctionalMap) -> f64 {
    let size = map.size.min(30);
    let row = |i: usize| &map.values[i * map.size..][..map.size];
    let entry = |i: usize, j: usize| {
        let product: f64 = row(i).iter().zip(row(j)).map(|(x, y)| f64::from(x * y)).sum();
        (product - if i == j { 1.0 } else { 0.0 }).powi(2)
    };
    let sum: f64 = (0..size * size).map(|place| entry(place / size, place % size)).sum();
    (sum / size as f64).sqrt()
}

/// The map around a vertex of A.
struct Local {
    /// From -1 (turned over) to 1.
    orientation: f64,
    /// Area of the image, relative to that on A.
    area: f64,
    torn: bool,
    /// Directions in B of the frame of the vertex.
    turned: Frame,
}

/// Fits the differential around every vertex in complex numbers: `w = alpha u + beta conj(u)`, for tangent vectors `u`
/// to the vertices up to two edges away and `w` to their images.
fn locals(a: &Shape, b: &Shape, images: &[SurfacePoint]) -> Vec<Local> {
    let (points, adjacency) = (a.surface().vertices(), a.graph().adjacency());
    let places: Vec<DVec3> = images.iter().map(|image| image.position(b.surface().vertices())).collect();
    let local = |vertex: usize| {
        let frame = &a.graph().frames()[vertex];
        let image = &b.graph().frames()[images[vertex].nearest_corner() as usize];
        let (mut linear, mut mirrored, mut sum, mut torn) = ([0.0; 2], [0.0; 2], 0.0, false);
        for &middle in adjacency.neighbours_of(vertex) {
            let middle = middle as usize;
            let length = points[middle].distance(points[vertex]);
            torn |= places[middle].distance(places[vertex]) > TORN + 2.0 * length;
            for &neighbour in std::iter::once(&(middle as u32)).chain(adjacency.neighbours_of(middle)) {
                let neighbour = neighbour as usize;
                let [ux, uy] = frame.coefficients(points[neighbour] - points[vertex]);
                let [wx, wy] = image.coefficients(places[neighbour] - places[vertex]);
                linear = [linear[0] + ux * wx + uy * wy, linear[1] + ux * wy - uy * wx];
                mirrored = [mirrored[0] + ux * wx - uy * wy, mirrored[1] + ux * wy + uy * wx];
                sum += ux * ux + uy * uy;
            }
        }
        let squared = |[x, y]: [f64; 2]| x * x + y * y;
        let (kept, reversed) = (squared(linear), squared(mirrored));
        let [cosine, sine] = if kept > 0.0 { linear.map(|x| x / kept.sqrt()) } else { [1.0, 0.0] };
        Local {
            orientation: (kept - reversed) / (kept + reversed).max(f64::MIN_POSITIVE),
            area: (kept - reversed).abs() / (sum * sum).max(f64::MIN_POSITIVE),
            torn,
            turned: image.turned(sine.atan2(cosine)),
        }
    };
    (0..points.len()).into_par_iter().map(local).collect()
}

/// Means of the values of every vertex and its neighbours, twice.
fn smoothed(shape: &Shape, values: &[f64]) -> Vec<f64> {
    let adjacency = shape.graph().adjacency();
    let mean = |values: &[f64], vertex: usize| {
        let around = adjacency.neighbours_of(vertex);
        let sum: f64 = around.iter().map(|&neighbour| values[neighbour as usize]).sum();
        (values[vertex] + sum) / (1.0 + around.len() as f64)
    };
    let once: Vec<f64> = (0..values.len()).map(|vertex| mean(values, vertex)).collect();
    (0..values.len()).map(|vertex| mean(&once, vertex)).collect()
}
