//! Surface operators agree better between meshings when both are refined.

use gemcnn_experiments::operators::{Meshing, Operator, Report, Settings, run};

#[test]
fn differences_between_meshings_fall_with_refinement() {
    let report = run(&Settings::quick()).unwrap();
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
        for (meshing, (factor, most)) in Meshing::ALL.into_iter().zip(factors.into_iter().zip(most))
        {
            let curve = report.curve(operator, meshing);
            assert_eq!(curve.len(), 3);
            for pair in curve.windows(2) {
                assert!(pair[1].1 < factor * pair[0].1, "{operator:?}: {curve:?}");
            }
            assert!(curve[2].1 < most, "{operator:?}, {meshing:?}: {curve:?}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    report.write(directory.path()).unwrap();
    let json = std::fs::read_to_string(directory.path().join("results.json")).unwrap();
    assert_eq!(
        serde_json::from_str::<Report>(&json).unwrap().settings,
        report.settings
    );
    let table = std::fs::read_to_string(directory.path().join("table.md")).unwrap();
    let lines = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("---"));
    assert_eq!(lines.count(), 2 * 15);
    let figure = std::fs::read_to_string(directory.path().join("operators.svg")).unwrap();
    assert!(figure.starts_with("<svg"));
}
