//! Synthetic bodies: one connectivity, sound surfaces, good triangles, people and poses that differ.

use crate::common::volume;
use std::collections::HashSet;
use std::sync::LazyLock;

use gemcnn_mesh::shapes::{BodyFamily, BodyOptions, BodyPart, ShapeError};
use gemcnn_mesh::{Adjacency, DVec3, GaugeGraph, GeometryOptions, Mesh, MeshReport, PointIndex};

/// As small as bodies may be.
static SMALL: LazyLock<BodyFamily> = LazyLock::new(|| family(500));

fn family(vertices: usize) -> BodyFamily {
    family_with(BodyOptions { vertices, ..BodyOptions::default() })
}

fn family_with(options: BodyOptions) -> BodyFamily {
    BodyFamily::new(&options).unwrap()
}

fn triangles(mesh: &Mesh) -> impl Iterator<Item = [DVec3; 3]> {
    let corners = mesh.faces().corners().as_chunks::<3>().0;
    corners.iter().map(|triangle| triangle.map(|v| mesh.vertices()[v as usize]))
}

fn area([a, b, c]: [DVec3; 3]) -> f64 {
    0.5 * (b - a).cross(c - a).length()
}

fn smallest_angle(mesh: &Mesh) -> f64 {
    triangles(mesh)
        .flat_map(|[a, b, c]| [(a, b, c), (b, c, a), (c, a, b)])
        .map(|(p, q, r)| (q - p).angle_between(r - p).to_degrees())
        .fold(180.0, f64::min)
}

fn height(mesh: &Mesh) -> f64 {
    mesh.vertices().iter().map(|v| v.y).fold(0.0, f64::max)
}

/// Closed, manifold, of genus 0 and facing outwards, and fit for a network.
fn assert_sound(mesh: &Mesh) {
    let report = MeshReport::new(mesh);
    assert!(report.is_sound() && report.closed, "{report:?}");
    assert_eq!((report.components, report.genus), (1, Some(0)));
    assert_eq!(report.triangles, 2 * mesh.vertex_count() - 4);
    assert!((0.03..0.15).contains(&volume(mesh)), "{}", volume(mesh));
    GaugeGraph::new(mesh, &GeometryOptions::default()).unwrap();
}

#[test]
fn any_number_of_vertices_is_reached_exactly() {
    for vertices in [501, 777, 2345, 5_000] {
        let family = family(vertices);
        assert_eq!(family.template().vertex_count(), vertices);
        assert_sound(family.template());
        assert_sound(&family.body(3));
    }
    assert_eq!(SMALL.template().vertex_count(), 500);
    assert_sound(&SMALL.body(3));
}

#[test]
fn triangles_of_the_default_template_are_even() {
    let template = family_with(BodyOptions::default());
    let template = template.template();
    assert_eq!((template.vertex_count(), template.face_count()), (6890, 13_776));
    assert!(smallest_angle(template) > 30.0);
    let adjacency = Adjacency::one_ring(template).unwrap();
    let regular = (0..6890).filter(|&v| (5..=7).contains(&adjacency.row(v).len())).count();
    assert!(regular > 6820, "{regular} vertices of degree 5 to 7");
    let report = MeshReport::new(template);
    assert!(report.max_edge_length < 1.6 * report.mean_edge_length);
    // Numbers run along the surface: most edges join numbers that are near.
    let near = (0..6890u32)
        .flat_map(|v| adjacency.neighbours_of(v as usize).iter().map(move |&n| v.abs_diff(n)))
        .filter(|&gap| gap < 500)
        .count();
    assert!(near as f64 > 0.8 * adjacency.edge_count() as f64, "{near}");
}

#[test]
fn bodies_share_connectivity_and_no_triangle_collapses() {
    let family = family(1500);
    let template = family.template();
    let rest_areas: Vec<f64> = triangles(template).map(area).collect();
    let mut heights = Vec::new();
    for index in 0..100 {
        let body = family.body(index);
        assert_eq!(body.faces(), template.faces());
        for (triangle, rest) in triangles(&body).zip(&rest_areas) {
            let ratio = area(triangle) / rest;
            assert!((0.08..6.0).contains(&ratio), "body {index}: {ratio}");
        }
        assert!(smallest_angle(&body) > 4.0, "body {index}");
        let lowest = body.vertices().iter().map(|v| v.y).fold(f64::INFINITY, f64::min);
        assert_eq!(lowest, 0.0, "body {index}");
        heights.push(height(&body));
        if index % 10 == 0 {
            assert_sound(&body);
        }
    }
    assert!(heights.iter().all(|height| (1.1..2.3).contains(height)), "{heights:?}");
}

