//! The equivariance tester: checks that a layer or a model commutes with the symmetries of the data.
//!
//! One of three transformations ([`Symmetry`]) is applied to a mesh and its features. The output of the transformed
//! input is compared with the transformed output:
//!
//! - a gauge transformation, `f_p -> rho(-a_p) f_p` for random angles `a_p`;
//! - a rigid motion of the mesh in space, after which the geometry is computed again: coefficients do not change;
//! - an isometry of the mesh onto itself, given as a permutation of its vertices: features move with the vertices.

use crate::error::check_size;
use crate::{Geometry, GraphBatch, Module, NnError, Parameters, Result, SpectraBatch, Tape, Workspace};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{FeatureType, Real, elementwise};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// Largest difference of angles and relative lengths under a permutation that counts as an isometry.
const ISOMETRY_TOLERANCE: f64 = 1e-6;

/// A transformation of a mesh and its features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symmetry {
    /// The frame of every vertex rotates by a random angle.
    Gauge,
    /// A random rigid motion of the mesh in space, after which its geometry is computed again.
    Motion,
    /// Vertex `v` is mapped to `permutation[v]`, an isometry that preserves the orientation.
    Isometry(Vec<u32>),
}

/// A mesh and the feature types that a function is tested with.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Options of its geometry.
    pub options: &'a GeometryOptions,
    /// Type of the input features, one row for each vertex.
    pub input: &'a FeatureType,
    /// Type of the output features: one row for each vertex, or any number of rows of scalars, which must be
    /// invariant.
    pub output: &'a FeatureType,
    /// Seed of features, angles and motions.
    pub seed: u64,
}

/// Largest relative error due to rounding: 1e-12 in f64 and 1e-4 in f32. It is 1e-9 in f64 for motions and
/// isometries, where the geometry itself is only equal up to rounding.
pub fn tolerance<T: Real>(symmetry: &Symmetry) -> f64 {
    match (size_of::<T>(), symmetry) {
        (4, _) => 1e-4,
        (_, Symmetry::Gauge) => 1e-12,
        _ => 1e-9,
    }
}

/// Largest difference between the output of the transformed input and the transformed output, divided by the
/// largest absolute value of the output.
///
/// ```
/// use gemcnn_mesh::{GeometryOptions, shapes};
/// use gemcnn_nn::equivariance::{Symmetry, Trial, equivariance_error};
/// let (mesh, kind) = (shapes::icosahedron(), "2x0 + 1x1".parse()?);
/// let trial = Trial {
///     mesh: &mesh, options: &GeometryOptions::default(), input: &kind, output: &kind, seed: 1,
/// };
/// // Doubling commutes with rotations of the frames, squaring components does not.
/// let double = |_: &_, x: &[f64]| Ok(x.iter().map(|v| 2.0 * v).collect());
/// assert!(equivariance_error(&trial, &Symmetry::Gauge, double)? < 1e-12);
/// let square = |_: &_, x: &[f64]| Ok(x.iter().map(|v| v * v).collect());
/// assert!(equivariance_error(&trial, &Symmetry::Gauge, square)? > 0.1);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
///
/// # Errors
/// Errors of the function, an output of the wrong size, or a permutation that is not an isometry.
pub fn equivariance_error<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    mut apply: impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) -> Result<f64> {
    measure(trial, symmetry, |graph, _, x| apply(graph, x))
}

/// As [`equivariance_error`], for modules that pool. The hierarchy is computed again for the transformed graph, with
/// the `ratios`, `radii` and limit of `options`. The choice of coarse vertices is not equivariant to isometries of
/// the mesh, so only gauge transformations and motions give no error.
///
/// # Errors
/// As [`equivariance_error`], or a hierarchy that cannot be computed.
pub fn hierarchy_error<T: Real>(
    trial: &Trial<'_>,
    options: &HierarchyOptions,
    symmetry: &Symmetry,
    mut apply: impl FnMut(&Hierarchy, &[T]) -> Result<Vec<T>>,
) -> Result<f64> {
    measure(trial, symmetry, |graph, points, x| {
        let hierarchy = Hierarchy::over(graph.clone(), points, options)
            .map_err(|error| NnError::setting("hierarchy", error.to_string()))?;
        apply(&hierarchy, x)
    })
}

