//! Weights of neighbours: areas and jets.

use gemcnn_mesh::remesh::{MeshSize, RefineLocally, RemeshKind, Simplify, remesh};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{
    Adjacency, DVec3, Faces, GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh, NeighbourWeights,
    Neighbourhood, PointIndex,
};

fn options(weights: NeighbourWeights, radius: f64) -> GeometryOptions {
    GeometryOptions { neighbourhood: Neighbourhood::Patch { radius, limit: 64 }, weights, ..Default::default() }
}

/// A square in the plane whose inner vertices are moved irregularly, refined towards one side.
fn irregular_square(cells: usize) -> Mesh {
    let step = 1.0 / cells as f64;
    let mesh = shapes::grid(cells + 1, cells + 1, Cells::Triangles).unwrap();
    let move_vertex = |v: DVec3| {
        let noise = |a: f64| (12.9898 * a * v.x / step + 78.233 * v.y / step + a).sin() * 0.25;
        let inside = |t: f64| f64::from(t > 1e-9 && t < 1.0 - 1e-9);
        let at = |t: f64, a: f64| t + inside(v.x) * inside(v.y) * step * noise(a);
        let (x, y) = (at(v.x, 1.0), at(v.y, 2.7));
        DVec3::new(x * (0.5 + 0.5 * x), y, 0.0)
    };
    let unit = mesh.vertices().iter().fold(0.0f64, |most, v| most.max(v.x));
    mesh.map_vertices(|v| move_vertex(v / unit)).unwrap()
}

#[test]
fn patches_hold_two_rings_and_the_ball() {
    let mesh = shapes::icosphere(2).unwrap();
    let ring = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
    for (radius, limit) in [(0.0, 64), (0.7, 64), (2.5, 9), (0.7, 0)] {
        let options = GeometryOptions { neighbourhood: Neighbourhood::Patch { radius, limit }, ..Default::default() };
        let patch = GaugeGraph::new(&mesh, &options).unwrap();
        assert_eq!(patch.frames(), ring.frames());
        for p in 0..mesh.vertex_count() {
            let own = ring.adjacency().neighbours_of(p);
            let found = patch.adjacency().neighbours_of(p);
            assert_eq!(&found[..own.len()], own);
            assert!(found.len() <= own.len() + limit);
            if limit < 64 {
                continue;
            }
            let second =
                |q: usize| own.iter().any(|&r| ring.adjacency().neighbours_of(r as usize).contains(&(q as u32)));
            for q in (0..mesh.vertex_count()).filter(|&q| q != p) {
                let near = mesh.vertices()[p].distance(mesh.vertices()[q]) <= radius;
                let expected = near || own.contains(&(q as u32)) || second(q);
                assert_eq!(found.contains(&(q as u32)), expected, "{p} {q}");
            }
        }
    }
    // Relations are symmetric where the density changes, for any limit.
    let kind = RemeshKind::RefineLocally(RefineLocally { regions: 3, factor: 3.0 });
    let uneven = remesh(&mesh, &kind, 2).unwrap().mesh;
    for (radius, limit) in [(0.0, 2), (0.3, 3), (0.3, 12), (0.5, 40), (3.0, 7)] {
        let options = GeometryOptions { neighbourhood: Neighbourhood::Patch { radius, limit }, ..Default::default() };
        let graph = GaugeGraph::new(&uneven, &options).unwrap();
        let (offsets, neighbours) = (graph.offsets().to_vec(), graph.neighbours().to_vec());
        assert_eq!(&Adjacency::new(offsets, neighbours).unwrap(), graph.adjacency());
    }
    // Vertices on a rim do not become neighbours through the hub.
    let rim = |i: usize| {
        let angle = 0.05 * i as f64;
        DVec3::new(angle.cos(), angle.sin(), 0.0)
    };
    let vertices = std::iter::once(DVec3::Z).chain((0..101).map(rim)).collect();
    let faces: Faces = (1..101u32).map(|i| [0, i, i + 1]).collect::<Vec<_>>().iter().collect();
    let fan = Mesh::new(vertices, faces).unwrap();
    let graph = GaugeGraph::new(&fan, &options(NeighbourWeights::Count, 0.0)).unwrap();
    assert!(graph.row(50).len() <= 5);
}

