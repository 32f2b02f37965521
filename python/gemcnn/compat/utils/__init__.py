"""Actions of rotations on features, and matrix features."""

from .matrix_features import matrix_features, so2_feature_to_ambient_vector, transform_frames
from .rep_act import rep_act

__all__ = ["matrix_features", "rep_act", "so2_feature_to_ambient_vector", "transform_frames"]