/// As [`equivariance_error`], for functions that also read the mesh.
pub fn mesh_error<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    mut apply: impl FnMut(&Mesh, &GaugeGraph, &[T]) -> Result<Vec<T>>,
) -> Result<f64> {
    measure(trial, symmetry, |graph, points, x| {
        let mut points = points.iter();
        let moved = |old| points.next().copied().unwrap_or(old);
        let mesh = trial.mesh.map_vertices(moved);
        let mesh = mesh.map_err(|error| NnError::setting("mesh", error.to_string()))?;
        apply(&mesh, graph, x)
    })
}

/// The error of a function of a graph, the positions of its vertices, and features.
fn measure<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    mut apply: impl FnMut(&GaugeGraph, &[DVec3], &[T]) -> Result<Vec<T>>,
) -> Result<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(trial.seed);
    let graph = GaugeGraph::new(trial.mesh, trial.options)?;
    let vertices = graph.vertex_count();
    let features: Vec<T> =
        (0..vertices * trial.input.dimension()).map(|_| T::of(2.0 * random.random::<f64>() - 1.0)).collect();
    let output = apply(&graph, trial.mesh.vertices(), &features)?;
    let width = trial.output.dimension();
    let per_vertex = output.len() == vertices * width;
    let scalar_rows = trial.output.is_scalar() && output.len().is_multiple_of(width.max(1));
    if !(per_vertex || scalar_rows) {
        return Err(NnError::Size {
            what: format!("numbers in an output of type {}", trial.output),
            expected: vertices * width,
            found: output.len(),
        });
    }
    let change = Change::new(trial, symmetry, graph, &mut random)?;
    let carried = change.carry(trial.input, &features)?;
    let found = apply(&change.graph, &change.points, &carried)?;
    let expected = if per_vertex { change.carry(trial.output, &output)? } else { output };
    check_size("numbers in the output", expected.len(), found.len())?;
    let largest = expected.iter().map(|v| v.as_f64().abs());
    let largest = largest.fold(0.0, f64::max);
    let differences = found.iter().zip(&expected);
    let difference = differences
        .map(|(f, e)| (f.as_f64() - e.as_f64()).abs())
        // `max` would ignore NaN.
        .fold(0.0, |worst: f64, d| if d <= worst { worst } else { d });
    Ok(if largest > 0.0 { difference / largest } else { difference })
}

/// Checks that a function commutes with gauge transformations and rigid motions, with several seeds.
///
/// A regular nonlinearity with ReLU is only approximately equivariant, and its error grows as the number of samples
/// falls: use [`assert_gauge_equivariant_within`] or [`equivariance_error`] for networks with one.
///
/// # Panics
/// If the error is above the [`tolerance`] of the precision; the message states the error.
pub fn assert_gauge_equivariant<T: Real>(
    trial: &Trial<'_>,
    mut apply: impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) {
    for symmetry in [Symmetry::Gauge, Symmetry::Motion] {
        assert_at_seeds(trial, &symmetry, tolerance::<T>(&symmetry), &mut apply);
    }
}

/// As [`assert_gauge_equivariant`], with `most` as the largest accepted relative error.
///
/// # Panics
/// If the error is above `most`; the message states the error.
pub fn assert_gauge_equivariant_within<T: Real>(
    trial: &Trial<'_>,
    most: f64,
    mut apply: impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) {
    for symmetry in [Symmetry::Gauge, Symmetry::Motion] {
        assert_at_seeds(trial, &symmetry, most, &mut apply);
    }
}

/// Checks that a function commutes with one symmetry.
///
/// # Panics
/// If the error is above the [`tolerance`] of the precision; the message states the error.
pub fn assert_symmetry<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    apply: impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) {
    assert_error(trial, symmetry, tolerance::<T>(symmetry), apply);
}

fn assert_at_seeds<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    most: f64,
    apply: &mut impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) {
    for seed in trial.seed..trial.seed + 3 {
        let trial = Trial { seed, ..trial.clone() };
        assert_error(&trial, symmetry, most, &mut *apply);
    }
}

