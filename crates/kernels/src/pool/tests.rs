pub(crate) mod reference;

use super::transport::{ClusterArrays, ClusterParts};
use super::*;
use crate::Real;
use crate::testing::{check_close, check_threads, dot, random, turned};

/// Meshes of 0, 1 and many vertices.
const MESHES: &[u32] = &[0, 0, 1, 8, 5000, 5000];

fn compare_global<T: Real>(tolerance: f64) {
    for channels in [0, 1, 5, 33] {
        let features = &FeatureType::scalars(channels);
        let x: Vec<T> = random(5000 * channels, 1);
        let mut found = vec![T::nan(); 5 * channels];
        let mut expected = found.clone();
        Mean { features, meshes: MESHES, x: &x[..], y: &mut found[..] }.on_host().unwrap();
        reference::mean(MESHES, features, &x, &mut expected);
        check_close(&found, &expected, tolerance, "mean");
        let mut vertices = vec![7; 5 * channels];
        let mut expected_vertices = vertices.clone();
        Max { features, meshes: MESHES, x: &x[..], y: &mut found[..], arguments: &mut vertices[..] }.on_host().unwrap();
        reference::max(MESHES, features, &x, &mut expected, &mut expected_vertices);
        assert_eq!(found, expected);
        assert_eq!(vertices, expected_vertices);
        let dy: Vec<T> = random(5 * channels, 2);
        let mut dx = vec![T::nan(); x.len()];
        MeanBackward { features, meshes: MESHES, dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
        Mean { features, meshes: MESHES, x: &x[..], y: &mut found[..] }.on_host().unwrap();
        let (here, there) = (dot(&found, &dy), dot(&x, &dx));
        assert!((here - there).abs() <= tolerance * 10.0, "{here}, {there}");
    }
}

#[test]
fn global_pooling_equals_its_definition() {
    compare_global::<f32>(1e-6);
    compare_global::<f64>(1e-13);
}

#[test]
fn gradient_of_a_maximum_goes_to_the_lowest_vertex() {
    let features = &FeatureType::scalars(2);
    let x = [1.0, 9.0, 4.0, 2.0, 4.0, f64::NAN, -3.0, f64::NEG_INFINITY];
    let meshes = &[0, 3, 3, 4][..];
    let (mut y, mut vertices) = ([0.0; 6], [0; 6]);
    Max { features, meshes, x: &x[..], y: &mut y[..], arguments: &mut vertices[..] }.on_host().unwrap();
    assert_eq!((y[0], y[4], y[5]), (4.0, -3.0, f64::NEG_INFINITY));
    assert!(y[1].is_nan());
    assert_eq!(y[2..4], [0.0; 2]);
    let none = NO_VERTEX;
    assert_eq!(vertices, [1, 2, none, none, 3, 3]);
    let mut dx = [9.0; 8];
    let dy = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    MaxBackward { features, meshes, arguments: &vertices[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
    assert_eq!(dx, [0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 5.0, 6.0]);
    vertices[0] = 3;
    let error =
        MaxBackward { features, meshes, arguments: &vertices[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap_err();
    assert!(matches!(error, KernelError::Setting { .. }), "{error}");
}

#[test]
fn only_scalars_are_pooled_over_meshes_and_offsets_are_checked() {
    let vectors: FeatureType = "1x1".parse().unwrap();
    let error = Mean { features: &vectors, meshes: &[0, 1][..], x: &[1.0, 2.0][..], y: &mut [0.0; 2][..] }
        .on_host()
        .unwrap_err();
    assert!(matches!(error, KernelError::Setting { .. }), "{error}");
    let scalars = FeatureType::scalars(1);
    for offsets in [&[][..], &[1, 2], &[0, 2, 1]] {
        assert!(Mean { features: &scalars, meshes: offsets, x: &[1.0][..], y: &mut [0.0; 2][..] }.on_host().is_err());
    }
    assert!(Mean { features: &scalars, meshes: &[0, 2][..], x: &[1.0][..], y: &mut [0.0][..] }.on_host().is_err());
}

/// Clusters of unequal size, some empty.
fn clusters<T: Real>(fine: usize, coarse: usize) -> ClusterArrays<T> {
    let cluster_of: Vec<u32> = (0..fine).map(|f| (f * f % coarse.max(1)) as u32).collect();
    let mut members: Vec<u32> = (0..fine as u32).collect();
    members.sort_by_key(|&f| cluster_of[f as usize]);
    let offsets: Vec<u32> =
        (0..=coarse as u32).map(|c| cluster_of.iter().filter(|&&of| of < c).count() as u32).collect();
    let transport: Vec<f64> = random::<f64>(fine, 3).iter().map(|g| 4.0 * g).collect();
    ClusterArrays::union(&[ClusterParts {
        offsets: &offsets,
        members: &members,
        cluster_of: &cluster_of,
        transport: &transport,
    }])
    .unwrap()
}

const SIZES: [(usize, usize, &str); 6] = [
    (0, 0, "2x0 + 1x1"),
    (0, 3, "2x0 + 1x1"),
    (1, 1, "1x1"),
    (9, 4, "0x0"),
    (50, 7, "3x0 + 2x3"),
    (2000, 300, "4x0 + 17x1 + 1x2"),
];

fn compare_transport<T: Real>(tolerance: f64) {
    for (fine, coarse, text) in SIZES {
        let features = &text.parse::<FeatureType>().unwrap();
        let clusters = clusters::<T>(fine, coarse);
        let x: Vec<T> = random(fine * features.dimension(), 4);
        let xc: Vec<T> = random(coarse * features.dimension(), 5);
        let (mut found, mut expected) = (vec![T::nan(); xc.len()], vec![T::nan(); xc.len()]);
        Pool { features, clusters: clusters.view(), x: &x[..], y: &mut found[..] }.on_host().unwrap();
        reference::pool(clusters.view(), features, &x, &mut expected);
        check_close(&found, &expected, tolerance, text);
        let (mut found, mut expected) = (vec![T::nan(); x.len()], vec![T::nan(); x.len()]);
        Unpool { features, clusters: clusters.view(), x: &xc[..], y: &mut found[..] }.on_host().unwrap();
        reference::unpool(clusters.view(), features, &xc, &mut expected);
        check_close(&found, &expected, tolerance, text);
    }
}

#[test]
fn transport_pooling_equals_its_definition() {
    compare_transport::<f32>(2e-6);
    compare_transport::<f64>(1e-14);
}

#[test]
fn backward_passes_are_adjoint() {
    for (fine, coarse, text) in SIZES {
        let features = &text.parse::<FeatureType>().unwrap();
        let clusters = clusters::<f64>(fine, coarse);
        let (x, dyf) = (random(fine * features.dimension(), 6), random(fine * features.dimension(), 7));
        let (xc, dyc) = (random(coarse * features.dimension(), 8), random(coarse * features.dimension(), 9));
        let (mut fine, mut coarse) = (vec![f64::NAN; x.len()], vec![f64::NAN; xc.len()]);
        Pool { features, clusters: clusters.view(), x: &x[..], y: &mut coarse[..] }.on_host().unwrap();
        PoolBackward { features, clusters: clusters.view(), dy: &dyc[..], dx: &mut fine[..] }.on_host().unwrap();
        let (here, there) = (dot(&coarse, &dyc), dot(&x, &fine));
        assert!((here - there).abs() <= 1e-12 * (1.0 + here.abs()), "{text}");
        Unpool { features, clusters: clusters.view(), x: &xc[..], y: &mut fine[..] }.on_host().unwrap();
        UnpoolBackward { features, clusters: clusters.view(), dy: &dyf[..], dx: &mut coarse[..] }.on_host().unwrap();
        let (here, there) = (dot(&fine, &dyf), dot(&xc, &coarse));
        assert!((here - there).abs() <= 1e-12 * (1.0 + here.abs()), "{text}");
    }
}

#[test]
fn transport_pooling_is_gauge_equivariant() {
    let features = &"2x0 + 3x1 + 2x4".parse::<FeatureType>().unwrap();
    let (fine, coarse) = (60, 11);
    let cluster_of: Vec<u32> = (0..fine as u32).map(|f| f * 11 / 60).collect();
    let members: Vec<u32> = (0..fine as u32).collect();
    let offsets: Vec<u32> =
        (0..=coarse as u32).map(|c| cluster_of.iter().filter(|&&of| of < c).count() as u32).collect();
    let arrays = |transport: &[f64]| {
        let parts = ClusterParts { offsets: &offsets, members: &members, cluster_of: &cluster_of, transport };
        ClusterArrays::<f64>::union(&[parts]).unwrap()
    };
    let transport = random::<f64>(fine, 10);
    let (fine_angles, coarse_angles) = (random::<f64>(fine, 11), random::<f64>(coarse, 12));
    // g -> g - a_coarse + a_fine
    let moved: Vec<f64> =
        (0..fine).map(|f| transport[f] - coarse_angles[cluster_of[f] as usize] + fine_angles[f]).collect();
    let x = random::<f64>(fine * features.dimension(), 13);
    let (mut here, mut there) = (vec![0.0; coarse * features.dimension()], vec![0.0; coarse * features.dimension()]);
    Pool { features, clusters: arrays(&transport).view(), x: &x[..], y: &mut here[..] }.on_host().unwrap();
    let seen = turned(features, &x, &fine_angles);
    Pool { features, clusters: arrays(&moved).view(), x: &seen[..], y: &mut there[..] }.on_host().unwrap();
    check_close(&there, &turned(features, &here, &coarse_angles), 1e-12, "pool");
    let (mut up, mut up_moved) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    Unpool { features, clusters: arrays(&transport).view(), x: &here[..], y: &mut up[..] }.on_host().unwrap();
    Unpool { features, clusters: arrays(&moved).view(), x: &there[..], y: &mut up_moved[..] }.on_host().unwrap();
    check_close(&up_moved, &turned(features, &up, &fine_angles), 1e-12, "unpool");
}

#[test]
fn a_batch_is_the_clusters_of_each_graph_side_by_side() {
    let one =
        ClusterParts { offsets: &[0, 2, 3], members: &[0, 2, 1], cluster_of: &[0, 1, 0], transport: &[0.0, 0.5, 1.0] };
    let two = ClusterParts { offsets: &[0, 1], members: &[0], cluster_of: &[0], transport: &[2.0] };
    let union = ClusterArrays::<f64>::union(&[one, two]).unwrap();
    assert_eq!(union.view().offsets(), [0, 2, 3, 4]);
    assert_eq!(union.view().members(), [0, 2, 1, 3]);
    assert_eq!(union.view().cluster_of(), [0, 1, 0, 2]);
    assert_eq!(union.view().phases()[3], [2f64.cos(), 2f64.sin()]);

    for wrong in [
        ClusterParts { transport: &[0.0], ..one },
        ClusterParts { offsets: &[], ..one },
        ClusterParts { offsets: &[0, 4, 3], ..one },
        ClusterParts { members: &[0, 9, 1], ..one },
        ClusterParts { members: &[0, 0, 1], ..one },
        ClusterParts { transport: &[0.0, f64::NAN, 0.0], ..one },
    ] {
        let result = ClusterArrays::<f64>::union(&[two, wrong]);
        assert!(matches!(result, Err(KernelError::Graph { .. })), "{wrong:?}");
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let features = &"4x0 + 3x1".parse::<FeatureType>().unwrap();
    let clusters = clusters::<f32>(3000, 400);
    let x = random::<f32>(3000 * 10, 14);
    let scalars = random::<f32>(5000 * 3, 15);
    check_threads(|| {
        let (mut pooled, mut mean) = (vec![0.0; 400 * 10], vec![0.0; 15]);
        Pool { features, clusters: clusters.view(), x: &x[..], y: &mut pooled[..] }.on_host().unwrap();
        Mean { features: &FeatureType::scalars(3), meshes: MESHES, x: &scalars[..], y: &mut mean[..] }
            .on_host()
            .unwrap();
        (pooled, mean)
    });
}
