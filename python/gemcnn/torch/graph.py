"""Graphs and clusters as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch.utils import _pytree

from .. import _arguments, geometry
from ..errors import OperatorError
from ..mesh import Mesh, as_mesh

__all__ = ["Clusters", "Graph", "Levels"]


class _Fields:
    """What named tuples of tensors share."""

    def to(self, *arguments: Any, **keywords: Any) -> Any:
        """The same on a device, or with numbers of another type; integers keep theirs. Takes the arguments of
        `Tensor.to`."""
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*arguments, **keywords)

        def move(tensor: Tensor) -> Tensor:
            wanted = dtype if tensor.is_floating_point() else None
            return tensor.to(device, wanted or tensor.dtype, non_blocking)

        return type(self)(*(move(tensor) for tensor in self))  # type: ignore[attr-defined]

    def pin_memory(self) -> Any:
        """The same in pinned memory, as `DataLoader(pin_memory=True)` asks for."""
        return type(self)(*(tensor.pin_memory() for tensor in self))  # type: ignore[attr-defined]


class _GraphFields(NamedTuple):
    offsets: Tensor
    neighbours: Tensor
    reverse: Tensor
    phases: Tensor
    radius: Tensor
    coefficients: Tensor
    reversed_phases: Tensor
    reversed_radius: Tensor
    reversed_coefficients: Tensor
    mesh_offsets: Tensor


class Graph(_Fields, _GraphFields):
    """A gauge graph, or several as a disjoint union, as tensors.

    Make it with `Graph.of` and `Graph.collate`. Convolutions on the CPU check all indices. Those on CUDA cannot: a graph with
    other contents than those of a valid graph reads memory out of bounds.

    Fields:
        offsets: int32 `[V + 1]`, start of the row of each vertex, then the number of edges.
        neighbours: int32 `[E]`, neighbour of each directed edge.
        reverse: int32 `[E]`, reverse of each directed edge.
        phases: `[E, 4]`, cosine and sine of the angle of the neighbour `theta`, and of `g - theta` with the transport `g`.
        radius: `[E]`, length of each edge.
        coefficients: `[E, c]`, weights of the neighbours; none if they count the same.
        reversed_phases, reversed_radius, reversed_coefficients: the same for the transposed operator.
        mesh_offsets: int32 `[B + 1]`, first vertex of each mesh, then the number of vertices.
    """

    __slots__ = ()

    @classmethod
    def of(
        cls, source: geometry.GaugeGraph | Mesh | Any, dtype: torch.dtype = torch.float32, **options: Any
    ) -> Graph:
        """The tensors of a gauge graph, or of that of a mesh.

        Args:
            source: a gauge graph, or a mesh, also of another library: an object with `vertices` and `faces`, or with
                `pos` and `face`.
            dtype: type of the numbers, float32 or float64.
            options: those of `Mesh.gauge_graph`, for a mesh.
        """
        _check_dtype(dtype)
        if not isinstance(source, geometry.GaugeGraph):
            source = as_mesh(source).gauge_graph(**options)
        elif options:
            raise OperatorError("options of the geometry are for meshes; this graph has its own")
        arrays = source._native.arrays(dtype == torch.float64)
        count = len(arrays["offsets"]) - 1
        ends = np.array([0, count], dtype=np.int32)
        return cls.from_parts(
            mesh_offsets=torch.from_numpy(ends),
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
        )

    @classmethod
    def from_parts(
        cls,
        offsets: Tensor,
        neighbours: Tensor,
        reverse: Tensor,
        phases: Tensor,
        radius: Tensor,
        coefficients: Tensor,
        mesh_offsets: Tensor,
    ) -> Graph:
        """A graph from all fields but the reversed ones, which are computed."""
        fields = (offsets, neighbours, reverse, phases, radius, coefficients, mesh_offsets)
        for name, tensor in zip(_PARTS, fields, strict=True):
            _arguments.instance(OperatorError, name, tensor, Tensor, "a tensor")
        edges = reverse.shape[:1]
        if reverse.dim() != 1 or phases.shape != (*edges, 4) or radius.shape != edges or coefficients.dim() != 2:
            raise OperatorError(
                "reverse, phases, radius and coefficients must have shapes [E], [E, 4], [E] and [E, c], not "
                f"{[list(tensor.shape) for tensor in (reverse, phases, radius, coefficients)]}"
            )
        if coefficients.shape[:1] != edges:
            raise OperatorError(f"coefficients have {len(coefficients)} rows for {len(reverse)} edges")
        if not torch.compiler.is_compiling() and reverse.device.type == "cpu" and reverse.layout == torch.strided:
            if reverse.is_floating_point() or reverse.is_complex():
                raise _arguments.wrong(OperatorError, "reverse", "integers", reverse)
            if len(reverse) and not (reverse.min() >= 0 and reverse.max() < len(reverse)):
                raise OperatorError(f"reverse must be from 0 to {len(reverse) - 1}, but has {reverse.min()} to {reverse.max()}")
        other = reverse.long()
        a, b, c, d = phases[other].unbind(1)
        # Coefficients of order k rotate by -k g, with the transport g of the other edge.
        turn = torch.complex(a, b) * torch.complex(c, d)
        values = coefficients[other]
        rotated = [values[:, :1]]
        for k in range(1, values.shape[1], 2):
            power = turn.conj() ** ((k + 1) // 2)
            value = torch.complex(values[:, k], values[:, k + 1]) * power
            rotated += [value.real[:, None], value.imag[:, None]]
        return cls(
            offsets,
            neighbours,
            reverse,
            phases,
            radius,
            coefficients,
            torch.stack([c, -d, a, -b], dim=1),
            radius[other],
            torch.cat(rotated, dim=1),
            mesh_offsets,
        )

    @classmethod
    def collate(cls, graphs: Sequence[Graph]) -> Graph:
        """The disjoint union of graphs: the vertices of each follow those of the one before."""
        graphs = _parts("graphs", graphs, cls)
        vertices = np.cumsum([0] + [graph.vertex_count for graph in graphs])
        edges = np.cumsum([0] + [graph.edge_count for graph in graphs])
        if max(vertices[-1], edges[-1]) >= 2**31:
            raise OperatorError("the union has too many edges for 32-bit indices")
        if len({graph.coefficients.shape[1] for graph in graphs}) > 1:
            raise OperatorError("graphs with different weights of neighbours cannot be joined")

        def joined(name: str) -> Tensor:
            return torch.cat([getattr(graph, name) for graph in graphs])

        def shifted(name: str, shifts: Any, start: int) -> Tensor:
            parts = [
                getattr(graph, name)[start:] + int(shift)
                for graph, shift in zip(graphs, shifts[:-1], strict=True)
            ]
            first = [graphs[0].offsets[:1]] if start else []
            return torch.cat(first + parts)

        return cls(
            shifted("offsets", edges, 1),
            shifted("neighbours", vertices, 0),
            shifted("reverse", edges, 0),
            joined("phases"),
            joined("radius"),
            joined("coefficients"),
            joined("reversed_phases"),
            joined("reversed_radius"),
            joined("reversed_coefficients"),
            shifted("mesh_offsets", vertices, 1),
        )

    def _for_operators(self) -> tuple[Tensor, ...]:
        """The fields that operators take. A slice of the tuple would not compile in PyTorch 2.6."""
        return (
            self.offsets,
            self.neighbours,
            self.reverse,
            self.phases,
            self.radius,
            self.coefficients,
            self.reversed_phases,
            self.reversed_radius,
            self.reversed_coefficients,
        )

    @property
    def vertex_count(self) -> int:
        """Number of vertices `V`."""
        return self.offsets.shape[0] - 1

    @property
    def edge_count(self) -> int:
        """Number of directed edges `E`."""
        return self.neighbours.shape[0]

    @property
    def mesh_count(self) -> int:
        """Number of meshes `B`."""
        return self.mesh_offsets.shape[0] - 1

    def mesh_of_vertex(self) -> Tensor:
        """Mesh of each vertex, int64 `[V]`."""
        vertices = torch.arange(self.vertex_count, device=self.offsets.device, dtype=torch.int32)
        return torch.searchsorted(self.mesh_offsets[1:], vertices, right=True)


_PARTS = ("offsets", "neighbours", "reverse", "phases", "radius", "coefficients", "mesh_offsets")


class _ClusterFields(NamedTuple):
    offsets: Tensor
    members: Tensor
    cluster_of: Tensor
    phases: Tensor


class Clusters(_Fields, _ClusterFields):
    """Clusters of vertices, one for each vertex of a coarser graph, as tensors. Make them with `Clusters.of` and
    `Clusters.collate`; as for `Graph`, their contents are checked on the CPU only.

    Fields:
        offsets: int32 `[C + 1]`, start of each cluster in `members`.
        members: int32 `[V]`, vertices, cluster by cluster.
        cluster_of: int32 `[V]`, cluster of each vertex.
        phases: `[V, 2]`, cosine and sine of the transport from each vertex to its cluster.
    """

    __slots__ = ()

    @classmethod
    def of(cls, source: geometry.Clusters, dtype: torch.dtype = torch.float32) -> Clusters:
        """The tensors of clusters."""
        _check_dtype(dtype)
        _arguments.instance(OperatorError, "source", source, geometry.Clusters, "gemcnn.Clusters")
        angles = torch.from_numpy(np.array(source.transport))

        def indices(array: Any) -> Tensor:
            return torch.from_numpy(array.astype(np.int32))

        return cls(
            indices(source.offsets),
            indices(source.members),
            indices(source.cluster_of),
            torch.stack([angles.cos(), angles.sin()], dim=1).to(dtype),
        )

    @classmethod
    def collate(cls, parts: Sequence[Clusters]) -> Clusters:
        """The disjoint union of clusters, as of their graphs."""
        parts = _parts("parts", parts, cls)
        vertices = np.cumsum([0] + [len(part.members) for part in parts])
        clusters = np.cumsum([0] + [len(part.offsets) - 1 for part in parts])
        offsets = [part.offsets[1:] + int(by) for part, by in zip(parts, vertices[:-1], strict=True)]
        members = [part.members + int(by) for part, by in zip(parts, vertices[:-1], strict=True)]
        owners = [part.cluster_of + int(by) for part, by in zip(parts, clusters[:-1], strict=True)]
        return cls(
            torch.cat([parts[0].offsets[:1], *offsets]),
            torch.cat(members),
            torch.cat(owners),
            torch.cat([part.phases for part in parts]),
        )


class Levels(NamedTuple):
    """The levels of a hierarchy, for networks that pool."""

    graphs: tuple[Graph, ...]
    """Graph of each level, from fine to coarse."""
    clusters: tuple[Clusters, ...]
    """Clusters of the vertices of each level but the coarsest."""

    @classmethod
    def of(cls, levels: Sequence[geometry.Level], dtype: torch.dtype = torch.float32) -> Levels:
        """The tensors of a hierarchy, `Mesh.hierarchy`."""
        levels = _parts("levels", levels, geometry.Level)
        return cls(
            tuple(Graph.of(level.graph, dtype) for level in levels),
            tuple(Clusters.of(level.clusters, dtype) for level in levels if level.clusters is not None),
        )

    @classmethod
    def collate(cls, parts: Sequence[Levels]) -> Levels:
        """The disjoint union of hierarchies with the same number of levels."""
        parts = _parts("parts", parts, cls)
        if len({len(part.graphs) for part in parts}) > 1:
            raise OperatorError("hierarchies with different numbers of levels cannot be joined")
        return cls(
            tuple(Graph.collate(level) for level in zip(*(part.graphs for part in parts), strict=True)),
            tuple(Clusters.collate(level) for level in zip(*(part.clusters for part in parts), strict=True)),
        )

    def to(self, *arguments: Any, **keywords: Any) -> Levels:
        """As `Graph.to`."""
        return Levels(*(tuple(part.to(*arguments, **keywords) for part in parts) for parts in self))

    def pin_memory(self) -> Levels:
        """As `Graph.pin_memory`."""
        return Levels(*(tuple(part.pin_memory() for part in parts) for parts in self))


def _check_dtype(dtype: Any) -> None:
    if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
        raise _arguments.wrong(OperatorError, "dtype", "torch.float32 or torch.float64", dtype)


def _parts(name: str, values: Any, kind: Any) -> list[Any]:
    """At least one object of a class."""
    found = [values] if isinstance(values, kind) else _arguments.listed(OperatorError, name, values)
    if isinstance(values, kind) or not found or not all(isinstance(value, kind) for value in found):
        raise _arguments.wrong(OperatorError, name, f"a list of one or more {kind.__name__}", values)
    return found


for _kind in (Graph, Clusters, Levels):
    # For `torch.export.save`.
    _pytree._register_namedtuple(_kind, serialized_type_name=f"gemcnn.torch.{_kind.__name__}")
# Example inputs in exported programs are loaded with `weights_only`.
torch.serialization.add_safe_globals([Graph, Clusters, Levels])
