//! All operators of a mesh, with storage in safetensors files.
//!
//! | tensor | shape | type |
//! | --- | --- | --- |
//! | `mass` | V | f64 |
//! | `eigenvalues.m` | k | f64 |
//! | `eigenvectors.m` | V, k (order 0) or V, 2, k | f32 |
//! | `gradient` | V, 2, k | f32 |
//! | `jets.offsets` | V + 1 | u32 |
//! | `jets.neighbours` | E | u32 |
//! | `jets.coefficients` | E, 5 | f32 |
//! | `jets.transport` | E, 2 | f32 |

use super::derived::{factors_for, fields_for, lowest_in_span, products};
use super::{Eigenbasis, Jets, SurfaceError, SurfaceLaplacian};
use crate::geometry::check_length;
use crate::{GaugeGraph, Mesh};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use std::collections::HashMap;

/// Format version. Increment when the layout or the meaning of an entry changes.
const VERSION: &str = "2";
/// Name of the version in the metadata.
const VERSION_KEY: &str = "surface_operators";

/// Where the eigenbases of orders 1 and 2 come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BasisSource {
    /// Eigenvectors of the connection Laplacian.
    #[default]
    Connection,
    /// Gradients of scalar eigenvectors and products of such fields, combined to approximate those of the connection
    /// Laplacian. They take less time, and need no other eigenvectors.
    Derived,
}

/// Options of [`SurfaceOperators::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOptions {
    /// Number of eigenpairs of orders 0, 1 and 2 (default 128, 64 and 64). Orders with 0 pairs are
    /// left out.
    pub eigenpairs: [usize; 3],
    /// Where the eigenbases of orders 1 and 2 come from (default: the connection Laplacian).
    pub basis: BasisSource,
    /// Whether to keep the jets (default true).
    pub jets: bool,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self { eigenpairs: [128, 64, 64], basis: BasisSource::default(), jets: true }
    }
}

/// Operators of a mesh in the frames of its gauge graph.
///
/// ```
/// use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(3)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let options = OperatorOptions { eigenpairs: [16, 8, 8], ..Default::default() };
/// let operators = SurfaceOperators::new(&mesh, &graph, &options)?;
/// let restored = SurfaceOperators::from_bytes(&operators.to_bytes()?)?;
/// assert_eq!(restored.bases[0].values, operators.bases[0].values);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SurfaceOperators {
    /// Mass of every vertex; the masses sum to 1.
    pub mass: Vec<f64>,
    /// Eigenbases by ascending order.
    pub bases: Vec<Eigenbasis>,
    /// Gradients of the eigenvectors of order 0, of shape `[V, 2, k]`. Empty without order 0.
    pub gradient: Vec<f64>,
    /// Jets, if requested.
    pub jets: Option<Jets>,
}