/// Checks that a module commutes with gauge transformations and rigid motions, in inference, on one mesh and with
/// several seeds. The module runs on one graph; use [`hierarchy_error`] for modules that pool.
///
/// # Panics
/// If the error is above the [`tolerance`] of the precision; the message states the error.
pub fn assert_module_equivariant<T: Real>(
    module: &dyn Module<T>,
    parameters: &Parameters<T>,
    mesh: &Mesh,
    options: &GeometryOptions,
) {
    let trial = Trial { mesh, options, input: module.input(), output: module.output(), seed: 1 };
    assert_gauge_equivariant(&trial, |graph, x: &[T]| {
        let batch = GraphBatch::new([graph])?;
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, parameters);
        let x = tape.input(module.input().clone(), x)?;
        let y = module.forward(&mut tape, (&batch).into(), x)?;
        Ok(y.values()?.into_owned())
    });
}

/// Asserts that a module on surfaces is gauge equivariant: with the eigenvectors of a mesh, in its frames and in
/// random ones. The eigenvectors of the random frames are rotated, not computed again, so that the test has the
/// precision of the module. It is tested in inference, and in training with fixed random numbers.
///
/// # Panics
/// If the error is above the [`tolerance`] of the precision; the message states the error.
pub fn assert_surface_equivariant<T: Real>(
    module: &dyn Module<T>,
    parameters: &Parameters<T>,
    mesh: &Mesh,
    spectra: &SpectraBatch<T>,
) {
    let options = GeometryOptions::default();
    let frames = GaugeGraph::new(mesh, &options).unwrap_or_else(|error| panic!("{error}"));
    let trial = Trial { mesh, options: &options, input: module.input(), output: module.output(), seed: 1 };
    let apply = |graph: &GaugeGraph, x: &[T], trains: bool| {
        // Rotation of each frame, seen at its first neighbour. A rigid motion moves frames along.
        let angles: Vec<f64> = (0..graph.vertex_count())
            .map(|vertex| {
                let edge = graph.row(vertex).next();
                edge.map_or(0.0, |edge| frames.theta()[edge] - graph.theta()[edge])
            })
            .collect();
        let batch = Geometry::from(GraphBatch::new([graph])?).with(spectra.gauge_transform(&angles)?)?;
        let (mut workspace, mut trained) = (Workspace::default(), parameters.clone());
        let mut tape = match trains {
            true => Tape::training(&mut workspace, &mut trained, Stream { seed: 1, step: 2 }),
            false => Tape::inference(&mut workspace, parameters),
        };
        let x = tape.input(module.input().clone(), x)?;
        let y = module.forward(&mut tape, (&batch).into(), x)?;
        Ok(y.values()?.into_owned())
    };
    for trains in [false, true] {
        assert_gauge_equivariant(&trial, |graph, x: &[T]| apply(graph, x, trains));
    }
}

fn assert_error<T: Real>(
    trial: &Trial<'_>,
    symmetry: &Symmetry,
    most: f64,
    apply: impl FnMut(&GaugeGraph, &[T]) -> Result<Vec<T>>,
) {
    match equivariance_error(trial, symmetry, apply) {
        Ok(error) => assert!(
            error <= most,
            "{symmetry:?}, seed {}: relative error {error:.3e} in {}, above {most:.0e} (a regular nonlinearity is \
             exact only for polynomials with enough samples; with ReLU accept a larger error)",
            trial.seed,
            T::NAME
        ),
        Err(error) => panic!("{symmetry:?}: {error}"),
    }
}

/// The transformed graph, and how features transform.
struct Change {
    graph: GaugeGraph,
    /// Positions of its vertices.
    points: Vec<DVec3>,
    /// Rotation of the features of each vertex.
    angles: Vec<f64>,
    /// Image of each vertex under a permutation.
    target: Option<Vec<u32>>,
}

