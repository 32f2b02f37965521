//! Parallel-transport pooling and the regular nonlinearity, through the public interface, against numbers of the
//! published implementation (fixtures/golden).

use gemcnn_fixtures::Golden;
use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts};
use gemcnn_kernels::pool::{Pool, Unpool};
use gemcnn_kernels::regular::{Backward, Forward, Plan, Regular};
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

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len());
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= tolerance, "{what}, entry {at}: {f} is not {e}");
    }
}

#[test]
fn pooling_and_unpooling_equal_the_published_code() {
    let golden = Golden::read("pool_irregular200");
    let coarse_ids: Vec<i32> = golden.data("coarse_vertex_ids");
    let edges: Vec<i32> = golden.data("pool_edges");
    let angles: Vec<f64> = golden.data("pool_g");
    let (coarse, fine) = edges.split_at(edges.len() / 2);
    let mut cluster_of = vec![u32::MAX; fine.len()];
    let mut transport = vec![f64::NAN; fine.len()];
    for ((&coarse, &fine), &angle) in coarse.iter().zip(fine).zip(&angles) {
        let cluster = coarse_ids.iter().position(|&id| id == coarse).unwrap();
        cluster_of[fine as usize] = cluster as u32;
        transport[fine as usize] = angle;
    }
    let mut members: Vec<u32> = (0..fine.len() as u32).collect();
    members.sort_by_key(|&f| cluster_of[f as usize]);
    let offsets: Vec<u32> =
        (0..=coarse_ids.len() as u32).map(|c| cluster_of.iter().filter(|&&of| of < c).count() as u32).collect();
    let clusters = ClusterArrays::union(&[ClusterParts {
        offsets: &offsets,
        members: &members,
        cluster_of: &cluster_of,
        transport: &transport,
    }])
    .unwrap();

    let features = &FeatureType::uniform(CHANNELS, 2);
    let (x, xc) = (to_ours(&golden.data("x"), [1.0; 2]), to_ours(&golden.data("xc"), [1.0; 2]));
    let (mut pooled, mut unpooled) = (vec![0.0; xc.len()], vec![0.0; x.len()]);
    Pool { features, clusters: clusters.view(), x: &x[..], y: &mut pooled[..] }.on_host().unwrap();
    Unpool { features, clusters: clusters.view(), x: &xc[..], y: &mut unpooled[..] }.on_host().unwrap();
    assert_close(&pooled, &to_ours(&golden.data("y_pool"), [1.0; 2]), 1e-12, "pooled");
    assert_close(&unpooled, &to_ours(&golden.data("y_unpool"), [1.0; 2]), 1e-12, "unpooled");
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
        let config = Regular::new(FeatureType::uniform(CHANNELS, 2), samples, Activation::Relu);
        let (rows, plan, norm, x) = (VERTICES, &Plan::new(&config).unwrap(), None, &x[..]);
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        Forward { rows, plan, norm, x, y: &mut y[..] }.on_host().unwrap();
        let (dgamma, dbeta) = (&mut [][..], &mut [][..]);
        Backward { rows, plan, norm, x, dy: &dy[..], dx: &mut dx[..], dgamma, dbeta }.on_host().unwrap();
        assert_close(&y, &expected_y, 1e-10, &format!("y, N = {samples}"));
        assert_close(&dx, &expected_dx, 1e-10, &format!("dx, N = {samples}"));
    }
}
