//! The arrays of a gauge graph on the device.

use super::{Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, KernelSource, Result, args, check_length};
use crate::{GraphView, KernelError};
use bytemuck::Pod;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const SOURCE: KernelSource = KernelSource::new("graph", include_str!("graph.cu"));

const OPERATOR: &str = "graph";

/// A gauge graph in device memory.
///
/// Operators read it through a [`DeviceGraphView`]. The edges of the transposed operator are computed by
/// the first backward pass. The arrays of edges may be longer than the number of edges, so that
/// [`overwrite`](Self::overwrite) can replace the graph by one with more edges.
#[derive(Debug)]
pub struct DeviceGraph {
    host_mesh_offsets: Vec<u32>,
    mesh_offsets: DeviceBuffer<u32>,
    offsets: DeviceBuffer<u32>,
    neighbours: DeviceBuffer<u32>,
    reverse: DeviceBuffer<u32>,
    forward: EdgeValues,
    reversed: OnceLock<EdgeValues>,
    edges: AtomicUsize,
    /// Coefficients of each edge.
    columns: usize,
}

/// Phases, lengths and coefficients of all edges.
#[derive(Debug)]
struct EdgeValues {
    phases: DeviceBuffer<[f32; 4]>,
    radius: DeviceBuffer<f32>,
    coefficients: DeviceBuffer<f32>,
}

impl EdgeValues {
    /// The coefficients; empty without columns.
    fn coefficients(&self, columns: usize) -> DeviceSlice<'_, f32> {
        match columns {
            0 => DeviceSlice::empty(),
            _ => self.coefficients.view(),
        }
    }

    fn duplicate(&self, device: &CudaDevice, edges: usize, capacity: usize, columns: usize) -> Result<Self> {
        let coefficients = &self.coefficients;
        Ok(Self {
            phases: enlarged(device, &self.phases, edges, capacity)?,
            radius: enlarged(device, &self.radius, edges, capacity)?,
            coefficients: enlarged(device, coefficients, edges * columns, capacity * columns)?,
        })
    }
}

/// Copies the first `length` numbers.
fn copy_start<T: Pod>(device: &CudaDevice, from: &DeviceBuffer<T>, length: usize, to: &DeviceBuffer<T>) -> Result<()> {
    to.overwrite_start(device, from.view().slice(0..length))
}

/// A copy of the first `length` numbers with room for `capacity`.
fn enlarged<T: Pod>(
    device: &CudaDevice,
    buffer: &DeviceBuffer<T>,
    length: usize,
    capacity: usize,
) -> Result<DeviceBuffer<T>> {
    let copy = device.buffer(capacity)?;
    copy_start(device, buffer, length, &copy)?;
    Ok(copy)
}

impl DeviceGraph {
    /// Copies a graph to a device.
    pub fn new(device: &CudaDevice, graph: GraphView<'_, f32>) -> Result<Self> {
        Ok(Self {
            host_mesh_offsets: graph.mesh_offsets().to_vec(),
            mesh_offsets: device.upload(graph.mesh_offsets())?,
            offsets: device.upload(graph.offsets())?,
            neighbours: device.upload(graph.neighbours())?,
            reverse: device.upload(graph.reverse())?,
            forward: EdgeValues {
                phases: device.upload(bytemuck::cast_slice(graph.phases()))?,
                radius: device.upload(graph.radius())?,
                coefficients: device.upload(graph.coefficients())?,
            },
            reversed: OnceLock::new(),
            edges: AtomicUsize::new(graph.edge_count()),
            columns: graph.columns(),
        })
    }

    /// A copy with room for `spare_edges` more edges.
    pub fn duplicate(&self, device: &CudaDevice, spare_edges: usize) -> Result<Self> {
        let edges = self.edge_count();
        let capacity = edges.saturating_add(spare_edges);
        let reversed = match self.reversed.get() {
            Some(values) => OnceLock::from(values.duplicate(device, edges, capacity, self.columns)?),
            None => OnceLock::new(),
        };
        Ok(Self {
            host_mesh_offsets: self.host_mesh_offsets.clone(),
            mesh_offsets: self.mesh_offsets.duplicate(device)?,
            offsets: self.offsets.duplicate(device)?,
            neighbours: enlarged(device, &self.neighbours, edges, capacity)?,
            reverse: enlarged(device, &self.reverse, edges, capacity)?,
            forward: self.forward.duplicate(device, edges, capacity, self.columns)?,
            reversed,
            edges: AtomicUsize::new(edges),
            columns: self.columns,
        })
    }

