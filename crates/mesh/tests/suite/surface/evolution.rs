//! Time-dependent equations: analytic solutions, orders of convergence, conservation.

use super::{graph, irregular_square, random_angles};
use gemcnn_mesh::shapes;
use gemcnn_mesh::surface::{Equation, Evolution, State, SurfaceError, SurfaceLaplacian};
use gemcnn_mesh::{DVec3, Mesh};
use std::f64::consts::PI;

/// The state after `steps` steps to a time.
fn solved(mesh: &Mesh, equation: Equation, start: &State, time: f64, steps: usize) -> State {
    let laplacian = SurfaceLaplacian::new(mesh).unwrap();
    let graph = graph(mesh);
    let step = time / steps as f64;
    let evolution = Evolution::new(&laplacian, equation, graph.frames(), step).unwrap();
    let mut state = start.clone();
    for _ in 0..steps {
        evolution.advance(&mut state, 1).unwrap();
    }
    state
}

fn field(mesh: &Mesh, value: impl Fn(DVec3) -> f64) -> State {
    let values: Vec<f64> = mesh.vertices().iter().map(|&p| value(p)).collect();
    State { rates: vec![0.0; values.len()], values }
}

/// Coefficients of tangent vectors in the frames of the graph.
fn vectors(mesh: &Mesh, value: impl Fn(DVec3) -> DVec3) -> State {
    let graph = graph(mesh);
    let pairs = graph.frames().iter().zip(mesh.vertices());
    State { values: pairs.flat_map(|(f, &p)| f.coefficients(value(p))).collect(), rates: Vec::new() }
}

/// Root of the mean squared difference, relative to the wanted values.
fn difference(found: &[f64], wanted: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let pairs = found.iter().zip(wanted);
    (square(&mut pairs.map(|(a, b)| a - b)) / square(&mut wanted.iter().copied())).sqrt()
}

/// A shape with scalar fields on it that are eigenvectors, and their eigenvalues for unit area.
type Analytic = (Vec<Mesh>, fn(DVec3) -> f64, f64);

fn analytic() -> [Analytic; 3] {
    let spheres = || (2..=4).map(|n| shapes::icosphere(n).unwrap()).collect();
    let squares = [8, 16, 32].map(|cells| irregular_square(cells, 1)).to_vec();
    [
        // Spherical harmonics of degrees 2 and 3: l (l + 1) / R^2, where 4 pi R^2 = 1.
        (spheres(), |p| p.x * p.y, 24.0 * PI),
        (spheres(), |p| p.z * (5.0 * p.z * p.z - 3.0), 48.0 * PI),
        // The unit square with free borders.
        (squares, |p| (PI * p.x).cos() * (2.0 * PI * p.y).cos(), 5.0 * PI * PI),
    ]
}

/// Fails unless errors fall by at least this factor whenever the edges halve, to less than `last`.
#[track_caller]
fn assert_falling(errors: &[f64], factor: f64, last: f64) {
    for pair in errors.windows(2) {
        assert!(pair[1] < factor * pair[0], "{errors:?}");
    }
    assert!(errors[errors.len() - 1] < last, "{errors:?}");
}

#[test]
fn heat_and_waves_converge_with_second_order() {
    for (meshes, harmonic, eigenvalue) in analytic() {
        let time = 1.0 / eigenvalue;
        let decay = meshes.iter().map(|mesh| {
            let start = field(mesh, harmonic);
            let found = solved(mesh, Equation::Heat, &start, time, 32).values;
            let wanted: Vec<f64> = start.values.iter().map(|u| (-1f64).exp() * u).collect();
            difference(&found, &wanted)
        });
        assert_falling(&decay.collect::<Vec<f64>>(), 0.35, 0.01);
        // An angle of 2 radians: neither the value nor its derivative is zero.
        let frequency = eigenvalue.sqrt();
        let oscillation = meshes.iter().map(|mesh| {
            let start = field(mesh, harmonic);
            let found = solved(mesh, Equation::Wave, &start, 2.0 / frequency, 64);
            let amplitude = |factor: f64| start.values.iter().map(move |u| factor * u);
            let wanted: Vec<f64> = amplitude(2f64.cos()).collect();
            let rates: Vec<f64> = amplitude(-frequency * 2f64.sin()).collect();
            difference(&found.values, &wanted).max(difference(&found.rates, &rates))
        });
        assert_falling(&oscillation.collect::<Vec<f64>>(), 0.35, 0.02);
    }
}

