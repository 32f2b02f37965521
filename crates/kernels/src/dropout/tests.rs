pub(crate) mod reference;

use super::*;
use crate::Real;
use crate::elementwise::rotate;
use crate::testing::{check_close, check_threads, dot, random};

const STREAM: Stream = Stream { seed: 7, step: 3 };

fn dropout(kind: &str, unit: DropoutUnit, probability: f64) -> Dropout {
    Dropout { kind: kind.parse().unwrap(), unit, probability }
}

fn examples() -> [Dropout; 5] {
    [
        dropout("5x0 + 3x1 + 7x2", DropoutUnit::Irrep, 0.3),
        dropout("3x0 + 3x1 + 3x2", DropoutUnit::Channel, 0.5),
        dropout("2x1", DropoutUnit::Irrep, 0.9),
        dropout("4x0", DropoutUnit::Channel, 0.0),
        dropout("0x0", DropoutUnit::Channel, 0.5),
    ]
}

fn fast_is_reference<T: Real>() {
    for config in examples() {
        for vertices in [0, 1, 65, 200] {
            let x: Vec<T> = random(vertices * config.kind.dimension(), 1);
            let mut y = vec![T::nan(); x.len()];
            let mut expected = y.clone();
            drop(&config, STREAM, vertices, &x, &mut y).unwrap();
            reference::forward(&config, STREAM, &x, &mut expected).unwrap();
            assert_eq!(y, expected);
        }
    }
}

fn drop<T: Real>(op: &Dropout, stream: Stream, rows: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    DropUnits { op, rows, stream, x, y }.on_host()
}

fn drop_meshes(
    (probability, width): (f64, usize),
    meshes: &[u32],
    x: &[f64],
    y: &mut [f64],
) -> Result<(), KernelError> {
    DropMeshes { probability, width, stream: STREAM, meshes, x, y }.on_host()
}

#[test]
fn fast_equals_reference_to_the_bit() {
    fast_is_reference::<f32>();
    fast_is_reference::<f64>();
}

#[test]
fn whole_units_are_dropped_and_the_mean_is_kept() {
    for config in &examples()[..3] {
        let (vertices, width) = (4000, config.kind.dimension());
        let ones = vec![1f64; vertices * width];
        let mut y = vec![0.0; ones.len()];
        drop(config, STREAM, vertices, &ones, &mut y).unwrap();
        let mean = y.iter().sum::<f64>() / y.len() as f64;
        assert!((mean - 1.0).abs() < 0.1, "mean {mean}");
        let kept = y.iter().filter(|&&v| v != 0.0).count() as f64 / y.len() as f64;
        assert!((kept - (1.0 - config.probability)).abs() < 0.02);
        for row in y.chunks_exact(width) {
            for run in config.runs() {
                for channel in 0..run.channels {
                    let same =
                        |other: &Run| other.unit != run.unit || row[other.start + channel] == row[run.start + channel];
                    assert!(config.runs().iter().all(same));
                }
            }
        }
    }
}

#[test]
fn masks_change_with_seed_and_step_only() {
    let config = &examples()[0];
    let ones = vec![1f32; 50 * config.kind.dimension()];
    let draw = |seed, step| {
        let mut y = vec![0.0; ones.len()];
        drop(config, Stream { seed, step }, 50, &ones, &mut y).unwrap();
        y
    };
    assert_eq!(draw(1, 1), draw(1, 1));
    assert_ne!(draw(1, 1), draw(1, 2));
    assert_ne!(draw(1, 1), draw(2, 1));
}

#[test]
fn commutes_with_rotation_and_is_its_own_adjoint() {
    for config in examples() {
        let (vertices, width) = (77, config.kind.dimension());
        let (x, angles): (Vec<f64>, Vec<f64>) = (random(vertices * width, 1), random(vertices, 2));
        let apply = |x: &[f64]| {
            let mut y = vec![0.0; x.len()];
            drop(&config, STREAM, vertices, x, &mut y).unwrap();
            y
        };
        let turn = |x: &[f64]| {
            let mut y = vec![0.0; x.len()];
            rotate(&config.kind, &angles, x, &mut y).unwrap();
            y
        };
        check_close(&apply(&turn(&x)), &turn(&apply(&x)), 1e-12, "equivariance");
        let dy: Vec<f64> = random(x.len(), 3);
        assert!((dot(&apply(&x), &dy) - dot(&x, &apply(&dy))).abs() < 1e-12);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let config = &examples()[0];
    let x: Vec<f32> = random(1000 * config.kind.dimension(), 1);
    check_threads(|| {
        let mut y = vec![0.0; x.len()];
        drop(config, STREAM, 1000, &x, &mut y).unwrap();
        y
    });
}

#[test]
fn settings_are_checked() {
    for probability in [-0.1, 1.0, f64::NAN] {
        assert!(dropout("1x0", DropoutUnit::Irrep, probability).units().is_err());
    }
    let uneven = dropout("1x0 + 2x1", DropoutUnit::Channel, 0.5).units();
    assert!(uneven.unwrap_err().to_string().contains("1x0 + 2x1"));
    let config = &examples()[0];
    assert!(drop(config, STREAM, 1, &[0f32; 3], &mut [0.0; 25]).is_err());
}

#[test]
fn whole_meshes_are_dropped_and_the_mean_is_kept() {
    let mesh_offsets: Vec<u32> = (0..=3000).map(|mesh| mesh / 2 * 5).collect();
    let (width, vertices) = (3, *mesh_offsets.last().unwrap() as usize);
    let ones = vec![1f64; vertices * width];
    let mut y = vec![f64::NAN; ones.len()];
    drop_meshes((0.2, width), &mesh_offsets, &ones, &mut y).unwrap();
    let mut kept = 0;
    for mesh in (1..3000).step_by(2) {
        let rows = mesh_offsets[mesh] as usize * width..mesh_offsets[mesh + 1] as usize * width;
        let factor = y[rows.start];
        let word = u64::from(STREAM.word(mesh as u64));
        assert_eq!(word >= (1 << 32) / 5, factor != 0.0);
        assert!(factor == 0.0 || factor == 1.25);
        assert!(y[rows].iter().all(|&value| value == factor));
        kept += usize::from(factor != 0.0);
    }
    assert!((kept as f64 / 1500.0 - 0.8).abs() < 0.04, "{kept}");
    assert!(drop_meshes((1.0, width), &mesh_offsets, &ones, &mut y).is_err());
    assert!(drop_meshes((0.5, width + 1), &mesh_offsets, &ones, &mut y).is_err());
    assert!(drop_meshes((0.5, width), &[0, 2, 1], &ones[..3], &mut y[..3]).is_err());
}
