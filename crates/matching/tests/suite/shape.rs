use crate::AS_GIVEN;
use gemcnn_matching::{MatchError, Note, Shape, ShapeOptions};
use gemcnn_mesh::surface::SurfaceError;
use gemcnn_mesh::{DVec3, Faces, Mesh, shapes};

fn new(mesh: &Mesh) -> Result<Shape, MatchError> {
    Shape::new(mesh, &AS_GIVEN)
}

#[test]
fn a_mesh_that_is_inside_out_is_turned() {
    let sphere = shapes::icosphere(2).unwrap();
    let right = new(&sphere).unwrap();
    assert!(right.notes().is_empty());
    let turned = new(&sphere.clone().with_reversed_faces()).unwrap();
    assert_eq!(turned.notes(), [Note::TurnedInsideOut]);
    let normal = |shape: &Shape| shape.graph().frames()[7].normal;
    assert!(normal(&turned).dot(normal(&right)) > 0.99);
}

#[test]
fn dirty_meshes_are_cleaned() {
    let (mut vertices, faces) = shapes::icosphere(2).unwrap().into_parts();
    let count = vertices.len();
    // Every face has corners of its own; one more vertex has no face.
    let mut soup: Vec<DVec3> = faces.corners().iter().map(|&v| vertices[v as usize]).collect();
    soup.push(2.0 * soup[5]);
    let corners: Vec<u32> = (0..faces.corners().len() as u32).collect();
    let mesh = Mesh::new(soup, corners.chunks_exact(3).collect::<Faces>()).unwrap();
    let shape = new(&mesh).unwrap();
    assert_eq!(shape.surface().vertex_count(), count);
    assert_eq!(shape.vertex_count(), 961);
    assert_eq!(shape.notes(), [Note::Merged(960 - count), Note::Isolated(1)]);
    vertices.iter_mut().for_each(|p| *p *= 1e200);
    let large = new(&Mesh::new(vertices, faces).unwrap()).unwrap();
    let length = |shape: &Shape| shape.surface().vertices()[0].distance(shape.surface().vertices()[1]);
    assert!((length(&large) - length(&new(&shapes::icosphere(2).unwrap()).unwrap())).abs() < 1e-9);
}

#[test]
fn what_is_no_surface_is_refused() {
    let points = |count: usize| (0..count).map(|i| DVec3::new(i as f64, (i * i) as f64, 0.0)).collect();
    let mesh = |vertices: Vec<DVec3>, faces: &[[u32; 3]]| Mesh::new(vertices, faces.iter().collect()).unwrap();
    for (mesh, vertices) in [
        (mesh(points(3), &[[0, 1, 2]]), 3),
        (mesh(points(4), &[[0, 1, 2], [0, 2, 3]]), 4),
        (mesh(points(50), &[]), 0),
        (mesh(vec![DVec3::ONE; 40], &[[0, 1, 2]]), 0),
        (mesh(vec![], &[]), 0),
    ] {
        assert_eq!(new(&mesh).unwrap_err(), MatchError::TooSmall { vertices, least: 20 });
    }
    let line: Vec<DVec3> = (0..40).map(|i| DVec3::X * f64::from(i)).collect();
    let flat: Vec<[u32; 3]> = (0..38).map(|i| [i, i + 1, i + 2]).collect();
    assert!(matches!(
        new(&mesh(line, &flat)).unwrap_err(),
        MatchError::TooSmall { .. } | MatchError::Surface(SurfaceError::NoExtent { .. })
    ));
}

#[test]
fn descriptors_are_finite_rows() {
    let mut shape = new(&shapes::icosphere(1).unwrap()).unwrap();
    for rows in [vec![], vec![1.0; 41], vec![f32::NAN; 42], vec![f32::INFINITY; 84]] {
        let given = rows.len();
        let refused = shape.set_descriptors(rows).unwrap_err();
        assert!(matches!(refused, MatchError::Descriptors { vertices: 42, given: found, .. } if found == given));
    }
    shape.set_descriptors(vec![0.0; 84]).unwrap();
    shape.set_descriptors(vec![1e30; 84]).unwrap();
}

#[test]
fn large_meshes_are_simplified() {
    let sphere = shapes::icosphere(4).unwrap();
    let options = ShapeOptions { direct: 1000, simplified: 500, ..AS_GIVEN };
    let shape = Shape::new(&sphere, &options).unwrap();
    assert_eq!(shape.surface().vertex_count(), 500);
    assert_eq!(shape.notes(), [Note::Simplified(500)]);
    assert_eq!(shape.vertex_count(), sphere.vertex_count());
    // Separate triangles do not simplify.
    let (vertices, faces) = sphere.into_parts();
    let centre = |face: &[u32]| face.iter().map(|&v| vertices[v as usize]).sum::<DVec3>() / 3.0;
    let apart = faces.iter().flat_map(|face| face.iter().map(|&v| 0.9 * vertices[v as usize] + 0.1 * centre(face)));
    let mesh = Mesh::new(apart.collect(), (0..15360).collect::<Vec<u32>>().chunks_exact(3).collect()).unwrap();
    let refused = Shape::new(&mesh, &options).unwrap_err();
    assert_eq!(refused, MatchError::NotSimplified { vertices: 15360, reached: 15360 });
}

#[test]
fn small_meshes_are_subdivided() {
    let sphere = shapes::icosphere(2).unwrap();
    let options = ShapeOptions { subdivided: 163, ..AS_GIVEN };
    let shape = Shape::new(&sphere, &options).unwrap();
    assert_eq!(shape.notes(), [Note::Subdivided(642)]);
    assert_eq!((shape.surface().vertex_count(), shape.vertex_count()), (642, 162));
    assert_eq!(Shape::new(&sphere, &ShapeOptions { subdivided: 162, ..AS_GIVEN }).unwrap().notes(), []);
    let rounds = Shape::new(&sphere, &ShapeOptions::default()).unwrap();
    assert_eq!(rounds.surface().vertex_count(), 2562);
}
