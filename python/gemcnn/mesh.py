"""Meshes: arrays, files, report, repair, remeshing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _gemcnn
from .errors import MeshError

if TYPE_CHECKING:
    from .geometry import Features, GaugeGraph, Laplacian, Level

__all__ = ["Mesh", "MeshFile", "Remeshed", "Repaired", "from_pyg", "from_trimesh", "read", "read_file"]


def _integers(name: str, values: ArrayLike) -> NDArray[np.uint32]:
    """`values` as 32-bit indices."""
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise MeshError(f"`{name}` must be integers, not {array.dtype}")
    if array.size and not (array.min() >= 0 and array.max() < 2**32 - 1):
        raise MeshError(f"`{name}` must be from 0 to 2^32 - 2")
    return np.ascontiguousarray(array, dtype=np.uint32)


class Mesh:
    """A polygon mesh. It never changes.

    Args:
        vertices: positions, `[V, 3]`.
        faces: corners of each face, `[F, n]` with the same number of corners everywhere, or a list of lists for
            polygons of several sizes.

    Raises:
        MeshError: a coordinate that is not finite, or an index out of range, with its place.
    """

    __slots__ = ("_native",)
    _native: _gemcnn.Mesh

    def __init__(self, vertices: ArrayLike, faces: ArrayLike | Sequence[Sequence[int]]) -> None:
        points = np.ascontiguousarray(vertices, dtype=np.float64)
        if points.size == 0:
            points = points.reshape(0, 3)
        if points.ndim != 2:
            raise MeshError(f"vertices must have shape [V, 3], not {list(points.shape)}")
        if isinstance(faces, np.ndarray) or not _ragged(faces):
            corners = _integers("faces", faces)  # type: ignore[arg-type]
            if corners.size == 0:
                corners = corners.reshape(0, 3)
            if corners.ndim != 2:
                raise MeshError(f"faces must have shape [F, n], not {list(corners.shape)}")
            count, width = corners.shape
            offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(width)
        else:
            lists: Sequence[Sequence[int]] = faces  # type: ignore[assignment]
            sizes = [len(face) for face in lists]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
            corners = _integers("faces", [vertex for face in lists for vertex in face])
        self._native = _gemcnn.Mesh(points, corners.reshape(-1), offsets)

    @classmethod
    def _of(cls, native: _gemcnn.Mesh) -> Mesh:
        mesh = cls.__new__(cls)
        mesh._native = native
        return mesh

    def __repr__(self) -> str:
        return f"Mesh({len(self.vertices)} vertices, {self.face_count} faces)"

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Mesh):
            return NotImplemented
        return (
            np.array_equal(self.vertices, other.vertices)
            and np.array_equal(self.corners, other.corners)
            and np.array_equal(self.face_offsets, other.face_offsets)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (np.array(self.vertices), np.array(self.corners), np.array(self.face_offsets))

    @property
    def vertices(self) -> NDArray[np.float64]:
        """Positions, `[V, 3]`; a read-only view."""
        return self._native.vertices()

    @property
    def faces(self) -> NDArray[np.uint32]:
        """Corners of each face, `[F, n]`; a read-only view.

        Raises:
            MeshError: faces with different numbers of corners. Use `triangulated()`, or `corners` and `face_offsets`.
        """
        sizes = np.unique(np.diff(self.face_offsets))
        if len(sizes) > 1:
            raise MeshError(
                f"faces have {sizes.min()} to {sizes.max()} corners: use triangulated(), or corners and face_offsets"
            )
        return self.corners.reshape(self.face_count, -1 if len(sizes) else 3)

    @property
    def face_count(self) -> int:
        """Number of faces."""
        return len(self.face_offsets) - 1

    @property
    def corners(self) -> NDArray[np.uint32]:
        """Corners of all faces, one after the other; a read-only view."""
        return self._native.corners()

    @property
    def face_offsets(self) -> NDArray[np.uint32]:
        """Start of each face in `corners`, then their number, `[F + 1]`; a read-only view."""
        return self._native.offsets()

    @property
    def vertex_areas(self) -> NDArray[np.float64]:
        """Area of each vertex, `[V]`: that of its faces, divided by their numbers of corners."""
        return self._native.areas()

    def report(self) -> dict[str, Any]:
        """Size, topology and defects, as the command `gemcnn mesh info --json` prints them, with `sound` and
        `suggested_repairs`."""
        text, sound, repairs = self._native.report()
        report: dict[str, Any] = json.loads(text)
        return report | {"sound": sound, "suggested_repairs": repairs}

    def repair(self, *repairs: str) -> Repaired:
        """The repaired mesh.

        Args:
            repairs: in this order `weld` (or `weld=1e-6`), `degenerate`, `duplicates`, `isolated` or `orient`. Without
                any, those that the report suggests.
        """
        words = list(repairs) or self.report()["suggested_repairs"]
        native, origin, places, steps = self._native.repair(words)
        return Repaired(Mesh._of(native), origin, places, steps)

    def triangulated(self) -> Mesh:
        """The mesh with all polygons cut into triangles."""
        return Mesh._of(self._native.triangulated())

    def remesh(self, kind: str, *, seed: int = 0, **settings: Any) -> Remeshed:
        """The surface in another meshing.

        Args:
            kind: `isotropic`, `simplify`, `subdivide`, `refine_locally`, `flip_randomly`, `jitter` or `resample`.
            seed: of random choices.
            settings: those of the remesher (docs/remeshing.md), for example `size={"ratio": 0.5}`, `share=0.3` or
                `resolution=60`.
        """
        native, corners, weights = self._native.remesh(json.dumps({"kind": kind, **settings}), seed)
        return Remeshed(Mesh._of(native), corners, weights)

    def simplify(self, vertices: int) -> Remeshed:
        """The surface with about this number of vertices, by collapses of least quadric error."""
        return self.remesh("simplify", size={"vertices": vertices})

    def geodesics(self, sources: int | Sequence[int]) -> NDArray[np.float64]:
        """Distances along the surface from each source to all vertices, `[sources, V]`, or `[V]` from one."""
        if isinstance(sources, (int, np.integer)):
            return self._native.geodesics([int(sources)])[0]
        return self._native.geodesics([int(vertex) for vertex in sources])

    def gauge_graph(
        self,
        *,
        neighbourhood: str = "one_ring",
        radius: float | None = None,
        limit: int | None = None,
        normals: str = "area",
        weights: str = "count",
        gauge: ArrayLike | None = None,
        estimate_normals: bool = False,
    ) -> GaugeGraph:
        """Frames, log map and parallel transport (docs/geometry.md).

        Args:
            neighbourhood: `one_ring`, `radius` (vertices at most `radius` apart, at most `limit` of them), or `patch`
                (two rings, and vertices at most `radius` apart).
            radius: in units of the mesh.
            limit: largest number of neighbours.
            normals: weights of the faces in the vertex normals, `area` or `corner_angle`.
            weights: weights of the neighbours in convolutions, `count`, `area` or `jets`.
            gauge: angles `[V]` that rotate the default frames, integers `[V]` (the neighbour that the first axis
                points to), or directions `[V, 3]`.
            estimate_normals: gives vertices without a tangent plane the mean normal of their neighbours, instead of
                an exception.
        """
        from .geometry import GaugeGraph, geometry_arguments

        arguments = geometry_arguments(
            neighbourhood, radius, limit, normals, weights, gauge, estimate_normals
        )
        return GaugeGraph._of(_gemcnn.GaugeGraph(self._native, arguments))

    def hierarchy(
        self,
        ratios: Sequence[float],
        radii: Sequence[float],
        *,
        neighbour_limit: int | None = None,
        **geometry: Any,
    ) -> list[Level]:
        """Coarser and coarser gauge graphs, for pooling (docs/pooling.md).

        Args:
            ratios: for each coarser level, the share of the vertices of the level before.
            radii: radius of the neighbourhoods of each coarser level, in units of the mesh.
            neighbour_limit: largest number of neighbours on coarser levels.
            geometry: options of the finest level, as in `gauge_graph`.
        """
        from .geometry import Clusters, GaugeGraph, Level, geometry_arguments

        levels = _gemcnn.hierarchy(
            self._native, list(ratios), list(radii), neighbour_limit, geometry_arguments(**geometry)
        )
        return [
            Level(
                GaugeGraph._of(graph), vertices, None if clusters is None else Clusters._of(clusters)
            )
            for graph, vertices, clusters in levels
        ]

    def features(
        self,
        kinds: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        graph: GaugeGraph | None = None,
    ) -> Features:
        """Input features of the vertices (docs/features.md).

        Args:
            kinds: one or several of `xyz`, `shot`, `matrix`, `reltan`, `hks`, `wks`, `curvature` and `position`. A
                dictionary gives settings: `{"kind": "shot", "radius": 0.1}`.
            graph: gauge graph whose frames the components of order above 0 refer to (default: that of
                `gauge_graph()`).
        """
        from .geometry import Features

        parts = [kinds] if isinstance(kinds, (str, Mapping)) else list(kinds)
        chosen = [{"kind": part} if isinstance(part, str) else dict(part) for part in parts]
        settings = chosen[0] if len(chosen) == 1 else {"kind": "combined", "of": chosen}
        used = self.gauge_graph() if graph is None else graph
        return Features(*_gemcnn.features(self._native, used._native, json.dumps(settings)))

    def laplacian(self, order: int = 0, graph: GaugeGraph | None = None) -> Laplacian:
        """Laplacian of scalars, or connection Laplacian of fields of an order above 0 in the frames of a graph
        (docs/surfaces.md). The mesh is scaled to unit area."""
        from .geometry import Laplacian

        used = self.gauge_graph(estimate_normals=True) if graph is None else graph
        return Laplacian._of(order, *_gemcnn.laplacian(self._native, used._native))

    def eigenpairs(
        self, count: int, order: int = 0, graph: GaugeGraph | None = None
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """The lowest eigenvalues `[k]` of a Laplacian and its eigenvectors `[V, k]`, which are orthonormal with respect to
        the mass. Fields of an order above 0 are complex."""
        used = self.gauge_graph(estimate_normals=True) if graph is None else graph
        values, vectors = _gemcnn.eigenpairs(self._native, used._native, order, count)
        if order == 0:
            return values, vectors
        parts = vectors.reshape(len(self.vertices), 2, len(values))
        return values, parts[:, 0] + 1j * parts[:, 1]

    def gradient(self, field: ArrayLike, graph: GaugeGraph | None = None) -> NDArray[np.float64]:
        """Gradients of scalar fields `[V]` or `[V, b]`, as components in the frames of a graph, `[V, 2]` or `[V, 2, b]`. The mesh is
        scaled to unit area."""
        used = self.gauge_graph(estimate_normals=True) if graph is None else graph
        values = np.asarray(field, dtype=np.float64)
        rows = np.ascontiguousarray(values.reshape(len(self.vertices), -1))
        found = _gemcnn.gradient(self._native, used._native, rows)
        return found.reshape(len(rows), 2, *values.shape[1:])

    def diffuse(
        self, field: ArrayLike, time: float, order: int = 0, graph: GaugeGraph | None = None
    ) -> NDArray[Any]:
        """One implicit step of diffusion: `(M + t L) x = M u`.

        Args:
            field: `[V]` or `[V, b]`, complex for an order above 0.
            time: in units of the area of the mesh.
        """
        used = self.gauge_graph(estimate_normals=True) if graph is None else graph
        kind = np.float64 if order == 0 else np.complex128
        values = np.asarray(field, dtype=kind)
        rows = values.reshape(len(self.vertices), -1)
        if order == 0:
            found = _gemcnn.diffuse(self._native, used._native, 0, time, np.ascontiguousarray(rows))
            return found.reshape(values.shape)
        parts = np.stack([rows.real, rows.imag], axis=1).reshape(2 * len(rows), -1)
        found = _gemcnn.diffuse(self._native, used._native, order, time, np.ascontiguousarray(parts))
        pairs = found.reshape(len(rows), 2, -1)
        return (pairs[:, 0] + 1j * pairs[:, 1]).reshape(values.shape)

    def write(
        self, path: str | os.PathLike[str], attributes: Mapping[str, ArrayLike] | None = None
    ) -> None:
        """Writes a file: PLY, OBJ, OFF, STL, VTP or GLB by its ending.

        Args:
            path: the file.
            attributes: numbers of each vertex by name, which PLY, VTP and GLB files hold.
        """
        columns = {name: _column(name, values) for name, values in (attributes or {}).items()}
        self._native.write(os.fspath(path), columns)

    def to_trimesh(self) -> Any:
        """A `trimesh.Trimesh` with the same vertices, in the same order."""
        import trimesh  # type: ignore[import-not-found,unused-ignore]

        mesh = self.triangulated()
        return trimesh.Trimesh(np.array(mesh.vertices), mesh.faces.astype(np.int64), process=False)

    def to_pyvista(self) -> Any:
        """A `pyvista.PolyData`."""
        import pyvista  # type: ignore[import-not-found,unused-ignore]

        sizes = np.diff(self.face_offsets)
        starts = self.face_offsets[:-1].astype(np.int64)
        cells = np.insert(self.corners.astype(np.int64), starts, sizes)
        return pyvista.PolyData(np.array(self.vertices), cells)

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.Data` with `pos` `[V, 3]` and `face` `[3, F]`."""
        import torch
        from torch_geometric.data import Data  # type: ignore[import-not-found,import-untyped,unused-ignore]

        faces = torch.from_numpy(self.triangulated().faces.astype(np.int64).T.copy())
        return Data(pos=torch.from_numpy(self.vertices.astype(np.float32)), face=faces)