impl Change {
    fn new(trial: &Trial<'_>, symmetry: &Symmetry, graph: GaugeGraph, random: &mut ChaCha8Rng) -> Result<Self> {
        let vertices = graph.vertex_count();
        let points = trial.mesh.vertices().to_vec();
        match symmetry {
            Symmetry::Gauge => {
                let rotations: Vec<f64> = (0..vertices).map(|_| TAU * random.random::<f64>()).collect();
                Ok(Self {
                    graph: graph.gauge_transform(&rotations)?,
                    points,
                    angles: rotations.iter().map(|a| -a).collect(),
                    target: None,
                })
            }
            Symmetry::Motion => {
                let mut draw = || 2.0 * random.random::<f64>() - 1.0;
                let mut vector = || DVec3::new(draw(), draw(), draw());
                let (axis, shift) = (vector().normalize_or(DVec3::X), vector());
                let angle = 3.0 * vector().x;
                let moved = trial.mesh.map_vertices(|p| rotate(p, axis, angle) + shift);
                let moved = moved.map_err(|e| NnError::setting("motion", e.to_string()))?;
                Ok(Self {
                    graph: GaugeGraph::new(&moved, trial.options)?,
                    points: moved.vertices().to_vec(),
                    angles: vec![0.0; vertices],
                    target: None,
                })
            }
            Symmetry::Isometry(permutation) => {
                let angles = frame_changes(&graph, permutation)?;
                Ok(Self { graph, points, angles, target: Some(permutation.clone()) })
            }
        }
    }

    /// The transformed features.
    fn carry<T: Real>(&self, kind: &FeatureType, features: &[T]) -> Result<Vec<T>> {
        let angles: Vec<T> = self.angles.iter().map(|&angle| T::of(angle)).collect();
        let mut rotated = features.to_vec();
        elementwise::rotate(kind, &angles, features, &mut rotated)?;
        let Some(target) = &self.target else { return Ok(rotated) };
        let width = kind.dimension();
        let mut moved = rotated.clone();
        for (vertex, &to) in target.iter().enumerate() {
            let to = to as usize * width;
            moved[to..to + width].copy_from_slice(&rotated[vertex * width..][..width]);
        }
        Ok(moved)
    }
}

/// Rodrigues' rotation about a unit axis.
fn rotate(point: DVec3, axis: DVec3, angle: f64) -> DVec3 {
    let (s, c) = angle.sin_cos();
    c * point + s * axis.cross(point) + (1.0 - c) * axis.dot(point) * axis
}

