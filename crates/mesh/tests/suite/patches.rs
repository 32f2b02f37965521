//! Spirals, geodesic discs, Zernike coefficients and anisotropic kernels.

use crate::common::graph;
use gemcnn_mesh::patches::{AnisotropicHeat, Discs, ZernikeFit, spirals};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, Mesh};

/// An irregular mesh in the plane, of unit spacing.
fn flat(size: usize) -> Mesh {
    let grid = shapes::grid(size, size, Cells::Triangles).unwrap();
    let [low, high] = grid.bounds().unwrap();
    let spacing = (high.x - low.x) / (size - 1) as f64;
    grid.map_vertices(|p| {
        let p = (p - low) / spacing;
        let wave = |a: f64, b: f64| 0.2 * (1.7 * a + 2.3 * b).sin();
        DVec3::new(p.x + wave(p.x, p.y), p.y + wave(p.y, p.x), 0.0)
    })
    .unwrap()
}

#[test]
fn spirals_follow_the_orientation_ring_after_ring() {
    let mesh = shapes::icosahedron();
    let has_face =
        |corners: [u32; 3]| mesh.faces().iter().any(|f| (0..3).any(|k| (0..3).all(|i| f[(k + i) % 3] == corners[i])));
    for (centre, spiral) in spirals(&mesh, 12, 1).iter().enumerate() {
        let mut sorted = spiral.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<u32>>());
        let ring = &spiral[1..6];
        assert_eq!(ring[0], *ring.iter().min().unwrap());
        for k in 0..5 {
            assert!(has_face([centre as u32, ring[k], ring[(k + 1) % 5]]));
        }
        // The opposite vertex comes last.
        let opposite = -mesh.vertices()[centre];
        assert!(mesh.vertices()[spiral[11] as usize].distance(opposite) < 1e-9);
    }
    let sparse = spirals(&mesh, 4, 3);
    let dense = spirals(&mesh, 12, 1);
    assert_eq!(sparse[5], [0, 3, 6, 9].map(|at| dense[5][at]));
    // Shorter where the component ends; alone without faces.
    assert_eq!(spirals(&mesh, 40, 1)[3].len(), 12);
    let points = Mesh::new(vec![DVec3::ZERO, DVec3::X], Default::default()).unwrap();
    assert_eq!(spirals(&points, 3, 1), [vec![0], vec![1]]);
    assert_eq!(spirals(&points, 0, 0), [vec![], vec![]] as [Vec<u32>; 2]);
}

#[test]
fn at_a_border_spirals_start_at_its_first_vertex() {
    // Faces 0 1 3 and 0 3 2: the fan of 0 opens between 1 and 2.
    let points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
    let points = points.map(|[x, y]| DVec3::new(x, y, 0.0)).to_vec();
    let faces = [[0u32, 1, 3], [0, 3, 2]];
    let mesh = Mesh::new(points, faces.iter().collect()).unwrap();
    let spirals = spirals(&mesh, 4, 1);
    assert_eq!(spirals[0], [0, 1, 3, 2]);
    assert_eq!(spirals[3], [3, 2, 0, 1]);
    assert_eq!(spirals[1], [1, 3, 0, 2]);
}

#[test]
fn discs_are_exact_in_the_plane_and_turn_with_the_frame() {
    let mesh = flat(12);
    let graph = graph(&mesh);
    let (radius, limit) = (2.6, 200);
    let discs = Discs::new(&graph, radius, limit);
    let points = mesh.vertices();
    for centre in 0..mesh.vertex_count() {
        let frame = &graph.frames()[centre];
        let row = discs.row(centre);
        assert_eq!(discs.vertices[row.start], centre as u32);
        for entry in row.clone() {
            let offset = points[discs.vertices[entry] as usize] - points[centre];
            let exact = frame.coefficients(offset);
            let found = discs.coordinates[entry];
            let off = (exact[0] - found[0]).hypot(exact[1] - found[1]);
            assert!(off < 1e-9, "{centre}: {found:?} is not {exact:?}");
        }
        // Paths along edges are longer than straight ones, by less than the allowed detour here.
        let within = points.iter().filter(|p| p.distance(points[centre]) < 0.9 * radius);
        assert!(within.count() <= row.len() && row.len() <= limit);
    }
    let few = Discs::new(&graph, radius, 5);
    assert!((0..few.len()).all(|v| few.row(v).len() == 5 && few.vertices[few.row(v).start] == v as u32));
    let angles: Vec<f64> = (0..mesh.vertex_count()).map(|v| (v * v) as f64).collect();
    let turned = Discs::new(&graph.clone().gauge_transform(&angles).unwrap(), radius, limit);
    assert_eq!(turned.vertices.len(), discs.vertices.len());
    for (centre, &angle) in angles.iter().enumerate() {
        let (sine, cosine) = angle.sin_cos();
        for entry in discs.row(centre) {
            let [x, y] = discs.coordinates[entry];
            let vertex = discs.vertices[entry];
            let place = turned.row(centre).find(|&at| turned.vertices[at] == vertex);
            let found = turned.coordinates[place.unwrap()];
            let off = (cosine * x + sine * y - found[0]).hypot(cosine * y - sine * x - found[1]);
            assert!(off < 1e-9);
        }
    }
}

