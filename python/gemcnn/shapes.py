"""Meshes of simple shapes, and synthetic human bodies (docs/shapes.md, docs/bodies.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _gemcnn
from ._arguments import flag, integer, integers, number, numbers
from .errors import MeshError
from .mesh import Mesh

__all__ = ["bodies", "capsule", "grid", "icosphere", "rough_grid", "torus"]


def icosphere(subdivisions: int = 3) -> Mesh:
    """The unit sphere as an icosahedron with each triangle split into four this many times:
    `10 * 4^subdivisions + 2` vertices."""
    return Mesh._of(_gemcnn.icosphere(integer(MeshError, "subdivisions", subdivisions, 0, 12)))


def grid(rows: int, columns: int, *, quads: bool = False) -> Mesh:
    """A flat grid of `rows` x `columns` vertices with unit spacing."""
    size = (_count("rows", rows), _count("columns", columns))
    return Mesh._of(_gemcnn.grid(*size, flag(MeshError, "quads", quads)))


def rough_grid(
    rows: int, columns: int, roughness: float = 1.0, *, seed: int = 0, quads: bool = False
) -> Mesh:
    """A grid with a random height of each vertex."""
    size = (_count("rows", rows), _count("columns", columns))
    height = number(MeshError, "roughness", roughness)
    return Mesh._of(_gemcnn.rough_grid(*size, height, _seed(seed), flag(MeshError, "quads", quads)))


def torus(
    segments: tuple[int, int] = (48, 24),
    radii: tuple[float, float] = (1.0, 0.4),
    *,
    quads: bool = False,
) -> Mesh:
    """A torus with numbers of segments and radii around the axis and around the tube."""
    counts, lengths = _pair("segments", segments), numbers(MeshError, "radii", radii)
    if len(lengths) != 2:
        raise MeshError(f"`radii` must be two numbers, not {len(lengths)}")
    return Mesh._of(_gemcnn.torus(counts, (lengths[0], lengths[1]), flag(MeshError, "quads", quads)))


def capsule(
    segments: int = 24,
    bands: tuple[int, int] = (6, 12),
    radius: float = 0.5,
    length: float = 1.0,
    *,
    quads: bool = False,
) -> Mesh:
    """A tube with round caps; `bands` are those of each cap and of the tube."""
    around, along = _count("segments", segments), _pair("bands", bands)
    sizes = (number(MeshError, "radius", radius), number(MeshError, "length", length))
    return Mesh._of(_gemcnn.capsule(around, along, *sizes, flag(MeshError, "quads", quads)))


def bodies(
    indices: Sequence[int],
    *,
    vertices: int = 6890,
    seed: int = 0,
    people: float = 1.0,
    poses: float = 1.0,
    variety: float = 0.0,
) -> tuple[list[Mesh], NDArray[np.uint8]]:
    """Synthetic bodies of one family, in point-to-point correspondence, and the body part of each vertex `[V]`.

    Args:
        indices: numbers of the bodies in the family.
        vertices: number of vertices of each body, 500 to 200,000.
        seed: of people and poses.
        people: variation between people, 0 to 1.
        poses: range of poses, 0 to 1.
        variety: further variety, 0 to 1: children, stout people, clothes, hair, sitting, crawling, raised arms.
    """
    amounts = {"people": people, "poses": poses, "variety": variety}
    variation = [number(MeshError, name, amount, 0, 1) for name, amount in amounts.items()]
    family = _family(integer(MeshError, "vertices", vertices, 500, 200_000), _seed(seed), *variation)
    return [Mesh._of(mesh) for mesh in family.of(integers(MeshError, "indices", indices))], family.parts()


@lru_cache(maxsize=4)
def _family(vertices: int, seed: int, people: float, poses: float, variety: float) -> _gemcnn.Bodies:
    """The family of these settings, whose template takes longer than many bodies."""
    return _gemcnn.Bodies(vertices, seed, people, poses, variety)


def _seed(value: Any) -> int:
    return integer(MeshError, "seed", value, 0, 2**64 - 1)


def _count(name: str, value: Any) -> int:
    return integer(MeshError, name, value, 0, 2**31)


def _pair(name: str, values: Any) -> tuple[int, int]:
    found = integers(MeshError, name, values, 0, 2**31)
    if len(found) != 2:
        raise MeshError(f"`{name}` must be two integers, not {len(found)}")
    return found[0], found[1]
