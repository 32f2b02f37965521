//! Networks over a hierarchy of graphs.

use crate::common::{bumpy_grid, bumpy_sphere, hierarchy_options, random};
use gemcnn_mesh::{Gauge, GeometryOptions, Hierarchy, HierarchyOptions, Mesh};
use gemcnn_nn::layers::{GemConv, GemConvConfig};
use gemcnn_nn::{Builder, FeatureType, Geometry, Levels, Module, NnError, Parameters, Tape, Workspace};

fn options(gauge: Gauge) -> HierarchyOptions {
    HierarchyOptions { geometry: GeometryOptions { gauge, ..Default::default() }, ..hierarchy_options() }
}

/// Convolutions down two levels and up again, with sums across.
fn run(
    convs: &[GemConv],
    parameters: &Parameters<f64>,
    batch: &Geometry<f64>,
    kind: &FeatureType,
    x: &[f64],
) -> Result<Vec<f64>, NnError> {
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, parameters);
    let fine = Levels::from(batch);
    let (first, middle) = fine.coarser()?;
    let (second, coarse) = middle.coarser()?;
    let x = tape.input(kind.clone(), x)?;
    let x = convs[0].forward(&mut tape, fine, x)?;
    let y = tape.transport_pool(first, x.clone())?;
    let y = convs[1].forward(&mut tape, middle, y)?;
    let z = tape.transport_pool(second, y.clone())?;
    let z = convs[2].forward(&mut tape, coarse, z)?;
    let z = tape.transport_unpool(second, z)?;
    let y = tape.add(y, z)?;
    let y = tape.transport_unpool(first, y)?;
    Ok(tape.add(x, y)?.values()?.to_vec())
}

#[test]
fn pooling_and_unpooling_are_gauge_equivariant() {
    let kind: FeatureType = "2x0 + 1x1 + 2x2".parse().unwrap();
    let mut parameters = Parameters::new();
    let mut builder = Builder::new(&mut parameters, 1);
    let convs: Vec<GemConv> = (0..3)
        .map(|index| {
            let config = GemConvConfig::new(kind.clone(), kind.clone());
            config.init(&format!("conv{index}"), &mut builder).unwrap()
        })
        .collect();
    let meshes: Vec<Mesh> = vec![bumpy_sphere(), bumpy_grid()];
    let counts: Vec<usize> = meshes.iter().map(Mesh::vertex_count).collect();
    let total: usize = counts.iter().sum();
    let angles: Vec<f64> = random::<f64>(total, 5).iter().map(|a| 3.0 * a).collect();
    let join = |rotated: bool| {
        let mut rest = &angles[..];
        let hierarchies: Vec<Hierarchy> = meshes
            .iter()
            .map(|mesh| {
                let (own, later) = rest.split_at(mesh.vertex_count());
                rest = later;
                let gauge = match rotated {
                    true => Gauge::Angles(own.to_vec()),
                    false => Gauge::FirstNeighbour,
                };
                Hierarchy::new(mesh, &options(gauge)).unwrap()
            })
            .collect();
        Geometry::<f64>::new(&hierarchies).unwrap()
    };
    let rotate = |values: &[f64]| {
        let back: Vec<f64> = angles.iter().map(|a| -a).collect();
        let mut rotated = values.to_vec();
        gemcnn_kernels::elementwise::rotate(&kind, &back, values, &mut rotated).unwrap();
        rotated
    };
    let x = random::<f64>(total * kind.dimension(), 6);
    let y = run(&convs, &parameters, &join(false), &kind, &x).unwrap();
    let found = run(&convs, &parameters, &join(true), &kind, &rotate(&x)).unwrap();
    let largest = y.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    for (f, e) in found.iter().zip(rotate(&y)) {
        assert!((f - e).abs() <= 1e-12 * largest, "{f} is not {e}");
    }
}

#[test]
fn hierarchies_of_unequal_depth_do_not_join() {
    let deep = Hierarchy::new(&bumpy_sphere(), &options(Gauge::FirstNeighbour)).unwrap();
    let flat = HierarchyOptions { ratios: vec![], radii: vec![], ..options(Gauge::FirstNeighbour) };
    let flat = Hierarchy::new(&bumpy_grid(), &flat).unwrap();
    let error = Geometry::<f32>::new([&deep, &flat]).unwrap_err();
    assert!(matches!(&error, NnError::Size { what, expected: 3, found: 1 } if what.contains('1')), "{error}");
}
