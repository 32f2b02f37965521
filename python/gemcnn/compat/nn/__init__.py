"""Layers."""

from .gem_conv import GemConv
from .gem_res_net_block import GemResNetBlock
from .pool import ParallelTransportPool
from .regular_nonlin import RegularNonlinearity

__all__ = ["GemConv", "GemResNetBlock", "ParallelTransportPool", "RegularNonlinearity"]
