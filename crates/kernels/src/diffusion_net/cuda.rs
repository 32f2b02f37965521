//! The block on a GPU.
//!
//! Gain on an H200 (`bench/compare`): as a composition of operators a block takes 1.3 to 1.8 times as long.

use super::{DiffusionNet, OPERATOR, Saved, Weights, half_precision, hopper};
use crate::cuda::reduce::{ColumnPartials, RowProduct, RowProducts, add_column_sums, column_threads};
use crate::cuda::{
    Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, Result, args,
};
use crate::diffusion::cuda::Batch;
use crate::diffusion::{Filters, Spectra};
use crate::dropout::cuda::DeviceStream;
use crate::dropout::{scale, threshold};
use crate::self_map::SelfMap;
use crate::self_map::cuda::Plan;
use crate::{FeatureType, KernelError};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource =
    KernelSource::new(OPERATOR, concat!(include_str!("../dropout/philox.cu"), include_str!("diffusion_net.cu")));

/// Rows of a partial sum of the gradients of biases.
const SUM_ROWS: usize = 32;

/// True for numbers of channels that the passes support: multiples of four.
pub fn supports(op: &DiffusionNet) -> bool {
    op.channels > 0 && op.channels.is_multiple_of(4)
}

/// Lengths of the saved buffers on a device, in its current product mode.
pub fn saved(device: &CudaDevice, op: &DiffusionNet, vertices: usize, meshes: usize) -> Saved<usize> {
    if hopper::applies(device, op) {
        return half_precision::saved(device, op, vertices, meshes);
    }
    Saved { features: 5 * vertices * op.channels, mapped: 2 * vertices * op.channels, ..op.saved(vertices, meshes) }
}

/// The scalar basis and its gradients in 16 bits, packed for blocks on GPUs of compute capability 9.0. If [`Spectra`]
/// has no such copy, each block makes its own. It is empty if a block with as many channels as scalar eigenvectors has
/// no kernels in the current product mode.
pub fn packed_bases(
    device: &CudaDevice,
    columns: &[usize],
    mesh_offsets: &[u32],
    spectra: Spectra<DeviceSlice<'_, f32>>,
) -> Result<DeviceBuffer<f32>> {
    let op = packing(columns);
    if !hopper::applies(device, &op) {
        return device.buffer(0);
    }
    let diffusion = op.diffusion();
    diffusion.check_spectra(OPERATOR, mesh_offsets, spectra.map(|values| values.len()))?;
    half_precision::packed_bases(device, &op, mesh_offsets, spectra)
}

/// Length of [`packed_bases`] of meshes with `rows` vertices together.
pub fn packed_length(device: &CudaDevice, columns: &[usize], rows: usize, meshes: usize) -> usize {
    match hopper::applies(device, &packing(columns)) && columns.iter().skip(1).all(|&count| count == 0) {
        true => half_precision::packed_length(device, rows, meshes),
        false => 0,
    }
}

/// The block that reads packed eigenvectors.
fn packing(columns: &[usize]) -> DiffusionNet {
    DiffusionNet { channels: columns.first().copied().unwrap_or(0), columns: columns.to_vec(), dropout: 0.0 }
}

/// Random streams of the two dropouts: seed and step, and what the seed is mixed with.
pub type Streams<'a> = Option<[(&'a DeviceStream, u64); 2]>;

/// A copy of numbers that are not aligned for loads of four: memory of other libraries may begin anywhere.
pub(super) fn aligned_copy(device: &CudaDevice, values: DeviceSlice<'_, f32>) -> Result<Option<DeviceBuffer<f32>>> {
    if values.is_aligned(4) {
        return Ok(None);
    }
    let mut copy = device.buffer(values.len())?;
    device.copy(values, copy.view_mut())?;
    Ok(Some(copy))
}

/// A block on a batch.
struct Block<'a> {
    device: &'a CudaDevice,
    op: &'a DiffusionNet,
    batch: Batch<'a>,
    mass: DeviceSlice<'a, f32>,
    rows: usize,
    /// The matrix `A`.
    plan: Arc<Plan>,
}

