//! Archives of models and checkpoints: named tensors and settings in one safetensors file.
//!
//! Tensor names are `group/name`, such as `weights/block1.conv2.weight` or
//! `optimiser/first/block1.conv2.weight`. Settings (the configuration of a model, the rule of its optimiser, ...) are
//! one JSON object in the metadata of the file under the key `gemcnn`. Its keys are sorted, so that the same content
//! gives the same bytes.

use crate::{NnError, Parameters, Result};
use gemcnn_kernels::{Real, compiled};
use gemcnn_mesh::{read_file, write_atomically};
use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const METADATA_KEY: &str = "gemcnn";

/// Named tensors and settings, in memory.
///
/// ```
/// use gemcnn_nn::{Archive, Parameters, Role};
/// let mut parameters = Parameters::<f32>::new();
/// parameters.add("head.weight", &[2, 3], Role::Weight, vec![0.5; 6])?;
/// let mut archive = Archive::new();
/// parameters.store(&mut archive, "weights")?;
/// archive.set_json("epoch", &12)?;
///
/// let again = Archive::from_bytes(&archive.to_bytes()?)?;
/// parameters.load(&again, "weights")?;
/// assert_eq!(again.json::<u32>("epoch")?, 12);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Archive {
    settings: BTreeMap<String, Value>,
    tensors: BTreeMap<String, StoredTensor>,
    /// File it was read from, for error messages.
    origin: PathBuf,
}

/// One tensor, as in the file.
#[derive(Debug, Clone, PartialEq)]
struct StoredTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A path that is not a readable regular file, or a file that is not a safetensors file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read_file(path).map_err(|source| NnError::File { path: path.into(), source })?;
        Self::parse(&bytes, path)
    }

    /// The archive in the bytes of a file.
    ///
    /// # Errors
    /// Bytes that are not a safetensors file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes, Path::new("bytes"))
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let bad = |problem: String| NnError::Archive { path: path.into(), problem };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| bad(e.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|e| bad(e.to_string()))?;
        let settings = match header.metadata().as_ref().and_then(|m| m.get(METADATA_KEY)) {
            Some(text) => serde_json::from_str(text).map_err(|e| bad(e.to_string()))?,
            None => BTreeMap::new(),
        };
        let stored = |view: &TensorView<'_>| StoredTensor {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        let tensors = file.iter().map(|(name, view)| (name.into(), stored(&view)));
        Ok(Self { settings, tensors: tensors.collect(), origin: path.into() })
    }

    /// The bytes of a safetensors file.
    ///
    /// # Errors
    /// Content that the safetensors format cannot represent.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bad = |problem: String| NnError::Archive { path: self.origin.clone(), problem };
        let settings = serde_json::to_string(&self.settings).map_err(|e| bad(e.to_string()))?;
        let metadata = HashMap::from([(METADATA_KEY.to_string(), settings)]);
        let views: Vec<(&String, TensorView<'_>)> = self
            .tensors
            .iter()
            .map(|(name, t)| {
                let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
                view.map(|view| (name, view)).map_err(|e| bad(e.to_string()))
            })
            .collect::<Result<_, _>>()?;
        safetensors::serialize(views, Some(metadata)).map_err(|e| bad(e.to_string()))
    }

    /// Writes a file atomically: under a temporary name in the same folder, then renamed. A reader never sees a
    /// partial file, not even after a power failure.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = self.to_bytes()?;
        write_atomically(path, |file| file.write_all(&bytes))
            .map_err(|source| NnError::File { path: path.into(), source })
    }

    /// Stores a setting.
    ///
    /// # Errors
    /// A value that JSON cannot represent.
    pub fn set_json(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        let value =
            serde_json::to_value(value).map_err(|e| NnError::setting(format!("setting `{key}`"), e.to_string()))?;
        self.settings.insert(key.into(), value);
        Ok(())
    }

    /// Reads a setting. A missing setting is `None` if `V` is an [`Option`].
    ///
    /// # Errors
    /// A setting that is missing or of another type.
    pub fn json<V: DeserializeOwned>(&self, key: &str) -> Result<V> {
        let bad = |problem: String| NnError::Archive { path: self.origin.clone(), problem };
        let Some(value) = self.settings.get(key) else {
            return serde_json::from_value(Value::Null).map_err(|_| bad(format!("there is no setting `{key}`")));
        };
        serde_json::from_value(value.clone()).map_err(|e| bad(format!("setting `{key}`: {e}")))
    }

    /// Names of all tensors, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| &*tensor.shape)
    }

    /// The values of a tensor of f16, f32 or f64, converted to `T`.
    ///
    /// # Errors
    /// A tensor that is missing or of another element type.
    pub fn tensor<T: Real>(&self, name: &str) -> Result<Vec<T>> {
        let bad = |problem: String| NnError::Archive { path: self.origin.clone(), problem };
        let tensor = self.tensors.get(name).ok_or_else(|| bad(format!("there is no tensor `{name}`")))?;
        numbers(tensor).map_err(|problem| bad(format!("tensor `{name}` {problem}")))
    }

    /// Stores a tensor in its own precision.
    ///
    /// # Errors
    /// A number of values that does not match the shape.
    pub fn set_tensor<T: Real>(&mut self, name: impl Into<String>, shape: &[usize], values: &[T]) -> Result<()> {
        let name = name.into();
        crate::error::check_size(format!("values of `{name}`"), shape.iter().product(), values.len())?;
        let dtype = if size_of::<T>() == 4 { Dtype::F32 } else { Dtype::F64 };
        let tensor = StoredTensor { dtype, shape: shape.to_vec(), bytes: bytemuck::cast_slice(values).to_vec() };
        self.tensors.insert(name, tensor);
        Ok(())
    }

    /// The same archive with all tensors rounded to half precision, for smaller files.
    ///
    /// # Errors
    /// A number above 65,504, the largest in half precision.
    pub fn in_half_precision(&self) -> Result<Self> {
        let mut archive = self.clone();
        for (name, tensor) in &mut archive.tensors {
            let values = self.tensor::<f32>(name)?;
            tensor.bytes = half_precision(&values).ok_or_else(|| NnError::Archive {
                path: self.origin.clone(),
                problem: format!("tensor `{name}` has numbers that are too large for half precision"),
            })?;
            tensor.dtype = Dtype::F16;
        }
        Ok(archive)
    }

    /// Copies a tensor into `values`, or adds the reason why it does not fit to `differences`.
    pub(crate) fn read_tensor<T: Real>(
        &self,
        name: &str,
        shape: &[usize],
        values: &mut [T],
        differences: &mut Vec<String>,
    ) {
        match self.fitting(name, shape) {
            Ok(numbers) => values.copy_from_slice(&numbers),
            Err(difference) => differences.push(difference),
        }
    }

    /// The values of a tensor of a shape, or the reason why it does not fit.
    pub(crate) fn fitting<T: Real>(&self, name: &str, shape: &[usize]) -> Result<Vec<T>, String> {
        let Some(tensor) = self.tensors.get(name) else { return Err(format!("`{name}` is missing from the file")) };
        if tensor.shape != shape {
            return Err(format!("`{name}` has shape {:?} in the file, but {shape:?} here", tensor.shape));
        }
        numbers(tensor).map_err(|problem| format!("`{name}` {problem}"))
    }

    /// Tensors of a group that are not among some parameters, as differences.
    pub(crate) fn unknown<'a, T: Real>(
        &'a self,
        group: &str,
        parameters: &'a Parameters<T>,
    ) -> impl Iterator<Item = String> + 'a {
        let prefix = format!("{group}/");
        let is_unknown =
            move |name: &&str| (name.strip_prefix(&prefix)).is_some_and(|own| parameters.find(own).is_none());
        let names = self.tensor_names().filter(is_unknown);
        names.map(|name| format!("`{name}` is in the file, but not in this model"))
    }
}

