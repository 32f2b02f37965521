"""The action of rotations on features."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["rep_act"]


def rep_act(x: Tensor, theta: Tensor) -> Tensor:
    """Features rotated by an angle for each row.

    Args:
        x: `[N, channels, 2 order + 1]`.
        theta: angles, `[N]`.
    """
    orders = torch.arange(1, x.shape[2] // 2 + 1, device=x.device)
    angles = theta[:, None, None] * orders
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., 1::2], x[..., 2::2]
    rotated = torch.stack([cos * first - sin * second, sin * first + cos * second], dim=3)
    return torch.cat([x[..., :1], rotated.flatten(2)], dim=2)
