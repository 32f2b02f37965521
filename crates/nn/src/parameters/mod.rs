//! Parameters of a model: values, gradients, and running statistics.

mod device;

use crate::device::{f32_slice, f32_slice_mut};
use crate::error::check_size;
use crate::pool::clear;
use crate::{Device, NnError, Result};
use device::{DeviceParameters, Placement};
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{OnDevice, Real, View, ViewMut, compiled};
use rayon::prelude::*;
use std::collections::HashMap;

/// Id of one entry of [`Parameters`]. Layers hold the ids of their parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub(crate) usize);

/// Role of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Trained, with weight decay by default.
    Weight,
    /// Trained, without weight decay by default: biases, and scales and shifts of normalisations.
    Offset,
    /// Not trained: running statistics.
    Statistic,
}

/// One entry of [`Parameters`].
#[derive(Debug, Clone)]
pub struct Parameter<T> {
    name: String,
    shape: Vec<usize>,
    role: Role,
    decays: bool,
    value: Vec<T>,
    /// Empty for statistics.
    gradient: Vec<T>,
}

impl<T: Real> Parameter<T> {
    /// Full name with the names of the enclosing blocks, such as `block1.conv2.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shape, the last index running fastest.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// True if optimisers update it.
    pub fn is_trained(&self) -> bool {
        self.role != Role::Statistic
    }

    /// True if weight decay acts on it: by default for weights alone
    /// ([`Parameters::set_weight_decay`]).
    pub fn decays(&self) -> bool {
        self.decays
    }

    /// The values.
    pub fn value(&self) -> &[T] {
        &self.value
    }

    /// The values, to change them.
    pub fn value_mut(&mut self) -> &mut [T] {
        &mut self.value
    }

    /// Gradient of the loss, summed up since [`Parameters::clear_gradients`]; empty for statistics.
    pub fn gradient(&self) -> &[T] {
        &self.gradient
    }

    /// The gradient, to add to it.
    pub fn gradient_mut(&mut self) -> &mut [T] {
        &mut self.gradient
    }

    /// The values and their gradient.
    pub fn value_and_gradient_mut(&mut self) -> (&mut [T], &mut [T]) {
        (&mut self.value, &mut self.gradient)
    }
}

/// All parameters of a model, in the order in which its layers added them.
///
/// A tape on a GPU moves them to the GPU. Archives, optimisers and the functions for gradients work there too, but
/// [`Parameter`] gives access to the host alone, where values are then out of date.
/// [`move_to_host`](Self::move_to_host) moves all parameters back.
#[derive(Debug, Clone, Default)]
pub struct Parameters<T> {
    entries: Vec<Parameter<T>>,
    by_name: HashMap<String, ParameterId>,
    placement: Placement,
}

impl<T: Real> Parameters<T> {
    /// No parameters.
    pub fn new() -> Self {
        Self { entries: Vec::new(), by_name: HashMap::new(), placement: Placement::default() }
    }

    /// Moves values, statistics and gradients from a GPU to the host, after all queued work. Does nothing if they
    /// are on the host.
    pub fn move_to_host(&mut self) -> Result<()> {
        let Some(device) = self.placement.get()? else { return Ok(()) };
        let (values, gradients) = (device.read_values()?, device.read_gradients()?);
        for (entry, (value, gradient)) in self.entries.iter_mut().zip(values.iter().zip(&gradients)) {
            f32_slice_mut(&mut entry.value)?.copy_from_slice(value);
            if entry.is_trained() {
                f32_slice_mut(&mut entry.gradient)?.copy_from_slice(gradient);
            }
        }
        self.placement.clear();
        Ok(())
    }

    /// The parameters on a GPU, moved there if they are on the host.
    pub(crate) fn on(&self, device: &CudaDevice) -> Result<&DeviceParameters> {
        self.placement.on(device, || {
            let list = |of: fn(&Parameter<T>) -> &[T]| -> Result<Vec<&[f32]>> {
                self.entries.iter().map(|e| f32_slice(of(e))).collect()
            };
            let values = list(Parameter::value)?;
            let gradients = list(Parameter::gradient)?;
            let (values, gradients) = (values.iter().copied(), gradients.iter().copied());
            Ok(DeviceParameters::new(device, values, gradients)?)
        })
    }

