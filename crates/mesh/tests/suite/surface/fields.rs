//! Derivatives, diffusion, features and storage.

use super::{basis, graph, inner, irregular_square, random_angles, sphere_eigenvalues};
use gemcnn_mesh::features::{
    Curvature, centroid_features, heat_kernel_signatures, signature_times, wave_kernel_signatures,
};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::surface::{
    BasisSource, Derivative, Eigenbasis, HeatSolver, Jets, OperatorOptions, OperatorStoreError, SurfaceError,
    SurfaceLaplacian, SurfaceOperators,
};
use gemcnn_mesh::{DVec3, Mesh};
use std::f64::consts::PI;

#[test]
fn jets_are_exact_on_quadratic_polynomials_in_the_plane() {
    let mesh = irregular_square(12, 1);
    let angles = random_angles(mesh.vertex_count(), 2);
    let graph = graph(&mesh).gauge_transform(&angles).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    assert!((laplacian.scale() - 1.0).abs() < 1e-4);
    let jets = Jets::new(&laplacian, graph.frames()).unwrap();
    let [a, b, c, d, e] = [0.7, -1.3, 2.1, -0.4, 0.9];
    let field: Vec<f64> = mesh
        .vertices()
        .iter()
        .map(|v| 5.0 + a * v.x + b * v.y + 0.5 * c * v.x * v.x + d * v.x * v.y + 0.5 * e * v.y * v.y)
        .collect();
    let gradient = jets.gradient(&field, 1).unwrap();
    let hessian = jets.apply(0, Derivative::RaiseTwice, &field, 1).unwrap();
    let trace = jets.apply(0, Derivative::Laplacian, &field, 1).unwrap();
    // Largest errors of first and second derivatives, at the border and inside.
    let mut worst = [[0.0f64; 2]; 2];
    for (vertex, (v, frame)) in mesh.vertices().iter().zip(graph.frames()).enumerate() {
        let exact = DVec3::new(a + c * v.x + d * v.y, b + d * v.x + e * v.y, 0.0);
        let found = frame.vector([gradient[2 * vertex], gradient[2 * vertex + 1]]);
        // One-sided rows at the border are worse conditioned, so the ridge shows more.
        let is_inner = v.x.min(v.y).min(1.0 - v.x).min(1.0 - v.y) > 0.15;
        let worst = &mut worst[usize::from(is_inner)];
        worst[0] = worst[0].max((found - exact).length());
        worst[1] = worst[1].max((trace[2 * vertex] - (c + e)).abs());
        // The traceless Hessian rotates twice as fast as the frame.
        let angle = 2.0 * frame.e1.y.atan2(frame.e1.x);
        let (sine, cosine) = angle.sin_cos();
        let exact = [cosine * (c - e) + sine * 2.0 * d, cosine * 2.0 * d - sine * (c - e)];
        for part in 0..2 {
            worst[1] = worst[1].max((hessian[2 * vertex + part] - exact[part]).abs());
        }
    }
    let [border, inner] = worst;
    assert!(inner[0] < 1e-3 && inner[1] < 0.02, "{inner:?}");
    assert!(border[0] < 1e-2 && border[1] < 0.2, "{border:?}");
}

#[test]
fn jets_of_transported_fields_transform_with_the_frames() {
    let mesh = shapes::torus(24, 12, 1.0, 0.4, Cells::Triangles).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let plain = graph(&mesh);
    let angles = random_angles(mesh.vertex_count(), 3);
    let turned = plain.clone().gauge_transform(&angles).unwrap();
    let [a, b] = [&plain, &turned].map(|g| Jets::new(&laplacian, g.frames()).unwrap());
    let rotate = |field: &[f64], order: i32| -> Vec<f64> {
        let rows = field.chunks_exact(2).zip(&angles);
        rows.flat_map(|(z, angle)| {
            let (sine, cosine) = (f64::from(order) * angle).sin_cos();
            [cosine * z[0] + sine * z[1], cosine * z[1] - sine * z[0]]
        })
        .collect()
    };
    let field: Vec<f64> = random_angles(2 * mesh.vertex_count(), 4);
    for order in 1..=2 {
        for derivative in [
            Derivative::Raise,
            Derivative::Lower,
            Derivative::RaiseTwice,
            Derivative::LowerTwice,
            Derivative::Laplacian,
        ] {
            let before = a.apply(order, derivative, &field, 1).unwrap();
            let expected = rotate(&before, order as i32 + derivative.order_change());
            let moved = rotate(&field, order as i32);
            let after = b.apply(order, derivative, &moved, 1).unwrap();
            let scale = before.iter().fold(0.0f64, |max, x| max.max(x.abs()));
            for (x, y) in after.iter().zip(&expected) {
                assert!((x - y).abs() < 1e-11 * scale, "{order} {derivative:?}: {x} {y}");
            }
        }
    }
    assert!(matches!(a.apply(1, Derivative::Raise, &field, 2), Err(SurfaceError::FieldLength { columns: 2, .. })));
}

