"""Gauge graphs, features, Laplacians and hierarchies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _gemcnn
from .errors import GeometryError, TaskError

if TYPE_CHECKING:
    from .mesh import Mesh

__all__ = ["Clusters", "Features", "GaugeGraph", "Gradient", "Laplacian", "Level", "SurfaceOperators"]


def geometry_arguments(
    neighbourhood: str = "one_ring",
    radius: float | None = None,
    limit: int | None = None,
    normals: str = "area",
    weights: str = "count",
    gauge: ArrayLike | None = None,
    estimate_normals: bool = False,
) -> dict[str, Any]:
    """Arguments of the geometry, as the native part takes them."""
    _arguments.choice(GeometryError, "neighbourhood", neighbourhood, ("one_ring", "radius", "patch"))
    _arguments.choice(GeometryError, "normals", normals, ("area", "corner_angle"))
    _arguments.choice(GeometryError, "weights", weights, ("count", "area", "jets"))
    _arguments.flag(GeometryError, "estimate_normals", estimate_normals)
    if radius is not None:
        radius = _arguments.number(GeometryError, "radius", radius, 0)
    if limit is not None:
        limit = _arguments.integer(GeometryError, "limit", limit, 1)
    frames = None
    if gauge is not None:
        frames = _arguments.array(GeometryError, "gauge", gauge, None)
        if frames.ndim != 1:
            frames = _arguments.array(GeometryError, "gauge", gauge, ["V", 3])
        elif np.asarray(gauge).dtype.kind in "iu":
            frames = _arguments.array(GeometryError, "gauge", gauge, ["V"], np.uint32)
    return {
        "neighbourhood": neighbourhood,
        "radius": radius,
        "limit": limit,
        "normals": normals,
        "weights": weights,
        "gauge": frames,
        "estimate_normals": estimate_normals,
    }


class GaugeGraph:
    """The gauge geometry of a mesh: for each vertex a tangent frame, and for each directed edge `p <- q` the direction of
    `q` and the parallel transport from `q` to `p`. Edges of a vertex lie together, in compressed rows. It never changes.

    Made by `Mesh.gauge_graph`, or from arrays:

    Args:
        offsets: start of the row of each vertex, then the number of edges, `[V + 1]`.
        neighbours: neighbour `q` of each edge, `[E]`. With an edge `p <- q` there must be `q <- p`.
        theta, transport, radius: as the properties, `[E]`.
        frames: as the property, `[V, 3, 3]`.
    """

    __slots__ = ("_native",)
    _native: _gemcnn.GaugeGraph

    def __init__(
        self,
        offsets: ArrayLike,
        neighbours: ArrayLike,
        theta: ArrayLike,
        transport: ArrayLike,
        radius: ArrayLike,
        frames: ArrayLike,
    ) -> None:
        ends = _arguments.array(GeometryError, "neighbours", neighbours, ["E"], np.uint32)
        edges = [len(ends)]
        self._native = _gemcnn.GaugeGraph.from_arrays(
            _arguments.array(GeometryError, "offsets", offsets, ["V + 1"], np.uint32),
            ends,
            _arguments.array(GeometryError, "theta", theta, edges),
            _arguments.array(GeometryError, "transport", transport, edges),
            _arguments.array(GeometryError, "radius", radius, edges),
            _arguments.array(GeometryError, "frames", frames, ["V", 3, 3]),
        )

    @classmethod
    def _of(cls, native: _gemcnn.GaugeGraph) -> GaugeGraph:
        graph = cls.__new__(cls)
        graph._native = native
        return graph

    def __repr__(self) -> str:
        return f"GaugeGraph({self.vertex_count} vertices, {self.edge_count} directed edges)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, self._native.to_bytes()

    @property
    def vertex_count(self) -> int:
        """Number of vertices `V`."""
        return len(self.offsets) - 1

    @property
    def edge_count(self) -> int:
        """Number of directed edges `E`."""
        return len(self.neighbours)

    @property
    def offsets(self) -> NDArray[np.uint32]:
        """Start of the row of each vertex in the arrays of edges, then the number of edges, `[V + 1]`; a read-only view."""
        return self._native.offsets()

    @property
    def neighbours(self) -> NDArray[np.uint32]:
        """Neighbour `q` of each directed edge `p <- q`, `[E]`; a read-only view."""
        return self._native.neighbours()

    @property
    def reverse(self) -> NDArray[np.uint32]:
        """Index of the reverse of each directed edge, `[E]`; a read-only view."""
        return self._native.reverse()

    @property
    def theta(self) -> NDArray[np.float64]:
        """Angle of the neighbour in the frame of the vertex, in radians, `[E]`; a read-only view."""
        return self._native.theta()

    @property
    def transport(self) -> NDArray[np.float64]:
        """Rotation `g` of the parallel transport from the neighbour to the vertex, in radians, `[E]`; a read-only view."""
        return self._native.transport()

    @property
    def radius(self) -> NDArray[np.float64]:
        """Length of each edge, `[E]`; a read-only view."""
        return self._native.radius()

    @property
    def frames(self) -> NDArray[np.float64]:
        """Frame of each vertex, `[V, 3, 3]`: rows are the two tangent axes and the normal; a read-only view."""
        return self._native.frames()

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Weights of the neighbours, `[E, 0]` for `count`, `[E, 1]` for `area`, `[E, 5]` for `jets`; a read-only view."""
        return self._native.coefficients()

    @property
    def edge_index(self) -> NDArray[np.int64]:
        """Edges as PyTorch Geometric has them, `[2, E]`: neighbour (source), then vertex (target)."""
        degrees = np.diff(self.offsets)
        vertices = np.repeat(np.arange(self.vertex_count), degrees)
        return np.stack([self.neighbours.astype(np.int64), vertices])

    def rotated(self, angles: ArrayLike) -> GaugeGraph:
        """The same geometry in frames rotated by angles, `[V]`, from the first axis towards the second."""
        values = _arguments.array(GeometryError, "angles", angles, [self.vertex_count])
        return GaugeGraph._of(self._native.rotated(values))


