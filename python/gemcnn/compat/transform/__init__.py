"""Transforms: they add attributes to data."""

from .gauge_transformer import GaugeTransformer
from .gem_precomp import GemPrecomp
from .matrix_features_transform import MatrixFeaturesTransform
from .multiscale_radius_graph import MultiscaleRadiusGraph
from .scale_mask import ScaleMask
from .simple_geometry import SimpleGeometry, find_first_neighbour
from .vector_normals import compute_normals_edges_from_mesh

__all__ = [
    "GaugeTransformer",
    "GemPrecomp",
    "MatrixFeaturesTransform",
    "MultiscaleRadiusGraph",
    "ScaleMask",
    "SimpleGeometry",
    "compute_normals_edges_from_mesh",
    "find_first_neighbour",
]
