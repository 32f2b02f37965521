//! What comes from outside of the crate: kernels, memory and streams; and captured work on graphs of other
//! sizes.

use super::*;
use crate::cuda::{DeviceGraphSlices, DeviceGraphView, DeviceMemory, KernelSource, ReversedSlices, to_u32};
use crate::{GraphView, kernel_args};
use bytemuck::Pod;
use cudarc::driver::sys::{self, CUresult};
use std::marker::PhantomData;

fn check(status: CUresult) {
    assert_eq!(status, CUresult::CUDA_SUCCESS);
}

/// Memory from plain `cuMemAlloc`; a context is current.
struct Foreign<T> {
    address: u64,
    length: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> Foreign<T> {
    fn new(values: &[T]) -> Self {
        let mut address = 0;
        let bytes = size_of_val(values);
        // SAFETY: a context is current, and the memory is as long as the values.
        unsafe {
            check(sys::cuMemAlloc_v2(&mut address, bytes.max(16)));
            check(sys::cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes));
        }
        Self { address, length: values.len(), kind: PhantomData }
    }

    fn view(&self) -> DeviceSlice<'_, T> {
        // SAFETY: the memory holds this many values, and is freed after the work.
        unsafe { DeviceSlice::from_raw_parts(self.address, self.length) }
    }

    fn view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: as above, and nothing else uses it.
        unsafe { DeviceSliceMut::from_raw_parts(self.address, self.length) }
    }

    fn read(&self, stream: sys::CUstream) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.length];
        // SAFETY: the memory holds this many values, and the copy runs after the work of the stream.
        unsafe {
            check(sys::cuStreamSynchronize(stream));
            let bytes = size_of_val(&values[..]);
            check(sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes));
        }
        values
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// A graph in foreign memory.
struct ForeignGraph {
    offsets: Foreign<u32>,
    neighbours: Foreign<u32>,
    reverse: Foreign<u32>,
    phases: Foreign<[f32; 4]>,
    radius: Foreign<f32>,
    reversed_phases: Foreign<[f32; 4]>,
    reversed_radius: Foreign<f32>,
    mesh_offsets: Foreign<u32>,
    host_mesh_offsets: Vec<u32>,
}

impl ForeignGraph {
    fn new(graph: GraphView<'_, f32>) -> Self {
        let phases: &[[f32; 4]] = bytemuck::cast_slice(graph.phases());
        let reverse = || graph.reverse().iter().map(|&edge| edge as usize);
        let turned = |[a, b, c, d]: [f32; 4]| [c, -d, a, -b];
        let reversed: Vec<[f32; 4]> = reverse().map(|edge| turned(phases[edge])).collect();
        let radius: Vec<f32> = reverse().map(|edge| graph.radius()[edge]).collect();
        Self {
            offsets: Foreign::new(graph.offsets()),
            neighbours: Foreign::new(graph.neighbours()),
            reverse: Foreign::new(graph.reverse()),
            phases: Foreign::new(phases),
            radius: Foreign::new(graph.radius()),
            reversed_phases: Foreign::new(&reversed),
            reversed_radius: Foreign::new(&radius),
            mesh_offsets: Foreign::new(graph.mesh_offsets()),
            host_mesh_offsets: graph.mesh_offsets().to_vec(),
        }
    }

    fn slices(&self) -> DeviceGraphSlices<'_> {
        DeviceGraphSlices {
            offsets: self.offsets.view(),
            neighbours: self.neighbours.view(),
            reverse: self.reverse.view(),
            phases: self.phases.view(),
            radius: self.radius.view(),
            coefficients: (0, DeviceSlice::empty()),
            reversed: Some(ReversedSlices {
                phases: self.reversed_phases.view(),
                radius: self.reversed_radius.view(),
                coefficients: DeviceSlice::empty(),
            }),
            mesh_offsets: self.mesh_offsets.view(),
            host_mesh_offsets: &self.host_mesh_offsets,
        }
    }

    fn view(&self) -> DeviceGraphView<'_> {
        // SAFETY: the contents are those of a checked graph.
        unsafe { DeviceGraphView::new(self.slices()) }.unwrap()
    }
}

fn operator() -> gauge_conv::GaugeConv {
    gauge_conv::GaugeConv { bias: false, ..gauge_conv::GaugeConv::new(kind("8x0 + 4x1"), kind("4x0 + 4x1 + 4x2")) }
}

