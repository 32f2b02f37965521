//! Weights of the published code through `from_published`, against its numbers (fixtures/golden).

use crate::published_weights::{PublishedConv, PublishedOptions, check_residual_block, from_layout, to_layout};
use gemcnn_fixtures::{GOLDEN_MESHES, Golden};
use gemcnn_nn::layers::{Nonlinearity, Regular};
use gemcnn_nn::{Archive, Builder, FeatureType, GraphBatch, Levels, NnError, Parameters, Stream, Tape, Workspace};

/// Golden numbers, also as an archive.
struct Published {
    golden: Golden,
    archive: Archive,
}

impl Published {
    fn read(name: &str) -> Self {
        let golden = Golden::read(name);
        let archive = Archive::from_bytes(golden.bytes()).unwrap();
        Self { golden, archive }
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.archive.tensor(name).unwrap()
    }

    fn batch(&self) -> GraphBatch<f64> {
        GraphBatch::new([&self.golden.graph()]).unwrap()
    }

    fn max_radius(&self, edges: &str) -> f64 {
        let radii = self.numbers(&format!("{edges}.r"));
        radii.into_iter().fold(0.0, f64::max)
    }

    /// The weights of a convolution with `rings` rings, and with each number replaced by its place
    /// (from 1) in the list of all numbers of the three tensors.
    fn weights(&self, rings: usize) -> (Archive, Archive) {
        let (mut values, mut places) = (Archive::new(), Archive::new());
        let mut place = 0.0;
        for name in ["weight", "self_weight", "bias"] {
            let mut shape = self.archive.shape(name).unwrap().to_vec();
            if name == "weight" {
                shape[0] = rings;
            }
            let count = shape.iter().product();
            let numbers = &self.numbers(name)[..count];
            values.set_tensor(name, &shape, numbers).unwrap();
            let tags: Vec<f64> = (0..count).map(|i| place + 1.0 + i as f64).collect();
            places.set_tensor(name, &shape, &tags).unwrap();
            place += count as f64;
        }
        (values, places)
    }
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-10, "{what}, {place}: {f} is not {e}");
    }
}

const STREAM: Stream = Stream { seed: 0, step: 0 };

fn check_conv(mesh: &str, edges: &str, rings: usize) {
    let golden = Published::read(mesh);
    let batch = golden.batch();
    let options =
        PublishedOptions { self_loops: edges == "edges_B", max_radius: golden.max_radius(edges), scaled_orders: false };
    let (values, places) = golden.weights(rings);
    let mut parameters = Parameters::<f64>::new();
    let conv = PublishedConv::from_published(&values, "", &options, "conv", &mut parameters).unwrap();
    let x = to_layout(conv.input(), &golden.numbers("x")).unwrap();
    let cotangent = to_layout(conv.output(), &golden.numbers("c")).unwrap();

    // The tape borrows it, so it has to outlive the tape.
    let mut target = Vec::new();
    let mut workspace = Workspace::default();
    let mut tape = Tape::training(&mut workspace, &mut parameters, STREAM);
    let x = tape.tracked_input(conv.input().clone(), &x).unwrap();
    let y = conv.forward(&mut tape, &batch, x.clone()).unwrap();
    let what = format!("{mesh}, {edges}.conv_r{rings}");
    let expected = |name: &str| golden.numbers(&format!("{edges}.conv_r{rings}.{name}"));
    let found = from_layout(conv.output(), &y.values().unwrap()).unwrap();
    assert_close(&found, &expected("y"), &format!("{what}.y"));

    // The mean over rows of |y - t|^2 with t = y - c rows / 2 has the gradient c.
    let rows = y.rows() as f64;
    let found = y.values().unwrap();
    let shifted = found.iter().zip(&cotangent);
    target.extend(shifted.map(|(y, c)| y - 0.5 * rows * c));
    let loss = tape.mean_square(y, &target).unwrap();
    let gradients = tape.backward_to(&loss, &[&x]).unwrap();
    let found = from_layout(conv.input(), &gradients[0]).unwrap();
    assert_close(&found, &expected("dx"), &format!("{what}.dx"));

    // Where each stored number went, with which sign: by loading their places.
    let mut placed = Parameters::<f64>::new();
    PublishedConv::from_published(&places, "", &options, "conv", &mut placed).unwrap();
    let names = ["weight", "self_weight", "bias"];
    let counts = names.map(|name| values.shape(name).unwrap().iter().product::<usize>());
    let mut found = vec![0.0; counts.iter().sum()];
    for (entry, place) in parameters.iter().zip(placed.iter()) {
        for (gradient, place) in entry.gradient().iter().zip(place.value()) {
            found[place.abs() as usize - 1] += gradient * place.signum();
        }
    }
    let mut rest = &found[..];
    for (name, count) in names.iter().zip(counts) {
        let (part, later) = rest.split_at(count);
        assert_close(part, &expected(&format!("d{name}")), &format!("{what}.d{name}"));
        rest = later;
    }
}

