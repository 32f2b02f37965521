"""Whole networks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import TaskError
from .edges import GaugeAttention, MessageBlock
from .graph import Graph
from .layers import (
    GatedNonlinearity,
    GaugeConv,
    NormNonlinearity,
    RegularNonlinearity,
    ResidualBlock,
    global_max,
    global_mean,
)
from .loss import linear_cross_entropy
from .ops import operators
from .types import FeatureType, output_type

__all__ = ["GemNetwork", "HermesNetwork"]


class Linear(nn.Linear):
    """`torch.nn.Linear` of rows `[V, in_features]`. On the CPU it is the product of this library, which takes two thirds of the
    time of PyTorch's with thousands of outputs."""

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu":
            return super().forward(input)
        types = (f"{self.in_features}x0", f"{self.out_features}x0")
        return cast(Tensor, operators.linear(input, self.weight, self.bias, *types))


class Head(nn.Sequential):
    """The last layers of a network: scalars `[V, channels]` to outputs `[V, outputs]`, or to a loss.

    Args:
        channels: number of inputs.
        outputs: number of outputs.
        hidden: hidden channels; 0 makes it a single linear layer.
        dropout: probability of dropout before the last layer.
    """

    def __init__(self, channels: int, outputs: int, hidden: int, dropout: float) -> None:
        layers: list[nn.Module] = [Linear(channels, hidden), nn.ReLU()] if hidden else []
        super().__init__(*layers, nn.Dropout(dropout), Linear(hidden or channels, outputs))

    @property
    def names(self) -> list[str]:
        """Names of the linear layers in a network."""
        return [f"head.{name}" for name, layer in self.named_children() if isinstance(layer, nn.Linear)]

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:  # type: ignore[override]
        *layers, last = self
        for layer in layers:
            x = layer(x)
        if labels is None:
            return cast(Tensor, last(x))
        linear = cast(nn.Linear, last)
        return linear_cross_entropy(x, linear.weight, linear.bias, labels)


def trained(
    cls: Any,
    model: dict[str, Any],
    types: tuple[str, str],
    weights: Mapping[str, NDArray[Any]],
    scaling: Mapping[str, Sequence[float]] | None,
    per: str,
) -> Any:
    """The network of a class with the settings and weights of a trained model, ready for evaluation."""
    if per not in ("vertex", "mesh"):
        raise TaskError(f"models with an output for each {per} do not become modules of PyTorch")
    pool = model.pop("pool")
    output = FeatureType(types[1])
    network = cls(
        types[0],
        output if output.highest_order else output.dimension,
        pool=pool if per == "mesh" else None,
        **model,
    )
    state = network.state_dict()
    names = network._names(weights)
    # Slots without scalars have neither mean nor shift here.
    network.load_state_dict({names[name]: torch.tensor(w)[: len(state[names[name]])] for name, w in weights.items()})
    if scaling is not None:
        network.shift = torch.tensor(scaling["shift"])
        network.scale = torch.tensor(scaling["scale"])
    return network.eval()