#[test]
fn implicit_heat_agrees_with_spectral_heat() {
    let mesh = shapes::icosphere(3).unwrap();
    let graph = graph(&mesh);
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let times = [1e-3, 2e-2];
    for order in 0..=2 {
        let connection = laplacian.connection(order, graph.frames()).unwrap();
        let basis = connection.eigenbasis(11).unwrap();
        let solver = HeatSolver::new(&laplacian, order, graph.frames(), &times).unwrap();
        for (index, time) in times.into_iter().enumerate() {
            let heat = solver.solve(index, &basis.vectors, 11).unwrap();
            for (row, (heat, start)) in heat.iter().zip(&basis.vectors).enumerate() {
                let exact = start / (1.0 + time * basis.values[row % 11]);
                assert!((heat - exact).abs() < 1e-6, "order {order}: {heat} {exact}");
            }
            let rows = basis.vectors.chunks_exact(11);
            let column: Vec<f64> = rows.map(|row| row[9]).collect();
            let alone = solver.solve(index, &column, 1).unwrap();
            for (alone, row) in alone.iter().zip(heat.chunks_exact(11)) {
                assert!((alone - row[9]).abs() < 1e-12);
            }
        }
    }
    assert!(matches!(HeatSolver::new(&laplacian, 0, graph.frames(), &[0.0]), Err(SurfaceError::BadTime { .. })));
}

#[test]
fn gradients_of_the_sphere_are_tangent_derivatives() {
    let mesh = shapes::icosphere(4).unwrap();
    let graph = graph(&mesh);
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let jets = Jets::new(&laplacian, graph.frames()).unwrap();
    let direction = DVec3::new(0.3, -0.5, 0.8);
    let field: Vec<f64> = mesh.vertices().iter().map(|v| direction.dot(*v)).collect();
    let gradient = jets.gradient(&field, 1).unwrap();
    let divergence = jets.apply(1, Derivative::Lower, &gradient, 1).unwrap();
    for (vertex, v) in mesh.vertices().iter().enumerate() {
        let frame = &graph.frames()[vertex];
        // Lengths are in units of the square root of the area.
        let found = frame.vector([gradient[2 * vertex], gradient[2 * vertex + 1]]);
        let exact = (direction - v.dot(direction) * *v) / laplacian.scale();
        assert!((found - exact).length() < 0.02 * exact.length().max(1.0));
        let laplace = -2.0 * field[vertex] / laplacian.scale().powi(2);
        assert!((divergence[2 * vertex] - laplace).abs() < 0.5, "{vertex}");
        assert!(divergence[2 * vertex + 1].abs() < 0.2, "curl at {vertex}");
    }
}

