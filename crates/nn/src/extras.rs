//! What models read of a mesh besides its graphs: at most one value of each type.

use crate::error::check_size;
use crate::{Device, Result};
use gemcnn_kernels::cuda::CudaDevice;
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// A kind of geometry of a mesh, or of the meshes of a batch, that modules read with
/// [`Levels::get`](crate::Levels::get). A new kind implements this trait and nothing else changes: batches join it,
/// threads that prepare batches send it ahead, and caches in memory count it.
pub trait Extra<T>: Any + fmt::Debug + Send + Sync {
    /// What a mesh has or lacks, for messages, such as `eigenvectors`.
    fn name() -> &'static str
    where
        Self: Sized;

    /// Joins those of several batches, in the order of the meshes. The arrays of the result are not on a GPU.
    ///
    /// # Errors
    /// Parts that do not fit together.
    fn join(parts: &[&Self]) -> Result<Self>
    where
        Self: Sized;

    /// True if it belongs to meshes with these first vertices, and this number of vertices at the end.
    fn fits(&self, mesh_offsets: &[u32]) -> bool;

    /// Approximate size of its arrays on a device in bytes.
    fn size_in_bytes(&self, device: &Device) -> usize;

    /// Copies to a device what the next step reads there and is not there yet. On the CPU, computes ahead of the step
    /// what the step would otherwise compute.
    ///
    /// # Errors
    /// Too little memory.
    fn send(&self, device: &Device) -> Result<()>;

    /// A copy whose arrays on a GPU are its own, and are freed with it (default: joined alone).
    fn detached(&self) -> Result<Self>
    where
        Self: Sized,
    {
        Self::join(&[self])
    }

    /// What its arrays are computed from on a GPU, which stays there as long as it is kept (default: nothing).
    fn origins(&self) -> impl Iterator<Item = &Arc<Self>>
    where
        Self: Sized,
    {
        std::iter::empty()
    }

    /// Numbers that two batches must have in common so that a step captured on one can be replayed on the other
    /// (default: none).
    fn shape(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The same with arrays of its own on a GPU, which [`overwrite`](Self::overwrite) changes, for a captured step. The
    /// default is `None`: operators that read it call [`Context::reads_fixed_data`](crate::Context::reads_fixed_data),
    /// and their steps are not captured.
    fn place_on(&self, _device: &CudaDevice) -> Result<Option<Self>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Copies another one of the same shape over this one, on a GPU (default: nothing).
    fn overwrite(&self, _device: &CudaDevice, _with: &Self) -> Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// An extra, or an origin of one, of any type.
pub type SharedExtra = Arc<dyn Any + Send + Sync>;

/// An [`Extra`] of any type.
pub(crate) trait AnyExtra<T>: Extra<T> {
    fn name_of(&self) -> &'static str;
    fn equals(&self, other: &dyn AnyExtra<T>) -> bool;
    fn join_all(&self, parts: &[&Arc<dyn AnyExtra<T>>]) -> Result<Arc<dyn AnyExtra<T>>>;
    fn detached_any(&self) -> Result<Arc<dyn AnyExtra<T>>>;
    fn keeps_origins(&self, device: &Device, keep: &dyn Fn(SharedExtra, usize) -> bool) -> bool;
    fn place_any_on(&self, device: &CudaDevice) -> Result<Option<Arc<dyn AnyExtra<T>>>>;
    fn overwrite_any(&self, device: &CudaDevice, with: &dyn AnyExtra<T>) -> Result<()>;
}

pub(crate) fn as_type<T: 'static, E: 'static>(extra: &dyn AnyExtra<T>) -> Option<&E> {
    (extra as &dyn Any).downcast_ref()
}

fn type_of<T: 'static>(extra: &Arc<dyn AnyExtra<T>>) -> TypeId {
    (&**extra as &dyn Any).type_id()
}

impl<T: 'static, E: Extra<T> + PartialEq> AnyExtra<T> for E {
    fn name_of(&self) -> &'static str {
        E::name()
    }

    fn equals(&self, other: &dyn AnyExtra<T>) -> bool {
        as_type(other) == Some(self)
    }

    fn join_all(&self, parts: &[&Arc<dyn AnyExtra<T>>]) -> Result<Arc<dyn AnyExtra<T>>> {
        Ok(Arc::new(E::join(&parts.iter().filter_map(|part| as_type(&***part)).collect::<Vec<&E>>())?))
    }

    fn detached_any(&self) -> Result<Arc<dyn AnyExtra<T>>> {
        Ok(Arc::new(self.detached()?))
    }

    fn keeps_origins(&self, device: &Device, keep: &dyn Fn(SharedExtra, usize) -> bool) -> bool {
        self.origins().all(|own| Arc::strong_count(own) == 1 || keep(own.clone(), own.size_in_bytes(device)))
    }

    fn place_any_on(&self, device: &CudaDevice) -> Result<Option<Arc<dyn AnyExtra<T>>>> {
        Ok(self.place_on(device)?.map(|placed| Arc::new(placed) as _))
    }

    fn overwrite_any(&self, device: &CudaDevice, with: &dyn AnyExtra<T>) -> Result<()> {
        as_type(with).map_or(Ok(()), |with| self.overwrite(device, with))
    }
}