/// Error of reading or writing stored operators.
#[derive(Debug, thiserror::Error)]
pub enum OperatorStoreError {
    /// The bytes are not a safetensors file, or a tensor is missing.
    #[error("not a safetensors file with surface operators: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// The format version differs.
    #[error("surface operators of format version {found:?}; this program reads version {VERSION}")]
    Version {
        /// Version of the file; `None` if it has none.
        found: Option<String>,
    },
    /// A tensor has a different type or shape, or invalid values.
    #[error("tensor `{name}` of surface operators is invalid: {problem}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

impl SurfaceOperators {
    /// Computes the operators of a mesh. The three orders run in parallel if the thread pool has
    /// more than one thread.
    ///
    /// # Errors
    /// The graph belongs to a mesh with another number of vertices, the mesh has no surface, or
    /// the eigensolver fails.
    pub fn new(mesh: &Mesh, graph: &GaugeGraph, options: &OperatorOptions) -> Result<Self, SurfaceError> {
        check_length("vertices of a graph", graph.vertex_count(), mesh.vertex_count())?;
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let frames = graph.frames();
        let [scalars, vectors, tensors] = options.eigenpairs;
        let is_derived = options.basis == BasisSource::Derived;
        let needs_jets = options.jets || scalars > 0 || (is_derived && vectors.max(tensors) > 0);
        let jets = if needs_jets { Some(Jets::new(&laplacian, frames)?) } else { None };
        let basis = |order: usize, count: usize| -> Result<Option<Eigenbasis>, SurfaceError> {
            if count == 0 {
                return Ok(None);
            }
            laplacian.connection(order, frames)?.eigenbasis(count).map(Some)
        };
        let [zero, one, two] = match (&jets, is_derived) {
            (Some(jets), true) => {
                let factors = vectors.max(factors_for(tensors));
                let scalar = basis(0, scalars.max(fields_for(factors)))?;
                let derived = |order: usize, (fields, columns): (Vec<f64>, usize), count: usize| {
                    lowest_in_span(&laplacian.connection(order, frames)?, fields, columns, count)
                };
                let one = match &scalar {
                    Some(scalar) if factors > 0 => {
                        let used = scalar.first(fields_for(factors));
                        Some(derived(1, (jets.gradient_basis(&used)?, used.len()), factors)?)
                    }
                    _ => None,
                };
                let two = match &one {
                    Some(one) if tensors > 0 => Some(derived(2, products(one, factors_for(tensors)), tensors)?),
                    _ => None,
                };
                let first =
                    |basis: Option<Eigenbasis>, count: usize| basis.filter(|_| count > 0).map(|b| b.first(count));
                [first(scalar, scalars), first(one, vectors), two]
            }
            _ => {
                let others = || rayon::join(|| basis(1, vectors), || basis(2, tensors));
                let (zero, (one, two)) = rayon::join(|| basis(0, scalars), others);
                [zero?, one?, two?]
            }
        };
        let gradient = match (&jets, &zero) {
            (Some(jets), Some(scalar)) => jets.gradient_basis(scalar)?,
            _ => Vec::new(),
        };
        let bases = [zero, one, two].into_iter().flatten().collect();
        Ok(Self { mass: laplacian.mass().to_vec(), bases, gradient, jets: jets.filter(|_| options.jets) })
    }

    /// The eigenbasis of an order, if present.
    pub fn basis(&self, order: usize) -> Option<&Eigenbasis> {
        self.bases.iter().find(|basis| basis.order == order)
    }

    /// Serialises the operators as the bytes of a safetensors file. Eigenvectors, gradients and jets
    /// are rounded to f32; masses and eigenvalues are exact.
    ///
    /// # Errors
    /// The safetensors crate returns an error. This does not happen for operators that fit in
    /// memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OperatorStoreError> {
        let vertices = self.mass.len();
        let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        let exact = |values: &[f64]| bytemuck::cast_slice(values).to_vec();
        tensors.push(("mass".into(), Dtype::F64, vec![vertices], exact(&self.mass)));
        for basis in &self.bases {
            let (order, pairs) = (basis.order, basis.len());
            let shape = if order == 0 { vec![vertices, pairs] } else { vec![vertices, 2, pairs] };
            let values = exact(&basis.values);
            tensors.push((format!("eigenvalues.{order}"), Dtype::F64, vec![pairs], values));
            let vectors = rounded(&basis.vectors);
            tensors.push((format!("eigenvectors.{order}"), Dtype::F32, shape, vectors));
        }
        if let Some(basis) = self.basis(0) {
            let shape = vec![vertices, 2, basis.len()];
            let gradient = rounded(&self.gradient);
            tensors.push(("gradient".into(), Dtype::F32, shape, gradient));
        }
        if let Some(jets) = &self.jets {
            let entries = jets.neighbours.len();
            let integers = |values: &[u32]| bytemuck::cast_slice(values).to_vec();
            let coefficients = rounded(jets.coefficients.as_flattened());
            let transport = rounded(jets.transport.as_flattened());
            for (name, dtype, shape, bytes) in [
                ("offsets", Dtype::U32, vec![vertices + 1], integers(&jets.offsets)),
                ("neighbours", Dtype::U32, vec![entries], integers(&jets.neighbours)),
                ("coefficients", Dtype::F32, vec![entries, 5], coefficients),
                ("transport", Dtype::F32, vec![entries, 2], transport),
            ] {
                tensors.push((format!("jets.{name}"), dtype, shape, bytes));
            }
        }
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?)))
            .collect::<Result<Vec<_>, SafeTensorError>>()?;
        let version = HashMap::from([(VERSION_KEY.to_string(), VERSION.to_string())]);
        Ok(safetensors::serialize(views, Some(version))?)
    }

    /// Deserialises operators written by [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// The bytes are not a safetensors file of this version, or a tensor is missing or invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OperatorStoreError> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let found = header.metadata().as_ref().and_then(|metadata| metadata.get(VERSION_KEY).cloned());
        if found.as_deref() != Some(VERSION) {
            return Err(OperatorStoreError::Version { found });
        }
        let file = SafeTensors::deserialize(bytes)?;
        let has = |name: &str| file.names().contains(&name);
        let mass = doubles(&file, "mass", None)?;
        let vertices = mass.len();
        let mut bases = Vec::new();
        for order in 0..=2 {
            let name = format!("eigenvalues.{order}");
            if !has(&name) {
                continue;
            }
            let values = doubles(&file, &name, None)?;
            let shape = if order == 0 { vec![vertices, values.len()] } else { vec![vertices, 2, values.len()] };
            let vectors = singles(&file, &format!("eigenvectors.{order}"), &shape)?;
            bases.push(Eigenbasis { order, values, vectors });
        }
        let gradient = match bases.first() {
            Some(basis) if basis.order == 0 => singles(&file, "gradient", &[vertices, 2, basis.len()])?,
            _ => Vec::new(),
        };
        let jets = if has("jets.offsets") { Some(read_jets(&file, vertices)?) } else { None };
        Ok(Self { mass, bases, gradient, jets })
    }
}

