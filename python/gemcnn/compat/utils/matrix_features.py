"""Matrix features: means of outer products over neighbours, as irreps."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["matrix_features", "so2_feature_to_ambient_vector", "transform_frames"]


def _mean(values: Tensor, weight: Tensor, target: Tensor, count: int) -> Tensor:
    """Weighted mean of the values `[E, ...]` of the edges of each target; 0 without edges."""
    sums = values.new_zeros(count, *values.shape[1:]).index_add_(0, target, values * weight[:, None, None])
    total = weight.new_zeros(count).index_add_(0, target, weight)
    return sums / torch.where(total == 0, 1, total)[:, None, None]


def _irreps(m: Tensor, *, symmetric: bool) -> Tensor:
    """Channels of orders up to 2, `[V, 2, 5]` of symmetric matrices, otherwise `[V, 3, 5]`, of matrices `[V, 3, 3]` in frames
    (docs/features.md)."""
    half_trace, half_curl = (m[:, 0, 0] + m[:, 1, 1]) / 2, (m[:, 1, 0] - m[:, 0, 1]) / 2
    second = [(m[:, 0, 1] + m[:, 1, 0]) / 2, (m[:, 1, 1] - m[:, 0, 0]) / 2]
    zero = torch.zeros_like(half_trace)
    rows = [[half_trace if symmetric else half_curl, m[:, 2, 0], m[:, 2, 1], *second]]
    if not symmetric:
        rows.append([half_trace, m[:, 0, 2], m[:, 1, 2], zero, zero])
    rows.append([m[:, 2, 2], zero, zero, zero, zero])
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


def matrix_features(edge_index: Tensor, pos: Tensor, frames: Tensor, weight: Tensor | None = None) -> Tensor:
    """`[V, 7, 5]`: the means over the edges of each vertex of `d d^T`, `n n^T` and `d n^T`, with the edge vector `d` and the
    normal `n` of the neighbour, in the frame of the vertex. They are 0 at a vertex without edges.

    Args:
        edge_index: vertex and neighbour of each edge, `[2, E]`; edges may be in one direction only.
        pos: positions, `[V, 3]`.
        frames: `[V, 3, 3]`; rows are the two tangent axes and the normal.
        weight: of each edge, `[E]` (default: 1).
    """
    target, source = edge_index
    weight = pos.new_ones(len(target)) if weight is None else weight
    edge, normal = pos[source] - pos[target], frames[source, 2]
    features = []
    for left, right in [(edge, edge), (normal, normal), (edge, normal)]:
        mean = _mean(left[:, :, None] * right[:, None, :], weight, target, len(pos))
        features.append(_irreps(frames @ mean @ frames.transpose(1, 2), symmetric=left is right))
    return torch.cat(features, dim=1)


def so2_feature_to_ambient_vector(v: Tensor, frames: Tensor) -> Tensor:
    """Vectors in space, `[V, channels, 3]`, of features with a scalar (along the normal) and order 1 (tangent), in frames
    `[V, 3, 3]`."""
    return v.roll(-1, 2) @ frames


def transform_frames(g: Tensor, frames: Tensor) -> Tensor:
    """Frames `[V, 3, 3]` rotated by the angles `[V]` from the second axis towards the first. Features in them are
    `rep_act(x, g)`."""
    cos, sin = g.cos()[:, None], g.sin()[:, None]
    x, y, normal = frames.unbind(1)
    return torch.stack([cos * x - sin * y, sin * x + cos * y, normal], dim=1)
