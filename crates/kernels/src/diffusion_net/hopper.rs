//! The block on GPUs of compute capability 9.0: the parts that its kernels share, and the work on spectra.
//! [`half`](super::half) has the passes.
//!
//! A tile of rows stays in registers from the gradients of diffused scalars to the result, and back. What is linear in
//! the spectrum `S` of a mesh is applied there: `A g` comes from the gradients of eigenvectors and `S a^T`, `S b^T`,
//! the part of `W1` that reads diffused scalars from eigenvectors and `S W1d^T`. So diffused scalars are never
//! computed, and the gradients of these maps are products of spectra. The backward pass computes `g` and `A g` again.

use super::cuda::{Streams, aligned_copy};
use super::{DiffusionNet, Weights};
use crate::cuda::{
    Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, ProductMode, Result, args,
};
use crate::diffusion::cuda::Batch;
use crate::diffusion::{Diffusion, Spectra};

/// Channels and eigenvectors: C there.
pub(super) const C: usize = 128;
/// Numbers of a factor.
pub(super) const FACTOR: usize = C * C;
/// Rows of a tile: TILE_ROWS there.
pub(super) const TILE: usize = 128;
/// Factors of all rows, and of each mesh, as there.
const SHARED_FACTORS: usize = 8;
const MESH_FACTORS: usize = 4;
/// Blocks of threads, as there: for the factors of all rows, for products with a spectrum and for its gradient, for the
/// gradients of the biases and layers, and for those of filters and maps.
const SHARED_BLOCKS: usize = 4 * SHARED_FACTORS;
const MAP_BLOCKS: usize = 12;
const SPECTRUM_BLOCKS: usize = 16;
const GRADIENT_BLOCKS: usize = 3 * C / 8 + 4 * FACTOR / 256;
const PARAMETER_BLOCKS: usize = 2 * C / 32 + 3 * FACTOR / 256;
/// Index of the largest gradient of the spectra among the measured numbers; the same in the kernels.
const LARGEST_SPECTRUM: usize = 14;
/// Warps of a block of threads that multiply, each with its sums for biases.
pub(super) const WARPS: usize = 8;

/// True if these kernels can do the work.
pub(super) fn applies(device: &CudaDevice, op: &DiffusionNet) -> bool {
    device.product_mode() != ProductMode::F32
        && device.capability() == (9, 0)
        && op.channels == C
        && op.columns.first() == Some(&C)
        && op.diffusion().gradient_block().is_multiple_of(4)
}

/// Numbers of the masks of a tile.
pub(super) const TILE_MASKS: usize = 2 * TILE * C / 32;

/// Offsets of the parts of the buffer that is saved in place of `A g`: packed factors, spectra, biases, measured
/// numbers, and masks of both activations.
pub(super) struct Places {
    pub spectra: usize,
    pub biases: usize,
    pub measured: usize,
    pub masks: usize,
}

impl Places {
    /// With `measured` numbers that were measured.
    pub fn new(meshes: usize, measured: usize) -> Self {
        let spectra = (SHARED_FACTORS + MESH_FACTORS * meshes) * FACTOR / 2;
        let biases = spectra + meshes * FACTOR;
        let place = biases + 3 * C;
        Self { spectra, biases, measured: place, masks: place + measured }
    }
}

/// What scales of packed numbers follow from: what was measured of the eigenvectors and of a block. Empty where there
/// are no scales.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub bases: DeviceSlice<'a, f32>,
    pub block: DeviceSlice<'a, f32>,
}

impl<'a> Measured<'a> {
    /// As arguments of a kernel.
    pub fn arguments(&self) -> [Arg; 2] {
        *args![self.bases, self.block]
    }

    /// What was measured of a block, from the `entry`-th number on.
    pub fn entry(&self, entry: usize) -> DeviceSlice<'a, f32> {
        if self.block.is_empty() { self.block } else { self.block.from(entry) }
    }
}

/// A block on a batch.
pub(super) struct Block<'a> {
    pub device: &'a CudaDevice,
    pub source: KernelSource,
    pub diffusion: Diffusion,
    pub batch: Batch<'a>,
    pub spectra: Spectra<DeviceSlice<'a, f32>>,
    pub rows: usize,
}

impl<'a> Block<'a> {
    pub fn new(
        device: &'a CudaDevice,
        source: KernelSource,
        op: &DiffusionNet,
        mesh_offsets: &'a [u32],
        spectra: Spectra<DeviceSlice<'a, f32>>,
    ) -> Self {
        let diffusion = op.diffusion();
        Self {
            device,
            source,
            batch: Batch::new(device, &diffusion, mesh_offsets, spectra),
            diffusion,
            spectra,
            rows: spectra.mass.len(),
        }
    }

