//! Graph hierarchies through the public API, and against the published code (fixtures/golden).

use crate::common::angle_difference;
use gemcnn_fixtures::Golden;
use gemcnn_mesh::{
    Clusters, DVec3, Faces, Gauge, GaugeGraph, GeometryError, GeometryOptions, Hierarchy, HierarchyError,
    HierarchyOptions, Level, Mesh, Neighbourhood, NormalWeighting, farthest_points, shapes,
};
use proptest::prelude::*;

/// Directed edges `(target, source)` that carry a bit of the edge mask, self loops left out.
fn edges(golden: &Golden, bit: i32) -> Vec<(u32, u32)> {
    let (edges, mask): (Vec<i32>, Vec<i32>) = (golden.data("edge_index"), golden.data("edge_mask"));
    let (targets, sources) = edges.split_at(mask.len());
    let pairs = targets.iter().zip(sources).zip(&mask);
    let mut list: Vec<(u32, u32)> = pairs
        .filter(|((target, source), mask)| *mask & bit != 0 && target != source)
        .map(|((&target, &source), _)| (target as u32, source as u32))
        .collect();
    list.sort_unstable();
    list
}

/// Ratios [1, 0.25] and radii [0.4, 0.8] of the published code.
fn published_options(gauge: Gauge) -> HierarchyOptions {
    HierarchyOptions {
        geometry: GeometryOptions {
            normals: NormalWeighting::CornerAngle,
            neighbourhood: Neighbourhood::Radius { radius: 0.4, limit: usize::MAX },
            gauge,
            ..Default::default()
        },
        ratios: vec![0.25],
        radii: vec![0.8],
        ..Default::default()
    }
}

#[test]
fn levels_clusters_and_transports_equal_the_published_code() {
    let golden = Golden::read("pool_irregular200");
    let mesh = golden.mesh();
    let first = Hierarchy::new(&mesh, &published_options(Gauge::FirstNeighbour)).unwrap();

    // The published frames point to the lowest neighbour over the edges of all levels, pooling
    // edges included.
    let mut references = vec![u32::MAX; mesh.vertex_count()];
    for level in first.levels() {
        for (p, &vertex) in level.vertices.iter().enumerate() {
            let neighbours = level.graph.adjacency().neighbours_of(p).iter();
            let ids = neighbours.map(|&q| level.vertices[q as usize]);
            let place = &mut references[vertex as usize];
            *place = ids.fold(*place, u32::min);
        }
        if let Some(clusters) = &level.clusters {
            for (fine, &cluster) in clusters.cluster_of().iter().enumerate() {
                let vertex = level.vertices[cluster as usize] as usize;
                if vertex != fine {
                    references[vertex] = references[vertex].min(fine as u32);
                }
            }
        }
    }
    let frames = first.levels()[0].graph.frames();
    let angles = (0..mesh.vertex_count()).map(|p| {
        let edge = mesh.vertices()[references[p] as usize] - mesh.vertices()[p];
        let [x, y] = frames[p].coefficients(edge);
        y.atan2(x)
    });
    let options = published_options(Gauge::Angles(angles.collect()));
    let hierarchy = Hierarchy::new(&mesh, &options).unwrap();

    let frames: Vec<[DVec3; 3]> = golden.data("frames");
    for (ours, golden) in hierarchy.levels()[0].graph.frames().iter().zip(&frames) {
        assert!((ours.e1 - golden[0]).abs().max_element() <= 1e-12);
    }
    let coarse = &hierarchy.levels()[1];
    let ids: Vec<i32> = golden.data("coarse_vertex_ids");
    assert_eq!(coarse.vertices, ids.iter().map(|&id| id as u32).collect::<Vec<_>>());

    for (level, bit) in hierarchy.levels().iter().zip([2, 8]) {
        let mut ours: Vec<(u32, u32)> = Vec::new();
        for (p, &target) in level.vertices.iter().enumerate() {
            let neighbours = level.graph.adjacency().neighbours_of(p).iter();
            ours.extend(neighbours.map(|&q| (target, level.vertices[q as usize])));
        }
        ours.sort_unstable();
        assert_eq!(ours, edges(&golden, bit));
    }

    let clusters = coarse.clusters.as_ref().unwrap();
    let edges: Vec<i32> = golden.data("pool_edges");
    let transport: Vec<f64> = golden.data("pool_g");
    let (targets, sources) = edges.split_at(transport.len());
    assert_eq!(sources.len(), clusters.cluster_of().len());
    for ((&target, &source), &golden) in targets.iter().zip(sources).zip(&transport) {
        let cluster = clusters.cluster_of()[source as usize];
        assert_eq!(coarse.vertices[cluster as usize], target as u32, "cluster of {source}");
        let ours = clusters.transport()[source as usize];
        assert!(angle_difference(ours, golden).abs() <= 1e-12, "transport from {source} is {ours}, not {golden}");
    }
}