/// A convolution without a bias, and its gradients.
fn both_ways(
    device: &CudaDevice,
    op: &gauge_conv::GaugeConv,
    graph: DeviceGraphView<'_>,
    [x, neighbour, self_term, dy]: [DeviceSlice<'_, f32>; 4],
    y: DeviceSliceMut<'_, f32>,
    [dx, dneighbour, dself_term]: [DeviceSliceMut<'_, f32>; 3],
) -> Result<(), CudaError> {
    let (bias, dx, dbias) = (DeviceSlice::empty(), Some(dx), DeviceSliceMut::empty());
    gauge_conv::Forward { op, graph, x, neighbour, self_term, bias, y }.launch(device)?;
    let pass = gauge_conv::Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias };
    pass.launch(device)
}

/// A convolution and its gradients on the stream of a device, in foreign memory, against the reference.
fn convolve_on(device: &CudaDevice, stream: sys::CUstream) {
    device.set_product_mode(ProductMode::F32);
    let op = operator();
    for graph in graphs() {
        let vertices = graph.wide.vertex_count();
        if vertices == 0 {
            continue;
        }
        let x = random(vertices * op.input.dimension(), 1);
        let dy = random(vertices * op.output.dimension(), 2);
        let weights = random(op.neighbour_count(), 3);
        let own = random(op.self_count(), 4);
        let (wide_weights, wide_own) = (wide(&weights), wide(&own));
        let on_host = gauge_conv::Weights { neighbour: &wide_weights[..], self_term: &wide_own[..], bias: &[][..] };
        let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
        let (mut dw, mut ds) = (vec![0.0; weights.len()], vec![0.0; own.len()]);
        gauge_conv::reference::forward(&op, graph.wide.view(), &wide(&x), on_host, &mut y);
        gauge_conv::reference::backward(
            &op,
            graph.wide.view(),
            &wide(&x),
            on_host,
            &wide(&dy),
            &mut dx,
            gauge_conv::Weights { neighbour: &mut dw[..], self_term: &mut ds[..], bias: &mut [][..] },
        );

        let foreign = ForeignGraph::new(graph.narrow.view());
        let (x, dy) = (Foreign::new(&x), Foreign::new(&dy));
        let (weights, own) = (Foreign::new(&weights), Foreign::new(&own));
        let zeros = |count: usize| Foreign::new(&vec![0f32; count]);
        let mut found = [y.len(), dx.len(), dw.len(), ds.len()].map(zeros);
        let [fy, fdx, fdw, fds] = &mut found;
        let (op, graph_view, x, dy) = (&op, foreign.view(), x.view(), dy.view());
        let (to, gradients) = (fy.view_mut(), [fdx, fdw, fds].map(Foreign::view_mut));
        both_ways(device, op, graph_view, [x, weights.view(), own.view(), dy], to, gradients).unwrap();
        for (name, found, expected) in [
            ("y", &found[0], &y),
            ("dx", &found[1], &dx),
            ("neighbour gradients", &found[2], &dw),
            ("self gradients", &found[3], &ds),
        ] {
            let error = relative_error(&found.read(stream), expected);
            assert!(error < F32, "{}, {name}: {error:e}", graph.name);
        }
    }
}

#[test]
fn foreign_memory_on_foreign_streams() {
    // Makes the primary context current, as PyTorch does.
    let Some(device) = device() else { return };
    device.synchronise().unwrap();
    let mut stream = std::ptr::null_mut();
    // SAFETY: the context is current.
    check(unsafe { sys::cuStreamCreate(&mut stream, 0) });
    for stream in [stream, std::ptr::null_mut()] {
        // SAFETY: the stream outlives the device.
        let borrowing = unsafe { CudaDevice::on_stream(0, stream.cast()) }.unwrap();
        convolve_on(&borrowing, stream);
    }
    // The stream is still there after the devices that borrowed it.
    // SAFETY: created once, destroyed once.
    unsafe {
        check(sys::cuStreamSynchronize(stream));
        check(sys::cuStreamDestroy_v2(stream));
    }
}

/// Counts what it gives out.
#[derive(Debug, Default)]
struct Counted {
    live: std::sync::atomic::AtomicI64,
    given: std::sync::atomic::AtomicI64,
}

// SAFETY: plain allocations, freed once the device is idle.
unsafe impl DeviceMemory for Counted {
    fn allocate(&self, bytes: usize, _: *mut std::ffi::c_void) -> Result<u64, String> {
        use std::sync::atomic::Ordering::Relaxed;
        self.live.fetch_add(1, Relaxed);
        self.given.fetch_add(1, Relaxed);
        let mut address = 0;
        // SAFETY: a context is current, and the place outlives the call.
        check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) });
        Ok(address)
    }

    fn free(&self, address: u64) {
        self.live.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: allocated once, freed once; the driver waits for the device.
        unsafe { sys::cuMemFree_v2(address) };
    }
}

