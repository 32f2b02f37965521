//! The laws that the equivariance experiment shows, with few networks and changes.

use gemcnn_experiments::Report as _;
use gemcnn_experiments::equivariance::{Model, Precision, Report, Row, Settings, Surface, Transform, run};
use gemcnn_tasks::TaskError;
use std::sync::LazyLock;

/// Rounding in f64 and f32, with a margin for the depth of the networks.
const EXACT: f64 = 1e-12;
const EXACT_SINGLE: f64 = 1e-4;

fn settings() -> Settings {
    Settings {
        models: 3,
        gauges: 4,
        motions: 3,
        depths: vec![1, 2, 7],
        samples: vec![5, 7, 10, 11, 21, 51],
        bound_draws: 200,
        ..Settings::default()
    }
}

static REPORT: LazyLock<Report> = LazyLock::new(|| run(&settings()).unwrap());

fn rows(model: Model, transform: Transform) -> impl Iterator<Item = &'static Row> {
    let wanted = move |row: &&Row| row.model == model && row.transform == transform;
    REPORT.rows.iter().filter(wanted)
}

fn rounding(row: &Row) -> f64 {
    match row.precision {
        Precision::F64 => EXACT,
        Precision::F32 => EXACT_SINGLE,
    }
}

#[test]
fn gauge_error_falls_with_samples_and_grows_with_depth() {
    for model in [Model::Gem, Model::GemWithoutBatchNorm, Model::GemPublished] {
        for mesh in [Surface::Icosahedron, Surface::DeformedIcosahedron] {
            let errors: Vec<(usize, f64)> = rows(model, Transform::Gauge)
                .filter(|row| row.mesh == mesh && row.precision == Precision::F64)
                .filter(|row| row.depth == 7)
                .filter_map(|row| Some((row.samples?, row.error)))
                .collect();
            for pair in errors.windows(2) {
                let [(few, large), (many, small)] = [pair[0], pair[1]];
                let ratio = few as f64 / many as f64;
                assert!(small < ratio * large, "{model:?} on {mesh:?}: {errors:?}");
            }
        }
    }
    let over_depth: Vec<f64> = rows(Model::Gem, Transform::Gauge)
        .filter(|row| row.mesh == Surface::Icosahedron && row.precision == Precision::F64)
        .filter(|row| row.samples == Some(101))
        .map(|row| row.error)
        .collect();
    // One layer has no nonlinearity.
    assert!(over_depth[0] < EXACT, "{over_depth:?}");
    assert!(over_depth[1] > 1e-5 && over_depth[2] > over_depth[1], "{over_depth:?}");
}

/// Gauge errors of the published code: 7 layers on the icosahedron, by samples.
const PUBLISHED: [(usize, f64); 5] = [(5, 7.9e-2), (7, 2.8e-2), (11, 9.4e-3), (21, 2.4e-3), (51, 4.1e-4)];

#[test]
fn published_layers_and_weights_have_the_published_error() {
    for (samples, published) in PUBLISHED {
        let mut rows = rows(Model::GemPublished, Transform::Gauge)
            .filter(|row| row.precision == Precision::F64 && row.samples == Some(samples));
        let error = rows.next().unwrap().error;
        let ratio = error / published;
        assert!((0.5..2.0).contains(&ratio), "N = {samples}: {error}");
        assert_eq!(rows.next(), None);
    }
}

#[test]
fn exact_nonlinearities_have_rounding_errors_only() {
    for model in [Model::GemPolynomial, Model::GemNorm, Model::GemGated] {
        for transform in [Transform::Gauge, Transform::Ambient, Transform::Isometry] {
            for row in rows(model, transform) {
                let symmetric = transform != Transform::Isometry || row.mesh == Surface::Icosahedron;
                let exact = row.error < rounding(row);
                // A single layer sums over neighbours alike, on whatever mesh.
                assert_eq!(exact, symmetric || row.depth == 1, "{row:?}");
            }
        }
    }
}

