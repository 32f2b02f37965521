"""The number of threads."""

from __future__ import annotations

from . import _gemcnn
from ._arguments import integer
from ._gemcnn import get_num_threads
from .errors import OperatorError

__all__ = ["get_num_threads", "set_num_threads"]


def set_num_threads(threads: int) -> None:
    """Sets the number of threads of all work on the CPU, from 1 to 1024.

    Without it there is one thread for each core, or as many as `torch.get_num_threads()` says once `gemcnn.torch` is
    imported. Each process has threads of its own, also after a fork.
    """
    _gemcnn.set_num_threads(integer(OperatorError, "threads", threads, 1, 1024))
