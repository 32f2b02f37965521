"""Gauge equivariant mesh CNNs.

Meshes and their gauge geometry in NumPy are here; `gemcnn.torch` holds layers for PyTorch, and `gemcnn.compat` the
names of the published implementation. Neither PyTorch nor anything else but NumPy is needed to import this package.

Arrays of meshes and graphs are views of the memory of the library. They are read-only; `array.copy()` gives one that may
be changed.
"""

from ._gemcnn import __version__
from .data import DataSet, Sample
from .errors import (
    CudaError,
    FileError,
    GemcnnError,
    GeometryError,
    InternalError,
    MeshError,
    OperatorError,
    TaskError,
)
from .geometry import Clusters, Features, GaugeGraph, Gradient, Laplacian, Level, SurfaceOperators
from .matching import Match, match
from .mesh import Mesh, MeshFile, Remeshed, Repaired, from_pyg, from_trimesh, read, read_file
from .pages import View, view
from .runs import Prediction, TrainedModel, load, print_epoch, train
from .threads import get_num_threads, set_num_threads
from . import shapes

__all__ = [
    "Clusters",
    "CudaError",
    "DataSet",
    "Features",
    "FileError",
    "GaugeGraph",
    "GemcnnError",
    "GeometryError",
    "Gradient",
    "InternalError",
    "Laplacian",
    "Level",
    "Match",
    "Mesh",
    "MeshError",
    "MeshFile",
    "OperatorError",
    "Prediction",
    "Remeshed",
    "Repaired",
    "Sample",
    "SurfaceOperators",
    "TaskError",
    "TrainedModel",
    "View",
    "__version__",
    "from_pyg",
    "from_trimesh",
    "get_num_threads",
    "load",
    "match",
    "print_epoch",
    "read",
    "read_file",
    "set_num_threads",
    "shapes",
    "train",
    "view",
]