#[test]
fn derived_bases_of_the_sphere_are_its_eigenvectors() {
    let mesh = shapes::icosphere(4).unwrap();
    let plain = graph(&mesh);
    let turned = plain.clone().gauge_transform(&random_angles(mesh.vertex_count(), 3)).unwrap();
    let options = |eigenpairs| OperatorOptions { eigenpairs, basis: BasisSource::Derived, jets: false };
    // All of degree up to 4.
    let [one, other] =
        [&plain, &turned].map(|graph| SurfaceOperators::new(&mesh, graph, &options([7, 24, 21])).unwrap());
    assert!(one.bases.iter().map(Eigenbasis::len).eq([7, 24, 21]));
    assert_eq!(one.gradient.len(), 2 * 7 * mesh.vertex_count());
    for (basis, moved) in one.bases.iter().zip(&other.bases).skip(1) {
        let count = basis.len();
        for (value, exact) in basis.values.iter().zip(sphere_eigenvalues(basis.order, count)) {
            assert!((value / (4.0 * PI) - exact).abs() < 0.05 * exact.max(1.0), "{}: {value} {exact}", basis.order);
        }
        for (value, other) in basis.values.iter().zip(&moved.values) {
            // The factors of order 2 end inside an eigenspace, where they are arbitrary.
            assert!((value - other).abs() < 1e-4 * value, "{value} {other}");
        }
        for i in 0..count {
            for j in 0..=i {
                let [re, im] = inner(&one.mass, basis, i, basis, j);
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((re - expected).abs() < 1e-9 && im.abs() < 1e-9, "{i} {j}: {re} {im}");
            }
        }
    }
    // Vectors are needed for tensors, even if nobody asked for them.
    let tensors = SurfaceOperators::new(&mesh, &plain, &options([0, 0, 21])).unwrap();
    let kinds: Vec<[usize; 2]> = tensors.bases.iter().map(|basis| [basis.order, basis.len()]).collect();
    assert_eq!(kinds, [[2, 21]]);
    assert!(tensors.gradient.is_empty());
}

#[test]
fn stored_operators_are_read_back_and_checked() {
    let mesh = shapes::icosphere(2).unwrap();
    let options = OperatorOptions { eigenpairs: [10, 0, 6], ..Default::default() };
    let operators = SurfaceOperators::new(&mesh, &graph(&mesh), &options).unwrap();
    let orders: Vec<usize> = operators.bases.iter().map(|basis| basis.order).collect();
    assert_eq!(orders, [0, 2]);
    let bytes = operators.to_bytes().unwrap();
    let restored = SurfaceOperators::from_bytes(&bytes).unwrap();
    assert_eq!(restored.mass, operators.mass);
    assert_eq!(restored.bases[1].values, operators.bases[1].values);
    for (x, y) in restored.gradient.iter().zip(&operators.gradient) {
        assert_eq!(*x, f64::from(*y as f32));
    }
    // Rounded values are stored exactly.
    assert_eq!(restored.to_bytes().unwrap(), bytes);
    assert!(SurfaceOperators::from_bytes(&bytes[..bytes.len() - 4]).is_err());
    let graph_bytes = graph(&mesh).to_safetensors().unwrap();
    assert!(matches!(SurfaceOperators::from_bytes(&graph_bytes), Err(OperatorStoreError::Version { found: None })));
}

#[test]
fn curvature_of_sphere_and_torus_is_known() {
    let sphere = shapes::icosphere(4).unwrap();
    let torus = shapes::torus(80, 40, 1.0, 0.4, Cells::Triangles).unwrap();
    for (mesh, is_sphere) in [(&sphere, true), (&torus, false)] {
        let graph = graph(mesh);
        let laplacian = SurfaceLaplacian::new(mesh).unwrap();
        let jets = Jets::new(&laplacian, graph.frames()).unwrap();
        let curvature = Curvature::new(mesh, &graph, &jets).unwrap();
        for (vertex, v) in mesh.vertices().iter().enumerate() {
            // Principal curvatures: 1 and 1, or 1 / tube and cos / distance from the axis.
            let [first, second] = if is_sphere {
                [1.0, 1.0]
            } else {
                let distance = v.x.hypot(v.y);
                [1.0 / 0.4, (distance - 1.0) / 0.4 / distance]
            };
            let unit = laplacian.scale().recip();
            let mean = 0.5 * (first + second) * unit;
            let half = 0.5 * (first - second) * unit;
            let z = [curvature.traceless[2 * vertex], curvature.traceless[2 * vertex + 1]];
            assert!((curvature.mean[vertex] - mean).abs() < 0.05 * first * unit, "{vertex}");
            assert!((z[0].hypot(z[1]) - half).abs() < 0.05 * first * unit, "{vertex}");
            let gaussian = curvature.mean[vertex].powi(2) - z[0] * z[0] - z[1] * z[1];
            let product = first * second * unit * unit;
            assert!((gaussian - product).abs() < 0.2 * (first * unit).powi(2));
        }
        let [scalar, second] = [basis(mesh, 0, 40), basis(mesh, 2, 40)];
        let mass = laplacian.mass();
        let smooth = curvature.smoothed(mass, &scalar, &second, &[1e-3, 1e-2]).unwrap();
        assert_eq!(smooth.kind, [(2, 0), (2, 2)]);
        for (row, mean) in smooth.rows().zip(&curvature.mean) {
            assert!((row[0] - mean).abs() < 0.1 * laplacian.scale().recip() * 2.5);
        }
        assert!(curvature.smoothed(mass, &second, &scalar, &[1e-3]).is_err());
    }
}