#[test]
fn varied_bodies_are_registered_and_no_triangle_collapses() {
    let family = family_with(BodyOptions { vertices: 1500, seed: 1, variety: 1.0, ..BodyOptions::default() });
    let template = family.template();
    let rest_areas: Vec<f64> = triangles(template).map(area).collect();
    let bodies: Vec<Mesh> = (0..100).map(|index| family.body(index)).collect();
    let mut all_ratios = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        assert_eq!(body.faces(), template.faces());
        let ratios = triangles(body).zip(&rest_areas).map(|(triangle, rest)| area(triangle) / rest);
        all_ratios.extend(ratios);
        let report = MeshReport::new(body);
        assert!(report.is_sound() && report.closed && report.max_edge_length < 0.2, "body {index}: {report:?}");
        assert!((0.01..0.3).contains(&volume(body)), "body {index}: {}", volume(body));
        assert_eq!(body.vertices().iter().map(|v| v.y).fold(f64::INFINITY, f64::min), 0.0);
    }
    all_ratios.sort_by(f64::total_cmp);
    // The hollow of a bent knee or elbow has a few small triangles.
    let at = |share: f64| all_ratios[(share * (all_ratios.len() - 1) as f64) as usize];
    assert!(at(0.0) > 0.002 && at(0.001) > 0.1 && at(1.0) < 10.0, "{} {} {}", at(0.0), at(0.001), at(1.0));
    // Some sit, crawl or lie, and some hands are above the head.
    assert!(bodies.iter().any(|body| height(body) < 1.1));
    let top = |body: &Mesh| {
        let top = body.vertices().iter().zip(family.segments()).max_by(|a, b| a.0.y.total_cmp(&b.0.y));
        top.map(|(_, part)| *part)
    };
    let raised = bodies.iter().filter(|body| matches!(top(body), Some(BodyPart::HandLeft | BodyPart::HandRight)));
    assert!(raised.count() > 10);
}

#[test]
fn further_variety_does_not_change_bodies_without_it() {
    let vertex = |vertices, seed, vertex: usize| {
        let family = family_with(BodyOptions { vertices, seed, ..BodyOptions::default() });
        family.body(7).vertices()[vertex].to_array()
    };
    assert_eq!(vertex(500, 0, 123), [-0.35433182027756116, 0.7745403737067852, 0.18965853647598585]);
    assert_eq!(vertex(6890, 1, 456), [-0.36897081390688746, 0.2387833570083022, 0.07089139466791716]);
    let [plain, varied] = [0.0, 1.0].map(|variety| {
        family_with(BodyOptions { vertices: 500, people: 0.0, poses: 0.0, variety, ..BodyOptions::default() })
    });
    let gap = |(a, b): (&DVec3, &DVec3)| a.distance(*b);
    let apart = plain.body(3).vertices().iter().zip(varied.body(3).vertices()).map(gap).fold(0.0, f64::max);
    assert!(apart < 1e-3, "{apart}");
}

#[test]
fn people_differ_in_height_and_girth_and_stand_upright() {
    let family = family_with(BodyOptions { vertices: 800, poses: 0.0, ..BodyOptions::default() });
    let bodies: Vec<Mesh> = (0..60).map(|index| family.body(index)).collect();
    let range = |value: fn(&Mesh) -> f64| {
        let values = bodies.iter().map(value);
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)))
    };
    let (shortest, tallest) = range(height);
    assert!(shortest > 1.45 && tallest < 2.05, "{shortest} to {tallest}");
    assert!(tallest - shortest > 0.25, "{shortest} to {tallest}");
    let (slim, stout) = range(|body| volume(body) / height(body).powi(3));
    assert!(stout / slim > 1.4, "{slim} to {stout}");
    for body in &bodies {
        let top = body.vertices().iter().zip(family.segments()).max_by(|a, b| a.0.y.total_cmp(&b.0.y));
        assert_eq!(top.map(|(_, part)| *part), Some(BodyPart::Head));
    }
}

#[test]
fn without_variety_every_body_is_the_template() {
    let family = family_with(BodyOptions { vertices: 600, people: 0.0, poses: 0.0, ..BodyOptions::default() });
    for (a, b) in family.body(9).vertices().iter().zip(family.template().vertices()) {
        assert!(a.distance(*b) < 1e-12);
    }
}

/// Root mean square distance of two bodies of the same connectivity after the shift, and the turn
/// about the vertical axis, that bring them nearest.
fn distance_when_aligned(a: &Mesh, b: &Mesh) -> f64 {
    let count = a.vertex_count() as f64;
    let centred = |mesh: &Mesh| -> Vec<DVec3> {
        let middle = mesh.vertices().iter().sum::<DVec3>() / count;
        mesh.vertices().iter().map(|&v| v - middle).collect()
    };
    let (a, b) = (centred(a), centred(b));
    let (mut along, mut across) = (0.0, 0.0);
    for (p, q) in a.iter().zip(&b) {
        along += p.x * q.x + p.z * q.z;
        across += p.z * q.x - p.x * q.z;
    }
    let (sin, cos) = f64::atan2(across, along).sin_cos();
    let squares = a.iter().zip(&b).map(|(p, q)| {
        let turned = DVec3::new(cos * p.x + sin * p.z, p.y, cos * p.z - sin * p.x);
        turned.distance_squared(*q)
    });
    (squares.sum::<f64>() / count).sqrt()
}

