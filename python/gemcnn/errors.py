"""Exceptions. Each also is the built-in exception that a caller would expect."""

__all__ = [
    "GemcnnError",
    "FileError",
    "MeshError",
    "GeometryError",
    "OperatorError",
    "TaskError",
    "CudaError",
    "InternalError",
]


class GemcnnError(Exception):
    """Base of all exceptions of this package."""


class FileError(GemcnnError, OSError):
    """A file that cannot be read or written: what is wrong, and where."""


class MeshError(GemcnnError, ValueError):
    """Arrays that are no mesh, or a mesh that cannot be repaired or remeshed."""


class GeometryError(GemcnnError, ValueError):
    """A mesh without the geometry that was asked for, for example without a tangent plane at a vertex."""


class OperatorError(GemcnnError, ValueError):
    """Arguments of an operator that do not fit together: sizes, types, devices or settings."""


class TaskError(GemcnnError, ValueError):
    """An invalid configuration, data set, run or model."""


class CudaError(GemcnnError, RuntimeError):
    """A GPU that cannot be used, or a failed call."""


class InternalError(GemcnnError, RuntimeError):
    """A bug in this package: no argument should cause it."""
