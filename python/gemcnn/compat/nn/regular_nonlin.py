"""The nonlinearity."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...torch.ops import operators
from ...torch.types import FeatureType

__all__ = ["RegularNonlinearity"]


class RegularNonlinearity(nn.Module):
    """A function of samples around the circle. `nn.ReLU` runs in one kernel, with exact waves; other functions run on
    samples, and may be modules such as batch normalisation.

    Args:
        order: highest order.
        num_samples: number of samples, odd.
        fn: takes `[V, channels, num_samples]`.
    """

    dft: Tensor

    def __init__(self, order: int, num_samples: int, fn: Any) -> None:
        super().__init__()
        if num_samples % 2 != 1:
            raise ValueError(f"num_samples is {num_samples}, but must be odd")
        self.order, self.num_samples, self.fn = order, num_samples, fn
        angles = 2 * np.pi * np.arange(num_samples) / num_samples
        waves = [np.full(num_samples, np.sqrt(0.5))]
        # Without an order, all that the samples hold are in the buffer, as in the published implementation.
        for n in range(1, (order or num_samples // 2) + 1):
            waves += [np.cos(n * angles), np.sin(n * angles)]
        dft = np.sqrt(2 / num_samples) * np.stack(waves)
        self.register_buffer("dft", torch.tensor(dft, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """`[V, channels, 2 order + 1]` to the same."""
        vertices, channels, components = x.shape
        if type(self.fn) is not nn.ReLU:
            waves = self.dft[:components].to(x.dtype)
            return torch.matmul(self.fn(torch.matmul(x, waves)), waves.T)
        # On features whose orders above 0 are multiplied by the square root of 2, the kernel computes the same.
        scale = x.new_full((components, 1), math.sqrt(2))
        scale[0] = 1
        kind = FeatureType.uniform(channels, components // 2)
        rows = (x.transpose(1, 2) * scale).reshape(vertices, -1)
        y = operators.regular(rows, str(kind), components // 2, self.num_samples, "relu")
        return cast(Tensor, (y.view(vertices, components, channels) / scale).transpose(1, 2))

    def extra_repr(self) -> str:
        return f"order={self.order}, num_samples={self.num_samples}"