/// What holds for every hierarchy.
fn check_invariants(mesh: &Mesh, hierarchy: &Hierarchy) {
    for (index, level) in hierarchy.levels().iter().enumerate() {
        assert!(!level.vertices.is_empty());
        assert!(level.vertices.is_sorted_by(|a, b| a < b));
        assert_eq!(level.graph.vertex_count(), level.vertices.len());
        for (frame, &vertex) in level.graph.frames().iter().zip(&level.vertices) {
            assert_eq!(*frame, hierarchy.levels()[0].graph.frames()[vertex as usize]);
        }
        assert_eq!(level.clusters.is_some(), index > 0);
        let Some(clusters) = &level.clusters else { continue };
        let finer = &hierarchy.levels()[index - 1];
        assert_eq!(clusters.len(), level.vertices.len());
        assert_eq!(clusters.members().len(), finer.vertices.len());
        assert!(clusters.transport().iter().all(|g| g.is_finite()));
        let position = |vertex: u32| mesh.vertices()[vertex as usize];
        for cluster in 0..clusters.len() {
            let members = clusters.offsets()[cluster] as usize..clusters.offsets()[cluster + 1] as usize;
            let members = &clusters.members()[members];
            let mut vertices = members.iter().map(|&fine| finer.vertices[fine as usize]);
            assert!(vertices.any(|vertex| vertex == level.vertices[cluster]), "its own member");
            for &fine in members {
                assert_eq!(clusters.cluster_of()[fine as usize] as usize, cluster);
                let here = position(finer.vertices[fine as usize]);
                let own = here.distance(position(level.vertices[cluster]));
                let others = level.vertices.iter().map(|&v| here.distance(position(v)));
                assert!(others.fold(f64::INFINITY, f64::min) >= own - 1e-12);
            }
        }
    }
}

#[test]
fn tiny_meshes_keep_at_least_one_vertex_on_every_level() {
    for count in 1..=4 {
        let points: Vec<DVec3> = (0..count).map(|i| DVec3::splat(f64::from(i))).collect();
        let mesh = Mesh::new(points, Faces::new()).unwrap();
        let options =
            HierarchyOptions { ratios: vec![0.5, 0.01, 1.0], radii: vec![1.0, 1.0, 0.0], ..Default::default() };
        let hierarchy = Hierarchy::new(&mesh, &options).unwrap();
        check_invariants(&mesh, &hierarchy);
        let sizes: Vec<usize> = hierarchy.levels().iter().map(|l| l.vertices.len()).collect();
        assert_eq!(sizes, [count as usize, (count as usize).div_ceil(2), 1, 1]);
    }
}

#[test]
fn coincident_points_leave_no_cluster_empty() {
    let mesh = Mesh::new(vec![DVec3::ONE; 5], Faces::new()).unwrap();
    let options = HierarchyOptions { ratios: vec![0.6], radii: vec![0.1], ..Default::default() };
    let hierarchy = Hierarchy::new(&mesh, &options).unwrap();
    check_invariants(&mesh, &hierarchy);
    assert_eq!(hierarchy.levels()[1].vertices, [0, 1, 2]);
}

