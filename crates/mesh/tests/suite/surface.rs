//! Surface operators against surfaces where they are known, and their invariances.

mod evolution;
mod fields;

use crate::common::graph;
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::surface::{
    ConnectionLaplacian, Eigenbasis, HeatSolver, Jets, OperatorOptions, SurfaceError, SurfaceLaplacian,
    SurfaceOperators,
};
use gemcnn_mesh::{DVec3, Faces, GaugeGraph, GeometryOptions, Mesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::{PI, TAU};

fn basis(mesh: &Mesh, order: usize, count: usize) -> Eigenbasis {
    let laplacian = SurfaceLaplacian::new(mesh).unwrap();
    let connection = laplacian.connection(order, graph(mesh).frames());
    connection.unwrap().eigenbasis(count).unwrap()
}

fn random_angles(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| TAU * rng.random::<f64>()).collect()
}

/// Points of a unit square, jittered inside, as a triangle mesh in the xy plane.
fn irregular_square(cells: usize, seed: u64) -> Mesh {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut inside = |x: f64| {
        let step = 1.0 / cells as f64;
        let jitter = 0.6 * step * (rng.random::<f64>() - 0.5);
        if x < 0.5 * step || x > 1.0 - 0.5 * step { x } else { x + jitter }
    };
    let mut vertices = Vec::new();
    for row in 0..=cells {
        for column in 0..=cells {
            let [x, y] = [column, row].map(|at| inside(at as f64 / cells as f64));
            vertices.push(DVec3::new(x, y, 0.0));
        }
    }
    let mut faces = Faces::new();
    let at = |row: usize, column: usize| (row * (cells + 1) + column) as u32;
    for row in 0..cells {
        for column in 0..cells {
            let [a, b] = [at(row, column), at(row, column + 1)];
            let [c, d] = [at(row + 1, column), at(row + 1, column + 1)];
            faces.push(&[a, b, d]);
            faces.push(&[a, d, c]);
        }
    }
    Mesh::new(vertices, faces).unwrap()
}

/// Eigenvalues of the unit sphere on fields of order m: `l (l + 1) - m^2` for `l >= m`, with
/// multiplicity `2 l + 1` over the complex numbers. (Spin-weighted spherical harmonics; for m = 1
/// the Bochner Laplacian is the Hodge Laplacian `l (l + 1)` minus the curvature 1.)
fn sphere_eigenvalues(order: usize, count: usize) -> Vec<f64> {
    let degrees = order..;
    let values = degrees.flat_map(|l| {
        let value = (l * (l + 1) - order * order) as f64;
        std::iter::repeat_n(value, 2 * l + 1)
    });
    values.take(count).collect()
}

/// Largest relative error of the non-zero eigenvalues of a mesh of the sphere.
fn sphere_error(mesh: &Mesh, order: usize, count: usize) -> f64 {
    let basis = basis(mesh, order, count);
    let mut worst = 0.0f64;
    for (value, exact) in basis.values.iter().zip(sphere_eigenvalues(order, count)) {
        // Eigenvalues refer to unit area.
        let value = value / (4.0 * PI);
        let error = if exact == 0.0 { value } else { value / exact - 1.0 };
        worst = worst.max(error.abs());
    }
    worst
}

#[test]
fn eigenvalues_of_the_sphere_converge_with_second_order() {
    // All eigenvalues of degree up to 4: 25, 24 and 21 of them. Refinement halves the edges.
    for (order, count) in [(0, 25), (1, 24), (2, 21)] {
        let errors = [3, 4, 5].map(|s| sphere_error(&shapes::icosphere(s).unwrap(), order, count));
        // 10,242 vertices.
        assert!(errors[2] < 0.01, "order {order}: {errors:?}");
        for pair in errors.windows(2) {
            let rate = (pair[0] / pair[1]).log2();
            assert!((1.9..2.1).contains(&rate), "order {order}: {errors:?}");
        }
    }
}

#[test]
fn two_meshings_of_a_sphere_agree_better_when_refined() {
    // The eigenvalues of both meshings converge to those of the sphere, so to each other.
    let mut before = [f64::INFINITY; 3];
    for cells in [8, 16] {
        let mesh = cube_sphere(cells);
        for (order, before) in before.iter_mut().enumerate() {
            let error = sphere_error(&mesh, order, 16);
            assert!(error < 0.4 * *before, "{cells} cells, order {order}: {error}");
            *before = error;
        }
    }
    assert!(before.iter().all(|error| *error < 0.02), "{before:?}");
}

