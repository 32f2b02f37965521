//! The block in tf32 on GPUs of compute capability 9.0.
//!
//! A tile of rows stays in registers from the gradients of diffused scalars to the result, and back. What is linear in the spectrum `S`
//! of a mesh is applied there: `A g` comes from the gradients of eigenvectors and `S a^T`, `S b^T`, the part of `W1` that
//! reads diffused scalars from eigenvectors and `S W1d^T`. So diffused scalars are never computed, and the gradients of these
//! maps are products of spectra.
//!
//! The backward pass computes `g` and `A g` again. Saved are `[p | x]`, `h1`, `h2`, and the factors of all products with rows.

use super::cuda::Streams;
use super::{DiffusionNet, OPERATOR, Saved, Weights};
use crate::cuda::reduce::{RowProduct, RowProducts, add_column_sums, add_partial_sums};
use crate::cuda::{
    Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand,
    Product, ProductMode, args, to_u32,
};
use crate::diffusion::cuda::Batch;
use crate::diffusion::{Diffusion, Filters, Spectra};
use crate::dropout::{scale, threshold};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "diffusion_net_hopper",
    concat!(
        include_str!("../cuda/hopper.cu"),
        include_str!("../dropout/philox.cu"),
        include_str!("factors.cu"),
        include_str!("hopper.cu")
    ),
);

/// Channels and eigenvectors: C there.
const C: usize = 128;
/// Numbers of a factor.
const FACTOR: usize = C * C;
/// Rows of a tile: TILE_ROWS there.
const TILE: usize = 128;
/// Factors of all rows, and of each mesh, as there.
const SHARED_FACTORS: usize = 8;
const MESH_FACTORS: usize = 4;
/// Slots of 32 KB for rows, and stages of 32 KB for factors, from a multiple of 1,024 bytes on.
const SHARED_BYTES: usize = (4 + 3) * (32 << 10) + 1024;
/// Warps of a block of threads that multiply, each with its sums for biases.
const WARPS: usize = 8;
/// Slabs of all meshes for products of gradients with vectors, three tiles wide each.
const VECTOR_SLABS: usize = 64;

/// True if these kernels can do the work.
pub(super) fn applies(device: &CudaDevice, op: &DiffusionNet) -> bool {
    device.product_mode() != ProductMode::F32
        && device.capability() == (9, 0)
        && op.channels == C
        && op.columns.first() == Some(&C)
        && op.diffusion().gradient_block().is_multiple_of(4)
}

/// Numbers of the masks of a tile.
const TILE_MASKS: usize = 2 * TILE * C / 32;

/// Lengths of what is saved. In the place of `A g`: packed factors, spectra, biases, and masks of both activations.
pub(super) fn saved(op: &DiffusionNet, vertices: usize, meshes: usize) -> Saved<usize> {
    let tiles = vertices / TILE + meshes;
    Saved {
        features: 2 * vertices * C,
        mapped: Places::new(meshes).masks + tiles * TILE_MASKS,
        first: vertices * C,
        second: vertices * C,
        spectrum: op.diffusion().saved_count(meshes),
    }
}

/// Where the parts of that begin.
struct Places {
    spectra: usize,
    biases: usize,
    masks: usize,
}

impl Places {
    fn new(meshes: usize) -> Self {
        let spectra = (SHARED_FACTORS + MESH_FACTORS * meshes) * FACTOR;
        let biases = spectra + meshes * FACTOR;
        let masks = biases + 3 * C;
        Self {
            spectra,
            biases,
            masks,
        }
    }
}

/// A block on a batch.
struct Block<'a> {
    device: &'a CudaDevice,
    diffusion: Diffusion,
    batch: Batch<'a>,
    spectra: Spectra<DeviceSlice<'a, f32>>,
    rows: usize,
}

impl<'a> Block<'a> {
    fn new(
        device: &'a CudaDevice,
        op: &DiffusionNet,
        mesh_offsets: &'a [u32],
        spectra: Spectra<DeviceSlice<'a, f32>>,
    ) -> Self {
        let diffusion = op.diffusion();
        Self {
            device,
            batch: Batch::new(device, &diffusion, mesh_offsets, spectra),
            diffusion,
            spectra,
            rows: spectra.mass.len(),
        }
    }