#[test]
fn foreign_work_has_its_streams_and_memory() {
    use std::sync::atomic::Ordering::Relaxed;
    let Some(owner) = device() else { return };
    owner.synchronise().unwrap();
    let before = owner.memory().allocations;
    let memory = std::sync::Arc::new(Counted::default());
    let mut stream = std::ptr::null_mut();
    // SAFETY: the context is current.
    check(unsafe { sys::cuStreamCreate(&mut stream, 0) });
    for stream in [stream, std::ptr::null_mut(), stream] {
        // SAFETY: the stream outlives the device.
        let foreign = unsafe { owner.foreign(stream.cast(), memory.clone()) };
        convolve_on(&foreign, stream);
    }
    // Only tables are kept, and nothing came from the pool of the owner.
    let (live, given) = (memory.live.load(Relaxed), memory.given.load(Relaxed));
    assert!(given > 3 * live && live > 0, "{live} of {given} are live");
    assert_eq!(owner.memory().allocations, before);
    // The owner still multiplies on its own stream.
    owner.set_product_mode(ProductMode::F32);
    convolve_own(&owner);
    // SAFETY: created once, destroyed once.
    unsafe {
        check(sys::cuStreamSynchronize(stream));
        check(sys::cuStreamDestroy_v2(stream));
    }
}

/// A product on the stream of the device itself.
fn convolve_own(device: &CudaDevice) {
    let (a, b) = (random(6, 1), random(6, 2));
    let (left, right) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
    let mut c: DeviceBuffer<f32> = device.zeros(4).unwrap();
    crate::cuda::Product {
        m: 2,
        n: 2,
        k: 3,
        a: crate::cuda::Operand::new(left.view(), 3),
        b: crate::cuda::Operand::new(right.view(), 2),
        add: false,
        batches: 1,
    }
    .run(device, &c.view_mut(), (2, 0))
    .unwrap();
    let expected: Vec<f64> =
        (0..4).map(|at| (0..3).map(|k| f64::from(a[at / 2 * 3 + k]) * f64::from(b[k * 2 + at % 2])).sum()).collect();
    assert!(relative_error(&c.to_vec(device).unwrap(), &expected) < F32);
}

#[test]
fn the_legacy_stream_is_not_captured() {
    let Some(_context) = device() else { return };
    // SAFETY: the legacy default stream always exists.
    let device = unsafe { CudaDevice::on_stream(0, std::ptr::null_mut()) }.unwrap();
    let refused = device.capture(|| device.zeros::<f32>(4));
    assert!(matches!(refused, Err(CudaError::Capture { .. })));
    assert_eq!(device.upload(&[1u32]).unwrap().to_vec(&device).unwrap(), [1]);
}

#[test]
fn a_view_without_reversed_edges_has_no_backward_pass() {
    let Some(device) = device() else { return };
    let graph = graphs().swap_remove(0);
    let foreign = ForeignGraph::new(graph.narrow.view());
    let slices = DeviceGraphSlices { reversed: None, ..foreign.slices() };
    // SAFETY: the contents are those of a checked graph.
    let view = unsafe { DeviceGraphView::new(slices) }.unwrap();
    let refused = view.reversed_edges(&device);
    assert!(matches!(refused, Err(CudaError::Kernel(KernelError::Graph { .. }))));
    let slices = DeviceGraphSlices { radius: DeviceSlice::empty(), ..foreign.slices() };
    // SAFETY: the lengths are refused.
    let refused = unsafe { DeviceGraphView::new(slices) };
    assert!(matches!(refused, Err(KernelError::Length { .. })));
}

