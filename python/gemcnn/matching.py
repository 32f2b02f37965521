"""Maps between meshes."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _gemcnn
from ._cuda import load_cuda_libraries
from .errors import MeshError, TaskError
from .mesh import Mesh, mesh_or_file

__all__ = ["Match", "match"]


class Match:
    """The maps between two meshes, from `match`."""

    __slots__ = ("_counts", "_native")

    def __init__(self, native: _gemcnn.Match, counts: tuple[int, int]) -> None:
        self._native = native
        self._counts = counts

    def __repr__(self) -> str:
        return f"Match({self._counts[0]} to {self._counts[1]} vertices, {self._native.evidence()[3]})"

    @property
    def map(self) -> NDArray[np.uint32]:
        """The nearest vertex of B for each vertex of A, `[V_A]`."""
        return _nearest(*self._native.forward())

    @property
    def inverse(self) -> NDArray[np.uint32]:
        """The nearest vertex of A for each vertex of B, `[V_B]`."""
        return _nearest(*self._native.backward())

    @property
    def precise(self) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
        """The point on B of each vertex of A: three vertices of B and their barycentric weights, both `[V_A, 3]`."""
        return self._native.forward()

    @property
    def functional_map(self) -> NDArray[np.float32]:
        """Maps coefficients of eigenfunctions of B to those of A, `[k, k]`."""
        return self._native.functional_map()

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Confidence of each vertex of A, from 0 to 1."""
        return self._native.confidence()

    @property
    def verdict(self) -> str:
        """`good`, `doubtful` or `meaningless`."""
        return self._native.evidence()[0]

    @property
    def evidence(self) -> dict[str, float]:
        """The measures behind the verdict (docs/matching.md)."""
        measures: dict[str, float] = json.loads(self._native.evidence()[1])
        return measures

    @property
    def doubts(self) -> list[str]:
        """What speaks against the map, one sentence each."""
        return self._native.evidence()[2]

    @property
    def notes(self) -> tuple[list[str], list[str]]:
        """What was done to each mesh before, such as turning it outside."""
        first, second = self._native.notes()
        return first, second

    def transfer(self, values: ArrayLike, kind: str | None = None) -> NDArray[Any]:
        """Carries values of the vertices of B, `[V_B]` or `[V_B, n]`, to those of A.

        Args:
            values: labels, numbers, colours, texture coordinates or vectors.
            kind: `labels` are taken from the nearest vertex, `values` interpolated, `vectors` in space turned like the
                surface (default: labels for integers, values for other numbers).

        Raises:
            MeshError: not a row for each vertex of B.
        """
        try:
            rows = np.asarray(values)
        except ValueError as problem:
            raise _arguments.wrong(MeshError, "values", "an array", values) from problem
        if rows.ndim == 0 or len(rows) != self._counts[1]:
            raise _arguments.wrong(MeshError, "values", f"{self._counts[1]} rows, one for each vertex of B", values)
        if kind is None:
            kind = "labels" if rows.dtype.kind in "biuSUO" else "values"
        _arguments.choice(MeshError, "kind", kind, ("labels", "values", "vectors"))
        if kind == "labels":
            return rows[self.map]
        if kind == "vectors":
            return self._native.vectors(_arguments.array(MeshError, "values", rows, ["V", 3]))
        corners, weights = self.precise
        return np.einsum("vc,vc...->v...", weights, _arguments.array(MeshError, "values", rows, None)[corners])


def match(
    a: Mesh | str | os.PathLike[str],
    b: Mesh | str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    device: str = "auto",
    force: bool = False,
) -> Match:
    """Finds for each vertex of a mesh the same point of another one, as the command `gemcnn match` does (docs/matching.md).

    Doubts about the map are given as warnings.

    Args:
        a: a mesh or a file.
        b: another one, in any meshing, unit and pose.
        model: run directory or model file of your own (default: the bundled one for human bodies).
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        force: gives maps that mean nothing as well.

    Raises:
        TaskError: a mesh that cannot be matched, or a map that means nothing.
    """
    meshes = [mesh_or_file(mesh) for mesh in (a, b)]
    file = None if model is None else _arguments.path(TaskError, "model", model)
    device = _arguments.device(TaskError, device)
    _arguments.flag(TaskError, "force", force)
    if device != "cpu":
        load_cuda_libraries()
    native = _gemcnn.Match(meshes[0]._native, meshes[1]._native, file, device)
    doubts = native.evidence()[2]
    if native.is_meaningless() and not force:
        raise TaskError(f"the map means nothing: {' '.join(doubts)} force=True gives it all the same")
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    return Match(native, (len(meshes[0].vertices), len(meshes[1].vertices)))


def _nearest(corners: NDArray[np.uint32], weights: NDArray[np.float64]) -> NDArray[np.uint32]:
    return corners[np.arange(len(corners)), weights.argmax(axis=1)]
