//! The layers, types and parameters of each model with its default settings, for correspondence from
//! positions to the vertices of a template.
//!
//! `cargo run --release -p gemcnn-tasks --example models -- [CLASSES]`

use gemcnn_nn::FeatureType;
use gemcnn_tasks::models::{AngularModel, GemModel, GraphModel, ModelSpec, UNetModel};
use gemcnn_tasks::{Element, ModelConfig, Task};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let classes = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => 6890,
    };
    let broken = GemModel { broken_symmetry: true, ..GemModel::default() };
    let spec = ModelSpec {
        input: FeatureType::scalars(3),
        task: Task::Correspondence,
        per: Element::Vertex,
        outputs: FeatureType::scalars(classes),
    };
    for (title, model) in [
        ("gem", ModelConfig::from(GemModel::default())),
        ("gem, broken symmetry", broken.into()),
        ("graph", GraphModel::default().into()),
        ("angular", AngularModel::default().into()),
        ("unet", UNetModel::default().into()),
    ] {
        let (network, _) = model.init(&spec, 1)?;
        println!("{title}, on {} graph(s)\n{network}\n", network.levels());
    }
    Ok(())
}
