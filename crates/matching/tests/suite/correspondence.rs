use crate::AS_GIVEN;
use crate::bodies::{Body, mean};
use gemcnn_matching::{Match, Shape, ShapeOptions, Verdict};
use gemcnn_mesh::remesh::{Subdivide, carry_values, nearest_points, remesh};
use gemcnn_mesh::{AttributeValues, DVec3, Faces, Mesh, PointIndex, VertexAttribute, shapes, vertex_normals};

fn pair() -> (Body, Body, Match) {
    let (a, b) = (Body::remeshed(1, 700, false), Body::remeshed(2, 600, true));
    let found = Match::new(&a.shape(0.5, 1), &b.shape(0.5, 2)).unwrap();
    (a, b, found)
}

#[test]
fn points_of_faces_are_nearer_than_vertices() {
    let (a, b, found) = pair();
    let near = mean(&a.errors(&b, &found.vertices()));
    let points = found.forward.iter().zip(&a.places).map(|(point, place)| point.position(&b.places).distance(*place));
    let precise = mean(&points.collect::<Vec<_>>());
    assert!(precise < 0.9 * near && near < 0.03, "{precise} {near}");
    assert!(mean(&b.errors(&a, &found.inverse())) < 0.03);
    assert_eq!((found.backward.len(), found.confidence.len()), (600, 700));
    for point in found.forward.iter().chain(&found.backward) {
        assert!((point.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(point.weights.iter().all(|&weight| weight >= 0.0));
    }
}

#[test]
fn known_bodies_match_well_and_other_shapes_do_not() {
    let (a, _, found) = pair();
    assert_eq!(found.evidence.verdict(), Verdict::Good, "{:?}", found.evidence);
    assert!(found.evidence.doubts().is_empty());
    assert!(f64::from(found.confidence.iter().sum::<f32>()) > 0.6 * 700.0);
    let mut sphere = Shape::new(&shapes::icosphere(3).unwrap(), &AS_GIVEN).unwrap();
    let rows = sphere.surface().vertices().iter().flat_map(|&place| {
        let values: [f32; 32] = std::array::from_fn(|wave| (place * (wave + 1) as f64).element_sum().sin() as f32);
        values
    });
    sphere.set_descriptors(rows.collect()).unwrap();
    let wrong = Match::new(&a.shape(0.5, 1), &sphere).unwrap();
    assert_eq!(wrong.evidence.verdict(), Verdict::Meaningless, "{:?}", wrong.evidence);
    assert!(wrong.confidence.iter().sum::<f32>() < 0.3 * 700.0);
}

#[test]
fn a_reflected_map_is_seen() {
    // Descriptors of one body at mirrored places.
    let a = Body::remeshed(1, 700, false);
    let mut other = Body::remeshed(1, 600, true);
    other.places.iter_mut().for_each(|place| place.x = -place.x);
    let found = Match::new(&a.shape(0.0, 1), &other.shape(0.0, 2)).unwrap();
    assert!(found.evidence.reversed > 0.8, "{:?}", found.evidence);
    assert!(found.evidence.doubts().iter().any(|doubt| doubt.measure == "reversed" && doubt.is_grave));
}

#[test]
fn maps_are_for_the_given_vertices() {
    let (a, b, clean) = pair();
    // A vertex without faces first, and each corner of a face with a vertex of its own.
    let dirty = |mesh: &Mesh| {
        let mut vertices = vec![DVec3::splat(3.0)];
        vertices.extend(mesh.faces().corners().iter().map(|&corner| mesh.vertices()[corner as usize]));
        let corners: Vec<u32> = (1..vertices.len() as u32).collect();
        Mesh::new(vertices, corners.chunks_exact(3).collect::<Faces>()).unwrap()
    };
    let shape = |body: &Body, seed| {
        let mut shape = Shape::new(&dirty(&body.mesh), &AS_GIVEN).unwrap();
        // Vertices of the cleaned mesh are in another order.
        let own = PointIndex::new(body.shape(0.0, seed).surface().vertices());
        let order = shape.surface().vertices().iter().map(|&at| own.nearest(at).unwrap().point as usize);
        let rows = body.descriptors(0.5, seed);
        let rows = order.flat_map(|vertex| rows[32 * vertex..][..32].to_vec()).collect();
        shape.set_descriptors(rows).unwrap();
        shape
    };
    let found = Match::new(&shape(&a, 1), &shape(&b, 2)).unwrap();
    let corners_b = b.mesh.faces().corners();
    assert_eq!(found.forward.len(), 1 + a.mesh.faces().corners().len());
    let (expected, vertices) = (clean.vertices(), found.vertices());
    let same = vertices[1..].iter().zip(a.mesh.faces().corners());
    let distances: Vec<f64> = same
        .map(|(&image, &vertex)| {
            assert!(image > 0, "no point is mapped to the vertex without faces");
            let (image, expected) = (corners_b[image as usize - 1], expected[vertex as usize]);
            b.places[image as usize].distance(b.places[expected as usize])
        })
        .collect();
    assert!(mean(&distances) < 0.02, "{}", mean(&distances));
}

#[test]
fn simplified_copies_carry_over_to_all_vertices() {
    let (a, b) = (Body::remeshed(1, 700, false), Body::remeshed(2, 600, true));
    let options = ShapeOptions { direct: 1000, simplified: 600, ..AS_GIVEN };
    let fine = |body: &Body, seed| {
        let fine = remesh(&body.mesh, &Subdivide { rounds: 1, ..Default::default() }, 0).unwrap();
        let mut shape = Shape::new(&fine.mesh, &options).unwrap();
        assert!(shape.surface().vertex_count() <= 600);
        // Places of the copy by way of the nearest points of the body.
        let nearest = nearest_points(body.shape(0.0, seed).surface(), shape.surface().vertices()).unwrap();
        let places = nearest.iter().map(|(point, _)| point.position(&body.places)).collect();
        let copy = Body { mesh: shape.surface().clone(), places };
        shape.set_descriptors(copy.descriptors(0.0, seed)).unwrap();
        let rest: Vec<f64> = body.places.iter().flat_map(|place| place.to_array()).collect();
        let places = carry_values(&fine.sources, 3, &rest);
        (shape, Body { places: places.chunks_exact(3).map(DVec3::from_slice).collect(), mesh: fine.mesh })
    };
    let ((shape_a, fine_a), (shape_b, fine_b)) = (fine(&a, 1), fine(&b, 2));
    let found = Match::new(&shape_a, &shape_b).unwrap();
    assert_eq!(found.forward.len(), fine_a.mesh.vertex_count());
    assert_eq!(found.backward.len(), fine_b.mesh.vertex_count());
    let errors = fine_a.errors(&fine_b, &found.vertices());
    assert!(mean(&errors) < 0.03, "{}", mean(&errors));
    assert!(errors.iter().filter(|&&error| error > 0.15).count() < errors.len() / 50);
}

#[test]
fn fields_are_carried_by_their_kind() {
    let (a, b, found) = pair();
    let top = |place: &DVec3| u8::from(place.y > 0.0);
    let column = |name: &str, values: Vec<f64>| VertexAttribute::new(name, AttributeValues::F64(values));
    let heights = b.places.iter().map(|place| place.y).collect();
    // The normals of B, as a vector field.
    let normals: Vec<DVec3> = vertex_normals(&b.mesh, Default::default()).unwrap();
    let axis = |axis: usize| normals.iter().map(|normal| normal[axis]).collect();
    let columns = [
        VertexAttribute::new("part", AttributeValues::U8(b.places.iter().map(top).collect())),
        VertexAttribute::new("red", AttributeValues::U8(vec![200; 600])),
        column("n_x", axis(0)),
        column("n_y", axis(1)),
        column("n_z", axis(2)),
        column("height", heights),
    ];
    let carried = found.transfer(&columns);
    let names: Vec<&str> = carried.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["part", "red", "n_x", "n_y", "n_z", "height"]);
    let AttributeValues::U8(parts) = &carried[0].values else { panic!("labels keep their type") };
    let right = parts.iter().zip(&a.places).filter(|&(&part, place)| part == top(place)).count();
    assert!(right > 680, "{right}");
    assert_eq!(carried[1].values, AttributeValues::U8(vec![200; 700]));
    let differences = a.places.iter().enumerate().map(|(v, place)| (carried[5].values.to_f64(v) - place.y).abs());
    assert!(mean(&differences.collect::<Vec<_>>()) < 0.02);
    let own = vertex_normals(&a.mesh, Default::default()).unwrap();
    let along = own.iter().enumerate().map(|(v, normal)| {
        normal.dot(DVec3::from_array([2, 3, 4].map(|column: usize| carried[column].values.to_f64(v))))
    });
    let along = mean(&along.collect::<Vec<_>>());
    assert!(along > 0.9, "{along}");
}

#[test]
fn tangent_vectors_turn_with_the_surface() {
    let sphere = shapes::icosphere(3).unwrap();
    // The other sphere is turned about the z axis; descriptors are those of the same points.
    let quarter = |p: DVec3| DVec3::new(-p.y, p.x, p.z);
    let turned = sphere.map_vertices(quarter).unwrap();
    let shape = |mesh: &Mesh| {
        let mut shape = Shape::new(mesh, &ShapeOptions { eigenpairs: 60, ..AS_GIVEN }).unwrap();
        let rows = sphere.vertices().iter().flat_map(|place| {
            let values: [f32; 24] = std::array::from_fn(|wave| {
                let direction = DVec3::new((wave as f64).sin(), (wave as f64 * 1.7).cos(), (wave as f64 * 2.3).sin());
                (2.0 * place.dot(direction) + wave as f64).cos() as f32
            });
            values
        });
        shape.set_descriptors(rows.collect()).unwrap();
        shape
    };
    let found = Match::new(&shape(&sphere), &shape(&turned)).unwrap();
    let east = |p: &DVec3| DVec3::Z.cross(*p);
    let field: Vec<DVec3> = turned.vertices().iter().map(east).collect();
    let carried = found.transfer_vectors(&field);
    let off: Vec<f64> = carried.iter().zip(sphere.vertices()).map(|(found, p)| found.distance(east(p))).collect();
    assert!(mean(&off) < 0.1, "{}", mean(&off));
}
