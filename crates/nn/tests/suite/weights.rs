//! Convolutions with weights of neighbours: areas and jets.

use crate::common::{UNet, apply, bumpy_grid, bumpy_sphere, hierarchy_options, random};
use crate::gradients;
use gemcnn_mesh::{GaugeGraph, GeometryOptions, HierarchyOptions, NeighbourWeights, Neighbourhood};
use gemcnn_nn::equivariance::{
    Symmetry, Trial, assert_gauge_equivariant, assert_gauge_equivariant_within, hierarchy_error,
};
use gemcnn_nn::layers::{GemConv, GemConvConfig, Norms};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Geometry, GraphBatch, Module, Parameters, Real};
use std::sync::Arc;

const WEIGHTS: [NeighbourWeights; 2] = [NeighbourWeights::Area, NeighbourWeights::Jets];

fn options(weights: NeighbourWeights) -> GeometryOptions {
    GeometryOptions { neighbourhood: Neighbourhood::Patch { radius: 0.9, limit: 12 }, weights, ..Default::default() }
}

fn conv<T: Real>(input: &FeatureType, output: &FeatureType) -> (GemConv, Parameters<T>) {
    let mut parameters = Parameters::new();
    let config = GemConvConfig { aggregation: Aggregation::Mean, ..GemConvConfig::new(input.clone(), output.clone()) };
    let conv = config.init("conv", &mut Builder::new(&mut parameters, 1));
    (conv.unwrap(), parameters)
}

fn convolutions_are_equivariant<T: Real>(most: Option<f64>) {
    let input: FeatureType = "2x0 + 1x1 + 3x2".parse().unwrap();
    let output: FeatureType = "1x0 + 2x1 + 1x2 + 1x3".parse().unwrap();
    let (conv, parameters) = conv::<T>(&input, &output);
    for (weights, mesh) in WEIGHTS.into_iter().flat_map(|w| [(w, bumpy_sphere()), (w, bumpy_grid())]) {
        let trial = Trial { mesh: &mesh, options: &options(weights), input: &input, output: &output, seed: 1 };
        let run = |graph: &GaugeGraph, x: &[T]| apply(&conv, &parameters, &GraphBatch::new([graph])?, x);
        match most {
            None => assert_gauge_equivariant(&trial, run),
            Some(most) => assert_gauge_equivariant_within(&trial, most, run),
        }
    }
}

#[test]
fn weighted_convolutions_are_equivariant() {
    convolutions_are_equivariant::<f64>(None);
    convolutions_are_equivariant::<f32>(Some(1e-5));
}

#[test]
fn weighted_hierarchies_are_equivariant() {
    let (module, parameters) = UNet::<f64>::new(&(Arc::new(Norms::relu()) as _), 3);
    for weights in WEIGHTS {
        let hierarchy = HierarchyOptions { neighbour_limit: 12, ..hierarchy_options() };
        let trial = Trial {
            mesh: &bumpy_sphere(),
            options: &options(weights),
            input: module.input(),
            output: module.output(),
            seed: 2,
        };
        for (symmetry, most) in [(Symmetry::Gauge, 1e-12), (Symmetry::Motion, 1e-9)] {
            let error = hierarchy_error(&trial, &hierarchy, &symmetry, |levels, x: &[f64]| {
                apply(&module, &parameters, &Geometry::new([levels])?, x)
            });
            let error = error.unwrap();
            assert!(error < most, "{weights:?} {symmetry:?}: {error:e}");
        }
    }
}

#[test]
fn gradients_of_weighted_convolutions() {
    let (input, output) = ("2x0 + 1x1 + 1x2", "1x0 + 2x1 + 1x2");
    for weights in WEIGHTS {
        let graphs = [bumpy_sphere(), bumpy_grid()].map(|mesh| GaugeGraph::new(&mesh, &options(weights)).unwrap());
        let batch = GraphBatch::new(&graphs).unwrap();
        let (conv, mut parameters) = conv(&input.parse().unwrap(), &output.parse().unwrap());
        let rows = batch.vertex_count();
        let what = format!("convolution with {weights:?}");
        gradients::check_rows(&what, input, rows, &batch, &mut parameters, &|tape, levels, x| {
            conv.forward(tape, levels, x)
        });
    }
}

#[test]
fn graphs_with_other_weights_are_not_joined() {
    let mesh = bumpy_sphere();
    let graphs = WEIGHTS.map(|weights| GaugeGraph::new(&mesh, &options(weights)).unwrap());
    assert!(GraphBatch::<f32>::new(&graphs).is_err());
    let batches = graphs.map(|graph| Geometry::from(GraphBatch::<f32>::new([&graph]).unwrap()));
    assert!(Geometry::join(&[&batches[0], &batches[1]]).is_err());
    // Joined batches of the same weights give what single ones give.
    let (conv, parameters) = conv::<f32>(&"1x0 + 1x1".parse().unwrap(), &"1x1".parse().unwrap());
    let x: Vec<f32> = random(3 * mesh.vertex_count(), 4);
    for batch in &batches {
        let single = apply(&conv, &parameters, batch, &x).unwrap();
        let joined = Geometry::join(&[batch, batch]).unwrap();
        let double = apply(&conv, &parameters, &joined, &x.repeat(2)).unwrap();
        assert_eq!(double, single.repeat(2));
    }
}
