"""The geometry of edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SimpleGeometry", "find_first_neighbour"]


def find_first_neighbour(edge_index: Tensor, vertices: int | None = None) -> Tensor:
    """The other end of the first edge of each vertex, without edges of a vertex to itself; the vertex itself if it has no other.

    Args:
        edge_index: `[2, E]`.
        vertices: number of vertices (default: up to the last one that has a neighbour).
    """
    target, source = edge_index[:, edge_index[0] != edge_index[1]]
    if vertices is None:
        vertices = int(target.max()) + 1 if len(target) else 0
    first = target.new_full((vertices,), len(target))
    first.scatter_reduce_(0, target, torch.arange(len(target), device=target.device), "amin")
    itself = torch.arange(vertices, device=target.device)
    return torch.where(first < len(target), nn.functional.pad(source, (0, 1))[first], itself)


def _tangent(direction: Tensor, normal: Tensor) -> Tensor:
    """Component of directions across the normals, 0 where nothing but rounding is left."""
    tangent = direction - (direction * normal).sum(1, keepdim=True) * normal
    rounding = 4 * torch.finfo(normal.dtype).eps * direction.norm(dim=1, keepdim=True)
    return torch.where(tangent.norm(dim=1, keepdim=True) > rounding, tangent, 0)


class SimpleGeometry:
    """Adds `edge_coords` `[E, 2]` (length and angle of each edge), `connection` `[E]`, `weight` `[E]` and `frame` `[V, 3, 3]`
    to data with `pos`, `normal` and `edge_index`.

    Vertices without edges, and those whose direction is along the normal, have a frame too.

    Args:
        gauge_def: `first_neighbour`, `random` or `x`: the direction of the first axis of each frame.
    """

    def __init__(self, gauge_def: str = "first_neighbour") -> None:
        if gauge_def not in ("first_neighbour", "random", "x"):
            raise ValueError(f"gauge_def is `{gauge_def}`, but must be first_neighbour, random or x")
        self.gauge_def = gauge_def

    def _directions(self, data: Any) -> Tensor:
        pos: Tensor = data.pos
        if self.gauge_def == "random":
            return torch.randn_like(pos)
        if self.gauge_def == "x":
            return pos.new_tensor([1.0, 0.0, 0.0]).expand_as(pos)
        return pos[find_first_neighbour(data.edge_index, len(pos))] - pos

    def __call__(self, data: Any) -> Any:
        pos, (target, source) = data.pos, data.edge_index
        normal = nn.functional.normalize(data.normal, dim=1)
        tangent = _tangent(self._directions(data), normal)
        # Without a tangent direction, the axis farthest from the normal.
        other = nn.functional.one_hot(normal.abs().argmin(dim=1), 3).to(pos.dtype)
        tangent = torch.where((tangent == 0).all(1, keepdim=True), _tangent(other, normal), tangent)
        first = nn.functional.normalize(tangent, dim=1)
        second = torch.linalg.cross(normal, first)
        edge = pos[source] - pos[target]

        def angle(vector: Tensor) -> Tensor:
            """In the frame of the target."""
            return torch.atan2((second[target] * vector).sum(1), (first[target] * vector).sum(1))

        data.edge_coords = torch.stack([edge.norm(dim=1), angle(edge)], dim=1)
        # The least rotation of one normal to the other; none between opposite ones.
        to, at, axis = normal[target], normal[source], first[source]
        total = 1 + (to * at).sum(1, keepdim=True)
        turned = axis - (to * axis).sum(1, keepdim=True) / total.clamp(min=1e-12) * (to + at)
        data.connection = angle(torch.where(total > 1e-12, turned, axis))
        data.weight = 1.0 / torch.bincount(target, minlength=len(pos))[target]
        data.frame = torch.stack([first, second, normal], dim=1)
        return data
