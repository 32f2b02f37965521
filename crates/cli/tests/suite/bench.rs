//! `gemcnn bench` as a user runs it.

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemcnn")).arg("bench").args(arguments).output().unwrap()
}

#[test]
fn a_quick_bench_of_the_cpu_gives_a_whole_report() {
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("speed");
    let figure = ["--figure", stem.to_str().unwrap()];
    let plain = ["--quick", "--json", "--device", "cpu", "--threads", "2"];
    let output = bench(&[&plain[..], &figure[..]].concat());
    for extension in ["png", "svg"] {
        assert!(stem.with_extension(extension).is_file(), "{extension}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with("CPU"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let machine = &report["machine"];
    assert_eq!(machine["threads"], 2);
    assert!(machine["cores"].as_u64().unwrap() >= 1);
    assert!(machine["gpu"].is_null());
    assert!(machine.get("cpu").is_some());

    let positive = |value: &Value, key: &str| {
        let number = value[key].as_f64().unwrap_or_else(|| panic!("{key}"));
        assert!(number > 0.0 && number.is_finite(), "{key}: {number}");
        number
    };
    let [limits] = report["limits"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!((&limits["device"], &limits["matmul"]), (&"cpu".into(), &"f32".into()));
    let copy = positive(limits, "copy_bytes_per_s");
    let product = positive(limits, "product_flops_per_s");

    let rows = report["rows"].as_array().unwrap();
    let works: Vec<&str> = rows.iter().map(|row| row["work"].as_str().unwrap()).collect();
    assert_eq!(
        works,
        [
            "geometry",
            "convolution_forward",
            "convolution_forward_backward",
            "attention_forward",
            "attention_forward_backward",
            "messages_forward",
            "messages_forward_backward",
            "inference",
            "training_step",
            "correspondence_inference",
            "unet_training_step",
        ]
    );
    for row in rows {
        assert_eq!(row["device"], "cpu");
        assert_eq!(row["vertices"], 6890);
        assert!(positive(row, "minimum_ms") <= positive(row, "median_ms"));
        assert!(positive(row, "repeats") >= 3.0);
        let seconds = positive(row, "median_ms") / 1e3;
        let [bytes, flops] = ["bytes", "flops"].map(|key| row[key].as_f64().unwrap());
        // The work of the U-net is not counted.
        let counted = !row["work"].as_str().unwrap().starts_with("unet");
        assert_eq!(bytes > 0.0, counted, "{row}");
        let least = (bytes / copy).max(flops / product);
        for (key, expected) in [
            ("bytes_per_s", bytes / seconds),
            ("flops_per_s", flops / seconds),
            ("limit_fraction", least / seconds),
            ("ns_per_vertex", 1e9 * seconds / 6890.0),
        ] {
            let found = row[key].as_f64().unwrap();
            assert!((found - expected).abs() <= 1e-9 * expected, "{key}: {row}");
        }
        let trains = row["work"].as_str().unwrap().ends_with("training_step");
        let told = cfg!(target_os = "linux") && trains;
        assert_eq!(row["peak_bytes"].is_u64(), told, "{row}");
    }
    // Multiply-adds of a vertex: of a convolution, and of the queries, keys and values of attention.
    assert_eq!(rows[1]["flops"], 2 * 6890 * 13_824);
    assert_eq!(rows[3]["flops"], 2 * 6890 * 25_344);
}

#[test]
fn quick_and_large_exclude_each_other() {
    let output = bench(&["--quick", "--large"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--large"), "{said}");
}

#[test]
fn work_is_selected_by_name() {
    let output = bench(&["--quick", "--json", "--device", "cpu", "features_matrix", "nonlinearity_norm"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let works: Vec<&Value> = report["rows"].as_array().unwrap().iter().map(|row| &row["work"]).collect();
    assert_eq!(works, ["features_matrix", "nonlinearity_norm_forward", "nonlinearity_norm_forward_backward"]);
    let output = bench(&["--quick", "--device", "cpu", "nothing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing"));
}

#[test]
fn the_worker_answers_until_its_input_ends() {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_gemcnn"))
        .args(["bench", "--worker", "--threads", "2", "--device", "cpu"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = worker.stdin.take().unwrap();
    writeln!(requests, r#"{{"do": "memory"}}"#).unwrap();
    drop(requests);
    let output = worker.wait_with_output().unwrap();
    assert!(output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer.get("peak_bytes").is_some(), "{answer}");
}
