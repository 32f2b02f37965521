//! The passes of the block on GPUs of compute capability 9.0, in 16 bits: bf16, or fp16 with scales instead of tf32.
//!
//! Matrices over all vertices are packed, in tiles of 128 rows of one mesh. Among them are the eigenvectors and their
//! gradients, which all blocks and both passes share. Saved are `p`, `x`, `h1` and `h2` in 16 bits, and the factors of
//! all products with rows.
//!
//! fp16 has the mantissa of tf32, and a smaller range. Each packed matrix therefore has a scale, a power of two, which
//! follows from bounds on its numbers (`scales.cu`). Kernels measure what the bounds need beforehand: the largest
//! numbers of `x` and of the gradients of `y` and of the spectra, norms of eigenvectors and weights and, in the forward
//! pass, the largest numbers of `g` and `A g`.
//!
//! Gain on an H200 (`bench/compare`): on the path of other GPUs a training step of `diffusion` takes 117 to 148 % longer,
//! one of `segmentation` 146 to 227 %.

use super::cuda::Streams;
use super::hopper::{Block, C, FACTOR, Measured, Places, Sums, TILE, TILE_MASKS, WARPS, stream_arguments};
use super::{DiffusionNet, Saved, Weights};
use crate::cuda::{
    Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, ProductMode, Result, args,
};
use crate::diffusion::Spectra;
use crate::dropout::{scale, threshold};

macro_rules! source {
    ($name:literal, $definition:literal) => {
        KernelSource::new(
            $name,
            concat!(
                $definition,
                include_str!("../cuda/hopper.cu"),
                include_str!("../dropout/philox.cu"),
                include_str!("../diffusion/filter.cu"),
                include_str!("scales.cu"),
                include_str!("factors.cu"),
                include_str!("rows.cu"),
                include_str!("half_precision_tiles.cu"),
                include_str!("half_precision.cu")
            ),
        )
    };
}

pub(crate) const BF16: KernelSource = source!("diffusion_net_bf16", "#define FP16 0\n");
pub(crate) const FP16: KernelSource = source!("diffusion_net_fp16", "#define FP16 1\n");

/// The kernels for the present mode of products.
fn source(device: &CudaDevice) -> KernelSource {
    match device.product_mode() {
        ProductMode::Bf16 => BF16,
        _ => FP16,
    }
}

/// How many numbers are measured of eigenvectors, and of a block.
fn measured_count(device: &CudaDevice) -> usize {
    match device.product_mode() {
        ProductMode::Bf16 => 0,
        _ => 16,
    }
}

/// Place of the largest number of the gradient of `y` among those of a block: LARGEST_DY there.
const LARGEST_GRADIENT: usize = 13;
/// Blocks of threads that measure weights, and at most as many that measure rows: four of all for each multiprocessor.
const WEIGHT_BLOCKS: usize = 7 * 16 + 1;
const MEASURING_BLOCKS: usize = 396;

/// Numbers in f32 that take the memory of a packed tile.
const TILE_WORDS: usize = TILE * C / 2;
/// Shared memory of a block of threads, from a multiple of 1,024 bytes on: half tiles and halves of factors of 16 KB.
const SHARED_BYTES: usize = (8 + 6) * (16 << 10) + 1024;
const INPUT_BYTES: usize = (2 + 4 * 3) * (16 << 10) + 1024;
const PRODUCT_BYTES: usize = 12 * (16 << 10) + 1024;
/// Packed matrices of eigenvectors: themselves, times masses, and both components of their gradients.
const BASES: usize = 4;

/// Room for the tiles of some meshes.
fn tiles(vertices: usize, meshes: usize) -> usize {
    vertices / TILE + meshes
}

/// Lengths of the saved buffers.
pub(super) fn saved(device: &CudaDevice, op: &DiffusionNet, vertices: usize, meshes: usize) -> Saved<usize> {
    let tiles = tiles(vertices, meshes);
    Saved {
        features: 2 * tiles * TILE_WORDS,
        mapped: Places::new(meshes, measured_count(device)).masks + tiles * TILE_MASKS,
        first: tiles * TILE_WORDS,
        second: tiles * TILE_WORDS,
        spectrum: op.diffusion().saved_count(meshes),
    }
}