/// A cube with grids on its sides, projected to the sphere. The sides do not share vertices: those
/// at the edges of the cube coincide.
fn cube_sphere(cells: usize) -> Mesh {
    let mut vertices = Vec::new();
    let mut faces = Faces::new();
    for axis in 0..3 {
        for sign in [-1.0, 1.0] {
            let first = vertices.len();
            for row in 0..=cells {
                for column in 0..=cells {
                    let [u, v] = [column, row].map(|at| (2.0 * at as f64 - cells as f64) / cells as f64);
                    let mut position = [0.0; 3];
                    position[axis] = sign;
                    position[(axis + 1) % 3] = sign * u;
                    position[(axis + 2) % 3] = v;
                    // Sorted, so that the same point has the same bits on every side.
                    let mut squares = position.map(|x| x * x);
                    squares.sort_by(f64::total_cmp);
                    vertices.push(DVec3::from_array(position) / squares.iter().sum::<f64>().sqrt());
                }
            }
            let at = |row: usize, column: usize| (first + row * (cells + 1) + column) as u32;
            for row in 0..cells {
                for column in 0..cells {
                    faces.push(&[at(row, column), at(row, column + 1), at(row + 1, column + 1), at(row + 1, column)]);
                }
            }
        }
    }
    Mesh::new(vertices, faces).unwrap()
}

/// `sum_v mass conj(x) y` of two columns.
fn inner(mass: &[f64], x: &Eigenbasis, i: usize, y: &Eigenbasis, j: usize) -> [f64; 2] {
    let (k, l) = (x.len(), y.len());
    let mut sum = [0.0; 2];
    for (vertex, mass) in mass.iter().enumerate() {
        if x.order == 0 {
            sum[0] += mass * x.vectors[vertex * k + i] * y.vectors[vertex * l + j];
        } else {
            let [a, b] = [0, 1].map(|part| x.vectors[(2 * vertex + part) * k + i]);
            let [c, d] = [0, 1].map(|part| y.vectors[(2 * vertex + part) * l + j]);
            sum[0] += mass * (a * c + b * d);
            sum[1] += mass * (a * d - b * c);
        }
    }
    sum
}

fn assert_eigenpairs(connection: &ConnectionLaplacian, mass: &[f64], basis: &Eigenbasis) {
    let count = basis.len();
    for i in 0..count {
        for j in 0..=i {
            let [re, im] = inner(mass, basis, i, basis, j);
            let expected = if i == j { 1.0 } else { 0.0 };
            assert!((re - expected).abs() < 1e-10 && im.abs() < 1e-10, "{i} {j}: {re} {im}");
        }
    }
    assert!(basis.values.is_sorted() && basis.values[0] >= 0.0);
    // L phi = lambda M phi, in the norm of M^-1.
    let images = connection.apply(&basis.vectors, count).unwrap();
    let parts = if basis.order == 0 { 1 } else { 2 };
    for pair in 0..count {
        let mut squared = 0.0;
        for (row, image) in images.chunks_exact(count).enumerate() {
            let mass = mass[row / parts];
            let value = basis.vectors[row * count + pair];
            squared += (image[pair] - basis.values[pair] * mass * value).powi(2) / mass;
        }
        let bound = 1e-4 * (1.0 + basis.values[pair]);
        assert!(squared.sqrt() < bound, "pair {pair}: {}", squared.sqrt());
    }
}

