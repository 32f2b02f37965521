//! Implicit diffusion on a GPU: conjugate gradients whose step lengths stay on the device. The host reads the residual
//! every few iterations.

use super::{Backward, Forward, Heat, Implicit, MAX_ITERATIONS, Masses};
use crate::cuda::reduce::add_column_sums;
use crate::cuda::{Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args};
use crate::incidence::cuda::DeviceIncidence;
use crate::incidence::{Normalise, Sum, Target};
use crate::{Aggregation, Gpu};

pub(crate) const SOURCE: KernelSource = KernelSource::new("implicit", include_str!("implicit.cu"));

/// Threads of a block, and the largest number of partial sums.
const BLOCK: usize = 256;
const MAX_BLOCKS: usize = 1024;
/// Iterations between two looks at the residual.
const ROUND: usize = 16;
const TOLERANCE: f64 = 1e-6;
/// Places of scalars: two residuals in turn, the curvature and the size of the right-hand side.
const CURVATURE: u32 = 2;
const SIZE: u32 = 3;

/// The operators of a batch on a GPU.
type DeviceHeat<'a> = Heat<&'a DeviceIncidence, DeviceSlice<'a, f32>>;

/// A batch on a GPU, with the memory of a solve.
struct System<'a> {
    device: &'a CudaDevice,
    op: &'a Implicit,
    heat: DeviceHeat<'a>,
    irrep_of: DeviceBuffer<u32>,
    width: usize,
    /// Numbers of all features.
    count: usize,
    /// Residual, direction and its image.
    work: [DeviceBuffer<f32>; 3],
    partials: DeviceBuffer<f64>,
    scalars: DeviceBuffer<f64>,
}

impl<'a> System<'a> {
    fn new(device: &'a CudaDevice, op: &'a Implicit, heat: DeviceHeat<'a>, count: usize) -> Result<Self> {
        let buffer = || device.buffer(count);
        Ok(Self {
            device,
            op,
            heat,
            irrep_of: device.upload(&op.irrep_of())?,
            width: op.features.dimension(),
            count,
            work: [buffer()?, buffer()?, buffer()?],
            partials: device.buffer(count.div_ceil(BLOCK).clamp(1, MAX_BLOCKS))?,
            scalars: device.buffer(4)?,
        })
    }

    /// Runs a kernel with one thread for each number.
    fn over(&self, name: &'static str, arguments: &[Arg]) -> Result<()> {
        let function = self.device.function(SOURCE, &[], name)?;
        // SAFETY: all slices of features have `count` numbers, and masses one for each row, as was checked.
        unsafe { function.over(self.count, arguments) }
    }

    /// Runs a kernel that leaves partial sums, and stores their sum.
    fn sum(&self, name: &'static str, arguments: &[Arg], slot: u32) -> Result<()> {
        let blocks = self.partials.len();
        // SAFETY: as in `over`; there is a partial sum for each block.
        unsafe {
            let function = self.device.function(SOURCE, &[], name)?;
            function.run((blocks, 1), (BLOCK, 1), arguments)?;
            let total = self.device.function(SOURCE, &[], "total")?;
            total.run((1, 1), (BLOCK, 1), args![&self.partials, blocks, &self.scalars, slot])
        }
    }

    /// A sparse map, to its rows or transposed.
    fn multiply(
        &self,
        target: Target,
        map: &DeviceIncidence,
        x: DeviceSlice<'_, f32>,
        y: DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let (features, aggregation, normalise) = (&self.op.features, Aggregation::Sum, Normalise::Target);
        Sum { features, aggregation, target, normalise, incidence: map, x, y }.launch(self.device)
    }

    /// `image = K x`, and `<x, image>`.
    fn apply(&self, time: f32, x: DeviceSlice<'_, f32>, image: &mut DeviceSliceMut<'_, f32>) -> Result<()> {
        self.multiply(Target::Rows, self.heat.coupling, x, image.reborrow())?;
        let Masses { node, stiffness, .. } = self.heat.masses;
        let (width, count) = (self.width, self.count as u64);
        let arguments = args![node, stiffness, time, x, &*image, width, count, &self.partials];
        self.sum("product", arguments, CURVATURE)
    }

    /// Improves `y` to the solution of `K y = b`.
    fn solve(&mut self, time: f64, b: DeviceSlice<'_, f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
        let time = time as f32;
        let empty = || self.device.buffer::<f32>(0);
        let [r, p, mut q] = std::mem::replace(&mut self.work, [empty()?, empty()?, empty()?]);
        let Masses { node, stiffness, .. } = self.heat.masses;
        let (width, count) = (self.width, self.count as u64);
        let partials = &self.partials;
        self.sum("size", args![node, stiffness, time, b, width, count, partials], SIZE)?;
        self.apply(time, y.view(), &mut q.view_mut())?;
        let arguments = args![node, stiffness, time, b, &q, &r, &p, width, count, partials];
        self.sum("residual", arguments, 0)?;
        for iteration in 0..MAX_ITERATIONS {
            let (before, after) = ((iteration % 2) as u32, (iteration % 2) as u32 ^ 1);
            if iteration % ROUND == 0 {
                let mut scalars = [0.0; 4];
                self.scalars.read(self.device, &mut scalars)?;
                let rest = scalars[before as usize];
                if rest.is_nan() || rest <= TOLERANCE * TOLERANCE * scalars[SIZE as usize] {
                    break;
                }
            }
            self.apply(time, p.view(), &mut q.view_mut())?;
            let scalars = &self.scalars;
            let arguments =
                args![node, stiffness, time, scalars, before, CURVATURE, &p, &q, &*y, &r, width, count, partials];
            self.sum("advance", arguments, after)?;
            let arguments = args![node, stiffness, time, scalars, before, after, &r, &p, width, count];
            self.over("direction", arguments)?;
        }
        self.work = [r, p, q];
        Ok(())
    }

