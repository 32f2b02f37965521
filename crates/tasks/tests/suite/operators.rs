//! Models on the graphs and operators that they ask for.

use gemcnn_mesh::{DVec3, shapes};
use gemcnn_nn::{Extras, FeatureType, Geometry, HeatBatch, SpectraBatch, Tape, Workspace};
use gemcnn_tasks::data::Preparation;
use gemcnn_tasks::models::ModelSpec;
use gemcnn_tasks::{Element, ModelConfig, Sample, Task};

#[test]
fn models_run_on_what_they_ask_for() {
    let bump = |p: DVec3| p * (1.0 + 0.2 * (5.0 * p.x + 3.0 * p.y * p.z).sin());
    let mesh = shapes::icosphere(2).unwrap().map_vertices(bump).unwrap();
    let positions = FeatureType::scalars(3);
    let spec = ModelSpec {
        input: positions.clone(),
        task: Task::Segmentation,
        per: Element::Vertex,
        outputs: FeatureType::scalars(5),
    };
    for (text, implicit) in [
        ("kind = 'attention'\nblocks = 1\nchannels = 4", false),
        ("kind = 'hermes'\nblocks = 1\nchannels = 4", false),
        ("kind = 'gem'\nblocks = 1\nweights = 'area'", false),
        ("kind = 'gem'\nblocks = 1\nweights = 'jets'", false),
        ("kind = 'unet'\nchannels = [4, 4, 4]\nweights = 'area'", false),
        ("kind = 'unet'\nchannels = [4, 4, 4]\nweights = 'jets'", false),
        ("kind = 'surface'\nblocks = 1\nchannels = [8, 4, 2]\ndiffusion = 'implicit'", true),
        ("kind = 'diffusion'\nblocks = 1\nchannels = 8\ndiffusion = 'implicit'\nimplicit_times = [0.01]", true),
    ] {
        let model: ModelConfig = toml::from_str(text).unwrap();
        let preparation = Preparation {
            weights: model.weights(),
            extras: model.extras(),
            hierarchy: model.hierarchy(),
            ..Default::default()
        };
        let sample = preparation.prepare("sphere", &mesh).unwrap();
        assert_eq!(sample.graph().weights(), model.weights());
        assert!(sample.extras.get::<SpectraBatch<f32>>().is_none());
        assert_eq!(sample.extras.get::<HeatBatch<f32>>().is_some(), implicit);
        let twice = |sample: &Sample| {
            let single = sample.geometry().unwrap();
            Geometry::join(&[&single, &single]).unwrap()
        };
        let batch = twice(&sample);
        let (network, parameters) = model.init(&spec, 1).unwrap();
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let features = sample.features.repeat(2);
        let x = tape.input(positions.clone(), &features).unwrap();
        let y = network.forward(&mut tape, (&batch).into(), x).unwrap();
        let y = y.values().unwrap();
        let (first, second) = y.split_at(5 * mesh.vertex_count());
        assert_eq!(first.len(), second.len());
        let largest = first.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        assert!(largest > 1e-3 && largest.is_finite(), "{text}: {largest}");
        let pairs = first.iter().zip(second);
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4 * largest), "{text}");
        // Without the operators there is an error, not a wrong result.
        if implicit {
            let bare = Sample { extras: Extras::default(), ..sample };
            let batch = twice(&bare);
            let mut workspace = Workspace::default();
            let mut tape = Tape::inference(&mut workspace, &parameters);
            let x = tape.input(positions.clone(), &features).unwrap();
            assert!(network.forward(&mut tape, (&batch).into(), x).is_err());
        }
    }
}

/// The counts that docs/models.md lists. Attention is as the paper's network, with queries, keys and values in the
/// place of each convolution.
#[test]
fn parameters_of_attention_and_of_messages() {
    let count = |kind: &str| {
        let spec = ModelSpec {
            input: FeatureType::scalars(3),
            task: Task::Correspondence,
            per: Element::Vertex,
            outputs: FeatureType::scalars(6890),
        };
        let model: ModelConfig = toml::from_str(&format!("kind = '{kind}'")).unwrap();
        model.init(&spec, 1).unwrap().1.trained_count()
    };
    let (norm, head) = (2 * 16, (64 * 256 + 256) + (256 * 6890 + 6890));
    let layer = 1280 + 2 * 80 * 80 + 16;
    let first = (16 * 3 + 2 * 80 * 3 + 16) + norm + layer + 3 * 16 + norm;
    let second = layer + norm + layer + norm;
    let third = layer + norm + (64 * 16 + 2 * 64 * 80 + 64) + 16 * 64 + 2 * 64;
    assert_eq!(count("attention"), first + second + third + head);
    assert_eq!(first + second + third, 69_616);

    let message = |inputs: usize| (2 * inputs * 80 + 80) + (80 * 80 + 80);
    let update = |own: usize, rest: usize| (own * 16 + 1280 + rest + 16) + norm;
    let first = message(3) + update(3, 0) + (1280 + 16) + 3 * 16;
    let second = message(80) + update(16, 1280 - 16 * 16) + (1280 + 16);
    let third = message(80) + update(16, 1280 - 16 * 16) + (16 * 64 + 64) + 16 * 64;
    assert_eq!(count("hermes"), first + second + third + head);
    assert_eq!(first + second + third, 57_104);
}