impl<T: 'static> PartialEq for dyn AnyExtra<T> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

/// What is known of a mesh, or of the meshes of a batch, besides its graphs: at most one [`Extra`] of each type, in the
/// order of their names. Clones share them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras<T: 'static>(Vec<Arc<dyn AnyExtra<T>>>);

impl<T: 'static> Extras<T> {
    /// The extra of a type.
    pub fn get<E: Extra<T>>(&self) -> Option<&E> {
        self.0.iter().find_map(|extra| as_type(&**extra))
    }

    /// The same, shared.
    pub fn shared<E: Extra<T>>(&self) -> Option<Arc<E>> {
        self.0.iter().find_map(|extra| (Arc::clone(extra) as SharedExtra).downcast().ok())
    }

    /// Adds an extra. It takes the place of one of the same type.
    pub fn insert<E: Extra<T> + PartialEq>(&mut self, extra: Arc<E>) {
        match self.0.iter_mut().find(|other| type_of(other) == TypeId::of::<E>()) {
            Some(other) => *other = extra,
            None => self.0.insert(self.0.partition_point(|other| other.name_of() <= E::name()), extra),
        }
    }

    /// Approximate size of their arrays on a device in bytes.
    pub fn size_in_bytes(&self, device: &Device) -> usize {
        self.0.iter().map(|extra| extra.size_in_bytes(device)).sum()
    }

    /// The extras of one mesh for a batch. Those that have other owners, and will be needed again, are offered to
    /// `keep` with their sizes on the device: where it returns false, they are [detached](Extra::detached).
    pub fn for_batch(&self, device: &Device, keep: &dyn Fn(SharedExtra, usize) -> bool) -> Result<Self> {
        let kept = |extra: &Arc<dyn AnyExtra<T>>| {
            let is_kept = || Arc::strong_count(extra) == 1 || keep(extra.clone(), extra.size_in_bytes(device));
            if extra.keeps_origins(device, keep) && is_kept() { Ok(Arc::clone(extra)) } else { extra.detached_any() }
        };
        self.0.iter().map(kept).collect::<Result<_, _>>().map(Self)
    }

    /// All extras.
    pub(crate) fn all(&self) -> &[Arc<dyn AnyExtra<T>>] {
        &self.0
    }

    /// The same with arrays of their own on a GPU, for a captured step, where they are read by one.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self> {
        let place = |extra: &Arc<dyn AnyExtra<T>>| Ok(extra.place_any_on(device)?.unwrap_or_else(|| Arc::clone(extra)));
        self.0.iter().map(place).collect::<Result<_, _>>().map(Self)
    }

    /// Joins the extras of batches.
    pub(crate) fn join(batches: &[&Self]) -> Result<Self> {
        let most = batches.iter().max_by_key(|extras| extras.0.len());
        let join = |extra: &Arc<dyn AnyExtra<T>>| {
            let all = batches.iter().map(|extras| extras.0.iter().find(|other| type_of(other) == type_of(extra)));
            let parts: Vec<_> = all.flatten().collect();
            check_size(format!("batches with {}", extra.name_of()), batches.len(), parts.len())?;
            extra.join_all(&parts)
        };
        most.iter().flat_map(|extras| &extras.0).map(join).collect::<Result<_, _>>().map(Self)
    }
}
