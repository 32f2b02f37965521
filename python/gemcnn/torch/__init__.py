"""Layers for PyTorch whose forward and backward passes run the kernels of gemcnn on the memory of PyTorch.

Features are tensors `[V, D]`: a row of a feature type for each vertex. A type such as `16x0 + 16x1` lists irreps of
SO(2) with their multiplicities (`16x(0,1)` for short). A row holds its numbers by order, then component, then channel.
Components of an order above 0 are coefficients in the frame of their vertex.

float32 runs on the CPU and on CUDA, float64 on the CPU. On CUDA, work is queued on the current stream, memory comes from
the allocator of PyTorch, and products follow `torch.get_float32_matmul_precision()`.
"""

from .data import DataSet
from .diffusion import Diffusion, Spectra
from .edges import GaugeAttention, GaugeMessages, MessageBlock
from .graph import Clusters, Graph, Levels
from .layers import (
    BatchNorm,
    EquivariantLinear,
    GatedNonlinearity,
    GaugeConv,
    NormNonlinearity,
    RegularNonlinearity,
    ResidualBlock,
    Scalars,
    Sequential,
    TransportPool,
    TransportUnpool,
    global_max,
    global_mean,
)
from .loss import linear_cross_entropy
from .models import GemNetwork, HermesNetwork
from .surface import DiffusionBlock, SurfaceNetwork
from .types import FeatureType
from .unet import UNet

__all__ = [
    "BatchNorm",
    "Clusters",
    "DataSet",
    "Diffusion",
    "DiffusionBlock",
    "EquivariantLinear",
    "FeatureType",
    "GatedNonlinearity",
    "GaugeAttention",
    "GaugeConv",
    "GaugeMessages",
    "GemNetwork",
    "Graph",
    "HermesNetwork",
    "Levels",
    "MessageBlock",
    "NormNonlinearity",
    "RegularNonlinearity",
    "ResidualBlock",
    "Scalars",
    "Sequential",
    "Spectra",
    "SurfaceNetwork",
    "TransportPool",
    "TransportUnpool",
    "UNet",
    "global_max",
    "global_mean",
    "linear_cross_entropy",
]