#[test]
fn every_part_of_a_disconnected_mesh_is_represented() {
    let one = shapes::icosphere(2).unwrap();
    let mesh = Mesh::side_by_side([0.0, 100.0].map(|shift| (&one, shift * DVec3::X))).unwrap();
    let options =
        HierarchyOptions { ratios: vec![0.1, 0.1], radii: vec![1.0, 3.0], neighbour_limit: 8, ..Default::default() };
    let hierarchy = Hierarchy::new(&mesh, &options).unwrap();
    check_invariants(&mesh, &hierarchy);
    for level in hierarchy.levels() {
        let first = level.vertices.iter().filter(|&&vertex| vertex < one.vertex_count() as u32).count();
        assert!(first > 0 && first < level.vertices.len());
        assert!((0..level.vertices.len()).all(|p| level.graph.row(p).len() <= 8));
    }
}

#[test]
fn turned_frames_turn_all_levels() {
    let mesh = shapes::icosphere(2).unwrap();
    let options = HierarchyOptions { ratios: vec![0.3], radii: vec![0.8], ..Default::default() };
    let here = Hierarchy::new(&mesh, &options).unwrap();
    let angles: Vec<f64> = (0..mesh.vertex_count()).map(|v| 0.7 * v as f64).collect();
    let geometry = GeometryOptions { gauge: Gauge::Angles(angles.clone()), ..Default::default() };
    let there = Hierarchy::new(&mesh, &HierarchyOptions { geometry, ..options }).unwrap();
    let (here, there) = (&here.levels()[1], &there.levels()[1]);
    let coarse = |cluster: u32| angles[here.vertices[cluster as usize] as usize];
    let clusters = (here.clusters.as_ref().unwrap(), there.clusters.as_ref().unwrap());
    for (fine, &cluster) in clusters.0.cluster_of().iter().enumerate() {
        let law = clusters.0.transport()[fine] - coarse(cluster) + angles[fine];
        assert!(angle_difference(clusters.1.transport()[fine], law).abs() <= 1e-12);
    }
    for p in 0..here.vertices.len() {
        for edge in here.graph.row(p) {
            let law = here.graph.theta()[edge] - coarse(p as u32);
            assert!(angle_difference(there.graph.theta()[edge], law).abs() <= 1e-12);
        }
    }
}

#[test]
fn bad_options_are_named() {
    let mesh = shapes::icosahedron();
    let error = |ratios: &[f64], radii: &[f64]| {
        let options = HierarchyOptions { ratios: ratios.to_vec(), radii: radii.to_vec(), ..Default::default() };
        Hierarchy::new(&mesh, &options).unwrap_err()
    };
    for ratio in [0.0, -0.5, 1.5, f64::INFINITY] {
        let expected = HierarchyError::BadRatio { level: 2, ratio };
        assert_eq!(error(&[0.5, ratio], &[1.0, 1.0]), expected);
    }
    assert!(error(&[f64::NAN], &[1.0]).to_string().contains("level 1 is NaN"));
    assert_eq!(error(&[0.5], &[]), HierarchyError::Unpaired { ratios: 1, radii: 0 });
    let source = GeometryError::BadRadius { radius: -1.0 };
    assert_eq!(error(&[0.5], &[-1.0]), HierarchyError::Geometry { level: 1, source });
    let empty = Mesh::new(vec![], Faces::new()).unwrap();
    let result = Hierarchy::new(&empty, &HierarchyOptions::default());
    assert_eq!(result.unwrap_err(), HierarchyError::NoVertices);
}

