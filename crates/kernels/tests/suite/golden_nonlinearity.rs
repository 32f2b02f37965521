//! The regular nonlinearity against numbers of the published code.

use gemcnn_fixtures::Golden;
use gemcnn_kernels::regular::{self, Plan, Regular};
use gemcnn_kernels::{Activation, FeatureType};

const VERTICES: usize = 50;
const CHANNELS: usize = 3;
const COMPONENTS: usize = 5;

/// From the fixture's `[vertex, channel, component]` to ours, `[vertex, component, channel]`, with
/// a factor for order 0 and one for the others.
fn to_ours(theirs: &[f64], factors: [f64; 2]) -> Vec<f64> {
    let mut ours = vec![0.0; theirs.len()];
    for (at, value) in theirs.iter().enumerate() {
        let (row, component) = (at / COMPONENTS, at % COMPONENTS);
        let (vertex, channel) = (row / CHANNELS, row % CHANNELS);
        let place = (vertex * COMPONENTS + component) * CHANNELS + channel;
        ours[place] = value * factors[component.min(1)];
    }
    ours
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() < 1e-10, "{what}, entry {at}: {f} is not {e}");
    }
}

/// The published transform is orthonormal both ways: with `e_0 = 1/sqrt(N)` and
/// `e_m = sqrt(2/N)`, its samples are those of our coefficients `x' = e x`, and its output is
/// `y = y'/e`, since `e_0^2 = 1/N` and `e_m^2 = 2/N` are our weights of the projection. Hence
/// `dy' = c/e` for the loss `sum y c`, and `dx = e dx'`.
#[test]
fn values_and_gradients_equal_the_published_ones() {
    let golden = Golden::read("regular_nonlinearity");
    let numbers = |name: &str| golden.data::<f64>(name);
    let (x, c) = (numbers("x"), numbers("c"));
    for samples in [5usize, 7, 101] {
        let n = samples as f64;
        let scale = [(1.0 / n).sqrt(), (2.0 / n).sqrt()];
        let inverse = scale.map(|e| 1.0 / e);
        let x = to_ours(&x, scale);
        let dy = to_ours(&c, inverse);
        let expected_y = to_ours(&numbers(&format!("n{samples}.y")), scale);
        let expected_dx = to_ours(&numbers(&format!("n{samples}.dx")), inverse);
        let kind = FeatureType::uniform(CHANNELS, 2);
        let config = Regular::new(kind, samples, Activation::Relu);
        let plan = Plan::new(&config).unwrap();
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        regular::forward(&plan, VERTICES, &x, &mut y).unwrap();
        regular::backward(&plan, VERTICES, &x, &dy, &mut dx).unwrap();
        assert_close(&y, &expected_y, &format!("y, N = {samples}"));
        assert_close(&dx, &expected_dx, &format!("dx, N = {samples}"));
    }
}
