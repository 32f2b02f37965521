"""Data sets of configurations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _gemcnn
from .errors import TaskError
from .geometry import GaugeGraph

__all__ = ["DataSet", "Sample"]

PARTS = ("train", "validation", "test")


def given(config: Mapping[str, Any] | str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """A configuration as JSON, or its file."""
    if isinstance(config, Mapping):
        if isinstance(config.get("data"), (str, os.PathLike)):
            raise _arguments.wrong(TaskError, "data", 'a dictionary such as {"folder": "meshes"}', config["data"])
        return json.dumps(_arguments.settings(TaskError, "", config)), None
    if not isinstance(config, (str, os.PathLike)):
        raise _arguments.wrong(TaskError, "config", "a TOML file or a dictionary", config)
    return None, _arguments.path(TaskError, "config", config)


class Sample(NamedTuple):
    """A mesh of a data set, prepared for a model, with its target. What its task does not have is `None`."""

    name: str
    """Name of the mesh."""
    features: NDArray[np.float32]
    """Input features, `[V, D]`, not scaled."""
    graph: GaugeGraph
    """Its gauge graph."""
    labels: NDArray[np.int64] | None
    """Segmentation and correspondence: class of each vertex (or face or edge, if the labels are for them), `[V]`; -100 where it is not known.
    Classification: `[1]`."""
    values: NDArray[np.float32] | None
    """Regression: rows of `DataSet.output`, `[V, D]`, or one row for values of whole meshes; NaN where they are not known."""


class DataSet(Sequence[Sample]):
    """A part of the data set of a configuration, as `gemcnn.train` reads it, without augmentation (docs/data.md).

    Meshes are read and prepared when they are asked for: geometry and features come from the cache on disk, or are computed and
    cached. They stay in memory as far as that has room. So each process reads only the meshes that it uses.

    Args:
        config: a TOML file or the same as a dictionary, as for `gemcnn.train`. Its model decides what is prepared.
        part: `train`, `validation` or `test`.
        cache: keeps prepared meshes on disk.

    Raises:
        TaskError: invalid settings or data.
    """

    def __init__(
        self, config: Mapping[str, Any] | str | os.PathLike[str], part: str = "train", *, cache: bool = True
    ) -> None:
        _arguments.choice(TaskError, "part", part, PARTS)
        self._arguments = (*given(config), part, _arguments.flag(TaskError, "cache", cache))
        self._native = _gemcnn.DataSet(*self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        text, file, part, cache = self._arguments
        return _restored, (file if text is None else json.loads(text), part, cache)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty in regression."""
        return self._native.classes

    @property
    def input(self) -> str:
        """Feature type of the input."""
        return self._native.types[0]

    @property
    def output(self) -> str:
        """Feature type of the output."""
        return self._native.types[1]

    def __len__(self) -> int:
        return len(self._native)

    def _native_sample(self, index: int) -> Any:
        count = len(self)
        index = _arguments.integer(TaskError, "index", index, -(2**63))
        if not -count <= index < count:
            raise IndexError(f"sample {index} of {count}")
        return self._native.sample(index % count)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        name, (features, graph, _, _), labels, values = self._native_sample(index)
        return Sample(name, features, GaugeGraph._of(graph), labels, values)


def _restored(config: Any, part: str, cache: bool) -> DataSet:
    return DataSet(config, part, cache=cache)
