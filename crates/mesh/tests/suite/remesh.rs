//! Remeshers: the same surface, topology and orientation, exact sources, and no panic on any mesh.

mod trouble;

use crate::common::{read, volume};
use std::sync::LazyLock;

use gemcnn_mesh::remesh::{
    Crop, FlipRandomly, Isotropic, Jitter, MeshSize, RefineLocally, RemeshError, RemeshKind, Remeshed, Renumber,
    Resample, Sequence, Simplify, Subdivide, SubdivisionRule, SurfacePoint, carry_labels, carry_values, remesh,
};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions, Cells, capsule, grid, icosphere, torus};
use gemcnn_mesh::{DVec3, Mesh, MeshReport, NormalWeighting, PointIndex, vertex_normals};

fn iso(size: MeshSize) -> RemeshKind {
    RemeshKind::Isotropic(Isotropic { size, ..Default::default() })
}

const MIDPOINT: RemeshKind = RemeshKind::Subdivide(Subdivide { rounds: 1, rule: SubdivisionRule::Midpoint });
const LOOP: RemeshKind = RemeshKind::Subdivide(Subdivide { rounds: 1, rule: SubdivisionRule::Loop });
const SIMPLIFY: RemeshKind = RemeshKind::Simplify(Simplify { size: MeshSize::Ratio(0.5) });
const REFINE: RemeshKind = RemeshKind::RefineLocally(RefineLocally { regions: 5, factor: 3.0 });
const FLIP: RemeshKind = RemeshKind::FlipRandomly(FlipRandomly { share: 0.5 });
const JITTER: RemeshKind = RemeshKind::Jitter(Jitter { amount: 1.0 });
const RESAMPLE: RemeshKind = RemeshKind::Resample(Resample { resolution: 60 });

/// Subdivision, then simplification to twice the vertices of the original.
fn quadric_edges() -> RemeshKind {
    RemeshKind::Sequence(Sequence { steps: vec![MIDPOINT, SIMPLIFY] })
}

/// Remeshers that edit a surface: they keep its topology.
fn editing() -> Vec<RemeshKind> {
    vec![
        iso(MeshSize::EdgeLength(1.0)),
        iso(MeshSize::EdgeLength(0.7)),
        iso(MeshSize::Ratio(0.6)),
        SIMPLIFY,
        MIDPOINT,
        LOOP,
        REFINE,
        FLIP,
        JITTER,
        quadric_edges(),
    ]
}

fn all_kinds() -> Vec<RemeshKind> {
    let mut kinds = editing();
    kinds.push(RESAMPLE);
    kinds
}

fn body() -> Mesh {
    static BODY: LazyLock<Mesh> = LazyLock::new(|| {
        let options = BodyOptions { vertices: 2000, ..BodyOptions::default() };
        BodyFamily::new(&options).unwrap().body(2)
    });
    BODY.clone()
}

fn closed_meshes() -> Vec<(&'static str, Mesh)> {
    vec![
        ("sphere", icosphere(3).unwrap()),
        ("torus", torus(40, 20, 1.0, 0.4, Cells::Quads).unwrap()),
        ("spot", read("spot.obj")),
        ("body", body()),
    ]
}

fn mean_edge(mesh: &Mesh) -> f64 {
    MeshReport::new(mesh).mean_edge_length
}

fn triangle(mesh: &Mesh, face: &[u32]) -> [DVec3; 3] {
    [face[0], face[1], face[2]].map(|v| mesh.vertices()[v as usize])
}

/// Largest distance between a new vertex and its source.
fn source_distance(original: &Mesh, result: &Remeshed) -> f64 {
    let pairs = result.mesh.vertices().iter().zip(&result.sources);
    pairs.map(|(vertex, source)| vertex.distance(source.position(original.vertices()))).fold(0.0, f64::max)
}