/// The values of a tensor, converted to `T`; f64 is rounded to the nearest f32.
fn numbers<T: Real>(tensor: &StoredTensor) -> Result<Vec<T>, String> {
    compiled!(converted as fn(&StoredTensor) -> Result<Vec<T>, String>)(tensor)
}

fn converted<T: Real>(tensor: &StoredTensor) -> Result<Vec<T>, String> {
    match tensor.dtype {
        Dtype::F32 => {
            let values = bytemuck::pod_collect_to_vec::<u8, f32>(&tensor.bytes);
            Ok(values.into_iter().map(|v| T::of(v.into())).collect())
        }
        Dtype::F64 => {
            let values = bytemuck::pod_collect_to_vec::<u8, f64>(&tensor.bytes);
            Ok(values.into_iter().map(T::of).collect())
        }
        Dtype::F16 => {
            let values = bytemuck::pod_collect_to_vec::<u8, u16>(&tensor.bytes);
            Ok(values.into_iter().map(|bits| T::of(f16::from_bits(bits).into())).collect())
        }
        other => Err(format!("holds {other:?}; only F16, F32 and F64 are read")),
    }
}

/// The bytes of numbers in half precision; `None` if one of them overflows.
fn half_precision(values: &[f32]) -> Option<Vec<u8>> {
    let bits = values.iter().map(|&value| Some(f16::from_f32(value)).filter(|half| half.is_finite()));
    let bits: Option<Vec<u16>> = bits.map(|half| half.map(f16::to_bits)).collect();
    Some(bytemuck::cast_slice(&bits?).to_vec())
}

/// Fails if there are differences.
pub(crate) fn no_differences(differences: Vec<String>) -> Result<()> {
    if differences.is_empty() { Ok(()) } else { Err(NnError::Mismatch { differences }) }
}

impl<T: Real> Parameters<T> {
    /// Stores all values and running statistics in an archive under `group`.
    pub fn store(&self, archive: &mut Archive, group: &str) -> Result<()> {
        let on_device = self.read_values()?;
        for (index, entry) in self.iter().enumerate() {
            let name = format!("{group}/{}", entry.name());
            match on_device.as_ref().and_then(|values| values.get(index)) {
                Some(values) => archive.set_tensor(name, entry.shape(), values)?,
                None => archive.set_tensor(name, entry.shape(), entry.value())?,
            }
        }
        Ok(())
    }

