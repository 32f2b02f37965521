//! The convolution against numbers of the method's published code (fixtures/golden), in the paper's
//! form: sum over neighbours, self term, no bias.

use gemcnn_fixtures::{GOLDEN_MESHES, Golden};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, Weights};
use gemcnn_kernels::{FeatureType, GraphArrays, GraphParts, Scratch, self_map};

const IN_CHANNELS: usize = 4;
const OUT_CHANNELS: usize = 5;
const COMPONENTS: usize = 5;

/// The graph of a golden mesh, as operators take it.
fn arrays(golden: &Golden) -> GraphArrays<f64> {
    let graph = golden.graph();
    GraphArrays::union(&[GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
        coefficients: graph.coefficients(),
    }])
    .unwrap()
}

/// `[vertex, channel, component]` to `[vertex, component, channel]`.
fn features(golden: &[f64], channels: usize) -> Vec<f64> {
    let number = |index: usize| {
        let (vertex, rest) = (index / (channels * COMPONENTS), index % (channels * COMPONENTS));
        let (component, channel) = (rest / channels, rest % channels);
        golden[(vertex * channels + channel) * COMPONENTS + component]
    };
    (0..golden.len()).map(number).collect()
}

/// The first ring of `[ring, in channel, in component, out channel, out component]` to `[D_out, D_in]`.
fn neighbour_weights(golden: &[f64]) -> Vec<f64> {
    let mut weights = Vec::new();
    for out in 0..COMPONENTS * OUT_CHANNELS {
        for from in 0..COMPONENTS * IN_CHANNELS {
            let (n, i) = (out / OUT_CHANNELS, out % OUT_CHANNELS);
            let (m, j) = (from / IN_CHANNELS, from % IN_CHANNELS);
            let at = ((j * COMPONENTS + m) * OUT_CHANNELS + i) * COMPONENTS + n;
            weights.push(golden[at]);
        }
    }
    weights
}

/// `[basis, in channel, out channel]` to ours; basis `2n` is the rotation by +90 degrees, our `-b`.
fn self_weights(golden: &[f64]) -> Vec<f64> {
    let mut weights = Vec::new();
    for basis in 0..COMPONENTS {
        let sign = if basis > 0 && basis.is_multiple_of(2) { -1.0 } else { 1.0 };
        for i in 0..OUT_CHANNELS {
            for j in 0..IN_CHANNELS {
                weights.push(sign * golden[(basis * IN_CHANNELS + j) * OUT_CHANNELS + i]);
            }
        }
    }
    weights
}

fn assert_close(ours: &[f64], golden: &[f64], what: &str) {
    assert_eq!(ours.len(), golden.len(), "{what}");
    for (index, (ours, golden)) in ours.iter().zip(golden).enumerate() {
        assert!((ours - golden).abs() <= 1e-10, "{what}, number {index}: {ours} is not {golden}");
    }
}

#[test]
fn outputs_and_gradients_equal_the_published_code() {
    for name in GOLDEN_MESHES {
        let golden = Golden::read(name);
        let graph = arrays(&golden);
        let op = GaugeConv {
            bias: false,
            ..GaugeConv::new(FeatureType::uniform(IN_CHANNELS, 2), FeatureType::uniform(OUT_CHANNELS, 2))
        };
        let result = |tensor: &str| golden.data(&format!("edges_B.conv_sum_nobias.{tensor}"));
        let x = features(&golden.data("x"), IN_CHANNELS);
        let dy = features(&golden.data("c"), OUT_CHANNELS);
        let neighbour = neighbour_weights(&golden.data("weight"));
        let own = self_weights(&golden.data("self_weight"));
        assert_eq!(own.len(), self_map::parameter_count(&op.input, &op.output));
        let weights = Weights { neighbour: &neighbour[..], self_term: &own, bias: &[] };
        let mut scratch = Scratch::new();
        let mut y = vec![0.0; dy.len()];
        gauge_conv::forward(&op, graph.view(), &x, weights, &mut y, &mut scratch).unwrap();
        assert_close(&y, &features(&result("y"), OUT_CHANNELS), &format!("{name}, y"));

        let mut dx = vec![0.0; x.len()];
        let (mut d_neighbour, mut d_own) = (vec![0.0; neighbour.len()], vec![0.0; own.len()]);
        let gradients = Weights { neighbour: &mut d_neighbour[..], self_term: &mut d_own, bias: &mut [] };
        let wanted = Some(&mut dx[..]);
        gauge_conv::backward(&op, graph.view(), &x, weights, &dy, wanted, gradients, &mut scratch).unwrap();
        for (what, ours, expected) in [
            ("dx", &dx, features(&result("dx"), IN_CHANNELS)),
            ("dweight", &d_neighbour, neighbour_weights(&result("dweight"))),
            ("dself_weight", &d_own, self_weights(&result("dself_weight"))),
        ] {
            assert_close(ours, &expected, &format!("{name}, {what}"));
        }
    }
}