impl Block<'_> {
    /// Numbers in f32 that take the memory of a packed matrix over all vertices.
    fn words(&self) -> usize {
        tiles(self.rows, self.batch.meshes()) * TILE_WORDS
    }

    /// The packed eigenvectors, and what was measured of them.
    fn pack_bases(&self) -> Result<DeviceBuffer<f32>> {
        let packed: DeviceBuffer<f32> = self.device.buffer(self.bases_length())?;
        let (basis, mass) = (self.spectra.bases, self.spectra.mass);
        let measured = packed.view().from(BASES * self.words());
        self.clear_statistics(measured)?;
        if !measured.is_empty() {
            let arguments = args![basis, self.gradients(), mass, measured];
            let blocks = |size: usize, meshes: usize| (size * meshes).div_ceil(8).min(MEASURING_BLOCKS);
            // SAFETY: all have a row for each vertex, and there is room for what is measured.
            unsafe { self.launch("measure_bases", (256, 0), blocks, arguments, |_| [])? };
        }
        let arguments = args![basis, self.gradients(), mass, &packed, self.stride(), measured];
        let blocks = |size: usize, meshes| meshes * size.div_ceil(TILE) * (TILE * C / 8 / 256);
        // SAFETY: there is room for the tiles of all matrices.
        unsafe { self.launch("pack_bases", (256, 0), blocks, arguments, |_| [])? };
        Ok(packed)
    }

    /// Length of the packed eigenvectors.
    fn bases_length(&self) -> usize {
        packed_length(self.device, self.rows, self.batch.meshes())
    }

    /// The same if none were given.
    fn own_bases(&self) -> Result<Option<DeviceBuffer<f32>>> {
        let given = self.spectra.packed.len() == self.bases_length();
        (!given).then(|| self.pack_bases()).transpose()
    }

    /// The measured numbers of the eigenvectors, and those of the block in `factors`.
    fn measured<'b>(
        &self,
        bases: DeviceSlice<'b, f32>,
        factors: DeviceSlice<'b, f32>,
        places: &Places,
    ) -> Measured<'b> {
        Measured { bases: bases.from(BASES * self.words()), block: factors.slice(places.measured..places.masks) }
    }

    /// Clears what was measured, in a kernel: the next one is launched while it ends.
    fn clear_statistics(&self, measured: DeviceSlice<'_, f32>) -> Result<()> {
        if measured.is_empty() {
            return Ok(());
        }
        let function = self.device.function(self.source, &[], "clear_statistics")?;
        // SAFETY: it writes to all of these numbers.
        unsafe { function.over(measured.len(), args![measured, measured.len() as u64]) }
    }

    /// Measures rows of `C` numbers and, if they are given, the weights.
    fn measure(
        &self,
        rows: DeviceSlice<'_, f32>,
        measured: Measured<'_>,
        entry: usize,
        weights: Option<&Weights<DeviceSlice<'_, f32>>>,
    ) -> Result<()> {
        if measured.block.is_empty() {
            return Ok(());
        }
        let quads = rows.len() / 4;
        let blocks = quads.div_ceil(256).min(MEASURING_BLOCKS);
        let blocks = blocks + weights.map_or(0, |_| WEIGHT_BLOCKS);
        let given = match weights {
            Some(w) => [w.bands, w.product, w.scalars, w.invariants, w.hidden, w.update, w.scalars_bias, w.hidden_bias],
            None => [DeviceSlice::empty(); 8],
        };
        let first: &[Arg] = args![rows, quads, measured.entry(entry), measured.block];
        let function = self.device.function(self.source, &[], "largest")?;
        let arguments = [first, &given.map(Arg::from)].concat();
        // SAFETY: the weights were checked, and there is room for what is measured.
        unsafe { function.run((blocks, 1), (256, 1), &arguments) }
    }

    /// Packed numbers from one matrix to the next.
    fn stride(&self) -> u64 {
        2 * self.words() as u64
    }

    /// Slabs of each mesh, one for each multiprocessor.
    fn slabs(&self) -> usize {
        let wanted = self.device.multiprocessors() / self.batch.meshes();
        wanted.clamp(1, self.most_slabs())
    }

    /// Slabs of each mesh for the products over rows, so that the largest reads as little as possible: two kinds read
    /// four matrices, the vectors six.
    fn product_slabs(&self) -> (usize, usize) {
        let (all, most) = (self.device.multiprocessors(), self.most_slabs());
        let of_mesh = (all / self.batch.meshes()).max(3);
        let choices = (1..=(of_mesh - 1) / 2).map(|slabs| (slabs, of_mesh - 2 * slabs));
        let bytes = |(slabs, vectors): &(usize, usize)| (4000 / slabs).max(6000 / vectors);
        let (slabs, vectors) = choices.min_by_key(bytes).unwrap_or((1, 1));
        (slabs.min(most), vectors.min(most))
    }

    /// Half tiles of the largest mesh.
    fn most_slabs(&self) -> usize {
        let largest = self.batch.runs().map(|(range, ..)| range.len()).max();
        2 * largest.unwrap_or(1).div_ceil(TILE)
    }

    /// Memory for sums of `size` numbers of all slabs. Those of empty meshes are zero.
    fn sums(&self, slabs: usize, size: usize) -> Result<DeviceBuffer<f32>> {
        let mut sums = self.device.buffer(self.batch.meshes() * slabs * size)?;
        let filled: usize = self.batch.runs().map(|(_, _, meshes)| meshes).sum();
        if filled < self.batch.meshes() {
            self.device.clear(sums.view_mut())?;
        }
        Ok(sums)
    }
}