#[test]
fn eigenpairs_solve_the_equation_and_are_orthonormal() {
    let torus = shapes::torus(36, 18, 1.0, 0.4, Cells::Triangles).unwrap();
    // Symmetric meshes have equal eigenvalues; two copies have all of them twice.
    let two = Mesh::side_by_side([0.0, 4.0].map(|shift| (&torus, shift * DVec3::X))).unwrap();
    for (mesh, count) in [(&torus, 40), (&two, 40), (&irregular_square(25, 3), 30)] {
        let laplacian = SurfaceLaplacian::new(mesh).unwrap();
        let graph = graph(mesh);
        for order in 0..=2 {
            let connection = laplacian.connection(order, graph.frames()).unwrap();
            let basis = connection.eigenbasis(count).unwrap();
            assert_eq!(basis.len(), count);
            assert_eigenpairs(&connection, laplacian.mass(), &basis);
        }
    }
    let [one, both] = [&torus, &two].map(|mesh| basis(mesh, 0, 20).values);
    for (pair, value) in both.iter().enumerate() {
        // Twice the area: twice the eigenvalues in units of the area.
        assert!((value - 2.0 * one[pair / 2]).abs() < 1e-8 * (1.0 + value), "{pair}");
    }
}

#[test]
fn iterative_and_dense_solutions_agree() {
    let mesh = irregular_square(20, 4);
    for order in 0..=2 {
        let few = basis(&mesh, order, 30);
        // More than a third of the vertices: a dense solution.
        let many = basis(&mesh, order, 200);
        for (a, b) in few.values.iter().zip(&many.values) {
            assert!((a - b).abs() < 1e-10 * b.max(1.0), "order {order}: {a} {b}");
        }
        let mass = SurfaceLaplacian::new(&mesh).unwrap().mass().to_vec();
        for pair in 0..30 {
            // Each vector lies in the span of vectors of nearly equal eigenvalue.
            let near = (0..200).filter(|&j| (many.values[j] - few.values[pair]).abs() < 1e-3);
            let squared: f64 = near.map(|j| inner(&mass, &few, pair, &many, j)).map(|[re, im]| re * re + im * im).sum();
            assert!((squared - 1.0).abs() < 1e-9, "order {order}, pair {pair}: {squared}");
        }
    }
    assert_eq!(basis(&mesh, 0, 1000).len(), mesh.vertex_count());
}

#[test]
fn eigenpairs_do_not_depend_on_frames() {
    let mesh = shapes::torus(30, 16, 1.0, 0.4, Cells::Triangles).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let plain = graph(&mesh);
    let angles = random_angles(mesh.vertex_count(), 7);
    let turned = plain.clone().gauge_transform(&angles).unwrap();
    let count = 31;
    for order in 1..=2 {
        let [a, b] = [&plain, &turned].map(|graph| {
            let connection = laplacian.connection(order, graph.frames()).unwrap();
            connection.eigenbasis(count).unwrap()
        });
        for (a, b) in a.values.iter().zip(&b.values) {
            assert!((a - b).abs() < 1e-10 * b, "order {order}: {a} {b}");
        }
        // exp(-i m a) maps the eigenspaces of one to those of the other.
        let mut moved = a.clone();
        let rows = moved.vectors.chunks_exact_mut(2 * count);
        for (row, angle) in rows.zip(&angles) {
            let (sine, cosine) = (order as f64 * angle).sin_cos();
            let (re, im) = row.split_at_mut(count);
            for (re, im) in re.iter_mut().zip(im) {
                (*re, *im) = (cosine * *re + sine * *im, cosine * *im - sine * *re);
            }
        }
        for pair in 0..count {
            let near = (0..count).filter(|&j| (b.values[j] - a.values[pair]).abs() < 1e-6);
            let squared: f64 =
                near.map(|j| inner(laplacian.mass(), &moved, pair, &b, j)).map(|[re, im]| re * re + im * im).sum();
            let is_cut = a.values[count - 1] - a.values[pair] < 1e-6;
            assert!(is_cut || (squared - 1.0).abs() < 1e-9, "{order}, {pair}: {squared}");
        }
    }
}

#[test]
fn transport_is_that_of_the_gauge_graph() {
    let mesh = shapes::icosphere(2).unwrap();
    let graph = graph(&mesh);
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    for order in 1..=2 {
        let connection = laplacian.connection(order, graph.frames()).unwrap();
        for (p, q, weight, g) in edges_with_transport(&graph, &laplacian) {
            // A unit at q gives the column q of the matrix.
            let mut field = vec![0.0; 2 * mesh.vertex_count()];
            field[2 * q] = 1.0;
            let column = connection.apply(&field, 1).unwrap();
            let (sine, cosine) = (order as f64 * g).sin_cos();
            assert!((column[2 * p] + weight * cosine).abs() < 1e-12);
            assert!((column[2 * p + 1] + weight * sine).abs() < 1e-12);
        }
    }
}

