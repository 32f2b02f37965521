//! Geometry against numbers of the method's published code (fixtures/golden).

use crate::common::angle_difference;
use gemcnn_fixtures::{GOLDEN_MESHES, Golden};
use gemcnn_mesh::{Adjacency, DVec3, Gauge, GaugeGraph, GeometryOptions, NormalWeighting, vertex_normals};

fn assert_close(ours: DVec3, golden: DVec3, what: &str) {
    assert!((ours - golden).abs().max_element() <= 1e-12, "{what}: {ours} is not {golden}");
}

#[test]
fn normals_and_frames_equal_the_published_code() {
    for name in GOLDEN_MESHES {
        let golden = Golden::read(name);
        let mesh = golden.mesh();
        let graph = GaugeGraph::new(&mesh, &Golden::options()).unwrap();
        let frames: Vec<[DVec3; 3]> = golden.data("frames");
        let normals: Vec<DVec3> = golden.data("normals");
        assert_eq!(frames.len(), graph.frames().len());
        for (p, frame) in graph.frames().iter().enumerate() {
            assert_close(frame.e1, frames[p][0], &format!("{name}, e1 at {p}"));
            assert_close(frame.e2, frames[p][1], &format!("{name}, e2 at {p}"));
            assert_close(frame.normal, normals[p], &format!("{name}, normal at {p}"));
        }
        let area = vertex_normals(&mesh, NormalWeighting::Area).unwrap();
        let expected: Vec<DVec3> = golden.data("normals_area_weighted");
        for (p, normal) in area.iter().enumerate() {
            assert_close(*normal, expected[p].normalize(), &format!("{name}, area normal at {p}"));
        }
    }
}

#[test]
fn angles_transport_and_radii_equal_the_published_code() {
    for name in GOLDEN_MESHES {
        let golden = Golden::read(name);
        let graph = GaugeGraph::new(&golden.mesh(), &Golden::options()).unwrap();
        let edges: Vec<i32> = golden.data("edges_B.edge_index");
        let (targets, sources) = edges.split_at(edges.len() / 2);
        let theta: Vec<f64> = golden.data("edges_B.theta");
        let transport: Vec<f64> = golden.data("edges_B.g");
        let radius: Vec<f64> = golden.data("edges_B.r");
        let mut met = vec![0; graph.edge_count()];
        for row in 0..targets.len() {
            let (p, q) = (targets[row] as usize, sources[row] as u32);
            if p == q as usize {
                continue;
            }
            let edge = graph
                .row(p)
                .find(|&edge| graph.neighbours()[edge] == q)
                .unwrap_or_else(|| panic!("{name}: no edge {p} <- {q}"));
            met[edge] += 1;
            for (ours, golden, what) in
                [(graph.theta()[edge], theta[row], "theta"), (graph.transport()[edge], transport[row], "transport")]
            {
                assert!(
                    angle_difference(ours, golden).abs() <= 1e-12,
                    "{name}: {what} of {p} <- {q} is {ours}, not {golden}"
                );
            }
            assert!((graph.radius()[edge] - radius[row]).abs() <= 1e-12);
        }
        assert!(met.iter().all(|&count| count == 1), "{name}: the same directed edges, once each");
    }
}

#[test]
fn one_rings_list_their_neighbours_in_the_published_order() {
    for name in GOLDEN_MESHES {
        let golden = Golden::read(name);
        let adjacency = Adjacency::one_ring(&golden.mesh()).unwrap();
        let edges: Vec<i32> = golden.data("edges_B.edge_index");
        let (targets, sources) = edges.split_at(edges.len() / 2);
        for p in 0..adjacency.vertex_count() {
            let mut expected: Vec<u32> = Vec::new();
            for (target, source) in targets.iter().zip(sources) {
                let new = !expected.contains(&(*source as u32));
                if *target as usize == p && target != source && new {
                    expected.push(*source as u32);
                }
            }
            // The tail holds the reverses of boundary edges, whose order the published code
            // leaves to the list of boundary edges.
            let ours = adjacency.neighbours_of(p);
            assert_eq!(ours[0], expected[0], "{name}: reference neighbour of {p}");
            let sorted = |row: &[u32]| {
                let mut row = row.to_vec();
                row.sort_unstable();
                row
            };
            assert_eq!(sorted(ours), sorted(&expected), "{name}: row {p}");
        }
    }
}

#[test]
fn given_reference_neighbours_are_a_gauge_change() {
    let golden = Golden::read("mesh_irregular200");
    let mesh = golden.mesh();
    let first = GaugeGraph::new(&mesh, &Golden::options()).unwrap();
    let last = |p: usize| first.row(p).end - 1;
    let references = (0..mesh.vertex_count()).map(|p| first.neighbours()[last(p)]);
    let options = GeometryOptions { gauge: Gauge::Neighbours(references.collect()), ..Golden::options() };
    let ours = GaugeGraph::new(&mesh, &options).unwrap();
    let angles: Vec<f64> = (0..mesh.vertex_count()).map(|p| first.theta()[last(p)]).collect();
    let turned = first.gauge_transform(&angles).unwrap();
    for edge in 0..ours.edge_count() {
        assert!(angle_difference(ours.theta()[edge], turned.theta()[edge]).abs() <= 1e-12);
        assert!(angle_difference(ours.transport()[edge], turned.transport()[edge]).abs() <= 1e-12);
    }
}
