//! Implicit diffusion on a GPU: conjugate gradients whose step lengths stay on the device. The host reads the residual
//! every few iterations.

use super::{HeatMaps, Implicit, Length, MAX_ITERATIONS, Masses, OPERATOR};
use crate::Aggregation;
use crate::cuda::reduce::add_column_sums;
use crate::cuda::{Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, args, to_u32};
use crate::incidence;
use crate::incidence::cuda::DeviceIncidence;

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

impl HeatMaps<'_, DeviceIncidence> {
    fn sizes(&self) -> [(usize, usize); 2] {
        [self.coupling, self.copies].map(|map| (map.row_count(), map.column_count()))
    }
}

impl Masses<DeviceSlice<'_, f32>> {
    fn lengths(&self) -> Masses<usize> {
        Masses { vertex: self.vertex.len(), node: self.node.len(), stiffness: self.stiffness.len() }
    }
}

/// A batch on a GPU, with the memory of a solve.
struct System<'a> {
    device: &'a CudaDevice,
    op: &'a Implicit,
    maps: HeatMaps<'a, DeviceIncidence>,
    masses: Masses<DeviceSlice<'a, f32>>,
    irrep_of: DeviceBuffer<u32>,
    width: u32,
    /// Numbers of all features.
    count: usize,
    /// Residual, direction and its image.
    work: [DeviceBuffer<f32>; 3],
    partials: DeviceBuffer<f64>,
    scalars: DeviceBuffer<f64>,
}

impl<'a> System<'a> {
    fn new(
        device: &'a CudaDevice,
        op: &'a Implicit,
        maps: HeatMaps<'a, DeviceIncidence>,
        masses: Masses<DeviceSlice<'a, f32>>,
        count: usize,
    ) -> Result<Self, CudaError> {
        let buffer = || device.buffer(count);
        Ok(Self {
            device,
            op,
            maps,
            masses,
            irrep_of: device.upload(&op.irrep_of())?,
            width: to_u32(OPERATOR, op.features.dimension())?,
            count,
            work: [buffer()?, buffer()?, buffer()?],
            partials: device.buffer(count.div_ceil(BLOCK).clamp(1, MAX_BLOCKS))?,
            scalars: device.buffer(4)?,
        })
    }

    /// Runs a kernel with one thread for each number.
    fn over(&self, name: &'static str, arguments: &[Arg]) -> Result<(), CudaError> {
        let function = self.device.function(SOURCE, &[], name)?;
        // SAFETY: all slices of features have `count` numbers, and masses one for each row, as was checked.
        unsafe { function.over(self.count, arguments) }
    }

    /// Runs a kernel that leaves partial sums, and stores their sum.
    fn sum(&self, name: &'static str, arguments: &[Arg], slot: u32) -> Result<(), CudaError> {
        let blocks = self.partials.len();
        // SAFETY: as in `over`; there is a partial sum for each block.
        unsafe {
            let function = self.device.function(SOURCE, &[], name)?;
            function.run((blocks, 1), (BLOCK, 1), arguments)?;
            let total = self.device.function(SOURCE, &[], "total")?;
            let blocks = to_u32(OPERATOR, blocks)?;
            total.run((1, 1), (BLOCK, 1), args![&self.partials, blocks, &self.scalars, slot])
        }
    }

    /// `image = K x`, and `<x, image>`.
    fn apply(&self, time: f32, x: DeviceSlice<'_, f32>, image: &mut DeviceSliceMut<'_, f32>) -> Result<(), CudaError> {
        let (features, sum) = (&self.op.features, Aggregation::Sum);
        incidence::cuda::apply(self.device, features, sum, self.maps.coupling, x, image.reborrow())?;
        let Masses { node, stiffness, .. } = self.masses;
        let (width, count) = (self.width, self.count as u64);
        let arguments = args![node, stiffness, time, x, &*image, width, count, &self.partials];
        self.sum("product", arguments, CURVATURE)
    }

