"""Checks of arguments. Exceptions name the argument, what came, and what is needed."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import GemcnnError

_Error = type[GemcnnError]


def described(value: Any) -> str:
    """A value in a few words."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) < 60 else f"{text[:56]}..."
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if dtype is not None and isinstance(shape, tuple):
        return f"{name} of {dtype} and shape {list(shape)}"
    return f"{name} of length {len(value)}" if isinstance(value, (list, tuple, dict)) else name


def wrong(error: _Error, name: str, needed: str, value: Any) -> GemcnnError:
    """The exception for a value that is not what is needed."""
    return error(f"`{name}` must be {needed}, not {described(value)}")


def integer(error: _Error, name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """An integer in a range."""
    range = f"an integer from {least}" + ("" if most == 2**63 - 1 else f" to {most}")
    try:
        found = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        raise wrong(error, name, range, value)
    return found


def integers(error: _Error, name: str, values: Any, least: int = 0, most: int = 2**63 - 1) -> list[int]:
    """A list of integers in a range."""
    return [integer(error, f"{name}[{place}]", value, least, most) for place, value in enumerate(listed(error, name, values))]


def number(error: _Error, name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in a range."""
    needed = "a finite number"
    if (least, most) != (-math.inf, math.inf):
        needed = f"a number from {least:g}" + ("" if most == math.inf else f" to {most:g}")
    try:
        plain = not isinstance(value, (bool, np.bool_, str, bytes, bytearray))
        found = float(value) if plain else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = math.nan
    if not (math.isfinite(found) and least <= found <= most):
        raise wrong(error, name, needed, value)
    return found


def numbers(error: _Error, name: str, values: Any, least: float = -math.inf, most: float = math.inf) -> list[float]:
    """A list of finite numbers in a range."""
    return [number(error, f"{name}[{place}]", value, least, most) for place, value in enumerate(listed(error, name, values))]


def listed(error: _Error, name: str, values: Any) -> list[Any]:
    """The items of a sequence or of an array."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise wrong(error, name, "a sequence", values)
    try:
        return list(values)
    except TypeError as problem:
        raise wrong(error, name, "a sequence", values) from problem


def array(error: _Error, name: str, values: Any, shape: Sequence[int | str] | None, dtype: Any = np.float64) -> NDArray[Any]:
    """A contiguous array of numbers of a type. Tensors of PyTorch are taken too.

    Args:
        shape: sizes, with letters for any size; `None` for any shape.
        dtype: type of the result. Conversions that lose values, such as fractions to integers, are refused.
    """
    needed = {"f": "numbers", "c": "numbers", "i": "integers", "u": "integers"}[np.dtype(dtype).kind]
    if shape is not None:
        needed += f" of shape [{', '.join(map(str, shape))}]"
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        found = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise wrong(error, name, needed, values) from problem
    kinds = {"f": "biuf", "c": "biufc", "i": "biu", "u": "biu"}[np.dtype(dtype).kind]
    if found.size and found.dtype.kind not in kinds:
        raise wrong(error, name, needed, found if found.ndim else values)
    if shape is not None:
        fits = len(shape) == found.ndim and all(
            isinstance(wanted, str) or wanted == size for wanted, size in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise wrong(error, name, needed, found if found.ndim else values)
    if found.size and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        if found.min() < limits.min or found.max() > limits.max:
            raise error(f"`{name}` must be from {limits.min} to {limits.max}, but has {found.min()} to {found.max()}")
    return np.ascontiguousarray(found, dtype=dtype)


def choice(error: _Error, name: str, value: Any, choices: Sequence[str]) -> str:
    """One of some words."""
    if not (isinstance(value, str) and value in choices):
        raise wrong(error, name, " or ".join([", ".join(choices[:-1]), choices[-1]]), value)
    return value


def instance(error: _Error, name: str, value: Any, kind: Any, needed: str) -> Any:
    """An object of a class."""
    if not isinstance(value, kind):
        raise wrong(error, name, needed, value)
    return value


def flag(error: _Error, name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, (bool, np.bool_)):
        raise wrong(error, name, "True or False", value)
    return bool(value)


def path(error: _Error, name: str, value: Any) -> str:
    """A path."""
    try:
        found = os.fsdecode(os.fspath(value))
        encoded = os.fsencode(found)
    except (TypeError, UnicodeError) as problem:
        raise wrong(error, name, "a path", value) from problem
    if b"\0" in encoded:
        raise wrong(error, name, "a path", value)
    return found


def text(error: _Error, name: str, value: Any, needed: str = "a text") -> str:
    """A text that has an encoding."""
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise wrong(error, name, needed, value)
    return value


@contextmanager
def told(task: str) -> Iterator[None]:
    """Puts a few words before the message of an exception of this package."""
    try:
        yield
    except GemcnnError as problem:
        raise type(problem)(f"{task}: {problem}") from None


def device(error: _Error, value: Any) -> str:
    """A device by its name, which a `torch.device` gives too."""
    word = value if isinstance(value, str) else str(value) if type(value).__module__ == "torch" else ""
    kind, colon, place = word.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and not (kind == "cuda" and place.isdecimal())):
        raise wrong(error, "device", "auto, cpu, cuda or cuda:N", value)
    return word


def settings(error: _Error, name: str, value: Any) -> Any:
    """As `plain`, without the entries that are `None`, which stand for defaults."""

    def given(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: given(f"{name}.{key}" if name else key, item) for key, item in value.items() if item is not None}
        if isinstance(value, list):
            if None in value:
                raise wrong(error, f"{name}[{value.index(None)}]", "a number, a text, a list or a dictionary", None)
            return [given(f"{name}[{place}]", item) for place, item in enumerate(value)]
        return value

    return given(name, plain(error, name, value))


def plain(error: _Error, name: str, value: Any) -> Any:
    """Settings as JSON knows them: numbers of NumPy, paths, devices and tuples become numbers, texts and lists."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise wrong(error, f"{name}: key", "a text", key)
        return {key: plain(error, f"{name}.{key}" if name else key, item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple, range)):
        return [plain(error, f"{name}[{place}]", item) for place, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fsdecode(os.fspath(value))
    if type(value).__module__ == "torch" and not hasattr(value, "shape"):
        value = str(value)
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise wrong(error, name, "a number, a text, true or false, a list or a dictionary", value)
    if isinstance(value, str):
        text(error, name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(error, name, "finite", value)
    return value
