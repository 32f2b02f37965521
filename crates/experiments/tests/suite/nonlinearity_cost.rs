//! The measurement of costs, on a small mesh: its numbers are not looked at, only how they hang
//! together.

use gemcnn_experiments::Report as _;
use gemcnn_experiments::nonlinearity_cost::{PAPER, Settings, run};
use gemcnn_nn::Device;

#[test]
fn every_row_of_the_table_is_measured() {
    let settings = Settings::quick();
    let report = run(&settings, &Device::Cpu).unwrap();
    let samples: Vec<Option<usize>> = report.epochs.iter().map(|row| row.samples).collect();
    assert_eq!(samples, PAPER.map(|row| row.samples));
    for row in &report.epochs {
        let epoch = 80.0 * row.step_seconds + 20.0 * row.inference_seconds;
        assert!((row.epoch_seconds / epoch - 1.0).abs() < 1e-9, "{row:?}");
        assert!(row.step_seconds > 0.0 && row.inference_seconds > 0.0);
        // At least the features of one layer: 200 vertices of 80 numbers.
        assert!(row.memory_bytes > 200 * 80 * 4, "{row:?}");
    }
    // Samples are never stored: their number does not change the memory of a step.
    assert_eq!(report.epochs[1].memory_bytes, report.epochs[5].memory_bytes);
    for (_, chart) in report.figures() {
        assert!(!chart.to_svg().contains("no data"));
    }
}

#[test]
fn a_torus_of_two_segments_is_refused() {
    let settings = Settings { segments: (2, 10), ..Settings::quick() };
    let message = run(&settings, &Device::Cpu).unwrap_err().to_string();
    assert!(message.starts_with("segments: "), "{message}");
}