#[test]
fn vectors_on_the_sphere_decay_with_the_curvature() {
    // Rotations and their quarter turns have the eigenvalue 1 / R^2 of the connection Laplacian.
    let axis = DVec3::new(0.3, -0.5, 0.8);
    let fields: [fn(DVec3, DVec3) -> DVec3; 2] = [|axis, p| axis.cross(p), |axis, p| axis - p * axis.dot(p)];
    for value in fields {
        let errors = (2..=4).map(|subdivisions| {
            let mesh = shapes::icosphere(subdivisions).unwrap();
            let start = vectors(&mesh, |p| value(axis, p));
            let found = solved(&mesh, Equation::VectorHeat, &start, 0.25 / PI, 32).values;
            let wanted: Vec<f64> = start.values.iter().map(|u| (-1f64).exp() * u).collect();
            difference(&found, &wanted)
        });
        assert_falling(&errors.collect::<Vec<f64>>(), 0.35, 0.01);
    }
}

#[test]
fn phases_separate_at_the_rate_of_the_linear_equation() {
    let width = 0.1;
    let errors = [2, 3].map(|subdivisions| {
        let mesh = shapes::icosphere(subdivisions).unwrap();
        let start = field(&mesh, |p| 1e-6 * p.x * p.y);
        let rate = 24.0 * PI * (1.0 - 24.0 * PI * width * width);
        let equation = Equation::CahnHilliard { width };
        let found = solved(&mesh, equation, &start, 1.0 / rate, 400).values;
        let wanted: Vec<f64> = start.values.iter().map(|u| 1f64.exp() * u).collect();
        difference(&found, &wanted)
    });
    assert!(errors[0] < 0.1 && errors[1] < 0.02, "{errors:?}");
}

#[test]
fn schemes_converge_in_time_with_their_orders() {
    let mesh = irregular_square(10, 3);
    let bump = |p: DVec3| (-20.0 * (p - DVec3::new(0.3, 0.6, 0.0)).length_squared()).exp();
    let flow = |p: DVec3| DVec3::new(p.y, bump(p), 0.0);
    for (equation, start, time, order) in [
        (Equation::Heat, field(&mesh, bump), 0.02, 2.0),
        (Equation::VectorHeat, vectors(&mesh, flow), 0.02, 2.0),
        (Equation::Wave, field(&mesh, bump), 0.2, 2.0),
        (
            Equation::CahnHilliard { width: 0.1 },
            field(&mesh, |p| 0.8 * (7.0 * p.x).sin() * (5.0 * p.y).cos()),
            0.02,
            1.0,
        ),
    ] {
        let steps = [20, 40, 80, 160];
        let ends = steps.map(|steps| solved(&mesh, equation, &start, time, steps).values);
        let changes: Vec<f64> = ends.windows(2).map(|p| difference(&p[0], &p[1])).collect();
        let found = (changes[1] / changes[2]).log2();
        assert!((found - order).abs() < 0.2, "{equation:?}: {found}");
    }
}

