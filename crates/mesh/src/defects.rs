//! Defects of single faces and vertices: degenerate faces, duplicate faces and coincident vertices.
//! The report counts them and the repairs remove them.

use glam::DVec3;
use rayon::prelude::*;

use crate::classes::bucket;
use crate::mesh::{Faces, Mesh};
use crate::polygon::{is_negligible_area, vector_area};

/// True if a face contains one vertex more than once.
pub(crate) fn has_repeated_corner(corners: &[u32]) -> bool {
    if corners.len() <= 8 {
        return (1..corners.len()).any(|i| corners[..i].contains(&corners[i]));
    }
    let mut sorted = corners.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// True if a face contains one vertex more than once and is not a keyhole polygon.
pub(crate) fn is_collapsed(corners: &[u32]) -> bool {
    has_repeated_corner(corners) && !is_keyhole(corners)
}

/// True if a face is a polygon with holes that runs along an edge twice, once in each direction: a
/// bridge joins the border of each hole to another border. Without the bridges, the sides form two
/// or more disjoint cycles.
pub(crate) fn is_keyhole(corners: &[u32]) -> bool {
    // Two triangles and a bridge between them.
    const FEWEST: usize = 8;
    if corners.len() < FEWEST {
        return false;
    }
    let next = corners.iter().cycle().skip(1);
    let mut sides: Vec<(u32, u32)> = corners.iter().copied().zip(next.copied()).collect();
    sides.sort_unstable();
    let has_no_length = |(from, to): &(u32, u32)| from == to;
    if sides.windows(2).any(|pair| pair[0] == pair[1]) || sides.iter().any(has_no_length) {
        return false;
    }
    let is_border = |&&(from, to): &&(u32, u32)| sides.binary_search(&(to, from)).is_err();
    let border: Vec<(u32, u32)> = sides.iter().filter(is_border).copied().collect();
    if border.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return false;
    }
    // As many border sides start at a vertex as end there, so each is part of one cycle.
    let mut is_open = vec![true; border.len()];
    let mut cycles = 0;
    for start in 0..border.len() {
        let mut at = start;
        cycles += usize::from(is_open[start]);
        while std::mem::replace(&mut is_open[at], false) {
            let end = border[at].1;
            match border.binary_search_by_key(&end, |&(from, _)| from) {
                Ok(after) => at = after,
                Err(_) => return false,
            }
        }
    }
    cycles >= 2
}

/// Whether a face is degenerate (collapsed, or of zero area up to rounding), and its area.
pub(crate) fn degeneracy_and_area(mesh: &Mesh, face: usize) -> (bool, f64) {
    let area = vector_area(mesh.face_positions(face));
    let degenerate = is_collapsed(mesh.face(face)) || is_negligible_area(area, mesh.face_positions(face));
    (degenerate, area.length())
}

/// Faces that repeat an earlier face up to the first corner and the orientation. Each entry is a
/// pair of the first such face and the repetition, sorted by the repetition.
pub(crate) fn duplicate_faces(mesh: &Mesh) -> Vec<[u32; 2]> {
    let faces = mesh.faces();
    let mut canonical = Faces::with_capacity(faces.len(), faces.corners().len());
    for corners in faces.iter() {
        push_canonical(&mut canonical, corners);
    }
    // A canonical cycle starts at its lowest vertex, so duplicates share a bucket.
    let by_lowest = canonical.iter().enumerate().filter_map(|(face, cycle)| Some((*cycle.first()?, face as u32)));
    let (groups, mut grouped) = bucket(mesh.vertex_count(), by_lowest);
    let cycle = |face: u32| canonical.get(face as usize);
    let mut duplicates = Vec::new();
    for bounds in groups.windows(2) {
        let group = &mut grouped[bounds[0] as usize..bounds[1] as usize];
        group.sort_by(|&a, &b| cycle(a).cmp(cycle(b)));
        for same in group.chunk_by(|&a, &b| cycle(a) == cycle(b)) {
            duplicates.extend(same[1..].iter().map(|&face| [same[0], face]));
        }
    }
    duplicates.sort_unstable_by_key(|pair| pair[1]);
    duplicates
}

/// Appends the lexicographically smallest rotation of a cycle or its reverse.
fn push_canonical(list: &mut Faces, corners: &[u32]) {
    let count = corners.len();
    let forward = |i: usize| corners[i % count];
    let backward = |i: usize| corners[count - 1 - i % count];
    let start = least_rotation(count, forward);
    let forward = (start..start + count).map(forward);
    let start = least_rotation(count, backward);
    let backward = (start..start + count).map(backward);
    if backward.clone().lt(forward.clone()) {
        backward.for_each(|vertex| list.push_corner(vertex));
    } else {
        forward.for_each(|vertex| list.push_corner(vertex));
    }
    list.close_face();
}

