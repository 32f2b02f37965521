"""The libraries of CUDA that pip installs."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from functools import lru_cache

__all__ = ["load_cuda_libraries"]


@lru_cache(maxsize=None)
def load_cuda_libraries() -> None:
    """Opens NVRTC and cuBLAS where pip installs them, also in an environment that is not activated. Opened by its path, a
    library is found by its name afterwards. Without them, the first use of a GPU says what is missing."""
    for name in ("libnvrtc-builtins.so*", "libnvrtc.so*", "libcublasLt.so*", "libcublas.so*"):
        for root in sys.path:
            found = glob.glob(os.path.join(glob.escape(root), "nvidia", "*", "lib", name))
            found = sorted(path for path in found if ".alt." not in path)
            if found:
                with contextlib.suppress(OSError):
                    ctypes.CDLL(found[-1], mode=ctypes.RTLD_GLOBAL)
                break
