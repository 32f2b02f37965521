"""Meshes of simple shapes, and synthetic human bodies (docs/shapes.md, docs/bodies.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from . import _gemcnn
from .mesh import Mesh

__all__ = ["bodies", "capsule", "grid", "icosphere", "rough_grid", "torus"]


def icosphere(subdivisions: int = 3) -> Mesh:
    """The unit sphere as an icosahedron with each triangle split into four this many times:
    `10 * 4^subdivisions + 2` vertices."""
    return Mesh._of(_gemcnn.icosphere(subdivisions))


def grid(rows: int, columns: int, *, quads: bool = False) -> Mesh:
    """A flat grid of `rows` x `columns` vertices with unit spacing."""
    return Mesh._of(_gemcnn.grid(rows, columns, quads))


def rough_grid(
    rows: int, columns: int, roughness: float = 1.0, *, seed: int = 0, quads: bool = False
) -> Mesh:
    """A grid with a random height of each vertex."""
    return Mesh._of(_gemcnn.rough_grid(rows, columns, roughness, seed, quads))


def torus(
    segments: tuple[int, int] = (48, 24),
    radii: tuple[float, float] = (1.0, 0.4),
    *,
    quads: bool = False,
) -> Mesh:
    """A torus with numbers of segments and radii around the axis and around the tube."""
    return Mesh._of(_gemcnn.torus(segments, radii, quads))


def capsule(
    segments: int = 24,
    bands: tuple[int, int] = (6, 12),
    radius: float = 0.5,
    length: float = 1.0,
    *,
    quads: bool = False,
) -> Mesh:
    """A tube with round caps; `bands` are those of each cap and of the tube."""
    return Mesh._of(_gemcnn.capsule(segments, bands, radius, length, quads))


def bodies(
    indices: Sequence[int],
    *,
    vertices: int = 6890,
    seed: int = 0,
    people: float = 1.0,
    poses: float = 1.0,
) -> tuple[list[Mesh], NDArray[np.uint8]]:
    """Synthetic bodies of one family, in point-to-point correspondence, and the body part of each vertex `[V]`.

    Args:
        indices: numbers of the bodies in the family.
        vertices: number of vertices of each body, 500 to 200,000.
        seed: of people and poses.
        people: variation between people, 0 to 1.
        poses: range of poses, 0 to 1.
    """
    meshes, parts = _gemcnn.bodies(list(indices), vertices, seed, (people, poses))
    return [Mesh._of(mesh) for mesh in meshes], parts
