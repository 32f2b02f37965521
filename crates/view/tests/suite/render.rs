//! Rendering: position, colour, visibility and shading.

use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, Faces, Mesh};
use gemcnn_view::render::{
    Arrow, MAX_SIDE, Paint, Picture, RenderError, RenderOptions, Shading, Up, View, render, render_painted,
};

const WHITE: [u8; 4] = [255; 4];

/// A small square picture from +z without margin.
fn front(side: u32) -> RenderOptions {
    RenderOptions {
        width: side,
        height: side,
        view: View::orbit(0.0, 0.0, Up::Y),
        margin: 0.0,
        ..RenderOptions::default()
    }
}

fn at(picture: &Picture, x: u32, y: u32) -> [u8; 4] {
    picture.pixels()[(y * picture.width() + x) as usize]
}

/// Index of the strongest of red, green and blue.
fn strongest(pixel: [u8; 4]) -> usize {
    (0..3).max_by_key(|&channel| pixel[channel]).unwrap()
}

fn mesh(vertices: &[[f64; 3]], faces: &[&[u32]]) -> Mesh {
    Mesh::new(vertices.iter().copied().map(DVec3::from).collect(), faces.iter().collect()).unwrap()
}

#[test]
fn a_sphere_is_a_disc_in_its_square() {
    for view in
        [View::orbit(0.0, 0.0, Up::Y), View::orbit(200.0, -65.0, Up::Z), View { towards_eye: DVec3::Y, up: DVec3::Y }]
    {
        let options = RenderOptions { view, ..front(200) };
        let picture = render(&shapes::icosphere(5).unwrap(), None, &[], &options).unwrap();
        let covered = picture.pixels().iter().filter(|&&p| p != WHITE).count();
        let share = covered as f64 / 40_000.0;
        // A touch over pi / 4: outline pixels that are partly covered count whole.
        let disc = std::f64::consts::FRAC_PI_4;
        assert!((share - disc - 0.007).abs() < 0.007, "{share} for {view:?}");
        assert_eq!(at(&picture, 0, 0), WHITE);
        assert_ne!(at(&picture, 100, 1), WHITE);
    }
}

#[test]
fn the_margin_is_kept_and_the_picture_is_filled() {
    let options = RenderOptions { width: 200, height: 100, margin: 0.1, ..front(1) };
    let picture = render(&shapes::grid(3, 3, Cells::Quads).unwrap(), None, &[], &options).unwrap();
    // A square of 80 pixels in the middle of 200 x 100.
    for (x, y, inside) in
        [(61, 11, true), (138, 88, true), (58, 50, false), (141, 50, false), (100, 8, false), (100, 91, false)]
    {
        assert_eq!(at(&picture, x, y) != WHITE, inside, "at {x}, {y}");
    }
}

#[test]
fn the_nearer_triangle_hides_the_farther_in_either_order() {
    let vertices =
        [[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [0.0, 2.0, 1.0]];
    let colours = [[200, 0, 0], [200, 0, 0], [200, 0, 0], [0, 0, 200], [0, 0, 200], [0, 0, 200]];
    let (far, near): (&[u32], &[u32]) = (&[0, 1, 2], &[3, 4, 5]);
    // Either order, and with the nearer one seen from behind.
    for faces in [[far, near], [near, far], [far, &[5, 4, 3]]] {
        let mesh = mesh(&vertices, &faces);
        let picture = render(&mesh, Some(&colours), &[], &front(80)).unwrap();
        assert_eq!(strongest(at(&picture, 10, 70)), 2);
        assert_eq!(strongest(at(&picture, 55, 75)), 0);
        assert_eq!(at(&picture, 70, 10), WHITE);
        let behind = RenderOptions { view: View::orbit(180.0, 0.0, Up::Y), ..front(80) };
        let picture = render(&mesh, Some(&colours), &[], &behind).unwrap();
        assert_eq!(strongest(at(&picture, 70, 70)), 0);
    }
}

#[test]
fn vertex_colours_land_at_their_vertices_and_mix_between() {
    let grid = shapes::grid(2, 2, Cells::Quads).unwrap();
    let colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 0]];
    let picture = render(&grid, Some(&colours), &[], &front(64)).unwrap();
    // Row 0 is at the top, column 0 at the left.
    assert_eq!(strongest(at(&picture, 1, 1)), 0);
    assert_eq!(strongest(at(&picture, 62, 1)), 1);
    assert_eq!(strongest(at(&picture, 1, 62)), 2);
    let [r, g, b, _] = at(&picture, 62, 62);
    assert!(r.max(g).max(b) < 70, "black with a little gloss: {r} {g} {b}");
    let [r, g, ..] = at(&picture, 32, 0);
    assert!(r.abs_diff(g) < 12, "half way from red to green: {r} {g}");
}