#[test]
fn signatures_are_constant_on_the_sphere_and_start_at_the_area() {
    let mesh = shapes::icosphere(3).unwrap();
    let scalar = basis(&mesh, 0, 49);
    let signatures = heat_kernel_signatures(&scalar, &signature_times());
    for row in signatures.chunks_exact(16) {
        // Long times leave the constant eigenvector, which is 1 on unit area.
        assert!((row[15] - 1.0).abs() < 1e-3);
        assert!(row.is_sorted_by(|a, b| a >= b));
    }
    let first: Vec<f64> = signatures.chunks_exact(16).map(|row| row[2]).collect();
    assert!(first.iter().all(|x| (x / first[0] - 1.0).abs() < 0.05));
    let waves = wave_kernel_signatures(&scalar, 10);
    assert_eq!(waves.len(), 10 * mesh.vertex_count());
    assert!(waves.iter().all(|x| (x - 1.0).abs() < 0.3));
}

#[test]
fn centroid_features_are_invariant_under_rigid_motions() {
    let torus = shapes::torus(20, 12, 1.0, 0.4, Cells::Triangles).unwrap();
    // A vertex without faces has the normal of the nearest one with faces, and any frame about it.
    let (mut vertices, faces) = torus.into_parts();
    vertices.push(DVec3::new(0.3, -0.4, 1.2));
    let mesh = Mesh::new(vertices, faces).unwrap();
    let rotation = rotation_about_skew_axis();
    let moved = mesh.map_vertices(|v| 3.0 * rotation(v) + DVec3::new(5.0, -2.0, 9.0)).unwrap();
    let huge = mesh.map_vertices(|v| 1e200 * v).unwrap();
    let [a, b, c] = [&mesh, &moved, &huge].map(|mesh| centroid_features(mesh, &graph(mesh)).unwrap());
    assert_eq!(a.kind, [(2, 0), (1, 1)]);
    let framed = a.values.len() - 2;
    for (x, (y, z)) in a.values[..framed].iter().zip(b.values.iter().zip(&c.values)) {
        assert!((x - y).abs() < 1e-9 && (x - z).abs() < 1e-9);
    }
    for row in a.rows() {
        let squared = row[0] * row[0] + row[2] * row[2] + row[3] * row[3];
        assert!((squared.sqrt() - row[1]).abs() < 1e-12);
    }
}

#[test]
fn centroids_weight_by_area() {
    // The right half has small cells, which must not pull the centroid towards it.
    let sheet = shapes::grid(5, 21, Cells::Quads).unwrap();
    let uneven = |v: DVec3| {
        if v.x < 4.0 { v.x } else { 4.0 + (v.x - 4.0) / 4.0 }
    };
    let sheet = sheet.map_vertices(|v| DVec3::new(uneven(v), v.y, 0.0)).unwrap();
    let field = centroid_features(&sheet, &graph(&sheet)).unwrap();
    let low = sheet.vertices().iter().fold(DVec3::MAX, |l, v| l.min(*v));
    let high = sheet.vertices().iter().fold(DVec3::MIN, |h, v| h.max(*v));
    let (centre, size) = (0.5 * (low + high), high - low);
    for (row, position) in field.rows().zip(sheet.vertices()) {
        let expected = position.distance(centre) / (size.x * size.y).sqrt();
        assert!((row[1] - expected).abs() < 1e-12 && row[0].abs() < 1e-12);
    }
    let point = sheet.map_vertices(|_| DVec3::ONE).unwrap();
    assert!(matches!(centroid_features(&point, &graph(&sheet)), Err(SurfaceError::NoExtent { faces: 80 })));
}

/// A rotation about a skew axis (Rodrigues' formula).
fn rotation_about_skew_axis() -> impl Fn(DVec3) -> DVec3 {
    let axis = DVec3::new(1.0, 2.0, -0.5).normalize();
    let (sine, cosine) = 1.1f64.sin_cos();
    move |v| cosine * v + sine * axis.cross(v) + (1.0 - cosine) * axis.dot(v) * axis
}