    /// Gradients of the scalar eigenvectors.
    fn gradients(&self) -> DeviceSlice<'a, f32> {
        let start = self.rows * self.diffusion.gradient_block();
        self.spectra.bases.from(start)
    }

    /// Launches a kernel with one thread for each number of a factor, and a grid row for each factor.
    ///
    /// # Safety
    /// The arguments are those of the kernel, for as many factors.
    unsafe fn over_factors(
        &self,
        name: &'static str,
        factors: usize,
        arguments: &[Arg],
    ) -> Result<(), CudaError> {
        let function = self.device.function(SOURCE, &[], name)?;
        // SAFETY: the caller vouches for it.
        unsafe { function.run((FACTOR / 256, factors), (256, 1), arguments) }
    }

    /// Blocks of threads for the tiles of some meshes.
    fn blocks(&self, size: usize, meshes: usize) -> usize {
        self.device
            .multiprocessors()
            .min(size.div_ceil(TILE) * meshes)
    }

    /// Launches a pass over tiles, once for each run of meshes of one size. `last(blocks of threads before this launch)`: arguments
    /// behind the others.
    ///
    /// # Safety
    /// The arguments are those of the kernel after `first_mesh`, with a row for each vertex.
    unsafe fn pass<const N: usize>(
        &self,
        name: &'static str,
        arguments: &[Arg],
        last: impl Fn(usize) -> [Arg; N],
    ) -> Result<(), CudaError> {
        let size = |n: usize| to_u32(OPERATOR, n);
        let (mut before, mut tiles_before) = (0, 0);
        for (range, mesh, meshes) in self.batch.runs() {
            let tiles = range.len().div_ceil(TILE);
            let blocks = self.blocks(range.len(), meshes);
            let first: &[Arg] = args![
                size(range.start)?,
                size(range.len())?,
                size(tiles)?,
                size(tiles * meshes)?,
                size(tiles_before)?,
                size(mesh)?
            ];
            let all = [first, arguments, &last(before)].concat();
            let function = self
                .device
                .function_with_shared(SOURCE, &[], name, SHARED_BYTES)?;
            // SAFETY: the caller vouches for it.
            unsafe { function.run((blocks, 1), (384, 1), &all)? };
            before += blocks;
            tiles_before += tiles * meshes;
        }
        Ok(())
    }

    /// `a^T b` over all rows, added to the result.
    fn row_product(
        &self,
        a: DeviceSlice<'_, f32>,
        (b, width): (DeviceSlice<'_, f32>, usize),
        result: &DeviceSliceMut<'_, f32>,
        add: bool,
    ) -> Result<(), CudaError> {
        let mut sums = RowProducts::new(self.device, self.rows, C * width)?;
        let product = RowProduct {
            a: (a, C),
            b: (b, width),
            m: C,
            n: width,
            place: 0,
        };
        sums.add(self.device, self.rows, &[product])?;
        sums.finish(self.device, result, add)
    }
}