class Features(NamedTuple):
    """Features of the vertices."""

    type: str
    """Feature type, for example `2x0 + 1x1`."""
    values: NDArray[np.float64]
    """Rows of the type, `[V, D]`."""


class Clusters:
    """Clusters of the vertices of a finer level, one for each vertex of the coarser level.

    Args:
        count: number of clusters.
        cluster_of: cluster of each finer vertex, `[V]`.
        transport: rotation of the parallel transport from each finer vertex to the vertex of its cluster, `[V]`.
    """

    __slots__ = ("_native",)
    _native: _gemcnn.Clusters

    def __init__(self, count: int, cluster_of: ArrayLike, transport: ArrayLike) -> None:
        owners = _arguments.array(GeometryError, "cluster_of", cluster_of, ["V"], np.uint32)
        self._native = _gemcnn.Clusters(
            _arguments.integer(GeometryError, "count", count, 0, 2**32 - 1),
            owners,
            _arguments.array(GeometryError, "transport", transport, [len(owners)]),
        )

    @classmethod
    def _of(cls, native: _gemcnn.Clusters) -> Clusters:
        clusters = cls.__new__(cls)
        clusters._native = native
        return clusters

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Clusters({len(self.cluster_of)} vertices in {len(self)} clusters)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Clusters, (len(self), np.array(self.cluster_of), np.array(self.transport))

    @property
    def offsets(self) -> NDArray[np.uint32]:
        """Start of each cluster in `members`, then the number of finer vertices, `[C + 1]`; a read-only view."""
        return self._native.offsets()

    @property
    def members(self) -> NDArray[np.uint32]:
        """Finer vertices, cluster by cluster, `[V]`; a read-only view."""
        return self._native.members()

    @property
    def cluster_of(self) -> NDArray[np.uint32]:
        """Cluster of each finer vertex, `[V]`; a read-only view."""
        return self._native.cluster_of()

    @property
    def transport(self) -> NDArray[np.float64]:
        """Transport from each finer vertex to the vertex of its cluster, in radians, `[V]`; a read-only view."""
        return self._native.transport()