#[test]
fn no_two_bodies_are_alike() {
    let bodies: Vec<Mesh> = (0..100).map(|index| SMALL.body(index)).collect();
    // The measure itself: a body turned about the vertical is the same body.
    let turned = bodies[0].map_vertices(|v| DVec3::new(v.z, v.y, -v.x) + DVec3::X).unwrap();
    assert!(distance_when_aligned(&turned, &bodies[0]) < 1e-12);
    let mut nearest = f64::INFINITY;
    for (i, a) in bodies.iter().enumerate() {
        for b in &bodies[..i] {
            nearest = nearest.min(distance_when_aligned(a, b));
        }
    }
    assert!(nearest > 0.03, "two bodies are {nearest} m apart");
}

#[test]
fn bodies_face_about_the_same_way() {
    let centre = |mesh: &Mesh, part: BodyPart| {
        let places: Vec<DVec3> = (mesh.vertices().iter().zip(SMALL.segments()))
            .filter_map(|(&v, &own)| (own == part).then_some(v))
            .collect();
        places.iter().sum::<DVec3>() / places.len() as f64
    };
    for index in 0..50 {
        let body = SMALL.body(index);
        // The left hip is on the left, +x, up to a moderate turn.
        let across = centre(&body, BodyPart::ThighLeft) - centre(&body, BodyPart::ThighRight);
        assert!(across.x > 0.0, "body {index}: {across}");
        let head = centre(&body, BodyPart::Head);
        assert!(head.y > centre(&body, BodyPart::Torso).y + 0.2, "body {index}");
    }
}

#[test]
fn left_mirrors_right_with_reversed_orientation() {
    let family = family(3000);
    let template = family.template();
    let index = PointIndex::new(template.vertices());
    let mean_edge = MeshReport::new(template).mean_edge_length;
    let mut sides = HashSet::new();
    for (vertex, part) in template.vertices().iter().zip(family.segments()) {
        let mirrored = DVec3::new(-vertex.x, vertex.y, vertex.z);
        let found = index.nearest(mirrored).unwrap();
        assert!(found.squared_distance.sqrt() < mean_edge, "{vertex}");
        // The other side has the other label; borders between parts may shift by a few edges.
        let expected = part.mirrored();
        let mut around = Vec::new();
        index.within(mirrored, 3.0 * mean_edge, usize::MAX, &mut around);
        assert!(around.iter().any(|found| family.segments()[found.point as usize] == expected), "{vertex} {part:?}");
        sides.insert(*part);
    }
    assert_eq!(sides.len(), BodyPart::ALL.len());
    // Left is +x of a body that faces +z with y up: the toes tell the front.
    let toes = template.vertices().iter().zip(family.segments());
    let toes = toes.filter(|(_, part)| **part == BodyPart::FootLeft);
    let toes = toes.max_by(|a, b| a.0.z.total_cmp(&b.0.z)).unwrap().0;
    assert!(toes.x > 0.1 && toes.z > 0.15 && toes.y < 0.1, "{toes}");
}

#[test]
fn bodies_depend_on_seed_and_index_alone() {
    let options = BodyOptions { vertices: 500, ..BodyOptions::default() };
    let first = &*SMALL;
    let fifth = first.body(5);
    let on_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| family_with(options))
    };
    for threads in [1, 3] {
        let again = on_threads(threads);
        assert_eq!(again.template(), first.template());
        assert_eq!(again.body(5), fifth);
        assert_eq!(again.segments(), first.segments());
    }
    let other_seed = family_with(BodyOptions { seed: 1, ..options });
    assert_eq!(other_seed.template(), first.template());
    assert_ne!(other_seed.body(5), fifth);
    assert_ne!(first.body(6), fifth);
    assert_eq!(first.body(u64::MAX).vertex_count(), 500);
}

#[test]
fn silly_options_are_refused() {
    let refuse = |options: BodyOptions, text: &str| {
        let error: ShapeError = BodyFamily::new(&options).expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    };
    let options = BodyOptions::default();
    for vertices in [0, 499, 200_001, usize::MAX] {
        refuse(BodyOptions { vertices, ..options }, "must be from 500 to 200,000");
    }
    refuse(BodyOptions { people: 1.5, ..options }, "people is 1.5");
    refuse(BodyOptions { variety: -0.5, ..options }, "variety is -0.5");
    refuse(BodyOptions { poses: f64::NAN, ..options }, "poses is NaN");
}

#[test]
fn parts_are_numbered_and_mirrored() {
    for (label, part) in BodyPart::ALL.iter().enumerate() {
        assert_eq!(usize::from(part.label()), label);
        assert_eq!(part.mirrored().mirrored(), *part);
    }
    assert_eq!(BodyPart::HandLeft.mirrored(), BodyPart::HandRight);
}
