//! Spirals around vertices, in the orientation of the mesh.

use crate::Mesh;
use crate::classes::bucket;
use rayon::prelude::*;

/// The spiral around every vertex: the vertex, its one-ring in the orientation of the faces, the vertices around that
/// ring in the same sense, and so on. Of this sequence every `dilation`-th vertex is kept, `length` in all; fewer where
/// the component of the vertex ends.
///
/// The one-ring starts at its lowest vertex, or at the border. Each later ring is the union of the fans of the ring
/// before, in its order; a fan starts behind a vertex that the spiral has reached. Spirals therefore depend on the
/// faces and on the numbers of the vertices, but not on positions.
///
/// ```
/// use gemcnn_mesh::{patches::spirals, shapes};
/// let spirals = spirals(&shapes::icosahedron(), 12, 1);
/// assert_eq!(spirals[3].len(), 12);
/// assert_eq!(spirals[3][0], 3);
/// ```
pub fn spirals(mesh: &Mesh, length: usize, dilation: usize) -> Vec<Vec<u32>> {
    let corners = mesh.faces().iter().flat_map(|face| {
        let count = face.len();
        (0..count).map(move |at| {
            let [before, own, after] = [at + count - 1, at, at + 1].map(|i| face[i % count]);
            (own, [after, before])
        })
    });
    let corners = corners.filter(|&(own, [after, before])| own != after && own != before);
    let (offsets, turns) = bucket(mesh.vertex_count(), corners);
    let fans: Vec<Vec<u32>> =
        (offsets.par_windows(2)).map(|row| fan(&turns[row[0] as usize..row[1] as usize])).collect();
    let dilation = dilation.max(1);
    let reach = length.saturating_sub(1).saturating_mul(dilation) + 1;
    (0..fans.len() as u32)
        .into_par_iter()
        .map(|centre| {
            let mut spiral = spiral(centre, &fans, reach);
            spiral = spiral.into_iter().step_by(dilation).collect();
            spiral.truncate(length);
            spiral
        })
        .collect()
}

/// The neighbours of a vertex in the orientation of its faces; each corner `[after, before]` turns from one to the
/// next. Starts at the lowest vertex that begins an open fan, else at the lowest of all, and goes on likewise where the
/// faces form several fans.
fn fan(turns: &[[u32; 2]]) -> Vec<u32> {
    let mut order = Vec::with_capacity(turns.len() + 1);
    let mut used = vec![false; turns.len()];
    loop {
        let left = || turns.iter().zip(&used).filter(|(_, used)| !**used);
        let is_first = |turn: &[u32; 2]| left().all(|(other, _)| other[1] != turn[0]);
        let open = left().filter(|(turn, _)| is_first(turn));
        let lowest = open.map(|(turn, _)| turn[0]).min();
        let Some(mut at) = lowest.or_else(|| left().map(|(turn, _)| turn[0]).min()) else { return order };
        loop {
            if !order.contains(&at) {
                order.push(at);
            }
            let next = (0..turns.len()).find(|&i| !used[i] && turns[i][0] == at);
            let Some(next) = next else { break };
            used[next] = true;
            at = turns[next][1];
        }
    }
}

/// The first vertices of a spiral, at least `length` if there are so many.
fn spiral(centre: u32, fans: &[Vec<u32>], length: usize) -> Vec<u32> {
    let mut spiral = vec![centre];
    let mut ring = 0..1;
    while spiral.len() < length && !ring.is_empty() {
        let start = spiral.len();
        for place in ring {
            let fan = &fans[spiral[place] as usize];
            let count = fan.len();
            let is_met = |at: usize| spiral.contains(&fan[at % count]);
            let first = (0..count).find(|&at| !is_met(at) && is_met(at + count - 1));
            for at in 0..count {
                let vertex = fan[(first.unwrap_or(0) + at) % count];
                if !spiral.contains(&vertex) {
                    spiral.push(vertex);
                }
            }
            if spiral.len() >= length {
                return spiral;
            }
        }
        ring = start..spiral.len();
    }
    spiral
}