#[test]
fn mass_and_energy_are_conserved_or_fall() {
    // A bump on an irregular open piece, and a closed surface, in two columns.
    for mesh in [irregular_square(9, 4), shapes::icosphere(2).unwrap()] {
        let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
        let graph = graph(&mesh);
        let bump = |p: DVec3, at: f64| (-9.0 * (p - DVec3::new(at, 0.4, 0.0)).length_squared()).exp();
        let values: Vec<f64> =
            (mesh.vertices().iter()).flat_map(|&p| [bump(p, 0.2), 1.6 * bump(p, 0.9) - 0.5]).collect();
        let mass = |state: &State| {
            let rows = state.values.chunks_exact(2).zip(laplacian.mass());
            rows.fold([0.0; 2], |sum, (row, m)| [sum[0] + m * row[0], sum[1] + m * row[1]])
        };
        for (equation, step) in [
            (Equation::Heat, 1e-3),
            (Equation::Heat, 10.0),
            (Equation::Wave, 0.02),
            (Equation::Wave, 1.0),
            (Equation::CahnHilliard { width: 0.08 }, 1e-4),
            (Equation::CahnHilliard { width: 0.08 }, 0.1),
        ] {
            let evolution = Evolution::new(&laplacian, equation, graph.frames(), step).unwrap();
            let mut state = State { values: values.clone(), rates: values.iter().map(|u| 0.5 - u).collect() };
            if equation == Equation::Wave {
                // Waves without mean motion keep their mass, too.
                let drift = mass(&State { values: state.rates.clone(), rates: Vec::new() });
                for row in state.rates.chunks_exact_mut(2) {
                    row[0] -= drift[0];
                    row[1] -= drift[1];
                }
            }
            let (mass_before, first) = (mass(&state), evolution.energy(&state, 2).unwrap());
            let mut energy = first.clone();
            for _ in 0..100 {
                evolution.advance(&mut state, 2).unwrap();
                let next = evolution.energy(&state, 2).unwrap();
                for column in 0..2 {
                    let (next, before) = (next[column], energy[column]);
                    match equation {
                        Equation::Wave => {
                            assert!((next / first[column] - 1.0).abs() < 1e-10, "{step}");
                        }
                        _ => assert!(next <= before * (1.0 + 1e-12), "{equation:?} {step}"),
                    }
                }
                energy = next;
            }
            for (after, before) in mass(&state).iter().zip(mass_before) {
                let change = (after - before).abs();
                assert!(change < 1e-10, "{equation:?}, {step}: {change}");
            }
            if equation != Equation::Wave {
                assert!(energy[1] < 0.99 * first[1], "{equation:?}: nothing happened");
            }
        }
    }
}

#[test]
fn diffused_vectors_do_not_depend_on_the_frames() {
    let mesh = shapes::torus(20, 9, 1.0, 0.4, shapes::Cells::Triangles).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let plain = graph(&mesh);
    let angles = random_angles(mesh.vertex_count(), 5);
    let turned = plain.clone().gauge_transform(&angles).unwrap();
    let results = [&plain, &turned].map(|graph| {
        let frames = graph.frames();
        let flow = |p: &DVec3| DVec3::new(p.z, (3.0 * p.x).sin(), 0.2 - p.y);
        let pairs = frames.iter().zip(mesh.vertices());
        let mut state = State { values: pairs.flat_map(|(f, p)| f.coefficients(flow(p))).collect(), rates: Vec::new() };
        let evolution = Evolution::new(&laplacian, Equation::VectorHeat, frames, 2e-3).unwrap();
        for _ in 0..5 {
            evolution.advance(&mut state, 1).unwrap();
        }
        let pairs = frames.iter().zip(state.values.chunks_exact(2));
        pairs.map(|(frame, z)| frame.vector([z[0], z[1]])).collect::<Vec<DVec3>>()
    });
    for (a, b) in results[0].iter().zip(&results[1]) {
        assert!((*a - *b).length() < 1e-12);
    }
}

#[test]
fn steps_and_fields_that_make_no_sense_are_refused() {
    let mesh = shapes::icosphere(1).unwrap();
    let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
    let graph = graph(&mesh);
    let new = |equation, step| Evolution::new(&laplacian, equation, graph.frames(), step);
    for (equation, step) in
        [(Equation::Wave, -0.1), (Equation::Heat, f64::NAN), (Equation::CahnHilliard { width: 0.0 }, 0.1)]
    {
        let error = new(equation, step).unwrap_err();
        assert!(matches!(error, SurfaceError::BadTime { .. }), "{error}");
    }
    let wave = new(Equation::Wave, 0.1).unwrap();
    let mut state = field(&mesh, |p| p.x);
    state.rates.pop();
    let error = wave.advance(&mut state, 1).unwrap_err();
    assert!(matches!(error, SurfaceError::FieldLength { .. }), "{error}");
}