#[test]
fn classes_faces_and_sides_have_crisp_colours() {
    let (red, green, blue) = ([220, 0, 0], [0, 220, 0], [0, 0, 220]);
    let triangle = mesh(&[[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 4.0, 0.0]], &[&[0, 1, 2]]);
    let (one, three, colours) = ([green], [red, green, blue], [red, blue, blue]);
    let draw = |paint| render_painted(&triangle, paint, &[], &front(80)).unwrap();
    let is_pure = |pixel: [u8; 4], channel: usize| {
        let others = (0..3).filter(|&other| other != channel);
        strongest(pixel) == channel && others.map(|other| pixel[other]).all(|v| v < 60)
    };
    // The border of the class of the first vertex is the line through the middles of two edges.
    let classes = Paint::Classes { classes: &[7, 3, 3], colours: &colours };
    let picture = draw(classes);
    for (x, y, channel) in [(2, 77, 0), (36, 77, 0), (44, 77, 2), (2, 44, 0), (2, 36, 2)] {
        assert!(is_pure(at(&picture, x, y), channel), "{x} {y}");
    }
    assert!(is_pure(at(&picture, 17, 60), 0) && is_pure(at(&picture, 22, 55), 2));
    let faces = draw(Paint::Faces(&one));
    assert!(is_pure(at(&faces, 5, 70), 1) && is_pure(at(&faces, 60, 75), 1));
    // Sides 0-1 at the bottom, 1-2 along the diagonal and 2-0 at the left.
    let sides = draw(Paint::Sides(&three));
    for (x, y, channel) in [(30, 77, 0), (36, 40, 1), (2, 50, 2)] {
        assert!(is_pure(at(&sides, x, y), channel), "{x} {y}");
    }
    assert_eq!(
        render_painted(&triangle, Paint::Faces(&colours), &[], &front(80)),
        Err(RenderError::Colours { colours: 3, elements: 1 })
    );
}

#[test]
fn the_up_axis_is_found_out() {
    let ball = shapes::icosphere(2).unwrap();
    let stretched = |size: DVec3| ball.map_vertices(|p| p * size).unwrap();
    // Standing bodies.
    assert_eq!(Up::of(&stretched(DVec3::new(1.0, 3.0, 0.5))), Up::Y);
    assert_eq!(Up::of(&stretched(DVec3::new(1.0, 0.5, 3.0))), Up::Z);
    assert_eq!(Up::of(&ball), Up::Y);
    // Open surfaces that face one way.
    let grid = shapes::grid(8, 8, Cells::Quads).unwrap();
    assert_eq!(Up::of(&grid), Up::Z);
    let level = grid.map_vertices(|p| DVec3::new(p.x, p.z, -p.y)).unwrap();
    assert_eq!(Up::of(&level), Up::Y);
    assert_eq!(Up::of(&mesh(&[], &[])), Up::Y);
}

#[test]
fn inconsistent_orientation_does_not_show() {
    let sphere = shapes::icosphere(3).unwrap();
    let flipped: Faces = sphere
        .faces()
        .iter()
        .enumerate()
        .map(|(i, face)| {
            let mut face = face.to_vec();
            if i % 3 == 0 {
                face.swap(1, 2);
            }
            face
        })
        .collect();
    let flipped = Mesh::new(sphere.vertices().to_vec(), flipped).unwrap();
    for shading in [Shading::Flat, Shading::Smooth] {
        let options = RenderOptions { shading, ..front(120) };
        let a = render(&sphere, None, &[], &options).unwrap();
        let b = render(&flipped, None, &[], &options).unwrap();
        for (a, b) in a.pixels().iter().zip(b.pixels()) {
            assert!((0..4).all(|i| a[i].abs_diff(b[i]) <= 1), "{a:?} {b:?}");
        }
    }
}

