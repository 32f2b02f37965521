//! Meshes, batches and modules that the tests share.

#![allow(dead_code, reason = "each test program uses a part of it")]

use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh};
use gemcnn_nn::equivariance::Trial;
use gemcnn_nn::layers::{ConvConfig, Nonlinearity, ResidualBlock, ResidualBlockConfig};
use gemcnn_nn::{
    Aggregation, Builder, FeatureType, Geometry, GraphBatch, Levels, Module, NnError, Parameters, Real, Tape, Var,
    Workspace,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Numbers in [-1, 1), the same for the same seed.
pub fn random<T: Real>(count: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || T::of(2.0 * rng.random::<f64>() - 1.0);
    (0..count).map(|_| draw()).collect()
}

/// The type that a text names.
pub fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

/// A layer and its parameters.
pub fn init<T: Real, M>(init: impl FnOnce(&mut Builder<'_, T>) -> Result<M, NnError>) -> (M, Parameters<T>) {
    let mut parameters = Parameters::new();
    let layer = init(&mut Builder::new(&mut parameters, 1)).unwrap();
    (layer, parameters)
}

/// Outputs of a module in inference.
pub fn apply<'a, T: Real>(
    module: &dyn Module<T>,
    parameters: &Parameters<T>,
    levels: impl Into<Levels<'a, T>>,
    x: &[T],
) -> Result<Vec<T>, NnError> {
    let levels = levels.into();
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, parameters);
    let x = tape.input(module.input().clone(), x)?;
    let y = module.forward(&mut tape, levels, x)?;
    Ok(y.values()?.into_owned())
}

/// A trial of the equivariance of a module.
pub fn trial<'a, T: Real>(mesh: &'a Mesh, options: &'a GeometryOptions, module: &'a dyn Module<T>) -> Trial<'a> {
    Trial { mesh, options, input: module.input(), output: module.output(), seed: 1 }
}

/// A closed irregular mesh.
pub fn bumpy_sphere() -> Mesh {
    let noise = random::<f64>(42, 5);
    let mut at = 0;
    shapes::icosphere(1)
        .unwrap()
        .map_vertices(|p| {
            at += 1;
            p * (1.0 + 0.2 * noise[at - 1])
        })
        .unwrap()
}

/// An open irregular mesh.
pub fn bumpy_grid() -> Mesh {
    let noise = random::<f64>(3 * 20, 6);
    let mut at = 0;
    shapes::grid(4, 5, Cells::Triangles)
        .unwrap()
        .map_vertices(|p| {
            at += 3;
            p + 0.2 * DVec3::new(noise[at - 3], noise[at - 2], noise[at - 1])
        })
        .unwrap()
}

/// The gauge graph of a mesh with default options.
pub fn graph(mesh: &Mesh) -> GaugeGraph {
    GaugeGraph::new(mesh, &GeometryOptions::default()).unwrap()
}

/// Two meshes of unequal size, one of them open.
pub fn batch<T: Real>() -> GraphBatch<T> {
    GraphBatch::new([&graph(&bumpy_sphere()), &graph(&bumpy_grid())]).unwrap()
}

/// Three levels.
pub fn hierarchy_options() -> HierarchyOptions {
    HierarchyOptions { ratios: vec![0.4, 0.5], radii: vec![1.2, 2.0], ..Default::default() }
}

/// Three levels over the meshes of [`batch`].
pub fn hierarchy<T: Real>() -> Geometry<T> {
    let options = hierarchy_options();
    let levels = |mesh: &Mesh| Hierarchy::new(mesh, &options).unwrap();
    Geometry::new(&[levels(&bumpy_sphere()), levels(&bumpy_grid())]).unwrap()
}

/// A U over three graphs: a residual block on each on the way down, and on the two finer ones on the way
/// up, where the features from the way down are concatenated.
#[derive(Debug)]
pub struct UNet<T: Real> {
    down: [ResidualBlock<T>; 3],
    up: [ResidualBlock<T>; 2],
}

impl<T: Real> UNet<T> {
    /// The module from `2x0 + 1x1` to `2x0 + 2x1`, and its parameters.
    pub fn new(act: &Arc<dyn Nonlinearity<T>>, seed: u64) -> (Self, Parameters<T>) {
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, seed);
        let mut block = |name: &str, input: &FeatureType, output: &FeatureType| {
            ResidualBlockConfig {
                nonlinearity: Arc::clone(act),
                conv: ConvConfig { aggregation: Aggregation::Mean, ..ConvConfig::default() },
                ..ResidualBlockConfig::new(input.clone(), output.clone())
            }
            .init(name, &mut builder)
            .unwrap()
        };
        let hidden = FeatureType::uniform(2, 1);
        let coarse = FeatureType::uniform(3, 1);
        let module = Self {
            down: [
                block("down0", &"2x0 + 1x1".parse().unwrap(), &hidden),
                block("down1", &hidden, &hidden),
                block("down2", &hidden, &coarse),
            ],
            up: [
                block("up1", &hidden.concatenated(&coarse), &hidden),
                block("up0", &hidden.concatenated(&hidden), &hidden),
            ],
        };
        (module, parameters)
    }
}

impl<T: Real> Module<T> for UNet<T> {
    fn input(&self) -> &FeatureType {
        self.down[0].input()
    }

    fn output(&self) -> &FeatureType {
        self.up[1].output()
    }

    fn levels(&self) -> usize {
        3
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, fine: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        if fine.count() < 3 {
            let (needed, found) = (3, fine.count());
            return Err(NnError::Levels { needed, found });
        }
        let (to_middle, middle) = fine.coarser()?;
        let (to_coarse, coarse) = middle.coarser()?;
        let x = self.down[0].forward(tape, fine, x)?;
        let y = tape.transport_pool(to_middle, x.clone())?;
        let y = self.down[1].forward(tape, middle, y)?;
        let z = tape.transport_pool(to_coarse, y.clone())?;
        let z = self.down[2].forward(tape, coarse, z)?;
        let z = tape.transport_unpool(to_coarse, z)?;
        let y = tape.concatenate(y, z)?;
        let y = self.up[0].forward(tape, middle, y)?;
        let y = tape.transport_unpool(to_middle, y)?;
        let x = tape.concatenate(x, y)?;
        self.up[1].forward(tape, fine, x)
    }
}
