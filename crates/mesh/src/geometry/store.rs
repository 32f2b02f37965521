//! Storage of gauge graphs in safetensors files.
//!
//! | tensor | shape | type |
//! | --- | --- | --- |
//! | `normals` | V, 3 | f64 |
//! | `frames` | V, 3, 3 (rows e1, e2, normal) | f64 |
//! | `offsets` | V + 1 | i64 |
//! | `neighbours`, `reverse` | E | i64 |
//! | `theta`, `transport`, `radius` | E | f64 |
//! | `areas`, only with weights of neighbours | V | f64 |
//! | `area_weights` or `jets`, only with such weights of neighbours | E, or 5 E | f64 |

use super::{Adjacency, Frame, GaugeGraph, GeometryError, NeighbourWeights};
use bytemuck::NoUninit;
use glam::DVec3;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

/// Error of reading or writing a stored gauge graph.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bytes are not a safetensors file, or a tensor is missing.
    #[error("not a safetensors file with gauge geometry: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// A tensor has a different type or shape.
    #[error("tensor `{name}` is {dtype:?} of shape {shape:?}; expected {expected}")]
    Tensor {
        /// Name of the tensor.
        name: &'static str,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// Expected type and shape.
        expected: &'static str,
    },
    /// The tensors are inconsistent.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

#[cfg(target_endian = "big")]
compile_error!("safetensors files are little-endian and are copied without byte swapping");

impl GaugeGraph {
    /// Serialises the graph as the bytes of a safetensors file.
    ///
    /// # Errors
    /// The safetensors crate returns an error. This does not happen for a graph that fits in
    /// memory.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, StoreError> {
        let widen = |values: &[u32]| -> Vec<i64> { values.iter().map(|&v| v.into()).collect() };
        let vertices = self.vertex_count();
        let normals: Vec<DVec3> = self.frames().iter().map(|frame| frame.normal).collect();
        let integers = [
            ("offsets", widen(self.offsets())),
            ("neighbours", widen(self.neighbours())),
            ("reverse", widen(self.reverse())),
        ];
        let mut tensors = vec![
            tensor("normals", Dtype::F64, vec![vertices, 3], &normals)?,
            tensor("frames", Dtype::F64, vec![vertices, 3, 3], self.frames())?,
        ];
        for (name, values) in &integers {
            tensors.push(tensor(name, Dtype::I64, vec![values.len()], values)?);
        }
        let mut floats = vec![("theta", self.theta()), ("transport", self.transport()), ("radius", self.radius())];
        for (weights, name) in NeighbourWeights::STORED {
            if self.weights() == weights {
                floats.extend([("areas", self.areas()), (name, self.coefficients().1)]);
            }
        }
        for (name, values) in floats {
            tensors.push(tensor(name, Dtype::F64, vec![values.len()], values)?);
        }
        Ok(safetensors::serialize(tensors, None)?)
    }

    /// Deserialises the bytes of a safetensors file written by
    /// [`to_safetensors`](Self::to_safetensors).
    ///
    /// # Errors
    /// The bytes are not a safetensors file, a tensor is missing or has a different type, or the
    /// arrays are inconsistent.
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self, StoreError> {
        let file = SafeTensors::deserialize(bytes)?;
        let floats = |name| -> Result<Vec<f64>, StoreError> {
            let view = checked(&file, name, Dtype::F64, &[], "f64 with one value per edge")?;
            Ok(bytemuck::pod_collect_to_vec(view.data()))
        };
        let integers = |name: &'static str| -> Result<Vec<u32>, StoreError> {
            let view = checked(&file, name, Dtype::I64, &[], "i64 of one dimension")?;
            bytemuck::pod_collect_to_vec::<u8, i64>(view.data())
                .into_iter()
                .map(|value| {
                    u32::try_from(value).map_err(|_| {
                        StoreError::Geometry(GeometryError::BadGraph {
                            problem: format!("`{name}` contains the invalid value {value}"),
                        })
                    })
                })
                .collect()
        };
        let frames: Vec<Frame> = bytemuck::pod_collect_to_vec(
            checked(&file, "frames", Dtype::F64, &[3, 3], "f64 of shape [vertices, 3, 3]")?.data(),
        );
        let mut stored = NeighbourWeights::STORED.into_iter();
        let weights = stored.find(|(_, name)| file.names().contains(name));
        let (offsets, neighbours) = (integers("offsets")?, integers("neighbours")?);
        let adjacency = Adjacency::checked(offsets, neighbours, weights.is_some())?;
        if adjacency.reverse() != integers("reverse")? {
            return Err(StoreError::Geometry(GeometryError::BadGraph {
                problem: "`reverse` does not contain the reverse edges".into(),
            }));
        }
        let graph = Self::from_parts(adjacency, floats("theta")?, floats("transport")?, floats("radius")?, frames)?;
        match weights {
            None => Ok(graph),
            Some((weights, name)) => Ok(graph.with_coefficients(weights, floats("areas")?, floats(name)?)?),
        }
    }
}

fn tensor<'a, T: NoUninit>(
    name: &'a str,
    dtype: Dtype,
    shape: Vec<usize>,
    values: &'a [T],
) -> Result<(&'a str, TensorView<'a>), SafeTensorError> {
    Ok((name, TensorView::new(dtype, shape, bytemuck::cast_slice(values))?))
}

/// A tensor of the file, checked for its element type and for its shape after the first dimension.
fn checked<'a>(
    file: &SafeTensors<'a>,
    name: &'static str,
    dtype: Dtype,
    rest: &[usize],
    expected: &'static str,
) -> Result<TensorView<'a>, StoreError> {
    let view = file.tensor(name)?;
    if view.dtype() != dtype || view.shape().get(1..) != Some(rest) {
        return Err(StoreError::Tensor { name, dtype: view.dtype(), shape: view.shape().to_vec(), expected });
    }
    Ok(view)
}
