"""The names and signatures of the published implementation of the method, `gem_cnn`, over the kernels of gemcnn.

Its modules are here under the same paths, and all their names are here too. A script runs with `gem_cnn` replaced by
`gemcnn.compat` in its imports:

    from gemcnn.compat.nn import GemResNetBlock
    from gemcnn.compat.transform import GemPrecomp, SimpleGeometry, compute_normals_edges_from_mesh

Features are `[V, channels, 2 order + 1]`; an edge `edge_index[:, e] = (p, q)` sends from `q` to `p`; messages are averaged.
State dictionaries have the same names and shapes. Data are objects of PyTorch Geometric, or any objects with the named
attributes; neither PyTorch Geometric nor trimesh is needed. What differs is listed in docs/python.md.
"""

from . import nn, transform, utils
from .nn import GemConv, GemResNetBlock, ParallelTransportPool, RegularNonlinearity
from .transform import (
    GaugeTransformer,
    GemPrecomp,
    MatrixFeaturesTransform,
    MultiscaleRadiusGraph,
    ScaleMask,
    SimpleGeometry,
    compute_normals_edges_from_mesh,
    find_first_neighbour,
)
from .utils import matrix_features, rep_act, so2_feature_to_ambient_vector, transform_frames

__all__ = [
    "GaugeTransformer",
    "GemConv",
    "GemPrecomp",
    "GemResNetBlock",
    "MatrixFeaturesTransform",
    "MultiscaleRadiusGraph",
    "ParallelTransportPool",
    "RegularNonlinearity",
    "ScaleMask",
    "SimpleGeometry",
    "compute_normals_edges_from_mesh",
    "find_first_neighbour",
    "matrix_features",
    "nn",
    "rep_act",
    "so2_feature_to_ambient_vector",
    "transform",
    "transform_frames",
    "utils",
]