/// Start of the lexicographically smallest rotation of a cycle, in linear time. Two candidates are
/// compared; the one that loses after `same` equal entries skips all `same + 1` starts that cannot
/// be the smallest.
fn least_rotation(count: usize, entry: impl Fn(usize) -> u32) -> usize {
    let (mut best, mut rival, mut same) = (0, 1, 0);
    while best < count && rival < count && same < count {
        match entry(best + same).cmp(&entry(rival + same)) {
            std::cmp::Ordering::Equal => {
                same += 1;
                continue;
            }
            std::cmp::Ordering::Less => rival += same + 1,
            std::cmp::Ordering::Greater => best += same + 1,
        }
        if best == rival {
            rival += 1;
        }
        same = 0;
    }
    best.min(rival)
}

/// A hash key of a position. Equal positions have equal keys; 0.0 and -0.0 are equal.
pub(crate) fn position_key(position: DVec3) -> [u64; 3] {
    // Adding 0.0 maps -0.0 to 0.0 and does not change any other number.
    position.to_array().map(|x| (x + 0.0).to_bits())
}

/// For every point, the first point at exactly the same position.
pub(crate) fn first_at_same_position(points: &[DVec3]) -> Vec<u32> {
    let hash = |point: &DVec3| {
        let mix = |hash: u64, bits: u64| (hash.rotate_left(23) ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        position_key(*point).into_iter().fold(0, mix)
    };
    let mut hashes: Vec<(u64, u32)> =
        (points.par_iter().enumerate()).map(|(index, point)| (hash(point), index as u32)).collect();
    hashes.par_sort_unstable();
    let mut first: Vec<u32> = (0..points.len() as u32).collect();
    let key = |index: u32| position_key(points[index as usize]);
    for same in hashes.chunk_by_mut(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        // Different points may have the same hash.
        same.sort_by_key(|&(_, index)| key(index));
        for coincident in same.chunk_by(|a, b| key(a.1) == key(b.1)) {
            for &(_, index) in coincident {
                first[index as usize] = coincident[0].1;
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(corners: &[u32]) -> Vec<u32> {
        let mut list = Faces::new();
        push_canonical(&mut list, corners);
        list.get(0).to_vec()
    }

    #[test]
    fn keyholes_have_two_borders_and_a_bridge() {
        assert!(is_keyhole(&[0, 1, 2, 0, 3, 4, 5, 3]));
        // Two bridges in a row, to a second hole.
        assert!(is_keyhole(&[0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 6, 5, 3]));
        // A polygon, lines that run back, two triangles at a vertex, a face run twice, a repeated
        // corner.
        for other in [
            &[0, 1, 2, 3, 4, 5, 6, 7][..],
            &[0, 1, 2, 3, 0, 4, 5, 4],
            &[0, 1, 0, 2, 0, 3, 0, 4],
            &[0, 1, 2, 3, 0, 4, 5, 6],
            &[0, 1, 2, 3, 0, 1, 2, 3],
            &[0, 1, 2, 2, 0, 3, 4, 5, 3],
        ] {
            assert!(!is_keyhole(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn canonical_cycle_is_the_least_of_all_readings(
            corners in prop::collection::vec(0u32..3, 3..12)
        ) {
            let mut readings = Vec::new();
            for start in 0..corners.len() {
                let mut turned = corners.clone();
                turned.rotate_left(start);
                readings.push(turned.clone());
                turned.reverse();
                readings.push(turned);
            }
            for reading in &readings {
                prop_assert_eq!(Some(&canonical(reading)), readings.iter().min());
            }
        }

        #[test]
        fn repetitions_are_found_in_short_and_long_faces(
            corners in prop::collection::vec(0u32..60, 3..20)
        ) {
            let distinct: std::collections::HashSet<_> = corners.iter().collect();
            prop_assert_eq!(has_repeated_corner(&corners), distinct.len() < corners.len());
        }
    }

    #[test]
    fn the_same_corners_in_another_cycle_are_no_duplicate() {
        let faces = [[3, 1, 2, 0], [0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]];
        let mesh = Mesh::new(vec![DVec3::ZERO; 4], faces.iter().collect()).unwrap();
        // 3 1 2 0 is the reverse of 0 2 1 3; 0 1 2 3 is the reverse of 3 2 1 0.
        assert_eq!(duplicate_faces(&mesh), [[0, 2], [1, 3]]);
    }

    #[test]
    fn positions_are_compared_exactly_but_for_the_sign_of_zero() {
        let x = 0.1 + 0.2;
        let points =
            [DVec3::new(0.0, x, 1.0), DVec3::new(0.0, 0.3, 1.0), DVec3::new(-0.0, x, 1.0), DVec3::new(0.0, 0.3, 1.0)];
        assert_eq!(first_at_same_position(&points), [0, 1, 0, 1]);
    }
}