#[test]
fn a_hierarchy_over_a_turned_graph_has_its_frames() {
    let mesh = shapes::icosphere(1).unwrap();
    let angles: Vec<f64> = (0..42).map(|v| 0.3 * f64::from(v)).collect();
    let options = HierarchyOptions { ratios: vec![0.3], radii: vec![1.5], ..Default::default() };
    let graph = GaugeGraph::new(&mesh, &options.geometry).unwrap();
    let turned = graph.gauge_transform(&angles).unwrap();
    let over = Hierarchy::over(turned.clone(), mesh.vertices(), &options).unwrap();
    let with_angles = HierarchyOptions {
        geometry: GeometryOptions { gauge: Gauge::Angles(angles), ..Default::default() },
        ..options.clone()
    };
    let new = Hierarchy::new(&mesh, &with_angles).unwrap();
    let coarse = |hierarchy: &Hierarchy| hierarchy.levels()[1].graph.theta().to_vec();
    for (a, b) in coarse(&over).iter().zip(coarse(&new)) {
        assert!(angle_difference(*a, b).abs() < 1e-12, "{a} {b}");
    }
    let few = Hierarchy::over(turned, &mesh.vertices()[1..], &options);
    assert_eq!(few.unwrap_err(), HierarchyError::Positions { vertices: 42, positions: 41 });
}

#[test]
fn farthest_points_are_distinct_with_ties_by_index() {
    assert!(farthest_points(&[], 3, 0).is_empty());
    let square = [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::X + DVec3::Y];
    assert_eq!(farthest_points(&square, 9, 0), [0, 3, 1, 2]);
    assert_eq!(farthest_points(&square, 2, 7), [3, 0]);
    assert_eq!(farthest_points(&[DVec3::ZERO; 3], 3, 1), [1, 0, 2]);
    assert!(farthest_points(&square, 0, 0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_points_give_a_sound_hierarchy(
        points in prop::collection::vec((0i8..4, 0i8..4, 0i8..4), 1..40),
        ratios in prop::collection::vec(0.01f64..1.0, 0..4),
        radius in 0.0f64..3.0,
        neighbour_limit in 0usize..6,
    ) {
        let point = |&(x, y, z): &(i8, i8, i8)| DVec3::new(x.into(), y.into(), z.into());
        let mesh = Mesh::new(points.iter().map(point).collect(), Faces::new()).unwrap();
        let radii = vec![radius; ratios.len()];
        let options = HierarchyOptions { ratios, radii, neighbour_limit, ..Default::default() };
        check_invariants(&mesh, &Hierarchy::new(&mesh, &options).unwrap());
    }
}

#[test]
fn levels_put_together_again_are_the_same_and_must_fit() {
    let options = HierarchyOptions { ratios: vec![0.25, 0.5], radii: vec![0.5, 1.0], ..Default::default() };
    let hierarchy = Hierarchy::new(&shapes::icosphere(2).unwrap(), &options).unwrap();
    let rebuilt: Vec<Level> = hierarchy
        .levels()
        .iter()
        .map(|level| Level {
            clusters: level.clusters.as_ref().map(|clusters| {
                let (of, transport) = (clusters.cluster_of(), clusters.transport());
                Clusters::new(clusters.len(), of.to_vec(), transport.to_vec()).unwrap()
            }),
            ..level.clone()
        })
        .collect();
    assert_eq!(Hierarchy::from_levels(rebuilt.clone()).unwrap(), hierarchy);
    let skipped = vec![rebuilt[0].clone(), rebuilt[2].clone()];
    assert!(Hierarchy::from_levels(skipped).is_err(), "clusters of another level");
    assert!(Hierarchy::from_levels(rebuilt[1..].to_vec()).is_err(), "no finest level");
    assert!(Hierarchy::from_levels(Vec::new()).is_err());
    for (count, of, transport) in [
        (2, vec![0, 2], vec![0.0; 2]),
        (2, vec![0, 0], vec![0.0; 2]),
        (1, vec![0, 0], vec![0.0]),
        (1, vec![0], vec![f64::NAN]),
    ] {
        assert!(Clusters::new(count, of, transport).is_err());
    }
}