/// Length of the packed eigenvectors of meshes with `rows` vertices together.
pub(super) fn packed_length(device: &CudaDevice, rows: usize, meshes: usize) -> usize {
    BASES * tiles(rows, meshes) * TILE_WORDS + measured_count(device)
}

/// As [`packed_bases`](super::cuda::packed_bases), for work that was checked and to which this applies.
pub(super) fn packed_bases(
    device: &CudaDevice,
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    spectra: Spectra<DeviceSlice<'_, f32>>,
) -> Result<DeviceBuffer<f32>> {
    Block::new(device, source(device), op, mesh_offsets, spectra).pack_bases()
}

/// As [`forward`](super::cuda::forward), for work that was checked and to which this applies.
#[allow(clippy::too_many_arguments)]
pub(super) fn forward<'a>(
    device: &'a CudaDevice,
    op: &DiffusionNet,
    mesh_offsets: &'a [u32],
    spectra: Spectra<DeviceSlice<'a, f32>>,
    weights: Weights<DeviceSlice<'_, f32>>,
    streams: Streams<'_>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
    saved: Saved<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let block = Block::new(device, source(device), op, mesh_offsets, spectra);
    let own_bases = block.own_bases()?;
    let bases = own_bases.as_ref().map_or(spectra.packed, DeviceBuffer::view);
    let (features, words) = (saved.features.view(), block.words());
    let own = features.from(words);
    let slabs = block.slabs();
    let raw = block.sums(slabs, FACTOR)?;
    let drop = streams.map_or(1.0, |_| scale(op.dropout) as f32);
    let places = Places::new(block.batch.meshes(), measured_count(device));
    let factors = saved.mapped.view();
    let measured = block.measured(bases, factors, &places);
    block.clear_statistics(measured.block)?;
    block.measure(x, measured, 0, Some(&weights))?;
    let [(one, one_salt), (two, two_salt)] = stream_arguments(streams);
    let masks = factors.from(places.masks);
    let input: &[Arg] = args![x, bases.from(words), slabs, own, &raw];
    let drops: &[Arg] = args![one, one_salt, two, two_salt, threshold(op.dropout), masks];
    let arguments = [input, drops, &measured.arguments()].concat();
    // SAFETY: all have a row for each vertex, and there are sums for all slabs.
    unsafe {
        let blocks = |_, meshes| meshes * slabs;
        block.launch("read_input", (512, INPUT_BYTES), blocks, &arguments, |_| [])?;
    }
    let raw = (raw.view(), slabs);
    block.spectra_forward(raw, &weights, &saved.spectrum, factors, &places, measured)?;
    let maps: &[Arg] = args![bases, block.stride(), factors, factors.from(places.biases), one, drop];
    let rows: &[Arg] = args![x, own, features, &saved.first, &saved.second, &y, masks];
    let arguments = [maps, rows, &measured.arguments()].concat();
    // SAFETY: all have a row for each vertex.
    unsafe { block.pass("block_forward", SHARED_BYTES, &arguments, |_| []) }
}