    /// `to (+)= mass mix x`; empty slices are ones.
    fn weigh(
        &self,
        mass: DeviceSlice<'_, f32>,
        mix: DeviceSlice<'_, f32>,
        x: DeviceSlice<'_, f32>,
        to: &DeviceSliceMut<'_, f32>,
        add: bool,
    ) -> Result<()> {
        let (width, count) = (self.width, self.count as u64);
        let arguments = args![mass, mix, &self.irrep_of, x, to, width, count, u32::from(add)];
        self.over("weigh", arguments)
    }

    /// `b = S^H weighted`, and `y = b / N`.
    fn start(
        &self,
        weighted: DeviceSlice<'_, f32>,
        b: &mut DeviceBuffer<f32>,
        y: &mut DeviceBuffer<f32>,
    ) -> Result<()> {
        self.multiply(Target::Columns, self.heat.copies, weighted, b.view_mut())?;
        let (width, count) = (self.width, self.count as u64);
        self.over("start", args![self.heat.masses.node, &*b, &y.view_mut(), width, count])
    }

    /// `u = S z`.
    fn spread(&self, z: DeviceSlice<'_, f32>, u: DeviceSliceMut<'_, f32>) -> Result<()> {
        self.multiply(Target::Rows, self.heat.copies, z, u)
    }
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, heat, mix, x, mut y, mut saved } = pass;
    device.clear(y.reborrow())?;
    if x.is_empty() {
        return Ok(());
    }
    let mut system = System::new(device, op, heat, x.len())?;
    let (mut weighted, mut b) = (device.buffer(x.len())?, device.buffer(x.len())?);
    let mut z = device.buffer(x.len())?;
    let nothing = DeviceSlice::empty();
    system.weigh(heat.masses.vertex, nothing, x, &weighted.view_mut(), false)?;
    system.start(weighted.view(), &mut b, &mut z)?;
    for (index, &time) in op.times.iter().enumerate() {
        system.solve(time, b.view(), &mut z)?;
        let range = index * x.len()..(index + 1) * x.len();
        system.spread(z.view(), saved.reborrow().slice(range.clone()))?;
        let mix = mix.slice(index * op.irreps()..(index + 1) * op.irreps());
        system.weigh(nothing, mix, saved.view().slice(range), &y, true)?;
    }
    Ok(())
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, heat, mix, saved, dy, dx, mut dmix } = pass;
    if dy.is_empty() {
        return Ok(());
    }
    let mut system = System::new(device, op, heat, dy.len())?;
    let (width, irreps) = (op.features.dimension(), op.irreps());
    let mut weighted: DeviceBuffer<f32> = device.buffer(dy.len())?;
    let mut sums: DeviceBuffer<f32> = device.buffer(width)?;
    for index in 0..op.times.len() {
        let u = saved.slice(index * dy.len()..(index + 1) * dy.len());
        let count = dy.len() as u64;
        system.over("times_rows", args![u, dy, &weighted.view_mut(), count])?;
        device.clear(sums.view_mut())?;
        let shape = (dy.len() / width, width, width);
        add_column_sums(device, weighted.view(), shape, &sums.view_mut())?;
        let to = dmix.reborrow().slice(index * irreps..(index + 1) * irreps);
        let fold = device.function(SOURCE, &[], "fold")?;
        let arguments = args![&sums, &system.irrep_of, system.width, &to, irreps];
        // SAFETY: there is a sum for each component of a row, and a gradient for each irrep.
        unsafe { fold.over(irreps, arguments)? };
    }
    let Some(mut dx) = dx else { return Ok(()) };
    device.clear(dx.reborrow())?;
    let (mut b, mut z) = (device.buffer(dy.len())?, device.buffer(dy.len())?);
    let nothing = DeviceSlice::empty();
    for (index, &time) in op.times.iter().enumerate() {
        let mix = mix.slice(index * irreps..(index + 1) * irreps);
        system.weigh(nothing, mix, dy, &weighted.view_mut(), false)?;
        system.start(weighted.view(), &mut b, &mut z)?;
        system.solve(time, b.view(), &mut z)?;
        system.spread(z.view(), weighted.view_mut())?;
        system.weigh(heat.masses.vertex, nothing, weighted.view(), &dx, true)?;
    }
    Ok(())
}