impl<'a> Block<'a> {
    fn new(
        device: &'a CudaDevice,
        op: &'a DiffusionNet,
        mesh_offsets: &'a [u32],
        spectra: Spectra<DeviceSlice<'a, f32>>,
        weights: &Weights<DeviceSlice<'_, f32>>,
        saved: Saved<usize>,
        others: &[(&'static str, usize)],
    ) -> Result<Self> {
        if !supports(op) {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("{} channels are not a multiple of four", op.channels),
            }));
        }
        let lengths = weights.map(|weight| weight.len());
        let saved = (saved, |n, m| self::saved(device, op, n, m));
        let rows = op.check(mesh_offsets, spectra.map(|values| values.len()), lengths, saved, others)?;
        let vectors = FeatureType::new(&[0, op.channels]);
        let map = SelfMap { input: vectors.clone(), output: vectors, bias: false };
        Ok(Self {
            device,
            op,
            batch: Batch::new(device, &op.diffusion(), mesh_offsets, spectra),
            mass: spectra.mass,
            rows,
            plan: Plan::new(device, &map)?,
        })
    }

    /// Launches a pass over four numbers of a row of channels for each thread.
    ///
    /// # Safety
    /// The arguments are those of the kernel before `quads` and `count`, and their buffers have a place for each row.
    unsafe fn pass(&self, name: &'static str, arguments: &[Arg]) -> Result<()> {
        let quads = self.op.channels / 4;
        let count = self.rows * quads;
        let sizes: &[Arg] = args![quads, count as u64];
        let function = self.device.function(SOURCE, &[], name)?;
        // SAFETY: the caller vouches for it.
        unsafe { function.over(count, &[arguments, sizes].concat()) }
    }

    /// `y = x W^T`, or `y += x W^T`, with rows of `x` of some stride, for a matrix `W` `[out, in]`.
    fn map(
        &self,
        (x, stride): (DeviceSlice<'_, f32>, usize),
        weight: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
        add: bool,
    ) -> Result<()> {
        let c = self.op.channels;
        let inputs = weight.len() / c;
        let (a, b) = (Operand::new(x, stride), Operand::new(weight, inputs).transposed());
        Product { m: self.rows, n: c, k: inputs, a, b, add, batches: 1 }.run(self.device, y, (c, 0))
    }

    /// The backward pass of `map`: `dx = dy W` into rows of some stride, and adds `dy^T x` to `dweight`.
    fn map_backward(
        &self,
        (x, dx): (DeviceSlice<'_, f32>, &DeviceSliceMut<'_, f32>),
        stride: usize,
        weight: DeviceSlice<'_, f32>,
        dy: DeviceSlice<'_, f32>,
        dweight: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let c = self.op.channels;
        let inputs = weight.len() / c;
        let (a, b) = (Operand::new(dy, c), Operand::new(weight, inputs));
        Product { m: self.rows, n: inputs, k: c, a, b, add: false, batches: 1 }.run(self.device, dx, (stride, 0))?;
        self.row_product((dy, c, c), (x, stride, inputs), dweight, true)
    }

    /// `result = a^T b`, or `result += a^T b`; factors are numbers, stride and width of rows.
    fn row_product(
        &self,
        (a, a_stride, m): (DeviceSlice<'_, f32>, usize, usize),
        (b, b_stride, n): (DeviceSlice<'_, f32>, usize, usize),
        result: &DeviceSliceMut<'_, f32>,
        add: bool,
    ) -> Result<()> {
        let mut sums = RowProducts::new(self.device, self.rows, (m * n, m * n))?;
        let product = RowProduct { a: (a, a_stride), b: (b, b_stride), m, n, place: 0 };
        sums.add(self.device, self.rows, &[product])?;
        sums.finish(self.device, result, add)
    }

    /// `y = drop(relu(y + bias))`.
    fn activate(
        &self,
        y: &DeviceSliceMut<'_, f32>,
        bias: DeviceSlice<'_, f32>,
        stream: Option<(&DeviceStream, u64)>,
    ) -> Result<()> {
        let (stream, salt) = match stream {
            Some((stream, salt)) => (stream.view(), salt),
            None => (DeviceSlice::empty(), 0),
        };
        let p = self.op.dropout;
        let (limit, factor) = (threshold(p), scale(p) as f32);
        // SAFETY: `y` has a row for each vertex, and there is a bias for each channel. An empty stream is a null
        // pointer, which the kernel does not read.
        unsafe { self.pass("activate", args![y, bias, stream, salt, limit, factor]) }
    }

    /// The gradient before `activate` from that behind it, in place, and adds its sum to `dbias`.
    fn activate_backward(
        &self,
        activated: DeviceSlice<'_, f32>,
        factor: f32,
        d: &DeviceSliceMut<'_, f32>,
        dbias: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let (c, quads) = (self.op.channels, self.op.channels / 4);
        let count = self.rows.div_ceil(SUM_ROWS);
        let threads = column_threads(quads);
        let mut partials: DeviceBuffer<f64> = self.device.buffer(count * c)?;
        let function = self.device.function(SOURCE, &[], "activate_backward")?;
        // SAFETY: both have a row for each vertex, and there is a partial sum for each block and column.
        unsafe {
            let arguments = args![activated, factor, d, self.rows, quads, SUM_ROWS, &partials.view_mut()];
            function.run((count, quads.div_ceil(threads.0)), threads, arguments)?;
        }
        ColumnPartials::of_partials(partials, c).add_to(self.device, dbias)
    }

    /// `W1` from its two parts, or adds its gradient to theirs.
    fn first_weights(&self, all: &DeviceSliceMut<'_, f32>, [invariants, scalars]: [u64; 2], add: bool) -> Result<()> {
        let function = self.device.function(SOURCE, &[], "first_weights")?;
        // SAFETY: the addresses are those of parameters or gradients whose lengths were checked; parameters are only
        // read.
        unsafe { function.over(all.len(), args![all, invariants, scalars, self.op.channels, u32::from(add)]) }
    }

    /// `W1` `[out, in]`, of `[p | x | d]`.
    fn first_layer(&self, weights: &Weights<DeviceSlice<'_, f32>>) -> Result<DeviceBuffer<f32>> {
        let c = self.op.channels;
        let mut all = self.device.buffer(3 * c * c)?;
        let parts = [weights.invariants, weights.scalars].map(|part| part.address());
        self.first_weights(&all.view_mut(), parts, false)?;
        Ok(all)
    }
}

/// `x` to `y`, and what the backward pass needs.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    device: &CudaDevice,
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    spectra: Spectra<DeviceSlice<'_, f32>>,
    weights: Weights<DeviceSlice<'_, f32>>,
    streams: Streams<'_>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
    mut saved: Saved<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let others = [("x", x.len()), ("y", y.len())];
    let lengths = saved.each_ref().map(DeviceSliceMut::len);
    let block = Block::new(device, op, mesh_offsets, spectra, &weights, lengths, &others)?;
    let (c, diffusion) = (op.channels, op.diffusion());
    if x.is_empty() {
        return Ok(());
    }
    let copy = aligned_copy(device, x)?;
    let x = copy.as_ref().map_or(x, DeviceBuffer::view);
    if hopper::applies(device, op) {
        return half_precision::forward(device, op, mesh_offsets, spectra, weights, streams, x, y, saved);
    }
    let mut weighted: DeviceBuffer<f32> = device.buffer(x.len())?;
    // SAFETY: all have a row for each vertex, of the widths that the kernel expects.
    unsafe {
        let arguments = args![x, block.mass, weights.update_bias, &saved.features, &weighted.view_mut(), &y];
        block.pass("read_input", arguments)?;
    }
    let mut spectrum = block.batch.spectrum()?;
    let filters = weights.filters();
    block.batch.project(&diffusion.input_terms(), (weighted.view(), c), spectrum.view_mut())?;
    drop(weighted);
    block.batch.filter(&diffusion, filters, &mut spectrum, saved.spectrum)?;
    let diffused = saved.features.reborrow().slice(2 * c..usize::MAX);
    block.batch.expand(&diffusion.output_terms(), spectrum.view(), (diffused, 5 * c))?;
    let features = saved.features.view();
    Product {
        m: block.rows,
        n: 2 * c,
        k: 2 * c,
        a: Operand::new(features.from(3 * c), 5 * c),
        b: Operand::new(block.plan.matrices(device, weights.product)?.view(), 2 * c),
        add: false,
        batches: 1,
    }
    .run(device, &saved.mapped, (2 * c, 0))?;
    // SAFETY: as above.
    unsafe { block.pass("invariants", args![&saved.features, &saved.mapped])? };
    let [one, two] = match streams {
        Some(streams) => streams.map(Some),
        None => [None; 2],
    };
    let all = block.first_layer(&weights)?;
    block.map((features, 5 * c), all.view(), &saved.first, false)?;
    block.activate(&saved.first, weights.scalars_bias, one)?;
    let first = saved.first.view();
    block.map((first, c), weights.hidden, &saved.second, false)?;
    block.activate(&saved.second, weights.hidden_bias, two)?;
    block.map((saved.second.view(), c), weights.update, &y, true)
}

/// Overwrites `dx`, if it is wanted, and adds to the gradients of the parameters. `dropped` says whether the forward
/// pass had random streams.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    dropped: bool,
    spectra: Spectra<DeviceSlice<'_, f32>>,
    weights: Weights<DeviceSlice<'_, f32>>,
    saved: Saved<DeviceSliceMut<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    gradients: Weights<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let others = [("dy", dy.len()), ("dx", dx.as_ref().map_or(dy.len(), |dx| dx.len()))];
    let lengths = saved.each_ref().map(DeviceSliceMut::len);
    let block = Block::new(device, op, mesh_offsets, spectra, &weights, lengths, &others)?;
    op.check_weights(gradients.each_ref().map(|values| values.len()))?;
    let (c, diffusion) = (op.channels, op.diffusion());
    if dy.is_empty() {
        return Ok(());
    }
    let factor = if dropped { scale(op.dropout) as f32 } else { 1.0 };
    if hopper::applies(device, op) {
        return half_precision::backward(device, op, mesh_offsets, factor, spectra, weights, saved, dy, dx, gradients);
    }
    let (first, second) = (saved.first.view(), saved.second.view());
    let (features, mapped) = (saved.features.view(), &saved.mapped);
    add_column_sums(device, dy, (block.rows, c, c), &gradients.update_bias)?;
    let mut dsecond: DeviceBuffer<f32> = device.buffer(dy.len())?;
    block.map_backward((second, &dsecond.view_mut()), c, weights.update, dy, &gradients.update)?;
    block.activate_backward(second, factor, &dsecond.view_mut(), &gradients.hidden_bias)?;
    let mut dfirst: DeviceBuffer<f32> = device.buffer(dy.len())?;
    block.map_backward((first, &dfirst.view_mut()), c, weights.hidden, dsecond.view(), &gradients.hidden)?;
    drop(dsecond);
    block.activate_backward(first, factor, &dfirst.view_mut(), &gradients.scalars_bias)?;
    let mut dfeatures: DeviceBuffer<f32> = device.buffer(5 * dy.len())?;
    let all = block.first_layer(&weights)?;
    let mut dall = device.zeros(all.len())?;
    block.map_backward((features, &dfeatures.view_mut()), 5 * c, all.view(), dfirst.view(), &dall.view_mut())?;
    drop(dfirst);
    let parts = [&gradients.invariants, &gradients.scalars].map(|part| part.view().address());
    block.first_weights(&dall.view_mut(), parts, true)?;
    // SAFETY: all have a row for each vertex, of the widths that the kernel expects.
    unsafe {
        let arguments = args![features, mapped, &dfeatures.view_mut()];
        block.pass("invariants_backward", arguments)?;
    }
    let vectors = features.from(3 * c);
    Product {
        m: block.rows,
        n: 2 * c,
        k: 2 * c,
        a: Operand::new(mapped.view(), 2 * c),
        b: Operand::new(block.plan.matrices(device, weights.product)?.view(), 2 * c).transposed(),
        add: true,
        batches: 1,
    }
    .run(device, &dfeatures.view_mut().slice(3 * c..usize::MAX), (5 * c, 0))?;
    let mut matrix: DeviceBuffer<f32> = device.buffer(4 * c * c)?;
    block.row_product((vectors, 5 * c, 2 * c), (mapped.view(), 2 * c, 2 * c), &matrix.view_mut(), false)?;
    block.plan.add_gradients(device, matrix.view(), &gradients.product)?;
    let mut spectrum = block.batch.spectrum()?;
    block.batch.project(&diffusion.output_terms(), (dfeatures.view().from(2 * c), 5 * c), spectrum.view_mut())?;
    let filters = weights.filters();
    let mut dfilters = Filters { log_times: gradients.log_times, bands: gradients.bands };
    block.batch.filter_backward(&diffusion, filters, &mut spectrum, saved.spectrum.view(), &mut dfilters)?;
    let Some(mut dx) = dx else { return Ok(()) };
    block.batch.expand(&diffusion.input_terms(), spectrum.view(), (dx.reborrow(), c))?;
    // SAFETY: as above.
    unsafe { block.pass("enter_backward", args![&dx, block.mass, dy, &dfeatures]) }
}