def stored(network: Any, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Weights of the command with the values of a network that `trained` made."""
    found = {}
    try:
        state = network.state_dict()
        for theirs, ours in network._names(weights).items():
            values, new = np.array(weights[theirs]), state[ours].detach().cpu().numpy()
            # As above: the rest of the statistics stays.
            if values[: len(new)].shape != new.shape:
                raise ValueError(f"{ours} has shape {new.shape}")
            values[: len(new)] = new
            found[theirs] = values
    except (AttributeError, KeyError, ValueError) as error:
        raise TaskError("the module is not one that `to_torch` made of this model") from error
    return found


def nonlinearity_of(name: str, samples: int | None, band_limit: int) -> Callable[[str], nn.Module]:
    """Makes nonlinearities of a kind with a given output type."""
    acts: dict[str, Callable[[str], nn.Module]] = {
        "regular": lambda kind: RegularNonlinearity(kind, samples or 2 * band_limit + 1),
        "norm": NormNonlinearity,
        "gated": GatedNonlinearity,
    }
    if name not in acts:
        raise TaskError(f"nonlinearity is `{name}`, but must be regular, norm or gated")
    return acts[name]


class BlockNetwork(nn.Module):
    """Blocks on a graph, then a head of linear layers on scalars, or a convolution for outputs that rotate."""

    blocks: nn.ModuleList

    def _finish(
        self, last: FeatureType, output: FeatureType, head: int, dropout: float, pool: str | None, aggregation: str
    ) -> None:
        if pool not in (None, "mean", "max"):
            raise TaskError(f"pool is `{pool}`, but must be mean or max")
        self.pool = pool
        if output.highest_order > 0:
            self.head: nn.Module = GaugeConv(last, output, aggregation=aggregation)
        else:
            self.head = Head(last.dimension, output.dimension, head, dropout)
        self.register_buffer("shift", None)
        self.register_buffer("scale", None)

    def forward(self, x: Tensor, graph: Graph, labels: Tensor | None = None) -> Tensor:
        """The outputs, or with `labels` the mean cross-entropy, as `linear_cross_entropy` computes it."""
        for block in self.blocks:
            x = block(x, graph)
        if self.pool is not None:
            x = (global_mean if self.pool == "mean" else global_max)(x, graph)
        if isinstance(self.head, GaugeConv):
            if labels is not None:
                raise TaskError("labels are for scalar outputs, but these rotate with the frames")
            x = self.head(x, graph)
        else:
            x = self.head(x, labels)
        if self.scale is not None:
            x = x * cast(Tensor, self.scale) + cast(Tensor, self.shift)
        return x

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        types: tuple[str, str],
        weights: Mapping[str, NDArray[Any]],
        scaling: Mapping[str, Sequence[float]] | None = None,
        per: str = "vertex",
    ) -> Any:
        """The network of a trained model, ready for evaluation: see `gemcnn.TrainedModel.to_torch`.

        Args:
            config: configuration of its run.
            types: types of its input and output.
            weights: its weights by name.
            scaling: shift and scale of its targets.
            per: what a row of its output is for, `vertex` or `mesh`.
        """
        model = dict(config["model"])
        kind = model.pop("kind")
        if model.get("nonlinearity") == "none":
            raise TaskError(f"models of the kind `{kind}` without a nonlinearity do not become modules of PyTorch")
        if kind == "graph":
            # Scalars have isotropic kernels only.
            model |= {"channels": weights["block1.conv1.weight"].shape[1], "band_limit": 0}
            model.pop("width", None)
        for unused in ("weights", "decay", "ratios", "radii", "neighbour_limit"):
            model.pop(unused, None)
        return trained(cls, model, types, weights, scaling, per)

    def _names(self, weights: Iterable[str]) -> dict[str, str]:
        """The name in this module of each weight of the command."""
        layers = self.head.names if isinstance(self.head, Head) else ["head"]
        weights = {name: name.removeprefix("tail.") for name in weights}
        numbered = [name for name in weights.values() if re.match(r"(linear|conv)\d+\.weight", name)]
        heads = {theirs.split(".")[0]: ours for theirs, ours in zip(numbered, layers, strict=True)}
        words = {"mean": "running_mean", "variance": "running_variance"}
        found = {}
        for theirs, name in weights.items():
            layer, *rest = name.split(".")
            if layer in heads:
                name = ".".join([heads[layer], *rest])
            else:
                number = re.fullmatch(r"block(\d+)", layer)
                block = layer if number is None else f"blocks.{int(number[1]) - 1}"
                match rest:
                    case [act, "norm", key]:
                        rest = [f"norm{act.removeprefix('act')}", words.get(key, key)]
                    case [act, "threshold", "bias"]:
                        rest = [act, "bias"]
                    case [edge, key] if edge.startswith("edge"):
                        rest = ["messages", edge, key]
                name = ".".join([block, *rest])
            found[theirs] = name
        return found


class GemNetwork(BlockNetwork):
    """The network of the paper, the model `gem` of the command (docs/models.md): residual blocks, then a head of linear layers on
    scalars, or a convolution for outputs that rotate. With `heads` it is the model `attention`, and with a band limit of 0 the
    model `graph`.

    Args:
        input: type of the input.
        outputs: number of outputs, or their type for outputs of an order above 0.
        blocks: number of residual blocks.
        channels: channels of each order, between and inside blocks.
        band_limit: highest order.
        heads: heads of attention in the place of the convolutions of the blocks (default: convolutions). They divide `channels`
            and `scalars`.
        scalars: scalar channels of the last block.
        nonlinearity: `regular`, `norm` or `gated`.
        samples: samples of the regular nonlinearity (default: `2 band_limit + 1`).
        batch_norm: normalises before nonlinearities.
        broken_symmetry: keeps all orders in the last block, and treats their components as scalars in the head.
        head: hidden channels of the head; 0 makes it a single linear layer.
        dropout: probability of dropout in the head.
        pool: `mean` or `max` over each mesh before the head (default: outputs for each vertex).
        aggregation: of the convolutions (default: `mean`; with `heads` it is `sum`, of the last convolution of outputs that
            rotate).

    Shapes:
        x: `[V, input.dimension]`; result: `[V, outputs]`, or `[B, outputs]` after pooling.
    """

    def __init__(
        self,
        input: str,
        outputs: int | str,
        *,
        blocks: int = 3,
        channels: int = 16,
        band_limit: int = 2,
        heads: int | None = None,
        scalars: int = 64,
        nonlinearity: str = "regular",
        samples: int | None = None,
        batch_norm: bool = True,
        broken_symmetry: bool = False,
        head: int = 256,
        dropout: float = 0.5,
        pool: str | None = None,
        aggregation: str | None = None,
    ) -> None:
        super().__init__()
        aggregation = aggregation or ("mean" if heads is None else "sum")
        hidden = FeatureType.uniform(channels, band_limit)
        output = output_type(outputs)
        keeps = output.highest_order > 0 or broken_symmetry
        last = hidden if keeps else FeatureType(f"{scalars}x0")
        types = [FeatureType(input)] + [hidden] * (blocks - 1) + [last]
        layer: dict[str, Any] = {"aggregation": aggregation}
        if heads is not None:
            layer = {"layer": GaugeAttention, "heads": heads}
        self.blocks = nn.ModuleList(
            ResidualBlock(
                before,
                after,
                middle=hidden,
                nonlinearity=nonlinearity_of(nonlinearity, samples, band_limit),
                batch_norm=batch_norm,
                **layer,
            )
            for before, after in zip(types, types[1:], strict=False)
        )
        self._finish(last, output, head, dropout, pool, aggregation)


class HermesNetwork(BlockNetwork):
    """Blocks of nonlinear messages: the model `hermes` of the command (docs/models.md).

    Args:
        input: type of the input.
        outputs: number of outputs, or their type for outputs of an order above 0.
        blocks: number of blocks.
        channels: channels of each order, of messages and between blocks.
        band_limit: highest order.
        edge_layers: layers of the message function of each block.
        node_layers: layers of the update function of each block.
        scalars: scalar channels of the last block.
        nonlinearity: of updates: `regular`, `norm` or `gated`. That of messages is regular.
        samples: samples of regular nonlinearities (default: `2 band_limit + 1`).
        batch_norm: normalises before the nonlinearities of updates.
        head: hidden channels of the head; 0 makes it a single linear layer.
        dropout: probability of dropout in the head.
        pool: `mean` or `max` over each mesh before the head (default: outputs for each vertex).

    Shapes:
        x: `[V, input.dimension]`; result: `[V, outputs]`, or `[B, outputs]` after pooling.
    """

    def __init__(
        self,
        input: str,
        outputs: int | str,
        *,
        blocks: int = 3,
        channels: int = 16,
        band_limit: int = 2,
        edge_layers: int = 2,
        node_layers: int = 2,
        scalars: int = 64,
        nonlinearity: str = "regular",
        samples: int | None = None,
        batch_norm: bool = True,
        head: int = 256,
        dropout: float = 0.5,
        pool: str | None = None,
    ) -> None:
        super().__init__()
        hidden = FeatureType.uniform(channels, band_limit)
        output = output_type(outputs)
        last = hidden if output.highest_order > 0 else FeatureType(f"{scalars}x0")
        types = [FeatureType(input)] + [hidden] * (blocks - 1) + [last]
        self.blocks = nn.ModuleList(
            MessageBlock(
                before,
                after,
                hidden=hidden,
                edge_layers=edge_layers,
                node_layers=node_layers,
                samples=samples,
                nonlinearity=nonlinearity_of(nonlinearity, samples, band_limit),
                batch_norm=batch_norm,
            )
            for before, after in zip(types, types[1:], strict=False)
        )
        self._finish(last, output, head, dropout, pool, "mean")