    /// Loads all values from an archive, to the host. Nothing changes if anything differs.
    ///
    /// # Errors
    /// All names that are missing or unknown and all shapes that differ, at once.
    pub fn load(&mut self, archive: &Archive, group: &str) -> Result<()> {
        self.move_to_host()?;
        let mut differences = Vec::new();
        let mut loaded = Vec::with_capacity(self.iter().len());
        for entry in self.iter() {
            let mut values = vec![T::zero(); entry.value().len()];
            let name = format!("{group}/{}", entry.name());
            archive.read_tensor(&name, entry.shape(), &mut values, &mut differences);
            loaded.push(values);
        }
        differences.extend(archive.unknown(group, self));
        no_differences(differences)?;
        for (entry, values) in self.iter_mut().zip(loaded) {
            entry.value_mut().copy_from_slice(&values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn parameters<T: Real>(start: f64) -> Parameters<T> {
        let mut parameters = Parameters::new();
        for (name, shape, role) in [
            ("conv.weight", &[2, 3][..], Role::Weight),
            ("conv.bias", &[3], Role::Offset),
            ("norm.mean", &[1], Role::Statistic),
        ] {
            let count = shape.iter().product::<usize>();
            let values = (0..count).map(|i| T::of(start + i as f64 / 3.0)).collect();
            parameters.add(name, shape, role, values).unwrap();
        }
        parameters
    }

    fn archive_of<T: Real>(parameters: &Parameters<T>) -> Archive {
        let mut archive = Archive::new();
        parameters.store(&mut archive, "weights").unwrap();
        archive
    }

    #[test]
    fn archives_round_trip_bitwise_and_leave_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let saved = parameters::<f64>(1.0);
        let mut archive = archive_of(&saved);
        archive.set_json("b", &vec![1, 2]).unwrap();
        archive.set_json("a", &"text").unwrap();
        archive.write(&path).unwrap();
        archive.write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), archive.to_bytes().unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let again = Archive::read(&path).unwrap();
        assert_eq!(again.json::<Vec<u32>>("b").unwrap(), [1, 2]);
        let mut loaded = parameters::<f64>(9.0);
        loaded.load(&again, "weights").unwrap();
        for (a, b) in saved.iter().zip(loaded.iter()) {
            assert_eq!(a.value(), b.value());
        }
        // The same weights in the other precision.
        let mut single = parameters::<f32>(9.0);
        single.load(&again, "weights").unwrap();
        assert_eq!(single.iter().next().unwrap().value()[1], (4.0f64 / 3.0) as f32);
    }

    #[test]
    fn half_precision_rounds_to_eleven_bits_and_refuses_overflow() {
        let whole = archive_of(&parameters::<f32>(1.0));
        let half = Archive::from_bytes(&whole.in_half_precision().unwrap().to_bytes().unwrap()).unwrap();
        assert_eq!(half.shape("weights/conv.weight"), whole.shape("weights/conv.weight"));
        for name in whole.tensor_names() {
            let pairs = whole.tensor::<f32>(name).unwrap().into_iter().zip(half.tensor::<f32>(name).unwrap());
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() <= a.abs() / 2048.0));
            assert!(name != "weights/conv.weight" || pairs.clone().any(|(a, b)| a != b));
        }
        let mut large = whole.clone();
        large.set_tensor("large", &[1], &[7e4f32]).unwrap();
        assert!(matches!(large.in_half_precision(), Err(NnError::Archive { .. })));
    }

    #[test]
    fn all_differences_are_reported_at_once_and_nothing_changes() {
        let mut other = Parameters::<f64>::new();
        for (name, shape) in [("conv.weight", &[3, 2][..]), ("head.bias", &[1])] {
            let count = shape.iter().product();
            other.add(name, shape, Role::Weight, vec![7.0; count]).unwrap();
        }
        let error = other.load(&archive_of(&parameters::<f64>(1.0)), "weights").unwrap_err();
        let NnError::Mismatch { differences } = error else { panic!("{error}") };
        let names = ["conv.weight", "head.bias", "conv.bias", "norm.mean"];
        assert_eq!(differences.len(), names.len());
        for (difference, name) in differences.iter().zip(names) {
            assert!(difference.contains(name), "{difference}");
        }
        assert!(other.iter().all(|e| e.value().iter().all(|&v| v == 7.0)));
    }

    #[test]
    fn bad_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad");
        assert!(matches!(Archive::read(&path), Err(NnError::File { .. })));
        let bytes = archive_of(&parameters::<f32>(1.0)).to_bytes().unwrap();
        for end in [0, 7, 8, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            assert!(matches!(Archive::read(&path), Err(NnError::Archive { .. })));
        }
        let good = Archive::from_bytes(&bytes).unwrap();
        assert!(good.json::<u32>("epoch").is_err());
        assert!(good.tensor::<f32>("nothing").is_err());
        assert!(good.write(folder.path().join("no/such/folder")).is_err());
    }
}