    /// Copies another graph over this one, at the same addresses, for all work that follows. Work captured
    /// with this graph then runs on the other.
    ///
    /// # Errors
    /// Meshes with other numbers of vertices or of coefficients, or more edges than
    /// [`edge_capacity`](Self::edge_capacity).
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        let edges = with.edge_count();
        let refused = |problem: String| KernelError::Setting { operator: OPERATOR, problem };
        if self.host_mesh_offsets != with.host_mesh_offsets {
            let problem = "a graph can only be overwritten by one with the same numbers of vertices";
            return Err(refused(problem.into()).into());
        }
        if self.columns != with.columns {
            let problem = "a graph can only be overwritten by one with as many coefficients";
            return Err(refused(problem.into()).into());
        }
        if edges > self.edge_capacity() {
            let problem = format!("{edges} edges, but room for {}", self.edge_capacity());
            return Err(refused(problem).into());
        }
        self.offsets.overwrite(device, &with.offsets)?;
        copy_start(device, &with.neighbours, edges, &self.neighbours)?;
        copy_start(device, &with.reverse, edges, &self.reverse)?;
        let (from, to) = (&with.forward, &self.forward);
        copy_start(device, &from.phases, edges, &to.phases)?;
        copy_start(device, &from.radius, edges, &to.radius)?;
        let numbers = edges * self.columns;
        copy_start(device, &from.coefficients, numbers, &to.coefficients)?;
        self.edges.store(edges, Ordering::Relaxed);
        match self.reversed.get() {
            Some(values) => self.reverse_edges(device, values),
            None => Ok(()),
        }
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.edges.load(Ordering::Relaxed)
    }

    /// Largest number of directed edges that a graph in its place may have.
    pub fn edge_capacity(&self) -> usize {
        self.neighbours.len()
    }

    /// The graph as operators take it.
    pub fn view(&self) -> DeviceGraphView<'_> {
        let edges = self.edge_count();
        DeviceGraphView {
            slices: DeviceGraphSlices {
                offsets: self.offsets.view(),
                neighbours: self.neighbours.view().slice(0..edges),
                reverse: self.reverse.view().slice(0..edges),
                phases: self.forward.phases.view().slice(0..edges),
                radius: self.forward.radius.view().slice(0..edges),
                coefficients: (self.columns, self.forward.coefficients(self.columns)),
                reversed: None,
                mesh_offsets: self.mesh_offsets.view(),
                host_mesh_offsets: &self.host_mesh_offsets,
            },
            owner: Some(self),
            heads: 1,
        }
    }

    /// Phases and lengths of the edges of the transposed operator, computed by the first call.
    fn reversed(&self, device: &CudaDevice) -> Result<&EdgeValues> {
        if let Some(values) = self.reversed.get() {
            return Ok(values);
        }
        let values = EdgeValues {
            phases: device.buffer(self.edge_capacity())?,
            radius: device.buffer(self.edge_capacity())?,
            coefficients: device.buffer(self.edge_capacity() * self.columns)?,
        };
        self.reverse_edges(device, &values)?;
        Ok(self.reversed.get_or_init(|| values))
    }

    fn reverse_edges(&self, device: &CudaDevice, values: &EdgeValues) -> Result<()> {
        let function = device.function(SOURCE, &[], "reverse_edges")?;
        let from = &self.forward;
        let first: &[Arg] = args![&self.offsets, self.vertex_count(), &self.reverse, &from.phases, &from.radius];
        let last: &[Arg] =
            args![&from.coefficients, self.columns, &values.phases, &values.radius, &values.coefficients];
        // SAFETY: all arrays of edges have the capacity of the graph, the kernel stops at the number of
        // edges, and the reverse of an edge is an edge.
        unsafe { function.over(self.edge_capacity(), &[first, last].concat()) }
    }
}

