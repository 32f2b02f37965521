"""Matrix features of data."""

from __future__ import annotations

from typing import Any

from ..utils.matrix_features import matrix_features

__all__ = ["MatrixFeaturesTransform"]


class MatrixFeaturesTransform:
    """Adds `matrix_features` `[V, 7, 5]` to data with `pos`, `edge_index` and `frame`. If the data have an `edge_mask`, the edges
    of the first convolution are used."""

    def __call__(self, data: Any) -> Any:
        edges, mask = data.edge_index, getattr(data, "edge_mask", None)
        if mask is not None:
            edges = edges[:, (mask & 2) != 0]
        data.matrix_features = matrix_features(edges, data.pos, data.frame)
        return data
