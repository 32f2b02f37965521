//! The layers, types and parameters of each model with its default settings, for correspondence from
//! positions to the vertices of a template.
//!
//! `cargo run --release -p gemcnn-tasks --example models -- [CLASSES]`

use gemcnn_nn::FeatureType;
use gemcnn_tasks::models::{AngularModel, GemModel, GraphModel, UNetModel};
use gemcnn_tasks::{ModelConfig, Task};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let classes = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => 6890,
    };
    let broken = GemModel {
        broken_symmetry: true,
        ..GemModel::default()
    };
    for (title, model) in [
        ("gem", ModelConfig::default()),
        ("gem, broken symmetry", ModelConfig::Gem(broken)),
        ("graph", ModelConfig::Graph(GraphModel::default())),
        ("angular", ModelConfig::Angular(AngularModel::default())),
        ("unet", ModelConfig::UNet(UNetModel::default())),
    ] {
        let (input, outputs) = (FeatureType::scalars(3), FeatureType::scalars(classes));
        let config = model.network(&input, Task::Correspondence, &outputs)?;
        let levels = config.levels();
        let (network, _) = config.init::<f32>(1)?;
        println!("{title}, on {levels} graph(s)\n{network}\n");
    }
    Ok(())
}
