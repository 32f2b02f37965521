//! The block in tf32 on GPUs of compute capability 9.0.
//!
//! A tile of rows stays in registers from the gradients of diffused scalars to the result, and back. What is linear in the spectrum `S`
//! of a mesh is applied there: `A g` comes from the gradients of eigenvectors and `S a^T`, `S b^T`, the part of `W1` that
//! reads diffused scalars from eigenvectors and `S W1d^T`. So diffused scalars are never computed, and the gradients of these
//! maps are products of spectra.
//!
//! The backward pass computes `g` and `A g` again. Saved are `[p | x]`, `h1`, `h2`, and the factors of all products with rows.

use super::cuda::{Streams, aligned_copy};
use super::{DiffusionNet, OPERATOR, Saved, Weights};
use crate::cuda::reduce::{RowProduct, RowProducts};
use crate::cuda::{
    Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource,
    ProductMode, args, to_u32,
};
use crate::diffusion::cuda::Batch;
use crate::diffusion::{Diffusion, Spectra};
use crate::dropout::{scale, threshold};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "diffusion_net_hopper",
    concat!(
        include_str!("../cuda/hopper.cu"),
        include_str!("../dropout/philox.cu"),
        include_str!("../diffusion/filter.cu"),
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
/// Blocks of threads for a spectrum, for the factors of all rows, and for the gradients of the parameters, as there.
const SPECTRUM_BLOCKS: usize = 16;
const SHARED_BLOCKS: usize = 64;
const GRADIENT_BLOCKS: usize = 48 + 2 * 128 + 256 + 3 + 2;
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

    /// Blocks of threads for the tiles of some meshes, which can be divided in two.
    fn blocks(&self, size: usize, meshes: usize) -> usize {
        let parts = 2 * size.div_ceil(TILE) * meshes;
        self.device.multiprocessors().min(parts)
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

    /// `a^T b` over slabs of rows.
    fn row_products(
        &self,
        a: DeviceSlice<'_, f32>,
        (b, width): (DeviceSlice<'_, f32>, usize),
    ) -> Result<RowProducts, CudaError> {
        let mut sums = RowProducts::new(self.device, self.rows, C * width)?;
        let product = RowProduct {
            a: (a, C),
            b: (b, width),
            m: C,
            n: width,
            place: 0,
        };
        sums.add(self.device, self.rows, &[product])?;
        Ok(sums)
    }
}

/// Copies of the maps that apply to spectra, in the place of those that are not aligned for loads of four.
struct Maps {
    product: Option<DeviceBuffer<f32>>,
    scalars: Option<DeviceBuffer<f32>>,
}

impl Maps {
    fn new(
        device: &CudaDevice,
        weights: &Weights<DeviceSlice<'_, f32>>,
    ) -> Result<Self, CudaError> {
        Ok(Self {
            product: aligned_copy(device, weights.product)?,
            scalars: aligned_copy(device, weights.scalars)?,
        })
    }

    /// `A`, and the columns of `W1` for `[x | d]`.
    fn of<'a>(
        &'a self,
        weights: &Weights<DeviceSlice<'a, f32>>,
    ) -> (DeviceSlice<'a, f32>, DeviceSlice<'a, f32>) {
        let or = |copy: &'a Option<DeviceBuffer<f32>>, own| match copy {
            Some(copy) => copy.view(),
            None => own,
        };
        (
            or(&self.product, weights.product),
            or(&self.scalars, weights.scalars),
        )
    }
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
    let (factors, places) = (saved.mapped.view(), Places::new(meshes));
    let maps = Maps::new(device, &weights)?;
    let (product, scalars) = maps.of(&weights);
    let size = |n: usize| to_u32(OPERATOR, n);
    // SAFETY: every mesh has as many slabs, and its part of what is saved; there is room for all factors, and for the spectra and the biases
    // behind them. The weights were checked.
    unsafe {
        let arguments = args![
            &spectrum,
            size(batch.slabs())?,
            size(meshes)?,
            spectra.eigenvalues,
            weights.log_times,
            weights.bands,
            product,
            scalars,
            weights.invariants,
            weights.hidden,
            weights.update,
            weights.scalars_bias,
            weights.hidden_bias,
            weights.update_bias,
            &saved.spectrum,
            factors,
            factors.from(places.biases)
        ];
        let blocks = meshes * SPECTRUM_BLOCKS + SHARED_BLOCKS;
        let function = device.function(SOURCE, &[], "spectra_forward")?;
        function.run((blocks, 1), (3 * C, 1), arguments)?;
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
    let bias_parts = blocks.sum::<usize>() * WARPS;
    let bias_sums: DeviceBuffer<f32> = device.buffer(bias_parts * 3 * C)?;
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
            let from = before * WARPS * 3 * C;
            [Arg::from(bias_sums.view().from(from))]
        })?;
    }
    let update_sums = block.row_products(dy, (second, C))?;
    let hidden_sums = block.row_products(dsecond.view(), (first, C))?;
    drop(dsecond);
    let first_sums = block.row_products(dfirst.view(), (features, 2 * C))?;
    let mut scalar_sums = batch.spectrum()?;
    let terms = block.diffusion.input_terms();
    batch.project(&terms, (dfirst.view(), C), scalar_sums.view_mut())?;
    drop(dfirst);
    let vectors = batch.with_slabs(6 * FACTOR, VECTOR_SLABS);
    let mut vector_sums = vectors.spectrum()?;
    let terms = block.diffusion.gradient_terms(3 * C);
    vectors.project(&terms, (dvectors.view(), 4 * C), vector_sums.view_mut())?;
    drop(dvectors);
    let dmaps: DeviceBuffer<f32> = device.buffer(3 * meshes * FACTOR)?;
    let packed: DeviceBuffer<f32> = device.buffer(meshes * FACTOR)?;
    let filter_parts = meshes * SPECTRUM_BLOCKS;
    let filter_sums: DeviceBuffer<f32> = device.buffer(filter_parts * 2 * C)?;
    let maps = Maps::new(device, &weights)?;
    let (product, scalars) = maps.of(&weights);
    let size = |n: usize| to_u32(OPERATOR, n);
    // SAFETY: every mesh has as many slabs of these sizes, and its part of the results; every block of threads has its sums.
    unsafe {
        let arguments = args![
            &scalar_sums,
            size(batch.slabs())?,
            &vector_sums,
            size(vectors.slabs())?,
            product,
            scalars,
            &saved.spectrum,
            spectra.eigenvalues,
            weights.log_times,
            weights.bands,
            &dmaps,
            &packed,
            &filter_sums
        ];
        let function = device.function(SOURCE, &[], "spectra_backward")?;
        function.run((filter_parts, 1), (3 * C, 1), arguments)?;
    }
    drop((scalar_sums, vector_sums));
    let (update, slabs) = update_sums.partials();
    let (hidden, _) = hidden_sums.partials();
    let (first, first_slabs) = first_sums.partials();
    // SAFETY: there are as many partial sums of each kind, and both products of rows for W3 and W2 have equally many; the lengths of the gradients
    // were checked.
    unsafe {
        let arguments = args![
            &dmaps,
            factors.from(places.spectra),
            size(meshes * C)?,
            update,
            hidden,
            size(slabs)?,
            first,
            size(first_slabs)?,
            &bias_sums,
            size(bias_parts)?,
            &filter_sums,
            size(filter_parts)?,
            &gradients.product,
            &gradients.scalars,
            &gradients.invariants,
            &gradients.hidden,
            &gradients.update,
            &gradients.scalars_bias,
            &gradients.hidden_bias,
            &gradients.update_bias,
            &gradients.log_times,
            &gradients.bands
        ];
        let function = device.function(SOURCE, &[], "add_gradients")?;
        function.run((GRADIENT_BLOCKS, 1), (256, 1), arguments)?;
    }
    let Some(dx) = dx else { return Ok(()) };
    // SAFETY: as above.
    unsafe {
        let arguments = args![spectra.bases, &packed, spectra.mass, &dx];
        block.pass("enter_backward", arguments, |_| [])
    }
}