#[test]
fn attention_and_messages_have_rounding_errors_only() {
    for model in [Model::Attention, Model::Hermes] {
        for transform in [Transform::Gauge, Transform::Ambient] {
            let measured: Vec<_> = rows(model, transform).collect();
            assert!(!measured.is_empty());
            for row in measured {
                assert!(row.error < rounding(row), "{row:?}");
            }
        }
    }
}

#[test]
fn isometry_error_vanishes_exactly_for_multiples_of_five() {
    let deep = |row: &&Row| row.depth == 7;
    for row in rows(Model::Gem, Transform::Isometry).filter(deep) {
        let five = row.samples.is_some_and(|samples| samples % 5 == 0);
        let exact = row.error < rounding(row);
        let symmetric = row.mesh == Surface::Icosahedron;
        assert_eq!(exact, five && symmetric, "{row:?}");
    }
}

#[test]
fn ambient_error_is_rounding_for_gauge_equivariant_networks() {
    for row in rows(Model::Gem, Transform::Ambient) {
        assert!(row.error < rounding(row), "{row:?}");
    }
}

#[test]
fn shot_frames_fail_on_the_symmetric_icosahedron_only() {
    for row in rows(Model::Shot, Transform::Ambient) {
        let recovered = row.error < rounding(row);
        assert_eq!(recovered, row.mesh == Surface::DeformedIcosahedron, "{row:?}");
    }
    for transform in [Transform::Gauge, Transform::Isometry] {
        for row in rows(Model::Shot, transform) {
            assert!(row.error > 0.1, "{row:?}");
        }
    }
}

#[test]
fn the_theorem_holds() {
    let bound = &REPORT.bound;
    assert_eq!(bound.len(), settings().samples.len());
    for row in bound {
        assert!(row.largest_share < 1.0, "{row:?}");
        assert!(row.mean_error < row.largest_error && row.mean_error > 0.0);
    }
    assert!(bound[5].mean_error < bound[0].mean_error * 5.0 / 51.0);
}

#[test]
fn every_row_has_the_promised_fields_and_a_number() {
    let json = serde_json::to_value(&*REPORT).unwrap();
    let rows = json["rows"].as_array().unwrap();
    for row in rows {
        let row = row.as_object().unwrap();
        let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["depth", "error", "mesh", "model", "precision", "samples", "transform"]);
        assert!(row["error"].is_number(), "{row:?}");
    }
    let first = &rows[0];
    assert_eq!(first["mesh"], "icosahedron");
    assert_eq!(first["model"], "gem");
    assert_eq!(first["transform"], "gauge");
    assert_eq!(first["precision"], "f64");
    let again: Report = serde_json::from_value(json).unwrap();
    assert_eq!(again, *REPORT);
}

#[test]
fn figures_have_all_curves() {
    for (stem, chart) in REPORT.figures() {
        let svg = chart.to_svg();
        assert!(!svg.contains("no data"), "{stem}");
        assert!(svg.matches("clip-path=\"url").count() >= 3, "{stem}");
    }
}

#[test]
fn seeds_decide_errors_and_invalid_settings_are_refused() {
    let small = |seed| Settings {
        models: 2,
        gauges: 2,
        motions: 2,
        depths: vec![2],
        samples: vec![5],
        depth: 2,
        seed,
        ..settings()
    };
    assert_eq!(run(&small(1)).unwrap(), run(&small(1)).unwrap());
    assert_ne!(run(&small(1)).unwrap().rows, run(&small(2)).unwrap().rows);
    for (bad, what) in [
        (Settings { models: 1, ..small(1) }, "models"),
        (Settings { depths: vec![1, 0], ..small(1) }, "depths"),
        (Settings { samples: vec![1 << 20], ..small(1) }, "samples"),
    ] {
        let error: TaskError = run(&bad).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}