/// The slices that a [`DeviceGraphView`] is made from: those of [`GraphSlices`](crate::GraphSlices) on the
/// device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceGraphSlices<'a> {
    /// Start of each row in the slices of edges, then the number of edges.
    pub offsets: DeviceSlice<'a, u32>,
    /// Neighbour `q` of every directed edge `p <- q`.
    pub neighbours: DeviceSlice<'a, u32>,
    /// Index of the reverse of every directed edge.
    pub reverse: DeviceSlice<'a, u32>,
    /// `[cos, sin, cos, sin]` of the angle and the transport of every directed edge, as in
    /// [`EdgePhases`](crate::EdgePhases).
    pub phases: DeviceSlice<'a, [f32; 4]>,
    /// Length of every directed edge.
    pub radius: DeviceSlice<'a, f32>,
    /// Number of coefficients of each edge, and the coefficients, as
    /// [`GraphSlices::coefficients`](crate::GraphSlices::coefficients).
    pub coefficients: (usize, DeviceSlice<'a, f32>),
    /// Phases, lengths and coefficients for the transposed operator, which backward passes need.
    pub reversed: Option<ReversedSlices<'a>>,
    /// First vertex of each mesh, then the number of vertices.
    pub mesh_offsets: DeviceSlice<'a, u32>,
    /// The same in host memory.
    pub host_mesh_offsets: &'a [u32],
}

/// What the transposed operator reads of each edge.
#[derive(Debug, Clone, Copy)]
pub struct ReversedSlices<'a> {
    /// With `[a, b, c, d]` the phases of the reverse of an edge, `[c, -d, a, -b]`.
    pub phases: DeviceSlice<'a, [f32; 4]>,
    /// Length of the reverse of every edge.
    pub radius: DeviceSlice<'a, f32>,
    /// Coefficients of the reverse of every edge; those of order `k` rotated by `-k g`, where `g` is its transport.
    pub coefficients: DeviceSlice<'a, f32>,
}

/// A gauge graph in borrowed device memory, as the operators on the GPU take it.
#[derive(Debug, Clone, Copy)]
pub struct DeviceGraphView<'a> {
    slices: DeviceGraphSlices<'a>,
    /// Computes the reversed edges when they are first needed.
    owner: Option<&'a DeviceGraph>,
    /// Number of factors of each edge, if it has a factor for each head of the features; else 1.
    heads: usize,
}

/// The edges as one direction of an operator reads them.
#[derive(Debug, Clone, Copy)]
pub struct DeviceEdges<'a> {
    /// Start of each row in the slices of edges, then the number of edges.
    pub offsets: DeviceSlice<'a, u32>,
    /// Neighbour of every directed edge.
    pub neighbours: DeviceSlice<'a, u32>,
    /// `[cos, sin, cos, sin]` of the angle and the transport of every directed edge.
    pub phases: DeviceSlice<'a, [f32; 4]>,
    /// Length of every directed edge.
    pub radius: DeviceSlice<'a, f32>,
    /// Coefficients of every directed edge, `[edges, columns]`.
    pub coefficients: DeviceSlice<'a, f32>,
}

impl<'a> DeviceGraphView<'a> {
    /// A graph in memory of the caller. Lengths are checked, contents are not: they lie on the device.
    ///
    /// # Safety
    /// The contents must be those of a valid graph: [`GraphView::new`](crate::GraphView::new) would accept
    /// them. Offsets, neighbours and reverse edges are used as indices without further checks.
    pub unsafe fn new(slices: DeviceGraphSlices<'a>) -> Result<Self, KernelError> {
        let edges = slices.neighbours.len();
        let (columns, coefficients) = slices.coefficients;
        let reversed =
            slices.reversed.unwrap_or(ReversedSlices { phases: slices.phases, radius: slices.radius, coefficients });
        if columns > 0 && columns.is_multiple_of(2) {
            return Err(KernelError::Graph {
                problem: format!("{columns} coefficients of each edge; an odd number is needed"),
            });
        }
        check_length(OPERATOR, "reverse", slices.reverse, edges)?;
        check_length(OPERATOR, "phases", slices.phases, edges)?;
        check_length(OPERATOR, "radius", slices.radius, edges)?;
        check_length(OPERATOR, "reversed phases", reversed.phases, edges)?;
        check_length(OPERATOR, "reversed radius", reversed.radius, edges)?;
        for values in [coefficients, reversed.coefficients] {
            check_length(OPERATOR, "coefficients", values, edges * columns)?;
        }
        let (offsets, meshes) = (slices.offsets.len(), slices.host_mesh_offsets.len());
        check_length(OPERATOR, "offsets", slices.offsets, offsets.max(1))?;
        check_length(OPERATOR, "mesh offsets", slices.mesh_offsets, meshes)?;
        let vertices = offsets - 1;
        crate::graph::check_offsets("mesh offsets", slices.host_mesh_offsets, vertices)
            .map_err(|problem| KernelError::Graph { problem })?;
        Ok(Self { slices, owner: None, heads: 1 })
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.slices.offsets.len() - 1
    }