    /// Gradients of the scalar eigenvectors.
    pub fn gradients(&self) -> DeviceSlice<'a, f32> {
        let start = self.rows * self.diffusion.gradient_block();
        self.spectra.bases.from(start)
    }

    /// Blocks of threads for the tiles of some meshes, which can be divided in two.
    pub fn blocks(&self, size: usize, meshes: usize) -> usize {
        let parts = 2 * size.div_ceil(TILE) * meshes;
        self.device.multiprocessors().min(parts)
    }

    /// Blocks of threads of a pass over all tiles.
    pub fn all_blocks(&self) -> usize {
        let runs = self.batch.runs();
        runs.map(|(range, _, n)| self.blocks(range.len(), n)).sum()
    }

    /// Launches a pass over tiles, once for each run of meshes of one size. `last(blocks of threads before this
    /// launch)`: arguments behind the others.
    ///
    /// # Safety
    /// The arguments are those of the kernel after `first_mesh`, with a row for each vertex.
    pub unsafe fn pass<const N: usize>(
        &self,
        name: &'static str,
        shared_bytes: usize,
        arguments: &[Arg],
        last: impl Fn(usize) -> [Arg; N],
    ) -> Result<()> {
        let blocks = |size, meshes| self.blocks(size, meshes);
        // SAFETY: the caller vouches for it.
        unsafe { self.launch(name, (384, shared_bytes), blocks, arguments, last) }
    }

    /// The same for any number of threads, and of blocks for some meshes of one size.
    ///
    /// # Safety
    /// As that of [`pass`](Self::pass).
    pub unsafe fn launch<const N: usize>(
        &self,
        name: &'static str,
        (threads, shared_bytes): (usize, usize),
        blocks: impl Fn(usize, usize) -> usize,
        arguments: &[Arg],
        last: impl Fn(usize) -> [Arg; N],
    ) -> Result<()> {
        let (mut before, mut tiles_before) = (0, 0);
        for (range, mesh, meshes) in self.batch.runs() {
            let tiles = range.len().div_ceil(TILE);
            let blocks = blocks(range.len(), meshes);
            let first: &[Arg] = args![range.start, range.len(), tiles, tiles * meshes, tiles_before, mesh];
            let all = [first, arguments, &last(before)].concat();
            let function = self.device.function_with_shared(self.source, &[], name, shared_bytes)?;
            // SAFETY: the caller vouches for it.
            unsafe { function.run((blocks, 1), (threads, 1), &all)? };
            before += blocks;
            tiles_before += tiles * meshes;
        }
        Ok(())
    }

    /// All factors, the spectra and the biases of a block from raw spectra of slabs, in `factors`.
    pub fn spectra_forward(
        &self,
        (raw, slabs): (DeviceSlice<'_, f32>, usize),
        weights: &Weights<DeviceSlice<'_, f32>>,
        spectrum: &DeviceSliceMut<'_, f32>,
        factors: DeviceSlice<'_, f32>,
        places: &Places,
        measured: Measured<'_>,
    ) -> Result<()> {
        let (device, meshes) = (self.device, self.batch.meshes());
        let maps = Maps::new(device, weights)?;
        let (product, scalars) = maps.of(weights);
        let filtered = factors.from(places.spectra);
        let width = width(slabs);
        // SAFETY: every mesh has as many slabs, and its part of what is saved; there is room for all factors, and for
        // the spectra and the biases behind them. The weights were checked.
        unsafe {
            let w = weights;
            let spectra: &[Arg] = args![raw, slabs, width, self.spectra.eigenvalues, w.log_times, w.bands];
            let maps: &[Arg] = args![w.scalars, w.invariants, w.hidden, w.update];
            let biases: &[Arg] = args![w.scalars_bias, w.hidden_bias, w.update_bias];
            let results: &[Arg] = args![spectrum, filtered, factors, factors.from(places.biases)];
            let arguments = [spectra, maps, biases, results, &measured.arguments()].concat();
            let blocks = SHARED_BLOCKS + meshes * (FACTOR / width);
            let function = device.function(self.source, &[], "filter_spectra")?;
            function.run((blocks, 1), (256, 1), &arguments)?;
            let arguments = args![filtered, product, scalars, factors, measured.bases, measured.block];
            let function = device.function(self.source, &[], "spectra_forward")?;
            function.run((meshes * MAP_BLOCKS, 1), (256, 1), arguments)
        }
    }

    /// Adds to the gradients of all parameters. The result is the gradient of the raw spectra, as packed factors.
    /// `spectra`: the filtered ones; `saved`: the raw ones.
    pub fn spectra_backward(
        &self,
        sums: Sums<'_>,
        weights: &Weights<DeviceSlice<'_, f32>>,
        saved: &DeviceSliceMut<'_, f32>,
        spectra: DeviceSlice<'_, f32>,
        gradients: &Weights<DeviceSliceMut<'_, f32>>,
        measured: Measured<'_>,
    ) -> Result<DeviceBuffer<f32>> {
        let (device, meshes) = (self.device, self.batch.meshes());
        let dmaps: DeviceBuffer<f32> = device.buffer(3 * meshes * FACTOR)?;
        let dspectra: DeviceBuffer<f32> = device.buffer(meshes * FACTOR)?;
        let packed: DeviceBuffer<f32> = device.buffer(meshes * FACTOR / 2)?;
        let filter_parts = meshes * (C / 32);
        let filter_sums: DeviceBuffer<f32> = device.buffer(filter_parts * 2 * C)?;
        // Parts of two meshes, if they are not many.
        let meshes_of_part = meshes.div_ceil(16).max(2);
        let map_parts = meshes.div_ceil(meshes_of_part);
        let map_sums: DeviceBuffer<f32> = device.buffer(map_parts * 3 * FACTOR)?;
        let maps = Maps::new(device, weights)?;
        let (product, scalars) = maps.of(weights);
        let width = width(sums.vectors.1);
        // SAFETY: every mesh has as many slabs of these sizes, and its part of the results; every block of threads has
        // its sums. There are as many partial sums of each kind, and the lengths of the gradients were checked.
        unsafe {
            let (to, first) = (gradients, sums.first);
            let layers: &[Arg] = args![sums.biases.0, sums.biases.1, sums.update, sums.hidden, first.0, first.1];
            let spectral: &[Arg] = args![sums.scalars.0, sums.scalars.1, sums.vectors.0, sums.vectors.1, width];
            let biases: &[Arg] = args![&to.scalars_bias, &to.hidden_bias, &to.update_bias];
            let maps: &[Arg] = args![&to.update, &to.hidden, &to.invariants, &to.scalars, &dmaps, &dspectra];
            let blocks = GRADIENT_BLOCKS + meshes * 4 * (FACTOR / width);
            let function = device.function(self.source, &[], "sum_gradients")?;
            function.run((blocks, 1), (256, 1), &[layers, spectral, biases, maps].concat())?;
            let (eigenvalues, log_times, bands) = (self.spectra.eigenvalues, weights.log_times, weights.bands);
            let given: &[Arg] = args![&dmaps, spectra, meshes, meshes_of_part, product, scalars, saved];
            let filters: &[Arg] = args![eigenvalues, log_times, bands, &dspectra, &filter_sums, &map_sums];
            let arguments = [given, filters, args![measured.entry(LARGEST_SPECTRUM)]].concat();
            let blocks = meshes * SPECTRUM_BLOCKS + map_parts * (3 * FACTOR / (32 * 32));
            let function = device.function(self.source, &[], "spectra_backward")?;
            function.run((blocks, 1), (256, 1), &arguments)?;
            let given: &[Arg] = args![&dspectra, meshes, &packed, measured.block];
            let parts: &[Arg] = args![&filter_sums, filter_parts, &map_sums, map_parts];
            let results: &[Arg] = args![&to.log_times, &to.bands, &to.product, &to.scalars];
            let function = device.function(self.source, &[], "add_gradients")?;
            let blocks = 8 * meshes + PARAMETER_BLOCKS;
            function.run((blocks, 1), (256, 1), &[given, parts, results].concat())?;
        }
        Ok(packed)
    }
}

