"""Feature types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .. import _gemcnn
from .._arguments import integer
from .._arguments import text as checked
from ..errors import OperatorError

__all__ = ["FeatureType"]


class FeatureType(str):
    """A feature type in its standard form: a string such as `16x0 + 8x2`.

    Args:
        text: the type, also in the short form `16x(0,2)`.

    Raises:
        OperatorError: a text that is no type.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> FeatureType:
        checked(OperatorError, "type", text, "a feature type such as 16x0 + 16x1")
        return super().__new__(cls, _parse(text)[1])

    @classmethod
    def uniform(cls, channels: int, band_limit: int) -> FeatureType:
        """The same multiplicity for all orders up to `band_limit`."""
        return cls(" + ".join(f"{channels}x{order}" for order in range(band_limit + 1)))

    @property
    def multiplicities(self) -> tuple[int, ...]:
        """Multiplicity of each order from 0; the last one is not 0."""
        return _parse(self)[0]

    @property
    def dimension(self) -> int:
        """Length of a row."""
        return sum(count * (2 if order else 1) for order, count in enumerate(self.multiplicities))

    @property
    def highest_order(self) -> int:
        """The highest order; 0 for the empty type."""
        return max(len(self.multiplicities) - 1, 0)

    def multiplicity(self, order: int) -> int:
        """Multiplicity of an order."""
        counts = self.multiplicities
        return counts[order] if order < len(counts) else 0

    def range(self, order: int) -> slice:
        """Columns of an order in a row."""
        start = sum(
            count * (2 if below else 1) for below, count in enumerate(self.multiplicities[:order])
        )
        return slice(start, start + self.multiplicity(order) * (2 if order else 1))


def output_type(outputs: Any) -> FeatureType:
    """The type of the output of a network: a number of scalars, or a type."""
    return FeatureType(outputs if isinstance(outputs, str) else f"{integer(OperatorError, 'outputs', outputs, 1)}x0")


def split_orders(x: Tensor, type: FeatureType) -> dict[int, Tensor]:
    """The fields of each order of rows `[V, D]`: `[V, 1, channels]` for scalars, `[V, 2, channels]` for higher orders."""
    return {
        order: x[:, type.range(order)].reshape(-1, 2 if order else 1, count)
        for order, count in enumerate(type.multiplicities)
        if count
    }


def join_orders(fields: Mapping[int, Tensor]) -> Tensor:
    """The rows of fields: the inverse of `split_orders`."""
    return torch.cat([fields[order].flatten(1) for order in sorted(fields)], dim=1)


@lru_cache(maxsize=None)
def _parse(text: str) -> tuple[tuple[int, ...], str]:
    multiplicities, standard = _gemcnn.feature_type(text)
    return tuple(multiplicities), standard


@lru_cache(maxsize=None)
def dimension(text: str) -> int:
    """Length of a row of a type."""
    return FeatureType(text).dimension


@lru_cache(maxsize=None)
def regular_dimension(text: str, band_limit: int) -> int:
    """Length of a row after a regular nonlinearity of a type."""
    return FeatureType(text).multiplicity(0) * (2 * band_limit + 1)