    /// As [`on`](Self::on), to change them.
    pub(crate) fn on_mut(&mut self, device: &CudaDevice) -> Result<&mut DeviceParameters> {
        self.on(device)?;
        self.on_device_mut()?.ok_or_else(|| NnError::setting("parameters", "they were moved off the GPU during a step"))
    }

    /// The parameters on their GPU; `None` if they are on the host.
    pub(crate) fn on_device_mut(&mut self) -> Result<Option<&mut DeviceParameters>> {
        self.placement.get_mut()
    }

    /// Values of all entries on a GPU; `None` if they are on the host.
    pub(crate) fn read_values(&self) -> Result<Option<Vec<Vec<f32>>>> {
        let device = self.placement.get()?;
        Ok(device.map(DeviceParameters::read_values).transpose()?)
    }

    fn expect_host(&self) -> Result<()> {
        match self.placement.get()? {
            None => Ok(()),
            Some(_) => Err(NnError::setting(
                "parameters",
                "they are on a GPU; call `Parameters::move_to_host` before using them on the CPU",
            )),
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// A name that is taken, or a number of values that does not match the shape.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], role: Role, value: Vec<T>) -> Result<ParameterId> {
        let name = name.into();
        check_size(format!("values of `{name}`"), shape.iter().product(), value.len())?;
        if self.by_name.contains_key(&name) {
            return Err(NnError::SameName { name });
        }
        let id = ParameterId(self.entries.len());
        self.by_name.insert(name.clone(), id);
        let gradient = match role {
            Role::Weight | Role::Offset => vec![T::zero(); value.len()],
            Role::Statistic => Vec::new(),
        };
        self.entries.push(Parameter {
            name,
            shape: shape.to_vec(),
            role,
            decays: role == Role::Weight,
            value,
            gradient,
        });
        Ok(id)
    }

    /// One entry.
    ///
    /// # Panics
    /// If the id comes from other parameters and is out of range.
    pub fn get(&self, id: ParameterId) -> &Parameter<T> {
        &self.entries[id.0]
    }

    /// One entry, to change it.
    ///
    /// # Panics
    /// If the id comes from other parameters and is out of range.
    pub fn get_mut(&mut self, id: ParameterId) -> &mut Parameter<T> {
        &mut self.entries[id.0]
    }

    /// The values of one entry.
    ///
    /// # Panics
    /// If the id comes from other parameters and is out of range.
    pub fn value(&self, id: ParameterId) -> &[T] {
        &self.get(id).value
    }

    /// Views of the values of some entries where a device reads them. An absent entry is empty, and so is
    /// an id of other parameters that is out of range, which operators then refuse.
    pub(crate) fn views<const N: usize>(
        &self,
        device: &Device,
        ids: [Option<ParameterId>; N],
    ) -> Result<[View<'_, T>; N]> {
        Ok(match device {
            Device::Cpu => {
                self.expect_host()?;
                ids.map(|id| {
                    let entry = id.and_then(|id| self.entries.get(id.0));
                    OnDevice::Host(entry.map_or(&[][..], |entry| &entry.value))
                })
            }
            Device::Cuda(device) => self.on(device)?.values_of(ids).map(OnDevice::Cuda),
        })
    }

    /// As [`views`](Self::views), to change the values.
    pub(crate) fn views_mut<const N: usize>(
        &mut self,
        device: &Device,
        ids: [ParameterId; N],
    ) -> Result<[ViewMut<'_, T>; N]> {
        Ok(match device {
            Device::Cpu => {
                self.expect_host()?;
                let entries = self.entries.get_disjoint_mut(ids.map(|id| id.0));
                let entries = entries
                    .map_err(|_| NnError::setting("parameters", "an id of other parameters, or the same id twice"))?;
                entries.map(|entry| OnDevice::Host(&mut entry.value[..]))
            }
            Device::Cuda(device) => self.on_mut(device)?.values_mut(ids).map(OnDevice::Cuda),
        })
    }

    /// As [`views`](Self::views), with the gradients to add to.
    #[allow(clippy::type_complexity)]
    pub(crate) fn gradient_views<const N: usize>(
        &mut self,
        device: &Device,
        ids: [Option<ParameterId>; N],
    ) -> Result<([View<'_, T>; N], [ViewMut<'_, T>; N])> {
        Ok(match device {
            Device::Cpu => {
                self.expect_host()?;
                let mut entries: Vec<Option<&mut Parameter<T>>> = self.entries.iter_mut().map(Some).collect();
                let mut gradients = [const { None }; N];
                let values = std::array::from_fn(|place| {
                    let entry = ids[place].and_then(|id| entries.get_mut(id.0)?.take());
                    OnDevice::Host(entry.map_or(&[][..], |entry| {
                        gradients[place] = Some(&mut entry.gradient[..]);
                        &entry.value
                    }))
                });
                let gradients = gradients.map(|g| OnDevice::Host(g.unwrap_or_default()));
                (values, gradients)
            }
            Device::Cuda(device) => {
                let (values, gradients) = self.on_mut(device)?.with_gradients(ids)?;
                (values.map(OnDevice::Cuda), gradients.map(OnDevice::Cuda))
            }
        })
    }

    /// The entry with a name.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.by_name.get(name).copied()
    }