/// Number of new faces whose normals disagree with the normals of the original at their sources.
fn turned_over(original: &Mesh, result: &Remeshed) -> usize {
    let normals = vertex_normals(original, NormalWeighting::Area).unwrap();
    let values: Vec<f64> = normals.iter().flat_map(|n| n.to_array()).collect();
    let carried = carry_values(&result.sources, 3, &values);
    let normal = |v: u32| DVec3::from_slice(&carried[3 * v as usize..]);
    let disagree = |face: &&[u32]| {
        let [a, b, c] = triangle(&result.mesh, face);
        let (new, old) = ((b - a).cross(c - a), face.iter().map(|&v| normal(v)).sum::<DVec3>());
        // In narrow places the normals of the original differ much within a triangle.
        new.dot(old) < -0.3 * new.length() * old.length()
    };
    result.mesh.faces().iter().filter(disagree).count()
}

/// Sources refer to vertices of the original and have weights that sum to 1.
fn assert_valid(original: &Mesh, result: &Remeshed) {
    assert_eq!(result.sources.len(), result.mesh.vertex_count());
    for SurfacePoint { corners, weights } in &result.sources {
        let count = original.vertex_count();
        assert!(corners.iter().all(|&v| (v as usize) < count));
        assert!(weights.iter().all(|w| (-1e-12..=1.0 + 1e-12).contains(w)));
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    assert!(result.mesh.faces().iter().all(|face| face.len() == 3));
}

#[test]
fn closed_manifolds_keep_topology_orientation_and_area() {
    for (name, mesh) in closed_meshes() {
        let before = MeshReport::new(&mesh);
        for kind in editing() {
            let result = remesh(&mesh, &kind, 11).unwrap();
            assert_valid(&mesh, &result);
            let after = MeshReport::new(&result.mesh);
            assert!(after.is_sound() && after.closed, "{name} {kind:?}: {after:?}");
            assert_eq!(after.genus, before.genus, "{name} {kind:?}");
            assert_eq!(after.components, before.components, "{name} {kind:?}");
            assert_eq!(turned_over(&mesh, &result), 0, "{name} {kind:?}");
            // Even triangles make the fingers of a coarse body shorter.
            let least = if name == "body" { 0.93 } else { 0.96 };
            let ratio = after.area / before.area;
            assert!((least..1.03).contains(&ratio), "{name} {kind:?}: {ratio}");
            let ratio = volume(&result.mesh) / volume(&mesh);
            assert!((least..1.02).contains(&ratio), "{name} {kind:?}: {ratio}");
        }
    }
}

#[test]
fn sources_are_exact_where_vertices_stay_on_the_surface() {
    for (name, mesh) in closed_meshes() {
        let edge = mean_edge(&mesh);
        for (kind, tolerance) in [
            (iso(MeshSize::EdgeLength(1.3)), 1e-12),
            (iso(MeshSize::Ratio(0.7)), 1e-12),
            (MIDPOINT, 1e-12),
            (REFINE, 1e-12),
            (FLIP, 1e-12),
            (JITTER, 1e-12),
            (SIMPLIFY, 0.25),
            (quadric_edges(), 0.25),
            (LOOP, 0.35),
        ] {
            let result = remesh(&mesh, &kind, 5).unwrap();
            let distance = source_distance(&mesh, &result) / edge;
            assert!(distance <= tolerance, "{name} {kind:?}: {distance}");
        }
    }
    let mesh = icosphere(2).unwrap();
    let twice = remesh(&mesh, &Subdivide { rounds: 2, rule: SubdivisionRule::Midpoint }, 0).unwrap();
    assert!(source_distance(&mesh, &twice) < 1e-15);
    assert_eq!(twice.mesh.face_count(), 16 * 320);
}

/// Every original vertex is near a new one, and every new one near the original surface.
#[test]
fn no_part_of_the_surface_is_lost() {
    for (name, mesh) in closed_meshes() {
        for kind in all_kinds() {
            let result = remesh(&mesh, &kind, 1).unwrap();
            let after = MeshReport::new(&result.mesh);
            let index = PointIndex::new(result.mesh.vertices());
            let farthest =
                mesh.vertices().iter().map(|&v| index.nearest(v).unwrap().squared_distance.sqrt()).fold(0.0, f64::max);
            let limit = 1.5 * after.mean_edge_length.max(mean_edge(&mesh));
            assert!(farthest < 2.0 * limit, "{name} {kind:?}: {farthest}");
            let distance = source_distance(&mesh, &result);
            assert!(distance < 0.5 * limit, "{name} {kind:?}: {distance}");
        }
    }
}

#[test]
fn target_counts_are_met() {
    let mesh = read("spot.obj");
    for vertices in [500, 1234, 2930, 6000] {
        let options = Isotropic { size: MeshSize::Vertices(vertices), ..Default::default() };
        let result = remesh(&mesh, &options, 0).unwrap();
        assert_eq!(result.mesh.vertex_count(), vertices);
        let result = remesh(&mesh, &Simplify { size: MeshSize::Vertices(vertices) }, 0).unwrap();
        assert_eq!(result.mesh.vertex_count(), vertices.min(2930));
    }
    for (length, spread) in [(0.5, 0.1), (1.0, 0.1), (2.0, 0.12)] {
        let result = remesh(&mesh, &iso(MeshSize::EdgeLength(length)), 0).unwrap();
        let ratio = mean_edge(&result.mesh) / mean_edge(&mesh);
        assert!((ratio / length - 1.0).abs() < spread, "{length}: {ratio}");
    }
    let twice = remesh(&mesh, &quadric_edges(), 0).unwrap();
    assert_eq!(twice.mesh.vertex_count(), (2930 + 8784) / 2);
    let flat = grid(20, 20, Cells::Triangles).unwrap();
    assert_eq!(remesh(&flat, &Simplify { size: MeshSize::Vertices(100) }, 0).unwrap().mesh.vertex_count(), 100);
    // A tetrahedron cannot become smaller.
    assert_eq!(
        remesh(&icosphere(1).unwrap(), &Simplify { size: MeshSize::Vertices(4) }, 0).unwrap().mesh.vertex_count(),
        4
    );
}

#[test]
fn isotropic_triangles_are_even() {
    // Long and short triangles: 12 segments around the tube, 160 around the hole.
    let mesh = torus(160, 12, 1.0, 0.5, Cells::Triangles).unwrap();
    let before = MeshReport::new(&mesh);
    assert!(before.max_edge_length > 7.0 * before.min_edge_length);
    let result = remesh(&mesh, &iso(MeshSize::EdgeLength(1.0)), 3).unwrap();
    let after = MeshReport::new(&result.mesh);
    assert!(after.max_edge_length < 1.8 * after.mean_edge_length);
    assert!(after.min_edge_length > 0.4 * after.mean_edge_length);
}

#[test]
fn refinement_is_local_and_strong() {
    let mesh = icosphere(4).unwrap();
    let result = remesh(&mesh, &RefineLocally { regions: 2, factor: 4.0 }, 9).unwrap();
    let (old, new) = (mesh.vertex_count(), result.mesh.vertex_count());
    assert_eq!(&result.mesh.vertices()[..old], mesh.vertices());
    // Up to 8 % of the surface has about 16 times the vertices.
    assert!((1.5..2.8).contains(&(new as f64 / old as f64)), "{new}");
    let edge = mean_edge(&mesh);
    let short = |face: &&[u32]| {
        let [a, b, c] = triangle(&result.mesh, face);
        a.distance(b).max(b.distance(c)).max(c.distance(a)) < 0.5 * edge
    };
    assert!(result.mesh.faces().iter().filter(short).count() > new / 2);
    let kept = result.mesh.faces().iter().filter(|face| {
        let own = |v: &&u32| (**v as usize) < old;
        face.iter().filter(own).count() == 3
    });
    assert!(kept.count() > mesh.face_count() * 4 / 5);
    let unrefined = remesh(&mesh, &RefineLocally { regions: 0, factor: 4.0 }, 9).unwrap();
    assert_eq!(unrefined.mesh, mesh);
}

#[test]
fn flips_and_jitter_change_about_as_much_as_asked() {
    let mesh = read("spot.obj");
    let edges = |mesh: &Mesh| -> std::collections::HashSet<[u32; 2]> {
        let faces = mesh.faces().iter();
        faces.flat_map(|f| [[f[0], f[1]], [f[1], f[2]], [f[2], f[0]]]).map(|[a, b]| [a.min(b), a.max(b)]).collect()
    };
    let triangulated = remesh(&mesh, &FlipRandomly { share: 0.0 }, 1).unwrap().mesh;
    let before = edges(&triangulated);
    let mut shares = Vec::new();
    for share in [0.1, 0.5] {
        let result = remesh(&mesh, &FlipRandomly { share }, 1).unwrap();
        assert_eq!(result.mesh.vertices(), mesh.vertices());
        let after = edges(&result.mesh);
        assert_eq!(after.len(), before.len());
        shares.push(after.difference(&before).count() as f64 / before.len() as f64);
    }
    assert!((0.05..=0.1).contains(&shares[0]), "{shares:?}");
    assert!((0.2..=0.5).contains(&shares[1]), "{shares:?}");

    let motion = |amount: f64| {
        let result = remesh(&mesh, &Jitter { amount }, 1).unwrap();
        assert_eq!(result.mesh.faces(), triangulated.faces());
        let pairs = result.mesh.vertices().iter().zip(mesh.vertices());
        pairs.map(|(a, b)| a.distance(*b)).sum::<f64>() / 2930.0 / mean_edge(&mesh)
    };
    assert_eq!(motion(0.0), 0.0);
    let (half, full) = (motion(0.5), motion(1.0));
    assert!(half > 0.08 && full > 1.6 * half && full < 0.5, "{half} {full}");
}

#[test]
fn resampling_bounds_the_same_solid() {
    for (name, mesh) in closed_meshes() {
        let result = remesh(&mesh, &Resample { resolution: 60 }, 4).unwrap();
        assert_valid(&mesh, &result);
        let after = MeshReport::new(&result.mesh);
        assert!(after.closed && after.manifold && after.consistently_oriented);
        assert!(after.coincident_vertices > 0 && after.degenerate_faces > 0);
        // Limbs of a body that touch are joined.
        if name != "body" {
            assert_eq!(after.genus, MeshReport::new(&mesh).genus, "{name}");
        }
        let ratio = volume(&result.mesh) / volume(&mesh);
        assert!((0.97..1.01).contains(&ratio), "{name}: {ratio}");
        // Slivers beside a crease may face any way.
        let turned = turned_over(&mesh, &result);
        assert!(turned * 500 < result.mesh.face_count(), "{name}: {turned}");
    }
    // Faces that point inwards still do.
    let mesh = icosphere(3).unwrap();
    let reversed = mesh.faces().iter().map(|f| [f[0], f[2], f[1]]).collect();
    let inwards = Mesh::new(mesh.vertices().to_vec(), reversed).unwrap();
    let ratio = volume(&remesh(&inwards, &Resample { resolution: 40 }, 4).unwrap().mesh) / volume(&inwards);
    assert!((0.97..1.01).contains(&ratio), "{ratio}");
    // One face turned over: inside and outside follow from the number of crossings.
    let mut faces: Vec<Vec<u32>> = mesh.faces().iter().map(<[u32]>::to_vec).collect();
    faces[7].reverse();
    let mixed = Mesh::new(mesh.vertices().to_vec(), faces.iter().collect()).unwrap();
    let ratio = volume(&remesh(&mixed, &Resample { resolution: 40 }, 4).unwrap().mesh) / volume(&mesh);
    assert!((0.97..1.01).contains(&ratio), "{ratio}");
    // Two spheres that overlap become one.
    let shifted = mesh.map_vertices(|v| v + 0.7 * DVec3::X).unwrap();
    let vertices = [mesh.vertices(), shifted.vertices()].concat();
    let moved = mesh.faces().iter().map(|f| [f[0] + 642, f[1] + 642, f[2] + 642]);
    let faces = mesh.faces().iter().map(|f| [f[0], f[1], f[2]]).chain(moved);
    let both = Mesh::new(vertices, faces.collect()).unwrap();
    let result = MeshReport::new(&remesh(&both, &Resample { resolution: 40 }, 4).unwrap().mesh);
    assert_eq!((result.components, result.genus), (1, Some(0)));
}

#[test]
fn seeds_and_threads() {
    let mesh = icosphere(3).unwrap();
    for kind in all_kinds() {
        let run = |seed: u64, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| remesh(&mesh, &kind, seed).unwrap())
        };
        let first = run(1, 1);
        assert_eq!(run(1, 3), first, "{kind:?}");
        let seeded = !matches!(kind, RemeshKind::Simplify(_) | RemeshKind::Subdivide(_) | RemeshKind::Sequence(_));
        assert_eq!(run(2, 1).mesh != first.mesh, seeded, "{kind:?}");
    }
    let steps = vec![JITTER, JITTER];
    let twice = remesh(&mesh, &RemeshKind::Sequence(Sequence { steps }), 1).unwrap();
    let once = remesh(&mesh, &JITTER, 1).unwrap();
    // The second step moves other vertices than the first, along the edges of the first.
    let again = remesh(&once.mesh, &JITTER, 1).unwrap();
    assert_ne!(twice.mesh, again.mesh);
    assert!(source_distance(&mesh, &twice) < 0.3 * mean_edge(&mesh));
}

