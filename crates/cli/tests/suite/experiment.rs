//! `gemcnn experiment` as a user runs it.

use crate::folder::Folder;
use gemcnn_experiments::operators::{Meshing, Operator, Report, Settings};
use serde_json::Value;

/// The report, after a look at all files that were promised.
#[track_caller]
fn results(folder: &Folder, out: &str, figures: &[&str]) -> Value {
    for stem in figures {
        let png = std::fs::read(folder.path(&format!("{out}/{stem}.png"))).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        assert!(png.len() < 200_000, "{stem}: {} bytes", png.len());
        let svg = folder.text(&format!("{out}/{stem}.svg"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
    folder.json(&format!("{out}/results.json"))
}

#[test]
fn equivariance_leaves_rows_and_figures() {
    let folder = Folder::new();
    let text = folder.succeed(&["experiment", "equivariance", "--quick"]);
    for part in ["GEM-CNN", "SHOT frames", "deformed icosahedron", "equivariance-gauge.png"] {
        assert!(text.contains(part), "{text}");
    }
    let report = results(
        &folder,
        "runs/equivariance-quick",
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
    let folder = Folder::new();
    let text = folder.succeed(&["experiment", "operators", "--quick"]);
    for part in ["| operator | 162 | 642 | 2562 | rate |", "operators.svg"] {
        assert!(text.contains(part), "{text}");
    }
    let report = results(&folder, "runs/operators-quick", &["operators"]);
    let report: Report = serde_json::from_value(report).unwrap();
    assert_eq!(report.settings, Settings::quick());
    // Fourteen operators on three surfaces in two meshings at three resolutions.
    assert_eq!(report.rows.len(), 14 * 3 * 2 * 3);
    let table = folder.text("runs/operators-quick/table.md");
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
    let folder = Folder::new();
    let arguments =
        ["experiment", "nonlinearity-cost", "--quick", "--device", "cpu", "--threads", "1", "--out", "costs"];
    let text = folder.succeed(&arguments);
    assert!(text.contains("none") && text.contains("21.2 s"), "{text}");
    let report = results(&folder, "costs", &["nonlinearity-cost"]);
    assert_eq!(report["epochs"].as_array().unwrap().len(), 6);
    assert_eq!((&report["device"], &report["threads"]), (&"CPU".into(), &1.into()));
}

#[test]
fn output_directories_are_checked_first() {
    let folder = Folder::new();
    std::fs::write(folder.path("taken"), "").unwrap();
    for name in ["equivariance", "nonlinearity-cost"] {
        let message = folder.fail(&["experiment", name, "--out", "taken/here"], 1);
        assert!(message.starts_with("error: taken/here"), "{message}");
    }
}