    /// All entries in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Parameter<T>> {
        self.entries.iter()
    }

    /// All entries, to change them.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Parameter<T>> {
        self.entries.iter_mut()
    }

    /// Number of trained values.
    pub fn trained_count(&self) -> usize {
        let trained = self.entries.iter().filter(|entry| entry.is_trained());
        trained.map(|entry| entry.value.len()).sum()
    }

    /// Selects by name the trained entries that weight decay acts on. The default is those with
    /// [`Role::Weight`].
    pub fn set_weight_decay(&mut self, decays: impl Fn(&str) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| entry.is_trained()) {
            entry.decays = decays(&entry.name);
        }
    }

    /// Sets all gradients to zero.
    pub fn clear_gradients(&mut self) {
        match self.placement.get_mut() {
            Ok(Some(device)) => device.clear_gradients(),
            Ok(None) => {
                for entry in &mut self.entries {
                    clear(&mut entry.gradient);
                }
            }
            // A failed copy has no gradients; the error is reported when it is used.
            Err(_) => {}
        }
    }

    /// Euclidean norm of all gradients together, computed in f64.
    pub fn gradient_norm(&self) -> Result<f64> {
        Ok(self.squared_norms()?.iter().sum::<f64>().sqrt())
    }

    fn squared_norms(&self) -> Result<Vec<f64>> {
        Ok(match self.placement.get()? {
            None => (self.entries.iter().map(|e| squared_norm(&e.gradient))).collect(),
            Some(device) => (device.read_gradients()?.iter()).map(|gradient| squared_norm(gradient)).collect(),
        })
    }

    /// Scales all gradients down so that their common norm is at most `largest`. On a GPU this does not wait for
    /// the norm, and gradients that are not finite are left unchanged.
    pub fn clip_gradients(&mut self, largest: f64) -> Result<()> {
        if let Some(device) = self.placement.get_mut()? {
            return Ok(device.clip_gradients(largest)?);
        }
        let squares = self.squared_norms()?;
        let norm = squares.iter().sum::<f64>().sqrt();
        if !norm.is_finite() {
            let mut named = self.entries.iter().zip(&squares);
            let infinite = named.find(|(_, square)| !square.is_finite());
            let name = infinite.map_or("", |(entry, _)| &entry.name);
            return Err(NnError::NotFinite { what: format!("the gradient of `{name}`") });
        }
        if norm > largest {
            let factor = largest / norm;
            for entry in &mut self.entries {
                entry.gradient.iter_mut().for_each(|g| *g *= T::of(factor));
            }
        }
        Ok(())
    }
}