/// The maps that apply to spectra: `[a | b]` and the part of `W1` that reads diffused scalars, with their strides and numbers of rows.
fn maps<'a>(weights: &Weights<DeviceSlice<'a, f32>>) -> [(DeviceSlice<'a, f32>, usize, usize); 2] {
    [
        (weights.product, C, 2 * C),
        (weights.scalars.from(C), 2 * C, C),
    ]
}

/// As [`forward`](super::cuda::forward), for work that was checked and to which this [`applies`].
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
) -> Result<(), CudaError> {
    let block = Block::new(device, op, mesh_offsets, spectra);
    let (batch, meshes) = (&block.batch, block.batch.meshes());
    let mut weighted: DeviceBuffer<f32> = device.buffer(x.len())?;
    // SAFETY: all have a row for each vertex, of the widths that the kernel expects.
    unsafe {
        device.function(SOURCE, &[], "enter")?.over(
            x.len() / 4,
            args![
                x,
                spectra.mass,
                &saved.features,
                &weighted.view_mut(),
                (x.len() / 4) as u64
            ],
        )?;
    }
    let mut spectrum = batch.spectrum()?;
    let terms = block.diffusion.input_terms();
    batch.project(&terms, (weighted.view(), C), spectrum.view_mut())?;
    drop(weighted);
    batch.filter(
        &block.diffusion,
        weights.filters(),
        &mut spectrum,
        saved.spectrum,
    )?;
    let stride = batch.slabs() * FACTOR;
    let mut mapped: DeviceBuffer<f32> = device.buffer(3 * meshes * FACTOR)?;
    let mut place = 0;
    for (map, map_stride, m) in maps(&weights) {
        Product {
            m,
            n: C,
            k: C,
            a: Operand::new(map, map_stride),
            b: Operand::new(spectrum.view(), C)
                .transposed()
                .batched(stride),
            add: false,
            batches: meshes,
        }
        .run(
            device,
            &mapped.view_mut().slice(place * C..usize::MAX),
            (C, 3 * FACTOR),
        )?;
        place += m;
    }
    let (factors, places) = (saved.mapped.view(), Places::new(meshes));
    // SAFETY: there are as many factors, and room for the spectra behind them; the weights were checked.
    unsafe {
        let arguments = args![
            weights.scalars,
            weights.invariants,
            weights.hidden,
            weights.update,
            weights.scalars_bias,
            weights.hidden_bias,
            weights.update_bias,
            &spectrum,
            stride as u64,
            &mapped,
            factors,
            factors.from(places.biases)
        ];
        block.over_factors("pack", SHARED_FACTORS + MESH_FACTORS * meshes, arguments)?;
    }
    let stream = |at: usize| match streams {
        Some(streams) => (streams[at].0.view(), streams[at].1),
        None => (DeviceSlice::empty(), 0),
    };
    let ((one, one_salt), (two, two_salt)) = (stream(0), stream(1));
    let arguments = args![
        spectra.bases,
        block.gradients(),
        factors,
        factors.from(places.biases),
        one,
        one_salt,
        two,
        two_salt,
        threshold(op.dropout),
        scale(op.dropout) as f32,
        &saved.features,
        &saved.first,
        &saved.second,
        &y,
        factors.from(places.masks)
    ];
    // SAFETY: all have a row for each vertex. An empty stream is a null pointer, which the kernel does not read.
    unsafe { block.pass("block_forward", arguments, |_| []) }
}