#[test]
fn smooth_shading_rounds_gentle_edges_and_keeps_sharp_ones() {
    let neighbours_differ = |mesh: &Mesh, shading| {
        let options = RenderOptions { shading, view: View::orbit(30.0, 30.0, Up::Y), ..front(200) };
        let picture = render(mesh, None, &[], &options).unwrap();
        // The largest step between neighbours well inside the outline.
        (60..140)
            .flat_map(|y| (60..140).map(move |x| (x, y)))
            .map(|(x, y)| at(&picture, x, y)[1].abs_diff(at(&picture, x + 1, y)[1]))
            .max()
            .unwrap()
    };
    let sphere = shapes::icosphere(2).unwrap();
    assert!(neighbours_differ(&sphere, Shading::Flat) > 6);
    assert!(neighbours_differ(&sphere, Shading::Smooth) <= 4);
    let cube = mesh(
        &[
            [0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0],
            [1.0, 1.0, 0.0],
            [0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0],
            [1.0, 0.0, 1.0],
            [1.0, 1.0, 1.0],
            [0.0, 1.0, 1.0],
        ],
        &[&[0, 3, 2, 1], &[4, 5, 6, 7], &[0, 1, 5, 4], &[2, 3, 7, 6], &[1, 2, 6, 5], &[0, 4, 7, 3]],
    );
    assert!(neighbours_differ(&cube, Shading::Smooth) > 20);
}

#[test]
fn edges_are_drawn_where_they_are_and_only_the_mesh_s_own() {
    let options = RenderOptions { wireframe: true, wire_colour: [255, 0, 0], wire_width: 2.0, ..front(90) };
    let is_wire = |[r, g, ..]: [u8; 4]| r > g.saturating_add(60);
    let quads = shapes::grid(4, 4, Cells::Quads).unwrap();
    let picture = render(&quads, None, &[], &options).unwrap();
    assert!(is_wire(at(&picture, 30, 15)) && is_wire(at(&picture, 15, 60)));
    // The cut through the first quad, drawn for triangles only.
    assert!(!is_wire(at(&picture, 15, 15)));
    let triangles = shapes::grid(4, 4, Cells::Triangles).unwrap();
    let picture = render(&triangles, None, &[], &options).unwrap();
    assert!(is_wire(at(&picture, 15, 15)));
    assert!(!is_wire(at(&picture, 20, 10)));
    let plain = RenderOptions { wireframe: false, ..options };
    let picture = render(&triangles, None, &[], &plain).unwrap();
    assert!(!picture.pixels().iter().any(|&pixel| is_wire(pixel)));
}

#[test]
fn arrows_lie_on_the_surface_and_hide_behind_it() {
    let grid = shapes::grid(3, 3, Cells::Quads).unwrap();
    let arrow = |z: f64| Arrow { from: DVec3::new(0.2, 1.0, z), to: DVec3::new(1.8, 1.0, z), colour: [220, 0, 0] };
    let red = |picture: &Picture| {
        let red = |p: &&[u8; 4]| p[0] > p[1].saturating_add(60);
        picture.pixels().iter().filter(red).count()
    };
    let on = render(&grid, None, &[arrow(0.0)], &front(100)).unwrap();
    let drawn = red(&on);
    // A shaft of 80 x 3 pixels and a head.
    assert!((200..400).contains(&drawn), "{drawn}");
    assert_eq!(strongest(at(&on, 40, 50)), 0);
    let behind = render(&grid, None, &[arrow(-1.0)], &front(100)).unwrap();
    assert_eq!(red(&behind), 0);
    // Without length there is no arrow, and no harm.
    let point = Arrow { to: arrow(0.0).from, ..arrow(0.0) };
    assert_eq!(red(&render(&grid, None, &[point], &front(100)).unwrap()), 0);
}