    /// Improves `y` to the solution of `K y = b`.
    fn solve(&mut self, time: f64, b: DeviceSlice<'_, f32>, y: &mut DeviceBuffer<f32>) -> Result<(), CudaError> {
        let time = time as f32;
        let empty = || self.device.buffer::<f32>(0);
        let [r, p, mut q] = std::mem::replace(&mut self.work, [empty()?, empty()?, empty()?]);
        let Masses { node, stiffness, .. } = self.masses;
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
                args![node, stiffness, time, scalars, before, CURVATURE, &p, &q, &*y, &r, width, count, partials,];
            self.sum("advance", arguments, after)?;
            let arguments = args![node, stiffness, time, scalars, before, after, &r, &p, width, count,];
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
    ) -> Result<(), CudaError> {
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
    ) -> Result<(), CudaError> {
        let (features, sum, copies) = (&self.op.features, Aggregation::Sum, self.maps.copies);
        incidence::cuda::apply_transposed(self.device, features, sum, copies, weighted, b.view_mut())?;
        let (width, count) = (self.width, self.count as u64);
        self.over("start", args![self.masses.node, &*b, &y.view_mut(), width, count])
    }

    /// `u = S z`.
    fn spread(&self, z: DeviceSlice<'_, f32>, u: DeviceSliceMut<'_, f32>) -> Result<(), CudaError> {
        let (features, sum) = (&self.op.features, Aggregation::Sum);
        incidence::cuda::apply(self.device, features, sum, self.maps.copies, z, u)
    }
}

/// Diffuses `x`, and saves the results of all times; see [`forward`](super::forward).
#[allow(clippy::too_many_arguments)]
pub fn forward(
    device: &CudaDevice,
    op: &Implicit,
    coupling: &DeviceIncidence,
    copies: &DeviceIncidence,
    masses: Masses<DeviceSlice<'_, f32>>,
    mix: DeviceSlice<'_, f32>,
    x: DeviceSlice<'_, f32>,
    mut y: DeviceSliceMut<'_, f32>,
    mut saved: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let maps = HeatMaps { coupling, copies };
    let lengths = [
        ("mix", mix.len(), Length::Mix),
        ("x", x.len(), Length::Features),
        ("y", y.len(), Length::Features),
        ("saved", saved.len(), Length::Saved),
    ];
    op.check(maps.sizes(), masses.lengths(), &lengths)?;
    device.clear(y.reborrow())?;
    if x.is_empty() {
        return Ok(());
    }
    let mut system = System::new(device, op, maps, masses, x.len())?;
    let (mut weighted, mut b) = (device.buffer(x.len())?, device.buffer(x.len())?);
    let mut z = device.buffer(x.len())?;
    let nothing = DeviceSlice::empty();
    system.weigh(masses.vertex, nothing, x, &weighted.view_mut(), false)?;
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

/// Overwrites `dx`, if it is wanted, and adds to the gradient of `mix`; see [`backward`](super::backward).
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &Implicit,
    coupling: &DeviceIncidence,
    copies: &DeviceIncidence,
    masses: Masses<DeviceSlice<'_, f32>>,
    mix: DeviceSlice<'_, f32>,
    saved: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    mut dmix: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let maps = HeatMaps { coupling, copies };
    let dx_length = dx.as_ref().map_or(dy.len(), |dx| dx.len());
    let lengths = [
        ("mix", mix.len(), Length::Mix),
        ("saved", saved.len(), Length::Saved),
        ("dy", dy.len(), Length::Features),
        ("dx", dx_length, Length::Features),
        ("dmix", dmix.len(), Length::Mix),
    ];
    op.check(maps.sizes(), masses.lengths(), &lengths)?;
    if dy.is_empty() {
        return Ok(());
    }
    let mut system = System::new(device, op, maps, masses, dy.len())?;
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
        let arguments = args![&sums, &system.irrep_of, system.width, &to, to_u32(OPERATOR, irreps)?];
        // SAFETY: there is a sum for each component of a row, and a gradient for each irrep.
        unsafe { fold.over(irreps, arguments)? };
    }
    let Some(mut dx) = dx else {
        return Ok(());
    };
    device.clear(dx.reborrow())?;
    let (mut b, mut z) = (device.buffer(dy.len())?, device.buffer(dy.len())?);
    let nothing = DeviceSlice::empty();
    for (index, &time) in op.times.iter().enumerate() {
        let mix = mix.slice(index * irreps..(index + 1) * irreps);
        system.weigh(nothing, mix, dy, &weighted.view_mut(), false)?;
        system.start(weighted.view(), &mut b, &mut z)?;
        system.solve(time, b.view(), &mut z)?;
        system.spread(z.view(), weighted.view_mut())?;
        system.weigh(masses.vertex, nothing, weighted.view(), &dx, true)?;
    }
    Ok(())
}