#[test]
fn area_weights_are_a_mean_that_does_not_count_vertices() {
    let mesh = irregular_square(24);
    let graph = GaugeGraph::new(&mesh, &options(NeighbourWeights::Area, 0.15)).unwrap();
    let (columns, weights) = graph.coefficients();
    assert_eq!((columns, weights.len()), (1, graph.edge_count()));
    let total: f64 = graph.areas().iter().sum();
    assert!((total - 1.0).abs() < 1e-9, "{total}");
    let (mut by_area, mut by_count, mut inner) = (0.0, 0.0, 0);
    for p in 0..graph.vertex_count() {
        let row = graph.row(p);
        let sum: f64 = weights[row.clone()].iter().sum();
        assert!((sum - 1.0).abs() < 1e-12 && weights[row.clone()].iter().all(|&w| w >= 0.0));
        let at = mesh.vertices()[p];
        let inside = at.x > 0.15 && at.x < 0.85 && at.y > 0.15 && at.y < 0.85;
        if !inside {
            continue;
        }
        // The mean of the coordinate over a ball is that of its centre, however many vertices lie on one side.
        let mean = |weight: &dyn Fn(usize) -> f64| -> f64 {
            let terms = row.clone().map(|edge| {
                let q = graph.neighbours()[edge] as usize;
                weight(edge) * (mesh.vertices()[q].x - at.x)
            });
            terms.sum()
        };
        by_area += mean(&|edge| weights[edge]).abs();
        by_count += mean(&|_| 1.0 / row.len() as f64).abs();
        inner += 1;
    }
    assert!(inner > 100);
    assert!(by_area < 0.3 * by_count, "{by_area} {by_count}");
}

#[test]
fn jets_differentiate_polynomials_in_the_plane() {
    let mesh = irregular_square(24);
    let radius = 0.1;
    let graph = GaugeGraph::new(&mesh, &options(NeighbourWeights::Jets, radius)).unwrap();
    let (columns, coefficients) = graph.coefficients();
    assert_eq!(columns, 5);
    let value = |v: DVec3| 1.5 + 0.7 * v.x - 0.4 * v.y + 0.9 * v.x * v.x - 0.6 * v.x * v.y + 0.3 * v.y * v.y;
    for p in 0..graph.vertex_count() {
        let at = mesh.vertices()[p];
        let (mut sums, mut constant) = ([0.0; 5], [0.0; 5]);
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            for k in 0..5 {
                sums[k] += coefficients[5 * edge + k] * value(mesh.vertices()[q]);
                constant[k] += coefficients[5 * edge + k];
            }
        }
        let largest =
            coefficients[5 * graph.row(p).start..5 * graph.row(p).end].iter().fold(0.0f64, |most, c| most.max(c.abs()));
        assert!(constant.iter().all(|c| c.abs() <= 1e-12 * largest));
        let gradient = DVec3::new(0.7 + 1.8 * at.x - 0.6 * at.y, -0.4 - 0.6 * at.x + 0.6 * at.y, 0.0);
        let [gx, gy] = graph.frames()[p].coefficients(gradient);
        // d++ in the frame: the second-order form (dxx - dyy, 2 dxy) rotated twice.
        let [e1x, e1y] = [graph.frames()[p].e1.x, graph.frames()[p].e1.y];
        let (cosine, sine) = (e1x * e1x - e1y * e1y, 2.0 * e1x * e1y);
        let (difference, mixed) = (1.8 - 0.6, -1.2);
        let expected = [
            radius * radius * 2.4,
            radius * gx,
            radius * gy,
            radius * radius * (cosine * difference + sine * mixed),
            radius * radius * (cosine * mixed - sine * difference),
        ];
        let inner = at.x > 0.1 && at.x < 0.9 && at.y > 0.1 && at.y < 0.9;
        let most = if inner { [0.02, 1e-3, 1e-3, 0.02, 0.02] } else { [0.2, 0.01, 0.01, 0.2, 0.2] };
        for k in 0..5 {
            let unit = if (1..3).contains(&k) { radius } else { radius * radius };
            let error = (sums[k] - expected[k]).abs() / unit;
            assert!(error < most[k], "{p} {k}: {error}");
        }
    }
}

#[test]
fn coefficients_rotate_with_the_frames_and_survive_storage() {
    let mesh = shapes::icosphere(2).unwrap();
    for weights in [NeighbourWeights::Area, NeighbourWeights::Jets] {
        let graph = GaugeGraph::new(&mesh, &options(weights, 0.4)).unwrap();
        assert_eq!(graph.weights(), weights);
        let restored = GaugeGraph::from_safetensors(&graph.to_safetensors().unwrap()).unwrap();
        assert_eq!(restored, graph);
        let angles: Vec<f64> = (0..mesh.vertex_count()).map(|v| 0.37 * v as f64).collect();
        let turned = graph.clone().gauge_transform(&angles).unwrap();
        let (columns, before) = graph.coefficients();
        let (_, after) = turned.coefficients();
        for (p, &angle) in angles.iter().enumerate() {
            for edge in graph.row(p) {
                let [a, b] = [before, after].map(|c| &c[edge * columns..][..columns]);
                assert_eq!(a[0], b[0]);
                for k in 1..=columns / 2 {
                    let (sine, cosine) = (k as f64 * angle).sin_cos();
                    let [re, im] = [a[2 * k - 1], a[2 * k]];
                    assert!((b[2 * k - 1] - (cosine * re + sine * im)).abs() < 1e-9);
                    assert!((b[2 * k] - (cosine * im - sine * re)).abs() < 1e-9);
                }
            }
        }
    }
}

