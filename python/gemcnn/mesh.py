"""Meshes: arrays, files, report, repair, remeshing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _gemcnn
from .errors import FileError, GeometryError, MeshError

if TYPE_CHECKING:
    from .geometry import Features, GaugeGraph, Laplacian, Level, SurfaceOperators

__all__ = ["Mesh", "MeshFile", "Remeshed", "Repaired", "from_pyg", "from_trimesh", "read", "read_file"]


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
        points = _rows("vertices", vertices, ["V", 3], np.float64)
        if _ragged(faces):
            lists: Sequence[Sequence[int]] = faces  # type: ignore[assignment]
            sizes = [len(face) for face in lists]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
            items = [vertex for face in lists for vertex in face]
            corners = _arguments.array(MeshError, "faces", items, ["corners"], np.uint32)
        else:
            corners = _rows("faces", faces, ["F", "n"], np.uint32)
            count, width = corners.shape
            offsets = (np.arange(count + 1) * width).astype(np.uint32)
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
        words = [_arguments.text(MeshError, "repairs", word, "words such as weld or orient") for word in repairs]
        words = words or self.report()["suggested_repairs"]
        native, origin, places, steps = self._native.repair(words)
        return Repaired(Mesh._of(native), origin, places, steps)

    def triangulated(self) -> Mesh:
        """The mesh with all polygons cut into triangles."""
        return Mesh._of(self._native.triangulated())

    def remesh(self, kind: str, *, seed: int = 0, **settings: Any) -> Remeshed:
        """The surface in another meshing.

        Args:
            kind: `isotropic`, `simplify`, `subdivide`, `refine_locally`, `flip_randomly`, `jitter`, `crop`,
                `resample`, `renumber` or `sequence`, which has several of them as
                `steps=[{"kind": "subdivide"}, {"kind": "crop", "share": 0.2}]`.
            seed: of random choices.
            settings: those of the remesher (docs/remeshing.md), for example `size={"ratio": 0.5}`, `share=0.3` or
                `resolution=60`.
        """
        _arguments.text(MeshError, "kind", kind, "a word such as isotropic")
        chosen = json.dumps({"kind": kind} | _arguments.plain(MeshError, "", settings))
        with _arguments.told(f"remesh with {chosen:.300}"):
            native, corners, weights = self._native.remesh(chosen, _seed(seed))
        return Remeshed(Mesh._of(native), corners, weights)

    def simplify(self, vertices: int) -> Remeshed:
        """The surface with about this number of vertices, by collapses of least quadric error."""
        return self.remesh("simplify", size={"vertices": _arguments.integer(MeshError, "vertices", vertices, 1)})

    def geodesics(self, sources: int | Sequence[int]) -> NDArray[np.float64]:
        """Distances along the surface from each source to all vertices, `[sources, V]`, or `[V]` from one."""
        most = len(self.vertices) - 1
        if not isinstance(sources, (list, tuple)) and np.ndim(sources) == 0:
            return self._native.geodesics([_arguments.integer(GeometryError, "sources", sources, 0, most)])[0]
        return self._native.geodesics(_arguments.integers(GeometryError, "sources", sources, 0, most))

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

        shares = _arguments.numbers(GeometryError, "ratios", ratios, 0, 1)
        lengths = _arguments.numbers(GeometryError, "radii", radii, 0)
        if neighbour_limit is not None:
            neighbour_limit = _arguments.integer(GeometryError, "neighbour_limit", neighbour_limit, 1)
        levels = _gemcnn.hierarchy(
            self._native, shares, lengths, neighbour_limit, geometry_arguments(**geometry)
        )
        return [
            Level(
                GaugeGraph._of(graph), vertices, None if clusters is None else Clusters._of(clusters)
            )
            for graph, vertices, clusters in levels
        ]

    def operators(self, graph: GaugeGraph | None = None) -> SurfaceOperators:
        """The operators of the surface in the frames of a graph: Laplacians, eigenpairs, gradients, features. What they share is
        computed once. The methods of the mesh with the same names compute it again in each call.

        Args:
            graph: gauge graph of the mesh (default: that of `gauge_graph(estimate_normals=True)`).
        """
        from .geometry import SurfaceOperators

        return SurfaceOperators(self, self.gauge_graph(estimate_normals=True) if graph is None else graph)

    def features(
        self,
        kinds: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        graph: GaugeGraph | None = None,
    ) -> Features:
        """Input features of the vertices (docs/features.md).

        Args:
            kinds: one or several of these words. A dictionary gives settings: `{"kind": "shot", "radius": 0.1}`.
            graph: gauge graph whose frames the components of order above 0 refer to (default: that of
                `gauge_graph()`).

        The kinds, with their settings and defaults:

        | kind | settings |
        | --- | --- |
        | `xyz`, `matrix`, `position` | none |
        | `shot` | `radius`: of the support, in units of the mesh (a tenth of the square root of the area) |
        | `reltan` | `powers` ([0.5, 0.7]): one tangent vector for each; `normal_part` (false): adds a scalar to each |
        | `hks` | `times` (16): number of signatures; `range` ([0.01, 1]): shortest and longest time; `eigenvectors` (128) |
        | `wks` | `energies` (16): number of signatures; `eigenvectors` (128) |
        | `curvature` | `times` ([0.001, 0.01]): of the smoothing; `eigenvectors` ([128, 64]): of the orders 0 and 2 |
        """
        from .geometry import features

        return features(self, self.gauge_graph() if graph is None else graph, kinds, None)

    def laplacian(self, order: int = 0, graph: GaugeGraph | None = None) -> Laplacian:
        """Laplacian of scalars, or connection Laplacian of fields of an order above 0 in the frames of a graph
        (docs/surfaces.md). The mesh is scaled to unit area."""
        return self.operators(graph).laplacian(order)

    def eigenpairs(
        self, count: int, order: int = 0, graph: GaugeGraph | None = None
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """The lowest eigenvalues `[k]` of a Laplacian and its eigenvectors `[V, k]`, which are orthonormal with respect to
        the mass. Fields of an order above 0 are complex.

        Args:
            count: number of eigenpairs, at least 1; a mesh with fewer vertices has fewer.
            order: order of the fields: 0 for scalars, 1 for tangent vectors.
            graph: gauge graph whose frames fields of an order above 0 refer to.
        """
        return self.operators(graph).eigenpairs(count, order)

    def gradient(self, field: ArrayLike, graph: GaugeGraph | None = None) -> NDArray[np.float64]:
        """Gradients of scalar fields `[V]` or `[V, b]`, as components in the frames of a graph, `[V, 2]` or `[V, 2, b]`. The mesh is
        scaled to unit area."""
        return self.operators(graph).gradient(field)

    def diffuse(
        self, field: ArrayLike, time: float, order: int = 0, graph: GaugeGraph | None = None
    ) -> NDArray[Any]:
        """One implicit step of diffusion: `(M + t L) x = M u`.

        Args:
            field: `[V]` or `[V, b]`, complex for an order above 0.
            time: in units of the area of the mesh.
            order: order of the field.
            graph: gauge graph whose frames fields of an order above 0 refer to.
        """
        return self.operators(graph).diffuse(field, time, order)

    def write(
        self, path: str | os.PathLike[str], attributes: Mapping[str, ArrayLike] | None = None
    ) -> None:
        """Writes a file: PLY, OBJ, OFF, STL, VTP or GLB by its ending.

        Args:
            path: the file.
            attributes: numbers of each vertex by name, which PLY, VTP and GLB files hold.
        """
        given = {} if attributes is None else attributes
        _arguments.instance(MeshError, "attributes", given, Mapping, "a dictionary of arrays")
        columns = {name: _column(name, values, len(self.vertices)) for name, values in given.items()}
        self._native.write(_arguments.path(FileError, "path", path), columns)

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
    """Three original vertices for each vertex, `[V, 3]`; more after several remeshings."""
    weights: NDArray[np.float64]
    """Their weights, `[V, 3]`, which sum to 1."""

    def remesh(self, kind: str, *, seed: int = 0, **settings: Any) -> Remeshed:
        """As `Mesh.remesh`, with the places of the vertices on the mesh at the start of the chain."""
        return self.then(self.mesh.remesh(kind, seed=seed, **settings))

    def simplify(self, vertices: int) -> Remeshed:
        """As `Mesh.simplify`, with the places of the vertices on the mesh at the start of the chain."""
        return self.then(self.mesh.simplify(vertices))

    def then(self, later: Remeshed) -> Remeshed:
        """A remeshing of this mesh, with the places of its vertices on the original mesh.

        Args:
            later: from `self.mesh.remesh`.
        """
        _arguments.instance(MeshError, "later", later, Remeshed, "a Remeshed")
        if later.corners.max(initial=0) >= len(self.corners):
            raise MeshError(f"`later` is of a mesh with more than the {len(self.corners)} vertices of this one")
        count = len(later.corners)
        corners = self.corners[later.corners].reshape(count, -1)
        weights = (later.weights[:, :, None] * self.weights[later.corners]).reshape(count, -1)
        # Equal vertices are added up at the first of them, and columns without weights left out.
        same = corners[:, :, None] == corners[:, None, :]
        first = same.argmax(axis=2) == np.arange(corners.shape[1])
        sums = np.where(first, np.einsum("vij,vj->vi", same, weights), 0.0)
        width = max(3, int((sums != 0).sum(axis=1).max(initial=0)))
        kept = np.argsort(sums == 0, axis=1, kind="stable")[:, :width]
        rows = np.arange(count)[:, None]
        return Remeshed(later.mesh, corners[rows, kept], sums[rows, kept])

    def carry_values(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values at original vertices, `[V0]` or `[V0, b]`, interpolated."""
        rows = self._original("values", _arguments.array(MeshError, "values", values, None))
        return np.einsum("vc,vc...->v...", self.weights, rows[self.corners])

    def carry_labels(self, labels: ArrayLike) -> NDArray[Any]:
        """Labels of the original vertices that are nearest."""
        nearest = self.weights.argmax(axis=1)
        try:
            found = np.asarray(labels)
        except ValueError as problem:
            raise _arguments.wrong(MeshError, "labels", "an array", labels) from problem
        return self._original("labels", found)[self.corners[np.arange(len(nearest)), nearest]]

    def _original(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the original vertices: as many as the sources name."""
        needed = int(self.corners.max(initial=0)) + 1
        if values.ndim == 0 or len(values) < needed:
            raise _arguments.wrong(MeshError, name, f"at least {needed} rows, one for each vertex of the original mesh", values)
        return values


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
    native, attributes, face_attributes, notes, kind = _gemcnn.read(_arguments.path(FileError, "path", path))
    return MeshFile(Mesh._of(native), attributes, face_attributes, notes, kind)


def from_trimesh(mesh: Any) -> Mesh:
    """The mesh of a `trimesh.Trimesh`, or of any object with `vertices` and `faces`."""
    if not (hasattr(mesh, "vertices") and hasattr(mesh, "faces")):
        raise _arguments.wrong(MeshError, "mesh", "an object with `vertices` and `faces`", mesh)
    return Mesh(mesh.vertices, mesh.faces)


def from_pyg(data: Any) -> Mesh:
    """The mesh of a `torch_geometric.data.Data`, or of any object with tensors `pos` `[V, 3]` and `face` `[3, F]`."""
    if getattr(data, "pos", None) is None or getattr(data, "face", None) is None:
        raise _arguments.wrong(MeshError, "data", "an object with tensors `pos` [V, 3] and `face` [3, F]", data)
    pos = _arguments.array(MeshError, "data.pos", data.pos, ["V", 3])
    return Mesh(pos, _arguments.array(MeshError, "data.face", data.face, [3, "F"], np.int64).T)


def as_mesh(mesh: Any) -> Mesh:
    """A mesh of this or another library: as `from_trimesh` or `from_pyg`."""
    if isinstance(mesh, Mesh):
        return mesh
    if hasattr(mesh, "vertices") and hasattr(mesh, "faces"):
        return from_trimesh(mesh)
    if getattr(mesh, "pos", None) is not None and getattr(mesh, "face", None) is not None:
        return from_pyg(mesh)
    raise _arguments.wrong(MeshError, "mesh", "a Mesh, or an object with `vertices` and `faces`", mesh)


def mesh_or_file(mesh: Any) -> Mesh:
    """As `as_mesh`, or the mesh of a file."""
    return read(mesh) if isinstance(mesh, (str, os.PathLike)) else as_mesh(mesh)


def _seed(value: Any) -> int:
    return _arguments.integer(MeshError, "seed", value, 0, 2**64 - 1)


def _rows(name: str, values: Any, shape: Sequence[int | str], dtype: Any) -> NDArray[Any]:
    """Rows of numbers. No rows may have any shape."""
    found = _arguments.array(MeshError, name, values, None, dtype)
    if found.size == 0 and isinstance(values, (list, tuple, np.ndarray)):
        return found.reshape(0, 3)
    return _arguments.array(MeshError, name, found, shape, dtype)


def _ragged(faces: Any) -> bool:
    """True for a list of lists of different lengths."""
    if not isinstance(faces, (list, tuple)) or not all(isinstance(face, (list, tuple, np.ndarray)) for face in faces):
        return False
    return len({len(face) for face in faces}) > 1


def _restore(vertices: Any, corners: Any, offsets: Any) -> Mesh:
    """A mesh from a pickle."""
    return Mesh._of(_gemcnn.Mesh(vertices, corners, offsets))


def _column(name: str, values: ArrayLike, count: int) -> NDArray[Any]:
    """A column of a file: 64-bit integers become 32-bit ones if they fit."""
    _arguments.instance(MeshError, "attributes: name", name, str, "a text")
    try:
        array = np.ascontiguousarray(values)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf" or array.shape != (count,):
        raise _arguments.wrong(MeshError, name, f"numbers of shape [{count}]", array if array.ndim else values)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if array.dtype in (np.int64, np.uint64):
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise MeshError(f"`{name}` has integers of more than 32 bits, which no file holds")
        return array.astype(np.int32)
    return array