#[test]
fn a_captured_step_runs_on_graphs_with_other_numbers_of_edges() {
    let Some(device) = device() else { return };
    let graph = |cells| {
        let mesh = shapes::grid(9, 11, cells).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        let arrays = GraphArrays::<f32>::union(&[parts(&graph)]).unwrap();
        DeviceGraph::new(&device, arrays.view()).unwrap()
    };
    let mut both = [graph(Cells::Quads), graph(Cells::Triangles)];
    both.sort_by_key(DeviceGraph::edge_count);
    let [small, large] = &both;
    assert_eq!(small.vertex_count(), large.vertex_count());
    let spare = large.edge_count() - small.edge_count();
    assert!(spare > 0);

    let op = operator();
    let vertices = small.vertex_count();
    let x = device.upload(&random(vertices * op.input.dimension(), 1)).unwrap();
    let dy = device.upload(&random(vertices * op.output.dimension(), 2)).unwrap();
    let weights = device.upload(&random(op.neighbour_count(), 3)).unwrap();
    let own = device.upload(&random(op.self_count(), 4)).unwrap();
    let step = |graph: &DeviceGraph| -> Result<[DeviceBuffer<f32>; 3], CudaError> {
        let (mut y, mut dx) = (device.zeros(dy.len())?, device.zeros(x.len())?);
        let mut dw = device.zeros(op.neighbour_count())?;
        let mut ds = device.zeros(op.self_count())?;
        let given = [x.view(), weights.view(), own.view(), dy.view()];
        let gradients = [dx.view_mut(), dw.view_mut(), ds.view_mut()];
        both_ways(&device, &op, graph.view(), given, y.view_mut(), gradients)?;
        Ok([y, dx, dw])
    };
    let bits = |buffers: &[DeviceBuffer<f32>; 3]| {
        buffers.each_ref().map(|buffer| {
            let values = buffer.to_vec(&device).unwrap();
            values.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        })
    };
    // Duplicated before its first backward pass: the reversed edges are computed in the capture.
    let place = small.duplicate(&device, spare).unwrap();
    assert_eq!(place.edge_capacity(), large.edge_count());
    let expected = [small, large].map(|graph| bits(&step(graph).unwrap()));
    assert_ne!(expected[0], expected[1]);
    let captured = device.capture(|| step(&place)).unwrap();
    for (graph, expected) in [small, large, small, large].into_iter().zip(expected.iter().cycle()) {
        place.overwrite(&device, graph).unwrap();
        assert_eq!(place.edge_count(), graph.edge_count());
        captured.replay().unwrap();
        assert_eq!(&bits(captured.output()), expected);
    }

    let full = small.duplicate(&device, spare - 1).unwrap();
    let refused = full.overwrite(&device, large);
    assert!(matches!(refused, Err(CudaError::Kernel(KernelError::Setting { .. }))));
}

#[test]
fn kernels_of_one_name_and_other_text_are_two() {
    let Some(device) = device() else { return };
    const TWICE: KernelSource = KernelSource::new(
        "outside",
        "extern \"C\" __global__ void apply(const float *x, float *y, u32 count) {
            u64 i = item();
            if (i < count) y[i] = 2.0f * x[i] + SHIFT;
        }",
    );
    const SQUARE: KernelSource = KernelSource::new(
        "outside",
        "extern \"C\" __global__ void apply(const float *x, float *y, u32 count) {
            u64 i = item();
            if (i < count) y[i] = x[i] * x[i] + SHIFT;
        }",
    );
    let x = device.upload(&[1f32, 2.0, 3.0]).unwrap();
    let apply = |source: KernelSource, shift: &str| {
        let mut y: DeviceBuffer<f32> = device.buffer(x.len()).unwrap();
        let defines = [("SHIFT", shift.to_string())];
        let kernel = device.function(source, &defines, "apply").unwrap();
        let count = to_u32("outside", x.len()).unwrap();
        // SAFETY: the arguments are those of the kernel, and both buffers hold `count` numbers.
        unsafe { kernel.over(x.len(), kernel_args![x.view(), &y.view_mut(), count]) }.unwrap();
        y.to_vec(&device).unwrap()
    };
    assert_eq!(apply(TWICE, "0.0f"), [2.0, 4.0, 6.0]);
    assert_eq!(apply(SQUARE, "0.0f"), [1.0, 4.0, 9.0]);
    assert_eq!(apply(SQUARE, "1.0f"), [2.0, 5.0, 10.0]);
    assert_eq!(apply(TWICE, "0.0f"), [2.0, 4.0, 6.0]);
    assert!(device.function(TWICE, &[("SHIFT", "0.0f".into())], "no_such_kernel").is_err());
}
