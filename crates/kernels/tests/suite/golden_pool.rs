//! Parallel-transport pooling against numbers of the method's published code (fixtures/golden).

use gemcnn_fixtures::Golden;
use gemcnn_kernels::FeatureType;
use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts};
use gemcnn_kernels::pool::{Pool, Unpool};

const CHANNELS: usize = 3;
const COMPONENTS: usize = 5;

/// Features in the order of this crate: component, then channel.
fn our_features(golden: &Golden, name: &str) -> Vec<f64> {
    let published: Vec<f64> = golden.data(name);
    let rows = published.chunks_exact(CHANNELS * COMPONENTS);
    rows.flat_map(|row| (0..COMPONENTS * CHANNELS).map(|at| row[at % CHANNELS * COMPONENTS + at / CHANNELS])).collect()
}

fn assert_close(ours: &[f64], golden: &[f64]) {
    assert_eq!(ours.len(), golden.len());
    for (at, (ours, golden)) in ours.iter().zip(golden).enumerate() {
        assert!((ours - golden).abs() <= 1e-12, "entry {at}: {ours} is not {golden}");
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
    let (x, xc) = (our_features(&golden, "x"), our_features(&golden, "xc"));
    let (mut pooled, mut unpooled) = (vec![0.0; xc.len()], vec![0.0; x.len()]);
    Pool { features, clusters: clusters.view(), x: &x[..], y: &mut pooled[..] }.on_host().unwrap();
    Unpool { features, clusters: clusters.view(), x: &xc[..], y: &mut unpooled[..] }.on_host().unwrap();
    assert_close(&pooled, &our_features(&golden, "y_pool"));
    assert_close(&unpooled, &our_features(&golden, "y_unpool"));
}