fn rounded(values: &[f64]) -> Vec<u8> {
    let singles: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    bytemuck::cast_slice(&singles).to_vec()
}

fn invalid(name: &str, problem: impl Into<String>) -> OperatorStoreError {
    OperatorStoreError::Tensor { name: name.to_string(), problem: problem.into() }
}

/// The bytes of a tensor of the given type, and of the given shape if there is one.
fn tensor<'a>(
    file: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
    shape: Option<&[usize]>,
) -> Result<TensorView<'a>, OperatorStoreError> {
    let view = file.tensor(name)?;
    let fits = match shape {
        Some(shape) => view.shape() == shape,
        None => view.shape().len() == 1,
    };
    if view.dtype() != dtype || !fits {
        let expected = shape.map_or("one dimension".into(), |shape| format!("shape {shape:?}"));
        return Err(invalid(
            name,
            format!("{:?} of shape {:?}; expected {dtype:?} of {expected}", view.dtype(), view.shape()),
        ));
    }
    Ok(view)
}

fn finite(name: &str, values: Vec<f64>) -> Result<Vec<f64>, OperatorStoreError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(invalid(name, format!("value {index} is not finite"))),
        None => Ok(values),
    }
}

fn doubles(file: &SafeTensors<'_>, name: &str, shape: Option<&[usize]>) -> Result<Vec<f64>, OperatorStoreError> {
    let view = tensor(file, name, Dtype::F64, shape)?;
    finite(name, bytemuck::pod_collect_to_vec(view.data()))
}

fn singles(file: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f64>, OperatorStoreError> {
    let view = tensor(file, name, Dtype::F32, Some(shape))?;
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
    finite(name, values.into_iter().map(f64::from).collect())
}

fn read_jets(file: &SafeTensors<'_>, vertices: usize) -> Result<Jets, OperatorStoreError> {
    let integers = |name: &str, shape: Option<&[usize]>| -> Result<Vec<u32>, OperatorStoreError> {
        let view = tensor(file, name, Dtype::U32, shape)?;
        Ok(bytemuck::pod_collect_to_vec(view.data()))
    };
    let offsets = integers("jets.offsets", Some(&[vertices + 1]))?;
    let neighbours = integers("jets.neighbours", None)?;
    let entries = neighbours.len();
    let ascend = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    if offsets[0] != 0 || offsets[vertices] as usize != entries || !ascend {
        return Err(invalid("jets.offsets", format!("not the starts of rows of {entries} entries")));
    }
    if let Some(neighbour) = neighbours.iter().find(|n| **n as usize >= vertices) {
        return Err(invalid("jets.neighbours", format!("{neighbour} of {vertices} vertices")));
    }
    let coefficients = singles(file, "jets.coefficients", &[entries, 5])?;
    let transport = singles(file, "jets.transport", &[entries, 2])?;
    Ok(Jets {
        offsets,
        neighbours,
        coefficients: coefficients.as_chunks().0.to_vec(),
        transport: transport.as_chunks().0.to_vec(),
    })
}