class Level(NamedTuple):
    """A level of a hierarchy."""

    graph: GaugeGraph
    """Its gauge graph."""
    vertices: NDArray[np.uint32]
    """Its vertices in the mesh."""
    clusters: Clusters | None
    """Clusters of the vertices of the level before; `None` on the finest level."""


class Laplacian(NamedTuple):
    """A Laplacian `L` in coordinate form, and the mass `M`. Eigenvalues of `L x = lambda M x` are those of the mesh with unit
    area."""

    rows: NDArray[np.int64]
    """Row of each entry."""
    columns: NDArray[np.int64]
    """Column of each entry."""
    values: NDArray[Any]
    """Value of each entry; complex for fields of an order above 0."""
    mass: NDArray[np.float64]
    """Mass of each vertex, `[V]`; the masses sum to 1."""

    @classmethod
    def _of(
        cls, order: int, offsets: Any, neighbours: Any, weights: Any, transport: Any, mass: Any
    ) -> Laplacian:
        count = len(mass)
        vertices = np.arange(count)
        rows = np.repeat(vertices, np.diff(offsets))
        diagonal = np.bincount(rows, weights, minlength=count)
        phases = np.exp(1j * order * transport) if order else 1.0
        values = np.concatenate([diagonal, -weights * phases])
        columns = np.concatenate([vertices, neighbours.astype(np.int64)])
        return cls(np.concatenate([vertices, rows]), columns, values, mass)

    def to_scipy(self) -> tuple[Any, Any]:
        """`L` and `M` as sparse arrays of SciPy."""
        from scipy import sparse  # type: ignore[import-untyped,unused-ignore]

        count = len(self.mass)
        matrix = sparse.csr_array((self.values, (self.rows, self.columns)), shape=(count, count))
        return matrix, sparse.diags_array(self.mass).tocsr()


class Gradient(NamedTuple):
    """The gradient of scalar fields in coordinate form, in the frames of a graph and for a mesh with unit area: rows `2 p` and
    `2 p + 1` are the components at vertex `p`."""

    rows: NDArray[np.int64]
    """Row of each entry, `2 V` in all."""
    columns: NDArray[np.int64]
    """Column of each entry, `V` in all."""
    values: NDArray[np.float64]
    """Value of each entry."""
    vertices: int
    """Number of vertices `V`."""

    def to_scipy(self) -> Any:
        """The matrix `[2 V, V]` as a sparse array of SciPy."""
        from scipy import sparse  # type: ignore[import-untyped,unused-ignore]

        shape = (2 * self.vertices, self.vertices)
        return sparse.csr_array((self.values, (self.rows, self.columns)), shape=shape)