#[test]
fn discs_on_a_sphere_are_near_the_log_map() {
    let mesh = shapes::icosphere(4).unwrap();
    let graph = graph(&mesh);
    let (radius, points) = (0.4, mesh.vertices());
    let discs = Discs::new(&graph, radius, 500);
    let (mut worst, mut sum, mut count) = (0.0f64, 0.0, 0);
    for centre in (0..mesh.vertex_count()).step_by(97) {
        for entry in discs.row(centre) {
            let other = points[discs.vertices[entry] as usize];
            let angle = points[centre].angle_between(other);
            let [x, y] = graph.frames()[centre].coefficients(other);
            let scale = if angle > 0.0 { angle / x.hypot(y) } else { 0.0 };
            let found = discs.coordinates[entry];
            let off = (scale * x - found[0]).hypot(scale * y - found[1]) / radius;
            (worst, sum, count) = (worst.max(off), sum + off, count + 1);
        }
    }
    let mean = sum / f64::from(count);
    println!("log map of a sphere: mean error {mean:.4} of the radius, largest {worst:.4}");
    assert!(mean < 0.01 && worst < 0.05, "{mean} {worst}");
}

#[test]
fn zernike_coefficients_are_those_of_the_function() {
    let mesh = flat(16);
    let graph = graph(&mesh);
    let radius = 4.0;
    let discs = Discs::new(&graph, radius, 500);
    let fit = ZernikeFit::new(&discs, radius, 3, &vec![1.0; mesh.vertex_count()]);
    assert_eq!(fit.multiplicities, [2, 2, 1, 1]);
    let count = 10;
    assert_eq!(fit.rows.len(), count * mesh.vertex_count());
    // A vertex in the middle, and the function 1.5 + 0.75 r cos t * 2 - 0.5 sqrt 3 (2 r^2 - 1) + sqrt 6 r^2 sin 2t of
    // its disc.
    let centre = 16 * 8 + 8;
    let (frame, origin) = (graph.frames()[centre], mesh.vertices()[centre]);
    let value = |vertex: u32| {
        let [x, y] = frame.coefficients(mesh.vertices()[vertex as usize] - origin);
        let (r, t) = (x.hypot(y) / radius, y.atan2(x));
        1.5 + 0.75 * 2.0 * r * t.cos() - 0.5 * 3f64.sqrt() * (2.0 * r * r - 1.0) + 6f64.sqrt() * r * r * (2.0 * t).sin()
    };
    let rows = &fit.rows[count * centre..][..count];
    let found: Vec<f64> = rows.iter().map(|row| row.iter().map(|&(v, w)| w * value(v)).sum()).collect();
    let expected = [1.5, -0.5, 0.75, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 0.02, "{found} is not {expected}");
    }
}

/// Half a cylinder of radius 1: most curved across its axis, which is z.
#[test]
fn anisotropic_kernels_are_long_along_their_direction() {
    let (around, along) = (41, 31);
    let grid = shapes::grid(around, along, Cells::Triangles).unwrap();
    let [low, high] = grid.bounds().unwrap();
    let cylinder = grid
        .map_vertices(|p| {
            let q = (p - low) / (high - low).max(DVec3::splat(1e-9));
            let angle = std::f64::consts::PI * q.x;
            DVec3::new(angle.cos(), angle.sin(), 2.3 * q.y)
        })
        .unwrap();
    let graph = graph(&cylinder);
    let heat = AnisotropicHeat { radius: 0.12, angles: 2, anisotropy: 20.0, steps: vec![1, 4], limit: 200 };
    let rows = heat.rows(&cylinder, &graph).unwrap();
    assert_eq!(rows.len(), 4 * cylinder.vertex_count());
    for row in &rows {
        let total: f64 = row.iter().map(|entry| entry.1).sum();
        assert!((total - 1.0).abs() < 1e-12);
        assert!(row.iter().all(|entry| entry.1 > 0.0));
    }
    let points = cylinder.vertices();
    let middle = (0..points.len())
        .min_by(|&a, &b| {
            let off = |v: usize| points[v].distance(DVec3::new(0.0, 1.0, 1.15));
            off(a).total_cmp(&off(b))
        })
        .unwrap();
    // Mean squares across and along the axis.
    let spread = |kernel: usize| {
        let (mut across, mut axis) = (0.0, 0.0);
        for &(vertex, weight) in &rows[4 * middle + kernel] {
            let (p, c) = (points[vertex as usize], points[middle]);
            across += weight * (p.x.atan2(p.y) - c.x.atan2(c.y)).powi(2);
            axis += weight * (p.z - c.z).powi(2);
        }
        [across, axis]
    };
    let [short, long] = [spread(0), spread(1)];
    let turned = spread(3);
    println!("spread {short:.4?} {long:.4?}, turned {turned:.4?}");
    assert!(long[0] > 2.0 * short[0], "more steps spread further");
    assert!(long[0] > 3.0 * long[1], "{long:?}");
    assert!(turned[1] > 3.0 * turned[0], "{turned:?}");
    // Frames do not matter.
    let angles: Vec<f64> = (0..points.len()).map(|v| v as f64).collect();
    let other = heat.rows(&cylinder, &graph.gauge_transform(&angles).unwrap()).unwrap();
    let weight = |rows: &[Vec<(u32, f64)>], row: usize, vertex: u32| {
        let entry = rows[row].iter().find(|entry| entry.0 == vertex);
        entry.map_or(0.0, |entry| entry.1)
    };
    for (kernel, row) in rows.iter().enumerate().skip(4 * middle).take(4) {
        for &(vertex, expected) in row {
            assert!((weight(&other, kernel, vertex) - expected).abs() < 1e-6);
        }
    }
}
