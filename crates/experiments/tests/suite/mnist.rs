//! Runs of the digits experiment: what they leave behind, and what they compute.

use gemcnn_experiments::Report as _;
use gemcnn_experiments::digits::{Mnist, SIDE};
use gemcnn_experiments::mnist::{Experiment, GridOptions, Model, Part, RateRule, Report, RunResult, Surface};
use gemcnn_nn::{Archive, Device, FeatureType, GraphBatch, Module, Network, Tape, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::{Event, Observer, Record, StepReport, StopFlag};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Two epochs of two steps.
fn small(schedule: RateRule) -> Experiment {
    Experiment {
        train: vec![Surface::Rough(1.5)],
        test: vec![Surface::Flat, Surface::Isometric],
        seeds: vec![3],
        grids: GridOptions { count: 3, ..GridOptions::default() },
        epochs: 2,
        batch: 4,
        schedule,
        training_digits: Some(11),
        validation_digits: 3,
        test_digits: Some(4),
        ..Experiment::default()
    }
}

/// Notes and steps, in words.
struct Recorder<F: FnMut(&StepReport) + Send> {
    events: Vec<String>,
    on_step: F,
}

impl<F: FnMut(&StepReport) + Send> Observer for Recorder<F> {
    fn observe(&mut self, event: Event<'_>) {
        match event {
            Event::StepDone(report) => {
                (self.on_step)(report);
                self.events.push(format!("step {}.{}", report.epoch, report.step));
            }
            Event::EpochDone(record) => self.events.push(format!("epoch {}", record.epoch)),
            Event::Note(note) => {
                let note = note.rsplit(", seed 3: ").next().unwrap();
                self.events.push(note.split(':').next().unwrap().into());
            }
            _ => {}
        }
    }
}

fn run(experiment: &Experiment, folder: &Path) -> Result<(Vec<RunResult>, Vec<String>), TaskError> {
    run_until(experiment, folder, |_| {})
}

fn run_until(
    experiment: &Experiment,
    folder: &Path,
    on_step: impl FnMut(&StepReport) + Send,
) -> Result<(Vec<RunResult>, Vec<String>), TaskError> {
    let mut recorder = Recorder { events: Vec::new(), on_step };
    let data = Mnist::sample().unwrap();
    let report = experiment.run(&data, folder, &Device::Cpu, &mut recorder, &StopFlag::new())?;
    Ok((report.unwrap().results().to_vec(), recorder.events))
}

fn checkpoint(folder: &Path) -> Archive {
    Archive::read(folder.join("1.5-paper-types-3/checkpoint.safetensors")).unwrap()
}

/// Whether two files have the same weights and the same memory of the optimiser, to the bit.
fn same_bits(a: &Archive, b: &Archive) -> bool {
    let names: Vec<&str> = a.tensor_names().collect();
    assert!(names.len() > 30);
    names.iter().all(|name| {
        let bits = |archive: &Archive| -> Vec<u32> {
            let values = archive.tensor::<f32>(name).unwrap();
            values.into_iter().map(f32::to_bits).collect()
        };
        bits(a) == bits(b)
    })
}

#[test]
fn interrupted_runs_resume_to_the_same_bits() {
    for schedule in [RateRule::Plateau, RateRule::OneCycle] {
        let experiment = small(schedule);
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (results, events) = run(&experiment, whole.path()).unwrap();
        let expected = [
            "2 epochs",
            "step 1.1",
            "step 1.2",
            "epoch 1",
            "step 2.1",
            "step 2.2",
            "epoch 2",
            "tested on flat",
            "tested on isometric",
            "flat and isometric",
        ];
        assert_eq!(events, expected);

        let stopped = catch_unwind(AssertUnwindSafe(|| {
            run_until(&experiment, broken.path(), |report| {
                assert_ne!((report.epoch, report.step), (2, 2), "stop here");
            })
        }));
        assert!(stopped.is_err());
        let (again, events) = run(&experiment, broken.path()).unwrap();
        assert_eq!(events[..2], ["resuming after 1 of 2 epochs", "step 2.1"]);
        assert!(same_bits(&checkpoint(whole.path()), &checkpoint(broken.path())));
        assert_eq!(again[0].tests, results[0].tests);
        let model = broken.path().join("1.5-paper-types-3/model.safetensors");
        assert!(same_bits(&Archive::read(model).unwrap(), &checkpoint(whole.path())));
        let losses = |results: &[RunResult]| -> Vec<[f64; 2]> {
            let losses = |record: &Record| [record.training, record.held_out].map(|s| s.unwrap().loss);
            results[0].history.iter().map(losses).collect()
        };
        assert_eq!(losses(&again), losses(&results));

        let (skipped, events) = run(&experiment, broken.path()).unwrap();
        assert_eq!((events, &skipped), (vec!["already finished".into()], &again));
    }
}

#[test]
fn new_tests_need_no_training_but_new_settings_do() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = small(RateRule::Cosine);
    run(&experiment, folder.path()).unwrap();
    let more = Experiment { test: vec![Surface::Flat, Surface::Rough(2.5)], ..experiment.clone() };
    let (_, events) = run(&more, folder.path()).unwrap();
    assert_eq!(events, ["resuming after 2 of 2 epochs", "tested on flat", "tested on 2.5"]);
    let other = Experiment { rate: 0.02, ..experiment };
    match run(&other, folder.path()).unwrap_err() {
        TaskError::OtherRun { path, differences } => {
            assert!(path.starts_with(folder.path().join("1.5-paper-types-3")));
            assert_eq!(differences.len(), 1);
            assert!(differences[0].starts_with("rate "), "{differences:?}");
        }
        other => panic!("{other}"),
    }

    let report = Report::read(folder.path()).unwrap();
    report.write(folder.path()).unwrap();
    for file in ["results.json", "table.md", "errors.png", "errors.svg", "grids/2.25.png"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    assert_eq!(report.results().len(), 1);
}

#[test]
fn settings_out_of_range_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = small(RateRule::Plateau);
    for (bad, setting) in [
        (Experiment { epochs: 0, ..good.clone() }, "training.epochs"),
        (Experiment { batch: 0, ..good.clone() }, "training.batch"),
        (Experiment { batch: 20, ..good.clone() }, "training.batch"),
        (Experiment { rate: f64::NAN, ..good.clone() }, "training.rate"),
        (Experiment { validation_digits: 0, ..good.clone() }, "validation digits"),
        (Experiment { training_digits: Some(598), ..good.clone() }, "training digits"),
    ] {
        match run(&bad, folder.path()).unwrap_err() {
            TaskError::Setting { what, .. } => assert_eq!(what, setting),
            other => panic!("{other}"),
        }
    }
    let grids = GridOptions { amplitude: -1.0, ..good.grids };
    match run(&Experiment { grids, ..good }, folder.path()).unwrap_err() {
        TaskError::Setting { what, problem } => {
            assert!(what.contains("1.5") && problem.contains("-1"), "{what}: {problem}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn flat_and_bent_grids_are_the_same_to_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment {
        grids: GridOptions::default(),
        epochs: 1,
        test_digits: Some(12),
        models: vec![Model::PaperSize],
        ..small(RateRule::Plateau)
    };
    let (results, _) = run(&experiment, folder.path()).unwrap();
    let isometry = results[0].isometry.as_ref().unwrap();
    assert_eq!((isometry.digits, isometry.different_answers), (12, 0));
    assert!(isometry.largest_logit > 0.1, "{isometry:?}");
    let relative = isometry.largest_difference / isometry.largest_logit;
    assert!(relative < 1e-5, "{isometry:?}");
}

/// `rho_n` of an angle, or the number 1.
fn rotation(order: usize, angle: f64) -> Vec<Vec<f64>> {
    let (sin, cos) = (order as f64 * angle).sin_cos();
    match order {
        0 => vec![vec![1.0]],
        _ => vec![vec![cos, -sin], vec![sin, cos]],
    }
}

/// The whole matrix of a type `M x (0+1+2+3)`: by order, component, channel.
fn representation(multiplicity: usize, angle: f64) -> Vec<Vec<f64>> {
    let size = 7 * multiplicity;
    let mut matrix = vec![vec![0.0; size]; size];
    for order in 0..4 {
        let first = if order == 0 { 0 } else { (2 * order - 1) * multiplicity };
        for (i, row) in rotation(order, angle).iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                for channel in 0..multiplicity {
                    let (i, j) = (i * multiplicity + channel, j * multiplicity + channel);
                    matrix[first + i][first + j] = *value;
                }
            }
        }
    }
    matrix
}

