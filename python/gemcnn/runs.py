"""Training, and the use of trained models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _gemcnn
from ._cuda import load_cuda_libraries
from .data import PARTS, given
from .errors import TaskError
from .geometry import GaugeGraph
from .mesh import Mesh, mesh_or_file

__all__ = ["Prediction", "TrainedModel", "load", "print_epoch", "train"]


def print_epoch(record: dict[str, Any]) -> None:
    """Prints a line for an epoch."""

    def scores(name: str, part: dict[str, Any] | None) -> str:
        if part is None:
            return ""
        words = [f"{key} {part[key]:.4g}" for key in ("loss", "accuracy", "error") if part.get(key) is not None]
        return f"  {name}: {', '.join(words)}"

    parts = scores("training", record["training"]) + scores("held out", record.get("held_out"))
    print(f"epoch {record['epoch']}{parts}  ({record['meshes_per_second']:.1f} meshes/s)", flush=True)


def train(
    config: Mapping[str, Any] | str | os.PathLike[str],
    *,
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    device: str = "auto",
    cache: bool = True,
    on_epoch: Callable[[dict[str, Any]], object] | None = print_epoch,
) -> TrainedModel:
    """Trains a model and gives it back, as the command `gemcnn train` does (docs/training.md).

    Ctrl-C saves the state and raises `KeyboardInterrupt`; `resume=True` continues. So does an exception of `on_epoch`.

    Args:
        config: a TOML file, or the same as a dictionary: `{"task": "segmentation", "data": {"folder": "meshes"},
            "training": {"epochs": 20}}`. `None` stands for a default.
        run_dir: directory of the run, which must not exist (default: a new one in `runs`).
        resume: continues the run in `run_dir`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        cache: keeps prepared meshes on disk (docs/data.md).
        on_epoch: called with the record of each epoch, a dictionary like a line of `metrics.jsonl`.

    Raises:
        TaskError: invalid settings or data, or a loss that is not finite.
    """
    device = _arguments.device(TaskError, device)
    if device != "cpu":
        load_cuda_libraries()
    call = on_epoch
    if call is not None and not callable(call):
        raise _arguments.wrong(TaskError, "on_epoch", "a function of a record, or None", call)
    path = _gemcnn.train(
        *given(config),
        None if run_dir is None else _arguments.path(TaskError, "run_dir", run_dir),
        _arguments.flag(TaskError, "resume", resume),
        device,
        _arguments.flag(TaskError, "cache", cache),
        None if call is None else lambda record: call(json.loads(record)),
    )
    return load(path, device=device)


def load(run: str | os.PathLike[str], *, device: str = "auto") -> TrainedModel:
    """The model of a run directory, or of a file such as `best.safetensors`.

    Raises:
        TaskError: a run that is not finished, or a file that is no model.
    """
    return TrainedModel(run, device=device)


class Prediction(NamedTuple):
    """What a model predicts for a mesh. What its task does not give is `None`."""

    classes: NDArray[np.uint32] | None = None
    """Segmentation and correspondence: the class of each vertex (or face or edge, if the labels are for them), `[V]`; an index of `TrainedModel.classes`."""
    mesh_class: int | None = None
    """Classification: the class of the mesh."""
    probabilities: NDArray[np.float32] | None = None
    """Segmentation: the probability of each class, `[V, classes]`. Classification: `[classes]`."""
    values: NDArray[np.float32] | None = None
    """Regression: rows of `type`, `[V, D]`, or one row for values of whole meshes."""
    type: str | None = None
    """Regression: feature type of the rows."""
    frames: NDArray[np.float64] | None = None
    """Regression: the frames that components of order above 0 refer to, `[V, 3, 3]`."""

    def vectors(self) -> NDArray[np.float64]:
        """Regression of tangent vectors, type `1x1`: the vectors in space, `[V, 3]`."""
        if self.values is None or self.frames is None or self.type != "1x1":
            raise ValueError(f"the prediction is of type {self.type}, not of tangent vectors (1x1)")
        return np.einsum("vi,vik->vk", self.values, self.frames[:, :2])


class TrainedModel:
    """A trained model, with everything that is needed to use it on other meshes."""

    __slots__ = ("_native", "path", "device")

    def __init__(self, path: str | os.PathLike[str], device: str = "auto") -> None:
        file, device = _arguments.path(TaskError, "path", path), _arguments.device(TaskError, device)
        if device != "cpu":
            load_cuda_libraries()
        self._native = _gemcnn.TrainedModel(file, device)
        self.path = Path(path)
        """Run directory or file."""
        self.device = device
        """Device, as it was chosen."""

    def __repr__(self) -> str:
        return f"TrainedModel({str(self.path)!r})\n{self._native.describe()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TrainedModel, (self.path, self.device)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run, with all defaults filled in."""
        config: dict[str, Any] = json.loads(self._native.config())
        return config

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty in regression."""
        return self._native.classes()

    @property
    def input(self) -> str:
        """Feature type of the input."""
        return self._native.types()[0]

    @property
    def output(self) -> str:
        """Feature type of the output."""
        return self._native.types()[1]

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name."""
        return {name: values.reshape(shape) for name, shape, values in self._native.weights()}

    def prepare(self, mesh: Mesh | str | os.PathLike[str]) -> tuple[NDArray[np.float32], GaugeGraph]:
        """The input of the network for a mesh: scaled features `[V, D]`, and the gauge graph whose frames they refer to."""
        used = mesh_or_file(mesh)
        features, graph, _, _ = self._native.prepare(used._native)
        return features, GaugeGraph._of(graph)

    def to_torch(self) -> Any:
        """The network as a `torch.nn.Module` with the same weights: `gemcnn.torch.GemNetwork` for models of the kinds `gem`,
        `attention` and `graph`, `gemcnn.torch.HermesNetwork` for `hermes`, `gemcnn.torch.UNet` for `unet`,
        `gemcnn.torch.SurfaceNetwork` for `surface` and `diffusion` with eigenvectors.

        ```
        logits = model.to_torch()(*model.torch_inputs(mesh))
        ```

        Raises:
            TaskError: a model of another kind, or with an output for each face or edge.
        """
        from .torch import GemNetwork, HermesNetwork, SurfaceNetwork, UNet

        kinds: dict[str, Any] = {
            "gem": GemNetwork,
            "attention": GemNetwork,
            "graph": GemNetwork,
            "hermes": HermesNetwork,
            "unet": UNet,
            "surface": SurfaceNetwork,
            "diffusion": SurfaceNetwork,
        }
        kind = self.config["model"]["kind"]
        if kind not in kinds:
            raise TaskError(f"models of the kind `{kind}` do not become modules of PyTorch, only {', '.join(kinds)}")
        scaling = json.loads(self._native.target_scaling())
        return kinds[kind].of(self.config, self._native.types(), self.weights(), scaling, self._native.per())

    def torch_inputs(self, mesh: Mesh | str | os.PathLike[str]) -> tuple[Any, Any]:
        """The input of the module of `to_torch` for a mesh: scaled features `[V, D]`, and a `gemcnn.torch.Graph`,
        `gemcnn.torch.Spectra` for models with eigenvectors, or `gemcnn.torch.Levels` for models of the kind `unet`."""
        from .torch.data import tensors

        used = mesh_or_file(mesh)
        return tensors(self.config["model"]["kind"], self._native.prepare(used._native))

    def save(self, path: str | os.PathLike[str], network: Any = None) -> TrainedModel:
        """Writes the model to a file, and gives that model. With a module of `to_torch`, it has the weights of the module: what PyTorch
        has trained further, `gemcnn.load` and the command use as any other model.

        Args:
            path: the file, such as `tuned.safetensors`.
            network: a module that `to_torch` of this model made (default: the weights stay).

        Raises:
            TaskError: a module of another model, or weights that are not finite.
        """
        weights = self.weights()
        if network is not None:
            from .torch.models import stored

            weights = stored(network, weights)
        flat = [(name, values.ravel()) for name, values in weights.items()]
        _gemcnn.TrainedModel.rewrite(os.fspath(self.path), _arguments.path(TaskError, "path", path), flat)
        return TrainedModel(path, self.device)

    def predict(self, mesh: Mesh | str | os.PathLike[str]) -> Prediction:
        """The prediction for a mesh or a file."""
        used = mesh_or_file(mesh)
        found = self._native.predict(used._native)
        if "class" in found:
            found["mesh_class"] = found.pop("class")
        return Prediction(**found)

    def evaluate(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        part: str = "test",
        rotation: int | None = None,
        cache: bool = True,
    ) -> dict[str, Any]:
        """Scores on a data set, as `gemcnn eval --json` prints them.

        Args:
            data: folder of the data set (default: that of the run).
            part: `train`, `validation` or `test`.
            rotation: seed of a random rotation of each mesh.
            cache: as in `train`.
        """
        folder = None if data is None else _arguments.path(TaskError, "data", data)
        _arguments.choice(TaskError, "part", part, PARTS)
        if rotation is not None:
            rotation = _arguments.integer(TaskError, "rotation", rotation, 0, 2**64 - 1)
        _arguments.flag(TaskError, "cache", cache)
        evaluation: dict[str, Any] = json.loads(self._native.evaluate(folder, part, rotation, cache))
        return evaluation