#[test]
fn a_concave_face_leaves_its_notch_open() {
    let l_shape = mesh(
        &[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 2.0, 0.0]],
        &[&[2, 3, 4, 5, 0, 1]],
    );
    let picture = render(&l_shape, None, &[], &front(40)).unwrap();
    assert_eq!(at(&picture, 30, 10), WHITE);
    for (x, y) in [(10, 10), (10, 30), (30, 30), (18, 18), (22, 22)] {
        assert_ne!(at(&picture, x, y), WHITE, "at {x}, {y}");
    }
}

#[test]
fn strange_meshes_give_pictures() {
    let empty = Mesh::new(Vec::new(), Faces::new()).unwrap();
    let flat_face = mesh(&[[1.0, 1.0, 1.0]], &[&[0, 0, 0], &[0, 0, 0, 0]]);
    let isolated = mesh(&[[0.0, 0.0, 0.0], [1.0, 5.0, 2.0]], &[]);
    for mesh in [empty, flat_face, isolated] {
        let picture = render(&mesh, None, &[], &front(9)).unwrap();
        assert!(picture.pixels().iter().all(|&pixel| pixel == WHITE));
    }
    // Sizes at both ends of the range fill the picture all the same.
    for size in [1e-300, 1e-20, 1e20, 1e300] {
        let grid = shapes::grid(3, 3, Cells::Quads).unwrap();
        let sized = grid.map_vertices(|p| p * size).unwrap();
        let picture = render(&sized, None, &[], &front(9)).unwrap();
        assert!(picture.pixels().iter().all(|&pixel| pixel != WHITE), "{size}");
    }
}

#[test]
fn threads_do_not_change_the_picture() {
    let mesh = shapes::torus(80, 40, 2.0, 0.9, Cells::Quads).unwrap();
    let options = RenderOptions { wireframe: true, ..RenderOptions::default() };
    let pictures = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| render(&mesh, None, &[], &options).unwrap())
    });
    assert_eq!(pictures[0], pictures[1]);
}

#[test]
fn png_gives_back_the_pixels() {
    let options = RenderOptions { width: 61, height: 47, background: [10, 20, 30, 0], ..RenderOptions::default() };
    let picture = render(&shapes::icosahedron(), None, &[], &options).unwrap();
    let file = picture.encode_png();
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), (61, 47));
    assert_eq!(bytes, picture.pixels().as_flattened());
    // Transparent outside, opaque inside, both in between on the outline.
    assert_eq!(at(&picture, 0, 0), options.background);
    assert_eq!(at(&picture, 30, 23)[3], 255);
    assert!(picture.pixels().iter().any(|p| (1..255).contains(&p[3])));
}

#[test]
fn bad_requests_are_refused() {
    let mesh = shapes::icosahedron();
    let refused = |change: fn(&mut RenderOptions)| {
        let mut options = RenderOptions::default();
        change(&mut options);
        match render(&mesh, None, &[], &options) {
            Err(RenderError::Option { option, value, .. }) => (option, value),
            other => panic!("{other:?}"),
        }
    };
    let named = |option, value: &str| (option, value.to_owned());
    assert_eq!(refused(|o| o.width = 0), named("width", "0"));
    assert_eq!(refused(|o| o.height = MAX_SIDE + 1), named("height", "16385"));
    assert_eq!(refused(|o| o.supersampling = 5), named("supersampling", "5"));
    assert_eq!(refused(|o| o.margin = 0.5), named("margin", "0.5"));
    assert_eq!(refused(|o| o.wire_width = f64::NAN), named("wire_width", "NaN"));
    let (option, _) = refused(|o| o.view = View::orbit(f64::NAN, 0.0, Up::Y));
    assert_eq!(option, "view.towards_eye");
    assert_eq!(refused(|o| o.view.up = DVec3::ZERO).0, "view.up");
    assert_eq!(
        render(&mesh, Some(&[[0; 3]; 3]), &[], &RenderOptions::default()),
        Err(RenderError::Colours { colours: 3, elements: 12 })
    );
    let lost = Arrow { from: DVec3::ZERO, to: DVec3::splat(f64::INFINITY), colour: [0; 3] };
    assert_eq!(render(&mesh, None, &[lost], &RenderOptions::default()), Err(RenderError::Arrow { arrow: 0 }));
}