#[test]
fn open_surfaces_keep_their_borders() {
    let mesh = grid(15, 25, Cells::Quads).unwrap();
    for kind in editing() {
        let result = remesh(&mesh, &kind, 2).unwrap();
        assert_valid(&mesh, &result);
        let report = MeshReport::new(&result.mesh);
        assert!(report.is_sound(), "{kind:?}: {report:?}");
        assert_eq!((report.boundary_loops, report.genus), (1, Some(0)));
        assert_eq!(turned_over(&mesh, &result), 0, "{kind:?}");
        // Loop's rule rounds the corners.
        if kind != LOOP {
            assert!((report.area - 14.0 * 24.0).abs() < 1e-9, "{kind:?}");
            assert_eq!(report.bounds, Some([[0.0; 3], [24.0, 14.0, 0.0]]));
        }
    }
    assert_eq!(
        remesh(&mesh, &Resample { resolution: 20 }, 0),
        Err(RemeshError::Open { boundary_edges: 2 * (14 + 24) })
    );
    // A cylinder: two curved borders.
    let (vertices, faces) = torus(40, 20, 1.0, 0.4, Cells::Triangles).unwrap().into_parts();
    let faces = faces.iter().skip(200).collect();
    let tube = Mesh::new(vertices, faces).unwrap();
    for kind in editing() {
        let report = MeshReport::new(&remesh(&tube, &kind, 2).unwrap().mesh);
        assert_eq!((report.boundary_loops, report.genus), (2, Some(0)), "{kind:?}");
        let ratio = report.area / MeshReport::new(&tube).area;
        assert!((0.97..1.02).contains(&ratio), "{kind:?}: {ratio}");
    }
}

