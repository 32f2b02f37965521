//! How much the output of a network depends on the frames, over the samples of its nonlinearity.
//!
//! `cargo run --release -p gemcnn-nn --example frame_error`
//!
//! Two residual blocks of `8x0 + 8x1 + 8x2` and a convolution to scalars and to tangent vectors, fresh
//! weights, random input on a sphere, f64; the largest change of an output number under random frames,
//! relative to the largest output, worst of 5 seeds.

use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
use gemcnn_nn::equivariance::{Symmetry, Trial, equivariance_error};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{Activation, FeatureType, GraphBatch, Module, Network, NnError, Parameters, Tape, Workspace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh = shapes::icosphere(2)?;
    let options = GeometryOptions::default();
    let input: FeatureType = "2x0 + 2x1".parse()?;
    let hidden: FeatureType = "8x0 + 8x1 + 8x2".parse()?;
    println!("| nonlinearity | scalars (4x0) | vectors (2x1) |\n| --- | --- | --- |");
    let relu = [5, 7, 11, 21, 51, 101].map(|n| (format!("ReLU, N = {n}"), Regular::relu(n)));
    let square = Regular { activation: Activation::Polynomial(vec![0.0, 1.0, 0.3]), ..Regular::relu(7) };
    let polynomial = ("x + 0.3 x^2, N = 7".to_owned(), square);
    for (name, nonlinearity) in relu.into_iter().chain([polynomial]) {
        let mut errors = Vec::new();
        for output in ["4x0", "2x1"] {
            let output: FeatureType = output.parse()?;
            let (network, parameters) = Network::<f64>::builder(input.clone())
                .residual(&hidden, nonlinearity.clone())
                .residual(&hidden, nonlinearity.clone())
                .conv(&output)
                .init(1)?;
            let mut worst: f64 = 0.0;
            for seed in 0..5 {
                let trial = Trial { mesh: &mesh, options: &options, input: &input, output: &output, seed };
                let error = equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[f64]| {
                    predict(&network, &parameters, graph, x)
                })?;
                worst = worst.max(error);
            }
            errors.push(worst);
        }
        println!("| {name} | {:.1e} | {:.1e} |", errors[0], errors[1]);
    }
    Ok(())
}

fn predict(
    network: &Network<f64>,
    parameters: &Parameters<f64>,
    graph: &GaugeGraph,
    x: &[f64],
) -> Result<Vec<f64>, NnError> {
    let batch = GraphBatch::new([graph])?;
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, parameters);
    let x = tape.input(network.input().clone(), x)?;
    Ok(network.forward(&mut tape, (&batch).into(), x)?.values()?.into_owned())
}