#[test]
fn convolutions_with_self_loops_equal_the_published_code() {
    for mesh in GOLDEN_MESHES {
        check_conv(mesh, "edges_B", 1);
        check_conv(mesh, "edges_B", 2);
    }
}

/// Without self loops, and on closed meshes, where boundary edges in one direction do not occur.
#[test]
fn convolutions_without_self_loops_equal_the_published_code() {
    for mesh in &GOLDEN_MESHES[..3] {
        check_conv(mesh, "edges_A", 1);
        check_conv(mesh, "edges_A", 2);
    }
}

#[test]
fn a_residual_block_equals_the_published_code() {
    for mesh in GOLDEN_MESHES {
        let golden = Published::read(mesh);
        let batch = golden.batch();
        let options =
            PublishedOptions { self_loops: true, max_radius: golden.max_radius("edges_B"), scaled_orders: true };
        let mut parameters = Parameters::<f64>::new();
        let [first, second] = ["conv1", "conv2"].map(|name| {
            let prefix = format!("block_4to4.param.{name}.");
            PublishedConv::from_published(&golden.archive, &prefix, &options, name, &mut parameters).unwrap()
        });
        let kind = FeatureType::uniform(4, 2);
        let act = Regular::relu(7).init("act", &kind, &mut Builder::new(&mut parameters, 0)).unwrap();
        let scale = |values: &mut [f64], factor: f64| {
            for row in values.chunks_mut(kind.dimension()) {
                row[kind.multiplicity(0)..].iter_mut().for_each(|v| *v *= factor);
            }
        };
        let mut x = to_layout(&kind, &golden.numbers("x")).unwrap();
        scale(&mut x, 2f64.sqrt());
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(kind.clone(), &x).unwrap();
        let y = first.forward(&mut tape, &batch, x.clone()).unwrap();
        let y = act.forward(&mut tape, Levels::from(&batch), y).unwrap();
        let y = second.forward(&mut tape, &batch, y).unwrap();
        let y = tape.add(y, x).unwrap();
        let y = act.forward(&mut tape, Levels::from(&batch), y).unwrap();
        let mut y = y.values().unwrap().to_vec();
        scale(&mut y, 0.5f64.sqrt());
        let found = from_layout(&kind, &y).unwrap();
        assert_close(&found, &golden.numbers("block_4to4.y"), mesh);
        check_residual_block(&golden.archive, "block_4to4.param.").unwrap();
    }
}

#[test]
fn what_cannot_be_expressed_is_refused() {
    let golden = Published::read("mesh_icosahedron");
    let error = check_residual_block(&golden.archive, "block_4to6.param.").unwrap_err();
    assert!(matches!(&error, NnError::Setting { what, .. } if what.contains("lin.bias")), "{error}");
    let options = PublishedOptions { self_loops: true, max_radius: 1.0, scaled_orders: false };
    let mut parameters = Parameters::<f32>::new();
    let mut refused = |archive: &Archive, tensor: &str| {
        let loaded = PublishedConv::from_published(archive, "", &options, "conv", &mut parameters);
        let error = loaded.unwrap_err();
        assert!(matches!(&error, NnError::Setting { what, .. } if what.contains(tensor)), "{error}");
    };
    refused(&Archive::new(), "`weight`");
    let (mut weights, _) = golden.weights(1);
    weights.set_tensor("bias", &[5], &[0.0; 5]).unwrap();
    refused(&weights, "`bias`");
    let (mut weights, _) = golden.weights(1);
    weights.set_tensor("weight", &[2], &[0.0; 2]).unwrap();
    refused(&weights, "`weight`");
}