/// Numbers of a matrix that a block of threads sums over slabs, so that a thread sums eight or fewer, if they are not
/// many.
fn width(slabs: usize) -> usize {
    1024 / slabs.div_ceil(8).next_power_of_two().min(16)
}

/// Partial sums over rows, with their numbers: for `W3`, `W2` and `[W1p | W1x]`, of which there are equally many, for
/// the biases, and for the spectra, with their numbers of each mesh.
pub(super) struct Sums<'a> {
    pub update: DeviceSlice<'a, f32>,
    pub hidden: DeviceSlice<'a, f32>,
    pub first: (DeviceSlice<'a, f32>, usize),
    pub biases: (DeviceSlice<'a, f32>, usize),
    pub scalars: (DeviceSlice<'a, f32>, usize),
    pub vectors: (DeviceSlice<'a, f32>, usize),
}

/// Copies of the maps that apply to spectra, in place of those that are not aligned for loads of four.
struct Maps {
    product: Option<DeviceBuffer<f32>>,
    scalars: Option<DeviceBuffer<f32>>,
}

impl Maps {
    fn new(device: &CudaDevice, weights: &Weights<DeviceSlice<'_, f32>>) -> Result<Self> {
        Ok(Self { product: aligned_copy(device, weights.product)?, scalars: aligned_copy(device, weights.scalars)? })
    }

    /// `A`, and the columns of `W1` for `[x | d]`.
    fn of<'a>(&'a self, weights: &Weights<DeviceSlice<'a, f32>>) -> (DeviceSlice<'a, f32>, DeviceSlice<'a, f32>) {
        let or = |copy: &'a Option<DeviceBuffer<f32>>, own| match copy {
            Some(copy) => copy.view(),
            None => own,
        };
        (or(&self.product, weights.product), or(&self.scalars, weights.scalars))
    }
}

/// Both streams as arguments. An empty one is a null pointer, which kernels do not read.
pub(super) fn stream_arguments(streams: Streams<'_>) -> [(DeviceSlice<'_, u64>, u64); 2] {
    match streams {
        Some(streams) => streams.map(|(stream, salt)| (stream.view(), salt)),
        None => [(DeviceSlice::empty(), 0); 2],
    }
}