class Repaired(NamedTuple):
    """A repaired mesh."""

    mesh: Mesh
    """The mesh."""
    vertex_origin: NDArray[np.uint32]
    """Original vertex of each vertex: `labels[vertex_origin]` are the labels of the repaired mesh."""
    vertex_map: NDArray[np.int64]
    """Vertex of each original one, -1 if it was dropped."""
    steps: list[tuple[str, int, int]]
    """For each repair its name and the numbers of changed and of all items."""


class Remeshed(NamedTuple):
    """A mesh of the same surface, and where its vertices lie on the original one."""

    mesh: Mesh
    """The mesh."""
    corners: NDArray[np.uint32]
    """Three original vertices for each vertex, `[V, 3]`."""
    weights: NDArray[np.float64]
    """Their weights, `[V, 3]`, which sum to 1."""

    def carry_values(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values at original vertices, `[V0]` or `[V0, b]`, interpolated."""
        rows = np.asarray(values, dtype=np.float64)
        return np.einsum("vc,vc...->v...", self.weights, rows[self.corners])

    def carry_labels(self, labels: ArrayLike) -> NDArray[Any]:
        """Labels of the original vertices that are nearest."""
        nearest = self.weights.argmax(axis=1)
        return np.asarray(labels)[self.corners[np.arange(len(nearest)), nearest]]


class MeshFile(NamedTuple):
    """The contents of a mesh file."""

    mesh: Mesh
    """The mesh."""
    attributes: dict[str, NDArray[Any]]
    """Numbers of each vertex by name."""
    face_attributes: dict[str, NDArray[Any]]
    """Numbers of each face by name."""
    notes: list[str]
    """What was left out or assumed."""
    format: str
    """The format."""


def read(path: str | os.PathLike[str]) -> Mesh:
    """The mesh of a PLY, OBJ, OFF, STL, VTK, glTF, Gmsh, GIFTI or FreeSurfer file.

    Raises:
        FileError: what is wrong in the file, and where.
    """
    return read_file(path).mesh


def read_file(path: str | os.PathLike[str]) -> MeshFile:
    """The mesh of a file, with the numbers at its vertices and faces."""
    native, attributes, face_attributes, notes, kind = _gemcnn.read(os.fspath(path))
    return MeshFile(Mesh._of(native), attributes, face_attributes, notes, kind)


def from_trimesh(mesh: Any) -> Mesh:
    """The mesh of a `trimesh.Trimesh`, or of any object with `vertices` and `faces`."""
    return Mesh(mesh.vertices, mesh.faces)


def from_pyg(data: Any) -> Mesh:
    """The mesh of a `torch_geometric.data.Data`, or of any object with tensors `pos` `[V, 3]` and `face` `[3, F]`."""
    return Mesh(data.pos.detach().cpu().numpy(), data.face.cpu().numpy().T)


def _ragged(faces: Any) -> bool:
    """True for a list of lists of different lengths."""
    return isinstance(faces, Sequence) and len({len(face) for face in faces}) > 1


def _restore(vertices: Any, corners: Any, offsets: Any) -> Mesh:
    """A mesh from a pickle."""
    return Mesh._of(_gemcnn.Mesh(vertices, corners, offsets))


def _column(name: str, values: ArrayLike) -> NDArray[Any]:
    """A column of a file: 64-bit integers become 32-bit ones if they fit."""
    array = np.ascontiguousarray(values)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if array.dtype in (np.int64, np.uint64):
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise MeshError(f"`{name}` has integers of more than 32 bits, which no file holds")
        return array.astype(np.int32)
    return array