#[test]
fn labels_of_half_spaces_move_by_less_than_an_edge() {
    let mesh = body();
    let middle = |v: &DVec3| u8::from(v.y > 0.9);
    let labels: Vec<u8> = mesh.vertices().iter().map(middle).collect();
    for kind in all_kinds() {
        let result = remesh(&mesh, &kind, 8).unwrap();
        let edge = MeshReport::new(&mesh).max_edge_length;
        let carried = carry_labels(&result.sources, &labels);
        let mut wrong = 0;
        for (vertex, &label) in result.mesh.vertices().iter().zip(&carried) {
            if label != middle(vertex) {
                wrong += 1;
                assert!((vertex.y - 0.9).abs() < edge, "{kind:?}: {vertex}");
            }
        }
        assert!(wrong * 20 < carried.len(), "{kind:?}: {wrong}");
        assert!(carried.contains(&0) && carried.contains(&1));
    }
}

#[test]
fn values_are_interpolated() {
    let mesh = icosphere(2).unwrap();
    let result = remesh(&mesh, &Jitter { amount: 1.0 }, 3).unwrap();
    let values: Vec<f64> = mesh.vertices().iter().flat_map(|v| [v.x, 2.0 * v.y - v.z]).collect();
    let carried = carry_values(&result.sources, 2, &values);
    for (vertex, value) in result.mesh.vertices().iter().zip(carried.as_chunks::<2>().0) {
        assert!((value[0] - vertex.x).abs() < 1e-12);
        assert!((value[1] - 2.0 * vertex.y + vertex.z).abs() < 1e-12);
    }
    assert_eq!(carry_values(&result.sources, 0, &[]), Vec::<f64>::new());
}

