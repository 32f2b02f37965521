"""Gauge transformations of data."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from ...errors import GeometryError
from ..utils.matrix_features import transform_frames

__all__ = ["GaugeTransformer"]


class GaugeTransformer:
    """A copy of data in rotated frames: `connection`, `edge_coords` and, if there are any, `frame` and `precomp` are those of
    frames rotated by angles. Edges of length 0 keep their angle. Features change by `rep_act(x, -transform_angle)`.

    Args:
        transform_angle: angle of each frame, from its first axis towards its second, `[V]`.
    """

    def __init__(self, transform_angle: Tensor) -> None:
        self.transform_angle = transform_angle

    def __call__(self, data: Any) -> Any:
        angle = self.transform_angle
        if angle.shape != data.pos.shape[:1]:
            raise GeometryError(
                f"transform_angle has shape {list(angle.shape)}, but needs one angle for each of {len(data.pos)} vertices"
            )
        result = deepcopy(data)
        target, source = data.edge_index
        result.connection = data.connection - angle[target] + angle[source]
        radius, theta = data.edge_coords.unbind(1)
        theta = torch.where(radius == 0, theta, theta - angle[target])
        result.edge_coords = torch.stack([radius, theta], dim=1)
        if getattr(data, "precomp", None) is not None:
            result.precomp = torch.cat([(result.connection - theta)[:, None], theta[:, None], data.precomp[:, 2:]], dim=1)
        if getattr(data, "frame", None) is not None:
            result.frame = transform_frames(-angle, data.frame)
        return result
