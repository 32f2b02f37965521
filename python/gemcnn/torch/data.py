"""Data sets of configurations as tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import data
from ..errors import TaskError
from ..geometry import Clusters as ClusterArrays
from ..geometry import GaugeGraph
from .diffusion import Spectra
from .graph import Clusters, Graph, Levels

__all__ = ["DataSet"]


def tensors(kind: str, prepared: Any) -> tuple[Tensor, Graph | Spectra | Levels]:
    """Features and geometry of a prepared mesh, as a model of a kind takes them."""
    features, finest, spectra, coarser = prepared
    graph = Graph.of(GaugeGraph._of(finest))
    geometry: Graph | Spectra | Levels = graph if spectra is None else Spectra.of_arrays(*spectra)
    if kind == "unet":
        geometry = Levels(
            (graph, *(Graph.of(GaugeGraph._of(level)) for level, _ in coarser)),
            tuple(Clusters.of(ClusterArrays._of(clusters)) for _, clusters in coarser),
        )
    return torch.from_numpy(features), geometry


class DataSet(torch.utils.data.Dataset[Any]):
    """`gemcnn.DataSet` for a `DataLoader`: samples are features `[V, D]`, the geometry that the model of the configuration takes
    (`Graph`, `Spectra` or `Levels`), and labels `[V]` (-100 where they are not known) or values `[V, D]`.

    ```
    data = gt.DataSet(config, "train")
    loader = DataLoader(data, 4, shuffle=True, num_workers=2, collate_fn=data.collate)
    for features, graph, labels in loader: ...
    ```

    Args:
        config, part, cache: as for `gemcnn.DataSet`.
    """

    def __init__(
        self, config: Mapping[str, Any] | str | os.PathLike[str], part: str = "train", *, cache: bool = True
    ) -> None:
        self.meshes = data.DataSet(config, part, cache=cache)
        """The data set in NumPy, with its classes and types."""
        self._kind = self.meshes._native.kind()

    def __len__(self) -> int:
        return len(self.meshes)

    def __getitem__(self, index: int) -> tuple[Tensor, Graph | Spectra | Levels, Tensor]:
        name, prepared, labels, values = self.meshes._native_sample(index)
        target = values if labels is None else labels
        if target is None:
            raise TaskError(f"{name} has no target")
        return (*tensors(self._kind, prepared), torch.from_numpy(target))

    @staticmethod
    def collate(
        samples: Sequence[tuple[Tensor, Any, Tensor]],
    ) -> tuple[Tensor, Graph | Spectra | Levels, Tensor]:
        """A batch of samples."""
        features, geometry, targets = zip(*samples, strict=True)
        return torch.cat(features), type(geometry[0]).collate(geometry), torch.cat(targets)