    /// Number of directed edges. A captured launch must not depend on it: see
    /// [`DeviceGraph::overwrite`].
    pub fn edge_count(&self) -> usize {
        self.slices.neighbours.len()
    }

    /// Number of coefficients of each edge.
    pub fn columns(&self) -> usize {
        self.slices.coefficients.0
    }

    /// Factors of each edge: one, or one for each head of the features.
    pub(crate) fn heads(&self) -> usize {
        self.heads
    }

    /// Number of meshes.
    pub fn mesh_count(&self) -> usize {
        self.slices.host_mesh_offsets.len() - 1
    }

    /// First vertex of each mesh, then the number of vertices, in host memory.
    pub fn mesh_offsets(&self) -> &'a [u32] {
        self.slices.host_mesh_offsets
    }

    /// The same on the device.
    pub fn device_mesh_offsets(&self) -> DeviceSlice<'a, u32> {
        self.slices.mesh_offsets
    }

    /// Index of the reverse of every directed edge.
    pub fn reverse(&self) -> DeviceSlice<'a, u32> {
        self.slices.reverse
    }

    /// The edges for a forward pass.
    pub fn edges(&self) -> DeviceEdges<'a> {
        DeviceEdges {
            offsets: self.slices.offsets,
            neighbours: self.slices.neighbours,
            phases: self.slices.phases,
            radius: self.slices.radius,
            coefficients: self.slices.coefficients.1,
        }
    }

    /// The same graph with one factor for each edge in place of its coefficients, for a forward pass.
    pub(crate) fn with_factors<'b>(self, factors: DeviceSlice<'b, f32>) -> DeviceGraphView<'b>
    where
        'a: 'b,
    {
        DeviceGraphView {
            slices: DeviceGraphSlices { coefficients: (1, factors), reversed: None, ..self.slices },
            owner: None,
            heads: 1,
        }
    }

    /// The same graph with factors of edges and of their reverses, for a backward pass. With several heads, each edge
    /// has a factor for each of them.
    ///
    /// # Errors
    /// A view made without reversed edges, or out of memory.
    pub(crate) fn with_reversed_factors<'b>(
        self,
        device: &CudaDevice,
        factors: DeviceSlice<'b, f32>,
        reversed: DeviceSlice<'b, f32>,
        heads: usize,
    ) -> Result<DeviceGraphView<'b>>
    where
        'a: 'b,
    {
        let edges = self.reversed_edges(device)?;
        let mut view = self.with_factors(factors);
        view.slices.reversed =
            Some(ReversedSlices { phases: edges.phases, radius: edges.radius, coefficients: reversed });
        view.heads = heads;
        Ok(view)
    }

    /// The edges for a backward pass: those of the transposed operator.
    ///
    /// # Errors
    /// A view made without them, or out of memory.
    pub fn reversed_edges(&self, device: &CudaDevice) -> Result<DeviceEdges<'a>> {
        let (phases, radius, coefficients) = match (self.slices.reversed, self.owner) {
            (Some(values), _) => (values.phases, values.radius, values.coefficients),
            (None, Some(owner)) => {
                let values = owner.reversed(device)?;
                let coefficients = values.coefficients(owner.columns);
                (values.phases.view(), values.radius.view(), coefficients)
            }
            (None, None) => {
                return Err(CudaError::Kernel(KernelError::Graph {
                    problem: "a backward pass needs the reversed edges, which this view lacks".into(),
                }));
            }
        };
        Ok(DeviceEdges { phases, radius, coefficients, ..self.edges() })
    }
}