#[test]
fn weights_are_finite_on_degenerate_meshes_and_on_all_levels() {
    let faces = |list: &[[u32; 3]]| list.iter().collect::<Faces>();
    let flat = Mesh::new(vec![DVec3::ONE; 4], faces(&[[0, 1, 2]])).unwrap();
    let line = (0..4).map(|i| DVec3::new(i as f64, 0.0, 0.0)).collect();
    let line = Mesh::new(line, faces(&[[0, 1, 2], [1, 2, 3]])).unwrap();
    let sphere = shapes::icosphere(3).unwrap();
    for weights in [NeighbourWeights::Area, NeighbourWeights::Jets] {
        for mesh in [&flat, &line, &shapes::icosahedron(), &sphere] {
            for neighbourhood in [
                Neighbourhood::OneRing,
                Neighbourhood::Patch { radius: 0.0, limit: 8 },
                Neighbourhood::Radius { radius: 1e-300, limit: 8 },
            ] {
                let options = GeometryOptions { neighbourhood, weights, estimate_normals: true, ..Default::default() };
                let graph = GaugeGraph::new(mesh, &options).unwrap();
                assert!(graph.coefficients().1.iter().all(|c| c.is_finite()));
            }
        }
        let hierarchy = HierarchyOptions {
            geometry: options(weights, 0.2),
            ratios: vec![0.25, 0.25],
            radii: vec![0.4, 0.8],
            neighbour_limit: 32,
        };
        let hierarchy = Hierarchy::new(&sphere, &hierarchy).unwrap();
        let finest: f64 = hierarchy.levels()[0].graph.areas().iter().sum();
        for level in hierarchy.levels() {
            assert_eq!(level.graph.weights(), weights);
            let areas: f64 = level.graph.areas().iter().sum();
            assert!((areas - finest).abs() < 1e-9 * finest);
            let (columns, values) = level.graph.coefficients();
            assert_eq!(values.len(), columns * level.graph.edge_count());
        }
    }
}

/// Length of the sum of `c_1 f` over the neighbours of each vertex: what a convolution makes of a scalar.
fn responses(mesh: &Mesh, options: &GeometryOptions) -> Vec<f64> {
    let graph = GaugeGraph::new(mesh, options).unwrap();
    let (columns, coefficients) = graph.coefficients();
    let value = |p: DVec3| (2.0 * p.x).sin() + p.y * p.z;
    let response = |p: usize| {
        let row = graph.row(p);
        let sums = row.clone().fold([0.0; 2], |sums, edge| {
            let (sine, cosine) = graph.theta()[edge].sin_cos();
            let [re, im] = match columns {
                0 => [cosine, sine].map(|v| v / row.len() as f64),
                1 => [cosine, sine].map(|v| v * coefficients[edge]),
                _ => [coefficients[5 * edge + 1], coefficients[5 * edge + 2]],
            };
            let f = value(mesh.vertices()[graph.neighbours()[edge] as usize]);
            [sums[0] + re * f, sums[1] + im * f]
        });
        sums[0].hypot(sums[1])
    };
    (0..mesh.vertex_count()).map(response).collect()
}

#[test]
fn responses_depend_less_on_the_meshing() {
    let mesh = shapes::icosphere(4).unwrap();
    let kinds = [
        RemeshKind::Simplify(Simplify { size: MeshSize::Ratio(0.5) }),
        RemeshKind::RefineLocally(RefineLocally { regions: 5, factor: 2.0 }),
    ];
    for kind in kinds {
        let other = remesh(&mesh, &kind, 1).unwrap().mesh;
        let index = PointIndex::new(mesh.vertices());
        // Difference between the responses at nearby vertices, relative to the responses.
        let change = |options: &GeometryOptions| {
            let (here, there) = (responses(&mesh, options), responses(&other, options));
            let (mut difference, mut size) = (0.0, 0.0);
            for (&found, &point) in there.iter().zip(other.vertices()) {
                let expected = here[index.nearest(point).unwrap().point as usize];
                difference += (found - expected).powi(2);
                size += expected.powi(2);
            }
            (difference / size).sqrt()
        };
        let count = change(&GeometryOptions::default());
        let area = change(&options(NeighbourWeights::Area, 0.25));
        let jets = change(&options(NeighbourWeights::Jets, 0.25));
        println!("{kind:?}: count {count:.3}, area {area:.3}, jets {jets:.3}");
        assert!(area < 0.4 * count && jets < 0.4 * count, "{count} {area} {jets}");
    }
}