fn edges_with_transport(graph: &GaugeGraph, laplacian: &SurfaceLaplacian) -> Vec<(usize, usize, f64, f64)> {
    let mut found = Vec::new();
    for (&[a, b], &weight) in laplacian.edges().iter().zip(laplacian.weights()) {
        for (p, q) in [(a, b), (b, a)] {
            let row = graph.row(p as usize);
            if let Some(edge) = row.into_iter().find(|&e| graph.neighbours()[e] == q) {
                found.push((p as usize, q as usize, weight, graph.transport()[edge]));
            }
        }
    }
    assert!(found.len() > laplacian.edges().len());
    found
}

/// Meshes that break naive operators.
fn trouble_meshes() -> Vec<(&'static str, Mesh)> {
    let mesh = |vertices: &[[f64; 3]], faces: &[&[u32]]| {
        let vertices = vertices.iter().map(|v| DVec3::from_array(*v)).collect();
        let mut list = Faces::new();
        for face in faces {
            list.push(face);
        }
        Mesh::new(vertices, list).unwrap()
    };
    let corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.2]];
    let fan: &[&[u32]] = &[&[0, 1, 2], &[1, 0, 3], &[0, 1, 4]];
    let far = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 1e-13, 0.0], [0.5, 1.0, 0.0]];
    let slivers: &[&[u32]] = &[&[0, 1, 2], &[0, 2, 3], &[2, 1, 3]];
    vec![
        ("one triangle", mesh(&corners, &[&[0, 1, 2]])),
        ("non-manifold edge", mesh(&corners, fan)),
        ("face twice", mesh(&corners, &[&[0, 1, 2], &[0, 1, 2], &[0, 3, 1]])),
        ("repeated corner", mesh(&corners, &[&[0, 1, 1], &[0, 1, 2], &[2, 1, 3]])),
        ("touching at a vertex", mesh(&corners, &[&[0, 1, 2], &[0, 3, 4]])),
        ("slivers", mesh(&far, slivers)),
        ("coincident", cube_sphere(3)),
        ("pentagon", mesh(&corners, &[&[0, 1, 2, 3, 4]])),
        ("stretched", irregular_square(9, 5).map_vertices(|v| DVec3::new(40.0 * v.x, v.y, 0.0)).unwrap()),
        ("tiny", shapes::icosphere(1).unwrap().map_vertices(|v| 1e-200 * v).unwrap()),
    ]
}

