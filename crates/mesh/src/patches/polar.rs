//! Polar bins on geodesic discs.

use super::{Discs, PatchRow};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// Number of vertices that a bin reads: those with the largest weights.
const ENTRIES: usize = 4;

/// A row of weights, which sum to 1, for each angle and ring of each vertex, angles first: areas times Gaussian windows
/// of the radius and the angle, one bin wide. The rings divide `radius`; `areas` are those of the vertices.
pub fn polar_bins(discs: &Discs, radius: f64, [angles, rings]: [usize; 2], areas: &[f64]) -> Vec<PatchRow> {
    let widths = [radius / rings as f64, TAU / angles as f64];
    let rows = (0..discs.len()).into_par_iter().flat_map_iter(|vertex| {
        let points = points(discs, vertex, widths, areas);
        (0..angles * rings)
            .map(|bin| bin_weights([bin / rings, bin % rings], angles, &points))
            .collect::<Vec<PatchRow>>()
    });
    rows.collect()
}

/// A vertex of a disc, in rings and in angles between two bins, with the logarithm of its area.
struct Point {
    vertex: u32,
    ring: f64,
    /// `None` for the centre, which lies at all angles.
    angle: Option<f64>,
    area: f64,
}

fn points(discs: &Discs, vertex: usize, [width, turn]: [f64; 2], areas: &[f64]) -> Vec<Point> {
    let entries = discs.row(vertex);
    (discs.vertices[entries.clone()].iter())
        .zip(&discs.coordinates[entries])
        .map(|(&vertex, &[x, y])| {
            let r = x.hypot(y);
            Point {
                vertex,
                ring: r / width,
                angle: (r > 0.0).then(|| y.atan2(x) / turn),
                area: areas[vertex as usize].max(f64::MIN_POSITIVE).ln(),
            }
        })
        .collect()
}

fn bin_weights([angle, ring]: [usize; 2], angles: usize, points: &[Point]) -> PatchRow {
    let (middle, half) = (ring as f64 + 0.5, 0.5 * angles as f64);
    // The largest weights so far, in descending order.
    let mut row: PatchRow = Vec::with_capacity(ENTRIES + 1);
    for point in points {
        let off = point.angle.map_or(0.0, |at| (at - angle as f64 + half).rem_euclid(2.0 * half) - half);
        // A sum of logarithms, so that far bins of small discs do not vanish.
        let weight = point.area - 0.5 * ((point.ring - middle).powi(2) + off * off);
        let comes_before = |&(other, least): &(u32, f64)| (weight, other) > (least, point.vertex);
        if row.len() == ENTRIES && !row.last().is_some_and(comes_before) {
            continue;
        }
        let place = row.iter().position(comes_before).unwrap_or(row.len());
        row.insert(place, (point.vertex, weight));
        row.truncate(ENTRIES);
    }
    let largest = row.first().map_or(0.0, |entry| entry.1);
    row.iter_mut().for_each(|entry| entry.1 = (entry.1 - largest).exp());
    let total: f64 = row.iter().map(|entry| entry.1).sum();
    row.iter_mut().for_each(|entry| entry.1 /= total);
    row
}