/// As [`backward`](super::cuda::backward), for work that was checked and to which this [`applies`].
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
) -> Result<(), CudaError> {
    let block = Block::new(device, op, mesh_offsets, spectra);
    let (batch, meshes) = (&block.batch, block.batch.meshes());
    let (features, factors) = (saved.features.view(), saved.mapped.view());
    let (first, second) = (saved.first.view(), saved.second.view());
    let places = Places::new(meshes);
    let blocks = batch
        .runs()
        .map(|(range, _, n)| block.blocks(range.len(), n));
    let sums = blocks.sum::<usize>() * WARPS * C;
    let first_sums: DeviceBuffer<f64> = device.buffer(sums)?;
    let second_sums: DeviceBuffer<f64> = device.buffer(sums)?;
    let dfirst: DeviceBuffer<f32> = device.buffer(dy.len())?;
    let dsecond: DeviceBuffer<f32> = device.buffer(dy.len())?;
    let dvectors: DeviceBuffer<f32> = device.buffer(4 * dy.len())?;
    let dx_here = dx.as_ref().map_or(DeviceSlice::empty(), |dx| dx.view());
    let arguments = args![
        block.gradients(),
        dy,
        factors,
        features,
        factors.from(places.masks),
        factor,
        &dfirst,
        &dsecond,
        dx_here,
        &dvectors
    ];
    // SAFETY: all have a row for each vertex, and there are sums for each warp of all launches. The kernel does not write to a null
    // pointer for dx.
    unsafe {
        block.pass("block_backward", arguments, |before| {
            let from = before * WARPS * C;
            [&first_sums, &second_sums].map(|sums| Arg::from(sums.view().from(from)))
        })?;
    }
    add_column_sums(device, dy, (block.rows, C, C), &gradients.update_bias)?;
    add_partial_sums(device, second_sums.view(), C, &gradients.hidden_bias)?;
    add_partial_sums(device, first_sums.view(), C, &gradients.scalars_bias)?;
    block.row_product(dy, (second, C), &gradients.update, true)?;
    block.row_product(dsecond.view(), (first, C), &gradients.hidden, true)?;
    drop(dsecond);
    let mut dall: DeviceBuffer<f32> = device.buffer(2 * FACTOR)?;
    block.row_product(dfirst.view(), (features, 2 * C), &dall.view_mut(), false)?;
    // SAFETY: the lengths of the gradients were checked.
    unsafe {
        let arguments = args![&dall, &gradients.invariants, &gradients.scalars];
        let function = device.function(SOURCE, &[], "add_first")?;
        function.run((2 * FACTOR / 256, 1), (256, 1), arguments)?;
    }
    let mut scalar_sums = batch.spectrum()?;
    let terms = block.diffusion.input_terms();
    batch.project(&terms, (dfirst.view(), C), scalar_sums.view_mut())?;
    drop(dfirst);
    let vectors = batch.with_slabs(6 * FACTOR, VECTOR_SLABS);
    let mut vector_sums = vectors.spectrum()?;
    let terms = block.diffusion.gradient_terms(3 * C);
    vectors.project(&terms, (dvectors.view(), 4 * C), vector_sums.view_mut())?;
    drop(dvectors);
    let mut dspectra: DeviceBuffer<f32> = device.buffer(meshes * FACTOR)?;
    let dmaps: DeviceBuffer<f32> = device.buffer(3 * meshes * FACTOR)?;
    let size = |n: usize| to_u32(OPERATOR, n);
    // SAFETY: every mesh has as many slabs of these sizes, and its part of the results.
    unsafe {
        let arguments = args![
            &scalar_sums,
            size(batch.slabs())?,
            &vector_sums,
            size(vectors.slabs())?,
            &dspectra,
            &dmaps
        ];
        block.over_factors("combine", meshes, arguments)?;
    }
    drop((scalar_sums, vector_sums));
    let plain = factors.from(places.spectra);
    let mut place = 0;
    let dweights = [gradients.product, gradients.scalars.slice(C..usize::MAX)];
    for ((map, stride, width), dweight) in maps(&weights).into_iter().zip(dweights) {
        let dmap = Operand::new(dmaps.view().from(place), 3 * C);
        Product {
            m: meshes * C,
            n: C,
            k: width,
            a: dmap,
            b: Operand::new(map, stride),
            add: true,
            batches: 1,
        }
        .run(device, &dspectra.view_mut(), (C, 0))?;
        Product {
            m: width,
            n: C,
            k: meshes * C,
            a: dmap.transposed(),
            b: Operand::new(plain, C),
            add: true,
            batches: 1,
        }
        .run(device, &dweight, (stride, 0))?;
        place += width;
    }
    let mut dfilters = Filters {
        log_times: gradients.log_times,
        bands: gradients.bands,
    };
    batch.with_slabs(FACTOR, 1).filter_backward(
        &block.diffusion,
        weights.filters(),
        &mut dspectra,
        saved.spectrum.view(),
        &mut dfilters,
    )?;
    let Some(dx) = dx else { return Ok(()) };
    let packed: DeviceBuffer<f32> = device.buffer(meshes * FACTOR)?;
    // SAFETY: as above.
    unsafe {
        block.over_factors("pack_spectra", meshes, args![&dspectra, &packed])?;
        let arguments = args![spectra.bases, &packed, spectra.mass, &dx];
        block.pass("enter_backward", arguments, |_| [])
    }
}