#[test]
fn trouble_meshes_have_non_negative_weights_and_spectra() {
    for (name, mesh) in trouble_meshes() {
        let laplacian = SurfaceLaplacian::new(&mesh).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(laplacian.weights().iter().all(|w| *w >= 0.0 && w.is_finite()), "{name}");
        assert!(laplacian.mass().iter().all(|m| *m > 0.0), "{name}");
        assert!((laplacian.mass().iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
        let frames = match GaugeGraph::new(&mesh, &GeometryOptions::default()) {
            Ok(graph) => graph.frames().to_vec(),
            // No normals, such as at slivers: any frames will do.
            Err(_) => graph(&shapes::icosphere(0).unwrap()).frames()[..mesh.vertex_count()].to_vec(),
        };
        let jets = Jets::new(&laplacian, &frames).unwrap();
        assert!(jets.coefficients.as_flattened().iter().all(|c| c.is_finite()), "{name}");
        for order in 0..=2 {
            let connection = laplacian.connection(order, &frames).unwrap();
            let all = connection.eigenbasis(mesh.vertex_count()).unwrap();
            assert!(all.values.iter().all(|v| v.is_finite() && *v >= 0.0), "{name}");
            assert!(all.vectors.iter().all(|v| v.is_finite()), "{name}");
            // The quadratic form of random fields is not negative.
            let parts = if order == 0 { 1 } else { 2 };
            let field = random_angles(parts * mesh.vertex_count(), order as u64);
            let solver = HeatSolver::new(&laplacian, order, &frames, &[0.1]).unwrap();
            let heat = solver.solve(0, &field, 1).unwrap();
            assert!(heat.iter().all(|v| v.is_finite()), "{name}");
        }
    }
    let flat = Mesh::new(vec![DVec3::ONE; 3], [[0u32, 1, 2]].iter().collect()).unwrap();
    assert_eq!(SurfaceLaplacian::new(&flat).unwrap_err(), SurfaceError::NoExtent { faces: 1 });
}

#[test]
fn weights_of_delaunay_meshes_are_the_usual_cotangents() {
    let mesh = shapes::icosphere(2).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let mut expected = std::collections::BTreeMap::<[u32; 2], f64>::new();
    for face in mesh.faces().iter() {
        for i in 0..3 {
            let [a, b, c] = [face[i], face[(i + 1) % 3], face[(i + 2) % 3]];
            let [p, q, r] = [a, b, c].map(|v| mesh.vertices()[v as usize]);
            let cotangent = (p - r).dot(q - r) / (p - r).cross(q - r).length();
            *expected.entry([a.min(b), a.max(b)]).or_default() += 0.5 * cotangent;
        }
    }
    assert_eq!(laplacian.edges().len(), expected.len());
    for (edge, weight) in laplacian.edges().iter().zip(laplacian.weights()) {
        assert!((weight - expected[edge]).abs() < 1e-9, "{edge:?}");
    }
}

#[test]
fn scale_cancels_and_unused_vertices_join_the_nearest() {
    let mesh = irregular_square(8, 6);
    let (mut vertices, faces) = mesh.map_vertices(|v| 37.0 * v).unwrap().into_parts();
    vertices.push(DVec3::new(500.0, 0.0, 0.0));
    let larger = Mesh::new(vertices, faces).unwrap();
    let [a, b] = [&mesh, &larger].map(|mesh| SurfaceLaplacian::new(mesh).unwrap());
    assert!((a.scale() - 37.0 * b.scale()).abs() < 1e-9);
    for (x, y) in a.weights().iter().zip(b.weights()) {
        assert!((x - y).abs() < 1e-9);
    }
    let [x, y] = [basis(&mesh, 0, 20), basis(&larger, 0, 20)];
    for (x, y) in x.values.iter().zip(&y.values) {
        assert!((x - y).abs() < 1e-6 * (1.0 + x), "{x} {y}");
    }
    let last = mesh.vertex_count();
    let to_last = |&v: &usize| larger.vertices()[v].distance(larger.vertices()[last]);
    let nearest = (0..last).min_by(|v, w| to_last(v).total_cmp(&to_last(w)));
    let nearest = nearest.unwrap();
    let row = |vertex: usize| &y.vectors[vertex * 20..][..20];
    assert_eq!(row(last), row(nearest));
    // It reads from there, and has no influence.
    assert!(b.mass()[last] > 0.0 && b.mass()[last] < 1e-8);
    assert!((a.mass()[nearest] - b.mass()[nearest]).abs() < 1e-8);
    assert!((b.mass().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let jets = Jets::new(&b, graph(&larger).frames()).unwrap();
    let entries = |vertex: usize| jets.offsets[vertex + 1] - jets.offsets[vertex];
    assert!(entries(last) > 0 && entries(last) == entries(nearest));
}

#[test]
fn coincident_vertices_have_equal_values() {
    let mesh = cube_sphere(6);
    let graph = graph(&mesh);
    let operators =
        SurfaceOperators::new(&mesh, &graph, &OperatorOptions { eigenpairs: [12, 8, 8], ..Default::default() })
            .unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let scalar = &operators.bases[0];
    let mut copies = 0;
    for (vertex, other) in laplacian.representatives().enumerate() {
        let other = other as usize;
        assert_eq!(mesh.vertices()[vertex], mesh.vertices()[other]);
        copies += usize::from(vertex != other);
        assert_eq!(scalar.vectors[vertex * 12..(vertex + 1) * 12], scalar.vectors[other * 12..(other + 1) * 12]);
        // Gradients agree as vectors, up to the rotation between the normals.
        for pair in 0..12 {
            let [a, b] = [vertex, other].map(|v| {
                let at = |part| operators.gradient[(2 * v + part) * 12 + pair];
                at(0).hypot(at(1))
            });
            assert!((a - b).abs() < 1e-9, "{vertex}: {a} {b}");
        }
    }
    assert_eq!(copies, 6 * 49 - (6 * 36 + 2));
}