/// As [`backward`](super::cuda::backward), for work that was checked and to which this applies.
#[allow(clippy::too_many_arguments)]
pub(super) fn backward<'a>(
    device: &'a CudaDevice,
    op: &DiffusionNet,
    mesh_offsets: &'a [u32],
    factor: f32,
    spectra: Spectra<DeviceSlice<'a, f32>>,
    weights: Weights<DeviceSlice<'_, f32>>,
    saved: Saved<DeviceSliceMut<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    gradients: Weights<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let block = Block::new(device, source(device), op, mesh_offsets, spectra);
    let own_bases = block.own_bases()?;
    let bases = own_bases.as_ref().map_or(spectra.packed, DeviceBuffer::view);
    let (meshes, words, stride) = (block.batch.meshes(), block.words(), block.stride());
    let (features, factors) = (saved.features.view(), saved.mapped.view());
    let places = Places::new(meshes, measured_count(device));
    let measured = block.measured(bases, factors, &places);
    block.measure(dy, measured, LARGEST_GRADIENT, None)?;
    let bias_parts = block.all_blocks() * WARPS;
    let bias_sums: DeviceBuffer<f32> = device.buffer(bias_parts * 3 * C)?;
    // Gradients of y, before both activations, and of the vectors.
    let packed: DeviceBuffer<f32> = device.buffer(7 * words)?;
    let [dlast, dsecond, dfirst, dvectors] = [0, 1, 2, 3].map(|at| packed.view().from(at * words));
    let dx_here = dx.as_ref().map_or(DeviceSlice::empty(), |dx| dx.view());
    let given: &[Arg] = args![bases, stride, dy, factors, factors.from(places.masks), factor];
    let results: &[Arg] = args![dlast, dsecond, dfirst, dvectors, dx_here];
    let arguments = [given, results, &measured.arguments()].concat();
    // SAFETY: all have a row for each vertex, and there are sums for each warp of all launches. The kernel does not
    // write to a null pointer for dx.
    unsafe {
        block.pass("block_backward", SHARED_BYTES, &arguments, |before| {
            let from = before * WARPS * 3 * C;
            [Arg::from(bias_sums.view().from(from))]
        })?;
    }
    let (slabs, vector_slabs) = block.product_slabs();
    let update_sums = block.sums(slabs, FACTOR)?;
    let hidden_sums = block.sums(slabs, FACTOR)?;
    let first_sums = block.sums(slabs, 2 * FACTOR)?;
    let scalar_sums = block.sums(slabs, FACTOR)?;
    let vector_sums = block.sums(vector_slabs, 3 * FACTOR)?;
    let shape: &[Arg] = args![bases, stride, slabs, vector_slabs];
    let pairs: &[Arg] =
        args![dlast, &saved.second, dsecond, &saved.first, dfirst, features, features.from(words), dvectors];
    let sums: &[Arg] = args![&update_sums, &hidden_sums, &first_sums, &scalar_sums, &vector_sums];
    let arguments = [shape, pairs, sums, &measured.arguments(), args![factor]].concat();
    // SAFETY: as above, and there are sums for all slabs.
    unsafe {
        let blocks = |_, meshes| meshes * (2 * slabs + vector_slabs);
        let shape = (384, PRODUCT_BYTES);
        block.launch("row_products", shape, blocks, &arguments, |_| [])?;
    }
    drop(packed);
    let sums = Sums {
        update: update_sums.view(),
        hidden: hidden_sums.view(),
        first: (first_sums.view(), meshes * slabs),
        biases: (bias_sums.view(), bias_parts),
        scalars: (scalar_sums.view(), slabs),
        vectors: (vector_sums.view(), vector_slabs),
    };
    let filtered = factors.from(places.spectra);
    let packed = block.spectra_backward(sums, &weights, &saved.spectrum, filtered, &gradients, measured)?;
    let Some(dx) = dx else { return Ok(()) };
    let arguments = args![bases.from(words), &packed, &dx, measured.bases, measured.block];
    // SAFETY: as above.
    unsafe { block.pass("enter_backward", SHARED_BYTES, arguments, |_| []) }
}