/// How a tape uses parameters.
pub(crate) enum Access<'a, T> {
    Inference(&'a Parameters<T>),
    Training { parameters: &'a mut Parameters<T>, randomness: Stream },
    Calibration(&'a mut Parameters<T>),
}

impl<T> Access<'_, T> {
    /// The same access for a shorter time.
    pub fn reborrow(&mut self) -> Access<'_, T> {
        match self {
            Self::Inference(parameters) => Access::Inference(parameters),
            Self::Training { parameters, randomness } => Access::Training { parameters, randomness: *randomness },
            Self::Calibration(parameters) => Access::Calibration(parameters),
        }
    }

    /// The parameters, to read them.
    pub fn parameters(&self) -> &Parameters<T> {
        match self {
            Self::Inference(parameters) => parameters,
            Self::Training { parameters, .. } | Self::Calibration(parameters) => parameters,
        }
    }

    /// The parameters, to change them; `None` in inference.
    pub fn parameters_mut(&mut self) -> Option<&mut Parameters<T>> {
        match self {
            Self::Inference(_) => None,
            Self::Training { parameters, .. } | Self::Calibration(parameters) => Some(parameters),
        }
    }
}

/// Sum of squares in f64, in blocks of fixed size so that the result does not depend on threads.
fn squared_norm<T: Real>(values: &[T]) -> f64 {
    compiled!(sum_of_squares as fn(&[T]) -> f64)(values)
}

fn sum_of_squares<T: Real>(values: &[T]) -> f64 {
    let block = |values: &[T]| -> f64 { values.iter().map(|v| v.as_f64() * v.as_f64()).sum() };
    if values.len() <= 1 << 14 {
        return block(values);
    }
    let blocks: Vec<f64> = values.par_chunks(1 << 14).map(block).collect();
    blocks.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Parameters<f64> {
        let mut parameters = Parameters::new();
        let weight = parameters.add("a.weight", &[2, 2], Role::Weight, vec![1.0; 4]).unwrap();
        let bias = parameters.add("a.bias", &[2], Role::Offset, vec![0.0; 2]).unwrap();
        parameters.add("a.mean", &[2], Role::Statistic, vec![5.0; 2]).unwrap();
        let set = |entry: &mut Parameter<f64>, value| entry.gradient_mut().fill(value);
        set(parameters.get_mut(weight), 3.0);
        set(parameters.get_mut(bias), 4.0);
        parameters
    }

    #[test]
    fn names_are_unique_and_shapes_are_checked() {
        let mut parameters = two();
        assert!(matches!(parameters.add("a.bias", &[1], Role::Offset, vec![0.0]), Err(NnError::SameName { .. })));
        assert!(matches!(
            parameters.add("b", &[3, 2], Role::Weight, vec![0.0; 5]),
            Err(NnError::Size { expected: 6, found: 5, .. })
        ));
        assert_eq!(parameters.trained_count(), 6);
        let bias = parameters.find("a.bias").unwrap();
        assert_eq!(parameters.get(bias).role, Role::Offset);
        assert_eq!(parameters.find("c"), None);
    }

    #[test]
    fn weight_decay_is_chosen_by_name() {
        let mut parameters = two();
        parameters.set_weight_decay(|name| name.ends_with("bias"));
        let decays: Vec<bool> = parameters.iter().map(Parameter::decays).collect();
        assert_eq!(decays, [false, true, false]);
        parameters.set_weight_decay(|_| true);
        let mean = parameters.find("a.mean").unwrap();
        assert!(!parameters.get(mean).decays(), "statistics are not trained");
    }

    #[test]
    fn gradients_are_clipped_by_their_common_norm() {
        let mut parameters = two();
        let norm = (4.0 * 9.0 + 2.0 * 16.0f64).sqrt();
        parameters.clip_gradients(100.0).unwrap();
        assert!((parameters.gradient_norm().unwrap() - norm).abs() < 1e-12);
        parameters.clip_gradients(0.5).unwrap();
        assert!((parameters.gradient_norm().unwrap() - 0.5).abs() < 1e-12);
        let bias = parameters.find("a.bias").unwrap();
        assert!((parameters.get(bias).gradient()[0] - 2.0 / norm).abs() < 1e-12);
        parameters.get_mut(bias).gradient_mut()[1] = f64::NAN;
        let error = parameters.clip_gradients(1.0).unwrap_err();
        assert!(matches!(&error, NnError::NotFinite { what } if what.contains("a.bias")), "{error}");
        parameters.clear_gradients();
        assert_eq!(parameters.gradient_norm().unwrap(), 0.0);
    }
}
