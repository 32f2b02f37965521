//! `gemcnn experiment` as a user runs it.

use gemcnn_experiments::operators::{Meshing, Operator, Report, Settings};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn experiment(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemcnn"))
        .arg("experiment")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

#[track_caller]
fn succeed(arguments: &[&str], directory: &Path) -> String {
    let output = experiment(arguments, directory);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The report, after a look at all files that were promised.
#[track_caller]
fn results(directory: &Path, figures: &[&str]) -> Value {
    for stem in figures {
        let png = std::fs::read(directory.join(format!("{stem}.png"))).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        assert!(png.len() < 200_000, "{stem}: {} bytes", png.len());
        let svg = std::fs::read_to_string(directory.join(format!("{stem}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn equivariance_leaves_rows_and_figures() {
    let directory = tempfile::tempdir().unwrap();
    let text = succeed(&["equivariance", "--quick"], directory.path());
    for part in ["GEM-CNN", "SHOT frames", "deformed icosahedron", "equivariance-gauge.png"] {
        assert!(text.contains(part), "{text}");
    }
    let report = results(
        &directory.path().join("runs/equivariance-quick"),
        &[
            "equivariance-gauge",
            "equivariance-ambient",
            "equivariance-isometry",
            "equivariance-exact",
            "equivariance-bound",
        ],
    );
    let rows = report["rows"].as_array().unwrap();
    let is = |row: &Value, what: &[(&str, &str)]| what.iter().all(|(key, v)| row[key] == **v);
    for transform in ["gauge", "ambient", "isometry"] {
        for mesh in ["icosahedron", "deformed_icosahedron"] {
            for precision in ["f32", "f64"] {
                let wanted = [("transform", transform), ("mesh", mesh), ("precision", precision)];
                assert!(rows.iter().any(|row| is(row, &wanted)), "{wanted:?}");
            }
        }
    }
    assert_eq!(report["settings"]["seed"], 1);
}

#[test]
fn operators_agree_better_on_finer_meshes() {
    let directory = tempfile::tempdir().unwrap();
    let text = succeed(&["operators", "--quick"], directory.path());
    for part in ["| operator | 162 | 642 | 2562 | rate |", "operators.svg"] {
        assert!(text.contains(part), "{text}");
    }
    let directory = directory.path().join("runs/operators-quick");
    let report = results(&directory, &["operators"]);
    let report: Report = serde_json::from_value(report).unwrap();
    assert_eq!(report.settings, Settings::quick());
    // Fourteen operators on three surfaces in two meshings at three resolutions.
    assert_eq!(report.rows.len(), 14 * 3 * 2 * 3);
    let table = std::fs::read_to_string(directory.join("table.md")).unwrap();
    assert!(text.starts_with(&table));
    let lines = table.lines();
    let lines = lines.filter(|line| line.starts_with("| ") && !line.contains("---"));
    assert_eq!(lines.count(), 2 * 15);
    // Largest factor from one resolution to the next, and largest difference at 2,562 vertices, for isotropic and
    // irregular meshings. The edges halve: second order is a factor of 1/4, first order of 1/2.
    for (operator, factors, most) in [
        (Operator::Eigenvalues0, [0.35, 0.35], [0.003, 0.003]),
        (Operator::Eigenvalues1, [0.35, 0.35], [0.003, 0.003]),
        (Operator::Eigenvalues2, [0.35, 0.35], [0.003, 0.003]),
        (Operator::HeatKernel, [0.35, 0.35], [0.004, 0.004]),
        (Operator::Diffusion0, [0.35, 0.35], [0.003, 0.003]),
        (Operator::Diffusion1, [0.4, 0.6], [0.01, 0.05]),
        (Operator::Diffusion2, [0.4, 0.6], [0.01, 0.06]),
        (Operator::SmoothedLaplacian, [0.35, 0.35], [0.01, 0.01]),
        (Operator::Gradient, [0.5, 0.6], [0.02, 0.05]),
        (Operator::Hessian, [0.6, 0.7], [0.04, 0.12]),
        (Operator::Curvature, [0.65, 0.7], [0.025, 0.08]),
        (Operator::SmoothedCurvature, [0.55, 0.6], [0.01, 0.03]),
        (Operator::Geodesics, [0.5, 0.6], [0.003, 0.006]),
        // The Laplacian of irregular meshes converges in the mean only.
        (Operator::Laplacian, [1.0, 1.0], [0.08, 0.2]),
    ] {
        for (meshing, (factor, most)) in Meshing::ALL.into_iter().zip(factors.into_iter().zip(most)) {
            let curve = report.curve(operator, meshing);
            assert_eq!(curve.len(), 3);
            for pair in curve.windows(2) {
                assert!(pair[1].1 < factor * pair[0].1, "{operator:?}: {curve:?}");
            }
            assert!(curve[2].1 < most, "{operator:?}, {meshing:?}: {curve:?}");
        }
    }
}

#[test]
fn nonlinearity_cost_leaves_a_table_and_figures() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["nonlinearity-cost", "--quick", "--device", "cpu", "--threads", "1", "--out", "costs"];
    let text = succeed(&arguments, directory.path());
    assert!(text.contains("none") && text.contains("21.2 s"), "{text}");
    let report = results(&directory.path().join("costs"), &["nonlinearity-cost"]);
    assert_eq!(report["epochs"].as_array().unwrap().len(), 6);
    assert_eq!((&report["device"], &report["threads"]), (&"CPU".into(), &1.into()));
}

#[test]
fn output_directories_are_checked_first() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("taken"), "").unwrap();
    for name in ["equivariance", "nonlinearity-cost"] {
        let output = experiment(&[name, "--out", "taken/here"], directory.path());
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.starts_with("error: taken/here"), "{message}");
    }
}