/// For every vertex `v` the angle of the image of its first axis in the frame of `permutation[v]`.
fn frame_changes(graph: &GaugeGraph, permutation: &[u32]) -> Result<Vec<f64>> {
    let vertices = graph.vertex_count();
    let bad = |problem: String| Err(NnError::setting("isometry", problem));
    check_size("vertices in the permutation", vertices, permutation.len())?;
    let mut met = vec![false; vertices];
    for &to in permutation {
        match met.get_mut(to as usize) {
            Some(met) if !*met => *met = true,
            _ => return bad(format!("{to} occurs twice or is not a vertex")),
        }
    }
    let differ = |a: f64, b: f64| (a - b).sin().abs().max(1.0 - (a - b).cos()) > ISOMETRY_TOLERANCE;
    // The position of the image of every edge.
    let mut images = vec![0; graph.edge_count()];
    let mut angles = vec![0.0; vertices];
    for vertex in 0..vertices {
        let to = permutation[vertex] as usize;
        if graph.row(vertex).len() != graph.row(to).len() {
            return bad(format!("{vertex} and its image {to} have different numbers of neighbours"));
        }
        for (place, edge) in graph.row(vertex).enumerate() {
            let neighbour = permutation[graph.neighbours()[edge] as usize];
            let Some(image) = graph.row(to).find(|&image| graph.neighbours()[image] == neighbour) else {
                return bad(format!("{neighbour} is no neighbour of {to}"));
            };
            images[edge] = image;
            let angle = graph.theta()[image] - graph.theta()[edge];
            if place == 0 {
                angles[vertex] = angle;
            }
            let (r, image_r) = (graph.radius()[edge], graph.radius()[image]);
            if differ(angle, angles[vertex]) || (r - image_r).abs() > ISOMETRY_TOLERANCE * r {
                return bad(format!("angles or lengths around {vertex} and {to} differ"));
            }
        }
    }
    for vertex in 0..vertices {
        for edge in graph.row(vertex) {
            let neighbour = graph.neighbours()[edge] as usize;
            let carried = graph.transport()[edge] + angles[vertex] - angles[neighbour];
            if differ(graph.transport()[images[edge]], carried) {
                return bad(format!("transport between {vertex} and {neighbour} is not preserved"));
            }
        }
    }
    Ok(angles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    /// The sum over neighbours of transported vectors, which is equivariant.
    fn transported_mean(graph: &GaugeGraph, x: &[f64], transport: bool) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        for p in 0..graph.vertex_count() {
            for edge in graph.row(p) {
                let q = graph.neighbours()[edge] as usize;
                let g = if transport { graph.transport()[edge] } else { 0.0 };
                let (s, c) = g.sin_cos();
                y[2 * p] += c * x[2 * q] - s * x[2 * q + 1];
                y[2 * p + 1] += s * x[2 * q] + c * x[2 * q + 1];
            }
        }
        y
    }

    /// A rotation of the icosahedron about an axis through its first vertex, as a permutation.
    fn icosahedron_rotation(mesh: &Mesh) -> Vec<u32> {
        let axis = mesh.vertices()[0].normalize();
        let place = |p: DVec3| {
            let near = |q: &DVec3| (*q - p).length() < 1e-9;
            mesh.vertices().iter().position(near).unwrap() as u32
        };
        let rotated = |p: &DVec3| place(rotate(*p, axis, TAU / 5.0));
        mesh.vertices().iter().map(rotated).collect()
    }

    #[test]
    fn all_symmetries_tell_transport_from_no_transport() {
        let mesh = shapes::icosahedron();
        let options = GeometryOptions::default();
        let kind: FeatureType = "1x1".parse().unwrap();
        let trial = Trial { mesh: &mesh, options: &options, input: &kind, output: &kind, seed: 3 };
        let isometry = Symmetry::Isometry(icosahedron_rotation(&mesh));
        for symmetry in [Symmetry::Gauge, Symmetry::Motion, isometry] {
            assert_symmetry(&trial, &symmetry, |graph, x: &[f64]| Ok(transported_mean(graph, x, true)));
            let wrong = equivariance_error(&trial, &symmetry, |graph, x: &[f64]| Ok(transported_mean(graph, x, false)));
            let blind = symmetry == Symmetry::Motion;
            assert_eq!(wrong.unwrap() > 0.01, !blind, "{symmetry:?}");
        }
        // Something that reads positions in space is caught by the motion.
        let frame = |graph: &GaugeGraph, _: &[f64]| Ok(graph.frames().iter().flat_map(|f| [f.e1.x, f.e1.y]).collect());
        assert!(equivariance_error(&trial, &Symmetry::Motion, frame).unwrap() > 0.01);
    }

    #[test]
    fn nan_and_bad_permutations_are_errors() {
        let mesh = shapes::icosahedron();
        let options = GeometryOptions::default();
        let kind: FeatureType = "1x0".parse().unwrap();
        let trial = Trial { mesh: &mesh, options: &options, input: &kind, output: &kind, seed: 3 };
        let nan = |_: &GaugeGraph, x: &[f32]| Ok(vec![f32::NAN; x.len()]);
        let error = equivariance_error(&trial, &Symmetry::Gauge, nan).unwrap();
        assert!(error.is_nan());
        let same = |_: &GaugeGraph, x: &[f32]| Ok(x.to_vec());
        let mut swapped: Vec<u32> = (0..12).collect();
        swapped.swap(0, 1);
        for permutation in [vec![0; 12], vec![0; 3], swapped] {
            let symmetry = Symmetry::Isometry(permutation);
            assert!(equivariance_error(&trial, &symmetry, same).is_err());
        }
        let short = |_: &GaugeGraph, _: &[f32]| Ok(vec![1.0f32; 5]);
        assert!(equivariance_error(&trial, &Symmetry::Gauge, short).is_ok());
    }
}