fn product(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let column = |row: &[f64], j: usize| row.iter().zip(b).map(|(x, r)| x * r[j]).sum();
    let columns = b.first().map_or(0, Vec::len);
    let row = |row: &Vec<f64>| (0..columns).map(|j| column(row, j)).collect();
    a.iter().map(row).collect()
}

#[test]
fn flat_grid_convolution_is_a_stencil_of_rotated_kernels() {
    let (inputs, outputs) = (2, 3);
    let kind = |multiplicity| FeatureType::uniform(multiplicity, 3);
    let (network, mut parameters) = Network::<f64>::builder(kind(inputs)).conv(&kind(outputs)).init(5).unwrap();
    let id = parameters.find("conv1.self_weight").unwrap();
    parameters.get_mut(id).value_mut().fill(0.0);
    let weight = parameters.value(parameters.find("conv1.weight").unwrap());
    let weight: Vec<Vec<f64>> = weight.chunks(7 * inputs).map(<[f64]>::to_vec).collect();

    let graph = GridOptions::default().graph(Surface::Flat, Part::Train, 0).unwrap();
    let batch = GraphBatch::<f64>::new([&graph]).unwrap();
    let width = 7 * inputs;
    let x: Vec<f64> = (0..SIDE * SIDE * width).map(|i| ((i * 7919) % 1009) as f64 / 504.5 - 1.0).collect();
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let input = tape.input(kind(inputs), &x).unwrap();
    let y = network.forward(&mut tape, (&batch).into(), input).unwrap();
    let y = y.values().unwrap();

    // Frames look up, so the neighbours above, to the left, below and to the right are at 0, 1, 2 and 3
    // quarter turns; each has the kernel turned to it.
    let kernels = [0.0, 1.0, 2.0, 3.0].map(|quarter| {
        let angle = quarter * std::f64::consts::FRAC_PI_2;
        let turned = product(&representation(outputs, angle), &weight);
        product(&turned, &representation(inputs, -angle))
    });
    let steps: [(isize, isize); 4] = [(-1, 0), (0, -1), (1, 0), (0, 1)];
    let side = SIDE as isize;
    for row in 0..side {
        for column in 0..side {
            let mut sum = vec![0.0; 7 * outputs];
            for (kernel, (down, right)) in kernels.iter().zip(steps) {
                let (r, c) = (row + down, column + right);
                if !(0..side).contains(&r) || !(0..side).contains(&c) {
                    continue;
                }
                let neighbour = &x[(r * side + c) as usize * width..][..width];
                for (sum, kernel_row) in sum.iter_mut().zip(kernel) {
                    *sum += kernel_row.iter().zip(neighbour).map(|(k, f)| k * f).sum::<f64>();
                }
            }
            let found = &y[(row * side + column) as usize * sum.len()..][..sum.len()];
            for (found, expected) in found.iter().zip(&sum) {
                assert!((found - expected).abs() < 1e-12, "row {row}, column {column}");
            }
        }
    }
}