#[test]
fn parameters_out_of_range_are_refused() {
    let mesh = icosphere(1).unwrap();
    let size = |size| remesh(&mesh, &iso(size), 0);
    for (result, text) in [
        (size(MeshSize::EdgeLength(0.0)), "edge_length is 0"),
        (size(MeshSize::EdgeLength(f64::NAN)), "edge_length is NaN"),
        (size(MeshSize::Ratio(-1.0)), "ratio is -1"),
        (size(MeshSize::Vertices(3)), "vertices is 3"),
        (size(MeshSize::EdgeLength(1e-9)), "coarser setting"),
        (size(MeshSize::Vertices(usize::MAX)), "coarser setting"),
        (remesh(&mesh, &Simplify { size: MeshSize::Vertices(0) }, 0), "vertices is 0"),
        (remesh(&mesh, &Subdivide { rounds: 99, rule: SubdivisionRule::Loop }, 0), "rounds is 99"),
        (remesh(&mesh, &Subdivide { rounds: 15, rule: SubdivisionRule::Loop }, 0), "coarser setting"),
        (remesh(&mesh, &RefineLocally { regions: 5, factor: 0.5 }, 0), "factor is 0.5"),
        (remesh(&mesh, &RefineLocally { regions: 5000, factor: 2.0 }, 0), "regions is 5000"),
        (remesh(&mesh, &FlipRandomly { share: 1.1 }, 0), "share is 1.1"),
        (remesh(&mesh, &Jitter { amount: f64::NAN }, 0), "amount is NaN"),
        (remesh(&mesh, &Crop { share: 0.9, holes: 0 }, 0), "share is 0.9"),
        (remesh(&mesh, &Crop { share: 0.0, holes: 21 }, 0), "holes is 21"),
        (remesh(&mesh, &Resample { resolution: 1 }, 0), "resolution is 1"),
        (remesh(&mesh, &Isotropic { iterations: 0, ..Default::default() }, 0), "iterations is 0"),
    ] {
        let error = result.expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn kinds_are_named_in_configurations() {
    for (text, kind) in [
        (
            r#"{"kind":"isotropic","size":{"vertices":500},"iterations":7}"#,
            RemeshKind::Isotropic(Isotropic { size: MeshSize::Vertices(500), iterations: 7 }),
        ),
        (r#"{"kind":"isotropic"}"#, RemeshKind::Isotropic(Isotropic::default())),
        (r#"{"kind":"simplify","size":{"ratio":0.5}}"#, SIMPLIFY),
        (r#"{"kind":"subdivide"}"#, MIDPOINT),
        (r#"{"kind":"subdivide","rule":"loop"}"#, LOOP),
        (r#"{"kind":"refine_locally"}"#, REFINE),
        (r#"{"kind":"flip_randomly","share":0.5}"#, FLIP),
        (r#"{"kind":"jitter","amount":1.0}"#, JITTER),
        (r#"{"kind":"crop","share":0.25}"#, RemeshKind::Crop(Crop { share: 0.25, holes: 0 })),
        (r#"{"kind":"resample","resolution":60}"#, RESAMPLE),
        (r#"{"kind":"renumber"}"#, RemeshKind::Renumber(Renumber {})),
        (
            r#"{"kind":"sequence","steps":[{"kind":"subdivide"},{"kind":"simplify","size":{"ratio":0.5}}]}"#,
            quadric_edges(),
        ),
    ] {
        assert_eq!(serde_json::from_str::<RemeshKind>(text).unwrap(), kind);
        let printed = serde_json::to_string(&kind).unwrap();
        assert_eq!(serde_json::from_str::<RemeshKind>(&printed).unwrap(), kind);
    }
    for text in
        [r#"{"kind":"melt"}"#, r#"{"kind":"jitter","amount":0.5,"speed":1}"#, r#"{"kind":"isotropic","seed":1}"#]
    {
        assert!(serde_json::from_str::<RemeshKind>(text).is_err(), "{text}");
    }
    let error = serde_json::from_str::<RemeshKind>(r#"{"kind":"melt"}"#).unwrap_err().to_string();
    assert!(RemeshKind::NAMES.iter().all(|name| error.contains(&format!("`{name}`"))), "{error}");
}

#[test]
fn renumbering_changes_nothing_but_the_order() {
    let mesh = capsule(24, 6, 10, 0.5, 2.0, Cells::Triangles).unwrap();
    let Remeshed { mesh: made, sources } = remesh(&mesh, &Renumber {}, 3).unwrap();
    assert_eq!(made, remesh(&mesh, &Renumber {}, 3).unwrap().mesh);
    let order: Vec<u32> = sources.iter().map(|source| source.nearest_corner()).collect();
    assert!(order.iter().enumerate().filter(|&(place, &vertex)| place as u32 != vertex).count() * 2 > order.len());
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..mesh.vertex_count() as u32));
    for (point, &vertex) in made.vertices().iter().zip(&order) {
        assert_eq!(*point, mesh.vertices()[vertex as usize]);
    }
    let triangles = |mesh: &Mesh, number: &dyn Fn(u32) -> u32| {
        let mut faces: Vec<Vec<u32>> =
            mesh.faces().iter().map(|face| face.iter().map(|&v| number(v)).collect()).collect();
        faces.sort_unstable();
        faces
    };
    assert_eq!(triangles(&made, &|v| order[v as usize]), triangles(&mesh, &|v| v));
    assert_ne!(triangles(&made, &|v| v), triangles(&mesh, &|v| v));
}

#[test]
fn a_capsule_keeps_its_length() {
    let mesh = capsule(24, 6, 10, 0.5, 2.0, Cells::Quads).unwrap();
    let [low, high] = MeshReport::new(&mesh).bounds.unwrap();
    for kind in editing().into_iter().filter(|kind| *kind != LOOP) {
        let result = MeshReport::new(&remesh(&mesh, &kind, 2).unwrap().mesh);
        let [new_low, new_high] = result.bounds.unwrap();
        for axis in 0..3 {
            let (old, new) = (high[axis] - low[axis], new_high[axis] - new_low[axis]);
            assert!((new / old - 1.0).abs() < 0.04, "{kind:?}: {old} {new}");
        }
    }
}

/// Keys of cached meshes contain this text.
#[test]
fn debug_text_of_kinds_stays() {
    let [size, ratio] = [MeshSize::EdgeLength(0.5), MeshSize::Ratio(0.25)];
    let kinds: [(RemeshKind, &str); 8] = [
        (iso(size), "Isotropic(IsotropicOptions { size: EdgeLength(0.5), iterations: 4 })"),
        (Simplify { size: ratio }.into(), "Simplify { size: Ratio(0.25) }"),
        (MIDPOINT, "Subdivide { rounds: 1, rule: Midpoint }"),
        (RefineLocally::default().into(), "RefineLocally { regions: 5, factor: 3.0 }"),
        (FlipRandomly { share: 0.5 }.into(), "FlipRandomly { share: 0.5 }"),
        (Jitter { amount: 0.75 }.into(), "Jitter { amount: 0.75 }"),
        (Crop { share: 0.5, holes: 2 }.into(), "Crop { share: 0.5, holes: 2 }"),
        (Resample { resolution: 9 }.into(), "Resample { resolution: 9 }"),
    ];
    let text: Vec<&str> = kinds.iter().map(|(_, text)| *text).collect();
    let steps = kinds.iter().map(|(kind, _)| kind.clone()).collect();
    let sequence = RemeshKind::from(Sequence { steps });
    assert_eq!(format!("{sequence:?}"), format!("Sequence {{ steps: [{}] }}", text.join(", ")));
}
