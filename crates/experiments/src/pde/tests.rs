//! Data, samples and errors of small trajectories.

use super::data::{Data, HISTORY};
use super::evaluation::evaluate;
use super::samples::{Coordinates, PreparedData};
use super::{DataSettings, Equation, TestPart, make, spec, sweep};
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::{Device, Target};
use gemcnn_tasks::SampleSource;
use std::path::Path;

/// Data of an equation as the network `gem` sees them.
fn prepared(equation: Equation, folder: &Path) -> (Data, PreparedData) {
    let settings = DataSettings { vertices: 80, trajectories: 2, steps: 24, seed: 3 };
    make(equation, &settings, folder, &folder.with_extension("lock")).unwrap();
    let data = Data::read(equation, folder).unwrap();
    let config = sweep().unwrap().config(equation.name(), "gem", 1).unwrap();
    let prepared = PreparedData::new(&data, Coordinates::of(&config.features).unwrap(), &config).unwrap();
    (data, prepared)
}

#[test]
fn parts_do_not_share_states() {
    let folder = tempfile::tempdir().unwrap();
    let (data, _) = prepared(Equation::CahnHilliard, &folder.path().join("data"));
    let meshes = |part: usize| {
        let mut meshes: Vec<usize> = data.parts[part].iter().map(|t| t.mesh).collect();
        meshes.sort_unstable();
        meshes.dedup();
        meshes
    };
    assert_eq!((meshes(0).len(), meshes(2).len()), (6, 3));
    assert_eq!(meshes(0), meshes(1));
    assert!(meshes(2).iter().all(|mesh| !meshes(0).contains(mesh)));
    assert_eq!((data.states, data.training_states()), (25, 19));
    // The same mesh, other initial states; the mean of the phases stays.
    let (a, b) = (&data.parts[0][0], &data.parts[1][0]);
    assert_eq!(a.mesh, b.mesh);
    assert_ne!(a.states[0], b.states[0]);
    let areas = vertex_areas(&data.meshes[a.mesh].1);
    let mean = |state: &[f32]| -> f64 {
        let values = state.iter().zip(&areas);
        values.map(|(&u, area)| area * f64::from(u)).sum()
    };
    for state in &a.states {
        assert!((mean(state) - mean(&a.states[0])).abs() < 0.02);
        assert!(state.iter().all(|u| u.abs() < 1.2));
    }
}

#[test]
fn samples_hold_five_states_and_the_change_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (data, prepared) = prepared(Equation::VectorHeat, &folder.path().join("data"));
    assert_eq!(prepared.coordinates, Coordinates::Frames);
    let samples = prepared.training();
    let windows = data.training_states() - HISTORY;
    assert_eq!(samples.len(), 6 * windows);
    let (trajectory, first, vertex) = (2, 3, 7);
    let sample = samples.load(trajectory * windows + first).unwrap();
    assert_eq!(sample.kind.to_string(), "1x0 + 5x1");
    let truth = &data.parts[0][trajectory];
    let frame = sample.graph().frames()[vertex];
    let row = &sample.features[vertex * 11..][..11];
    let in_space = |time: usize| {
        let state = &truth.states[first + time][3 * vertex..][..3];
        glam::DVec3::new(state[0].into(), state[1].into(), state[2].into())
    };
    for time in 0..HISTORY {
        let pair = [row[1 + time], row[1 + HISTORY + time]].map(f64::from);
        assert!((frame.vector(pair) - in_space(time)).length() < 1e-6);
    }
    let Target::Values(change) = &sample.target else { panic!("no values") };
    let change = [change[2 * vertex], change[2 * vertex + 1]].map(f64::from);
    let wanted = in_space(HISTORY) - in_space(HISTORY - 1);
    assert!((frame.vector(change) - wanted).length() < 1e-6);
}

#[test]
fn errors_are_relative_to_the_deviation_of_the_solution() {
    let folder = tempfile::tempdir().unwrap();
    let (data, prepared) = prepared(Equation::Wave, &folder.path().join("data"));
    let (errors, drawn) = evaluate(&prepared, None, &Device::Cpu).unwrap();
    for (part, trajectories, first) in
        [(TestPart::Time, 0, data.training_states()), (TestPart::Init, 1, 0), (TestPart::Mesh, 2, 0)]
    {
        let found = &errors[&part];
        let last = data.states - 1;
        assert_eq!(found.rolled_out.len(), data.states - first - HISTORY);
        // Without change, the state that is fed back is the last one of the first five.
        let mut sums = [0.0; 2];
        for trajectory in &data.parts[trajectories] {
            let areas = vertex_areas(&data.meshes[trajectory.mesh].1);
            let wanted = &trajectory.states[last];
            let mean: f64 = wanted.iter().zip(&areas).map(|(&u, a)| a * f64::from(u)).sum();
            let start = &trajectory.states[first + HISTORY - 1];
            for ((&u, &before), area) in wanted.iter().zip(start).zip(&areas) {
                sums[0] += area * f64::from(u - before).powi(2);
                sums[1] += area * (f64::from(u) - mean).powi(2);
            }
        }
        let expected = (sums[0] / sums[1]).sqrt();
        let end = found.rolled_out[found.rolled_out.len() - 1];
        assert!((end / expected - 1.0).abs() < 1e-4, "{part}: {end} {expected}");
        assert!(found.one_step > 0.0 && found.one_step < 0.6, "{part}");
    }
    assert_eq!(drawn.found.len(), drawn.truth.len());
    assert_eq!(drawn.found[24], drawn.truth[4]);
}

#[test]
fn rows_have_the_same_number_of_parameters_within_a_tenth() {
    let sweep = sweep().unwrap();
    for equation in [Equation::Heat, Equation::VectorHeat] {
        let count = |row: &str| {
            let config = sweep.config(equation.name(), row, 1).unwrap();
            let spec = spec(Coordinates::of(&config.features).unwrap());
            let (_, parameters) = config.model.init(&spec, 0).unwrap();
            parameters.trained_count() as f64
        };
        for row in sweep.row_names() {
            let ratio = count(row) / count("gem");
            assert!((ratio - 1.0).abs() < 0.1, "{equation}, {row}: {ratio}");
        }
    }
}
