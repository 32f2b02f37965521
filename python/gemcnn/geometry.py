"""Gauge graphs, features, Laplacians and hierarchies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _gemcnn
from .errors import GeometryError

__all__ = ["Clusters", "Features", "GaugeGraph", "Laplacian", "Level"]


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
    frames = None
    if gauge is not None:
        frames = np.asarray(gauge)
        integers = np.issubdtype(frames.dtype, np.integer) and frames.ndim == 1
        frames = np.ascontiguousarray(frames, dtype=np.uint32 if integers else np.float64)
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
        def numbers(values: ArrayLike) -> NDArray[np.float64]:
            return np.ascontiguousarray(values, dtype=np.float64)

        axes = numbers(frames)
        if axes.ndim != 3:
            raise GeometryError(f"frames must have shape [V, 3, 3], not {list(axes.shape)}")
        self._native = _gemcnn.GaugeGraph.from_arrays(
            np.ascontiguousarray(offsets, dtype=np.uint32),
            np.ascontiguousarray(neighbours, dtype=np.uint32),
            numbers(theta),
            numbers(transport),
            numbers(radius),
            axes,
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
        values = np.ascontiguousarray(angles, dtype=np.float64)
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
        self._native = _gemcnn.Clusters(
            count,
            np.ascontiguousarray(cluster_of, dtype=np.uint32),
            np.ascontiguousarray(transport, dtype=np.float64),
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


def _restore(stored: bytes, by_angle: bool) -> GaugeGraph:
    """A graph from a pickle."""
    return GaugeGraph._of(_gemcnn.GaugeGraph.from_bytes(stored, by_angle))