class SurfaceOperators:
    """The operators of a surface in the frames of a gauge graph, `Mesh.operators`. What they share, such as eigenpairs, is computed once.

    Args:
        mesh: the mesh.
        graph: its gauge graph, whose frames all fields of an order above 0 refer to.
    """

    __slots__ = ("_arrays", "_native", "graph", "mesh")

    def __init__(self, mesh: Mesh, graph: GaugeGraph) -> None:
        from .mesh import Mesh

        self.mesh = _arguments.instance(GeometryError, "mesh", mesh, Mesh, "a Mesh")
        """The mesh."""
        self.graph = _arguments.instance(GeometryError, "graph", graph, GaugeGraph, "a GaugeGraph")
        """Its gauge graph."""
        self._native = _gemcnn.Operators(mesh._native, graph._native)
        self._arrays: dict[str, NDArray[Any]] | None = None

    def __repr__(self) -> str:
        return f"SurfaceOperators({self.mesh!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return SurfaceOperators, (self.mesh, self.graph)

    @property
    def mass(self) -> NDArray[np.float64]:
        """Mass of each vertex, `[V]`; the masses sum to 1."""
        return self._native.mass()

    def _edges(self) -> dict[str, NDArray[Any]]:
        if self._arrays is None:
            self._arrays = self._native.arrays()
        return self._arrays

    def laplacian(self, order: int = 0) -> Laplacian:
        """As `Mesh.laplacian`."""
        edges = self._edges()
        offsets, weights = edges["offsets"], edges["weights"]
        return Laplacian._of(_order(order), offsets, edges["neighbours"], weights, edges["transport"], self.mass)

    def eigenpairs(self, count: int, order: int = 0) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """As `Mesh.eigenpairs`. Fewer eigenpairs than in an earlier call are taken from there."""
        chosen = _order(order)
        values, vectors = self._native.eigenpairs(chosen, _arguments.integer(GeometryError, "count", count, 1))
        if chosen == 0:
            return values, vectors
        parts = vectors.reshape(-1, 2, len(values))
        return values, parts[:, 0] + 1j * parts[:, 1]

    def gradient(self, field: ArrayLike) -> NDArray[np.float64]:
        """As `Mesh.gradient`."""
        values, rows = self._field(field, np.float64)
        return self._native.gradient(rows).reshape(len(values), 2, *values.shape[1:])

    def gradient_matrix(self) -> Gradient:
        """The gradient as a sparse matrix."""
        edges = self._edges()
        rows = np.repeat(np.arange(len(edges["gradient_offsets"]) - 1), np.diff(edges["gradient_offsets"]))
        columns = edges["gradient_neighbours"].astype(np.int64)
        return Gradient(rows, columns, edges["gradient"].copy(), self.graph.vertex_count)

    def diffuse(self, field: ArrayLike, time: float, order: int = 0) -> NDArray[Any]:
        """As `Mesh.diffuse`."""
        chosen, duration = _order(order), _arguments.number(GeometryError, "time", time, 0, 1e9)
        values, rows = self._field(field, np.float64 if chosen == 0 else np.complex128)
        if chosen == 0:
            return self._native.diffuse(0, duration, rows).reshape(values.shape)
        parts = np.stack([rows.real, rows.imag], axis=1).reshape(2 * len(rows), -1)
        found = self._native.diffuse(chosen, duration, np.ascontiguousarray(parts))
        pairs = found.reshape(len(rows), 2, -1)
        return (pairs[:, 0] + 1j * pairs[:, 1]).reshape(values.shape)

    def features(self, kinds: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]) -> Features:
        """As `Mesh.features`, in the frames of the graph."""
        return features(self.mesh, self.graph, kinds, self._native)

    def _field(self, field: ArrayLike, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """A field, and its rows `[V, b]`."""
        values = _arguments.array(GeometryError, "field", field, None, dtype)
        count = self.graph.vertex_count
        if values.ndim == 0 or len(values) != count:
            raise _arguments.wrong(GeometryError, "field", f"numbers of shape [{count}] or [{count}, b]", values)
        return values, values.reshape(count, int(np.prod(values.shape[1:])))


def features(mesh: Mesh, graph: GaugeGraph, kinds: Any, operators: _gemcnn.Operators | None) -> Features:
    """The features of `Mesh.features`, with operators that exist already or new ones."""
    _arguments.instance(GeometryError, "graph", graph, GaugeGraph, "a GaugeGraph")
    parts = [kinds] if isinstance(kinds, (str, Mapping)) else _arguments.listed(TaskError, "kinds", kinds)
    for part in parts:
        if not isinstance(part, (str, Mapping)):
            raise _arguments.wrong(TaskError, "kinds", "words or dictionaries with a `kind`", part)
    chosen = [{"kind": part} if isinstance(part, str) else _arguments.plain(TaskError, "kinds", part) for part in parts]
    settings = chosen[0] if len(chosen) == 1 else {"kind": "combined", "of": chosen}
    text = json.dumps(settings)
    with _arguments.told(f"features {text:.300}"):
        return Features(*_gemcnn.features(mesh._native, graph._native, text, operators))


def _order(order: Any) -> int:
    """Order of a field: far above those that features have."""
    return _arguments.integer(GeometryError, "order", order, 0, 1000)


def _restore(stored: bytes, by_angle: bool) -> GaugeGraph:
    """A graph from a pickle."""
    return GaugeGraph._of(_gemcnn.GaugeGraph.from_bytes(stored, by_angle))
