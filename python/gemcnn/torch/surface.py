"""Networks on surfaces, which do not depend on the meshing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import TaskError
from .diffusion import Diffusion, Spectra
from .layers import EquivariantLinear, GatedNonlinearity, Layer
from .models import Head, trained
from .types import FeatureType, join_orders, output_type, split_orders

__all__ = ["DiffusionBlock", "SurfaceNetwork"]


class DiffusionBlock(Layer):
    """Residual block on surfaces: diffusion, invariants of fields of order above 0, and a perceptron for each vertex
    (docs/surfaces.md). With scalars alone, it is the block of DiffusionNet.

    Args:
        type: type of input and output, with scalars.
        times: shortest and longest diffusion time at initialisation.
        dropout: probability of dropout in the perceptron.
        irrep_dropout: probability of dropping each irrep of order above 0 that the invariants and gates read.
        stochastic_depth: probability of dropping the update of a mesh.

    Shapes:
        x: `[V, type.dimension]`; result: the same.
    """

    def __init__(
        self,
        type: str,
        *,
        times: tuple[float, float] = (1e-3, 0.3),
        dropout: float = 0.0,
        irrep_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        self._set_types(type, type)
        self.dropout, self.irrep_dropout = dropout, irrep_dropout
        self.stochastic_depth = stochastic_depth
        scalars = self.input.multiplicity(0)
        if scalars == 0:
            raise TaskError(f"{self.input} has no scalars")
        self.diffusion = Diffusion(type, times, gradients=True)
        both = FeatureType(f"{self.input} + {self.diffusion.output}")
        rotating = [(order, count) for order, count in enumerate(self.input.multiplicities) if order and count]
        gates = sum(count for _, count in rotating)
        lifted = FeatureType(" + ".join(f"{count}x{order}" for order, count in rotating) or f"{scalars}x1")
        self.lift = EquivariantLinear(both, lifted, bias=False) if gates else None
        self.product = EquivariantLinear(lifted, lifted, bias=False)
        self.scalars = EquivariantLinear(both, f"{scalars}x0")
        self.invariants = nn.Linear(gates or scalars, scalars, bias=False)
        self.hidden = nn.Linear(scalars, scalars)
        self.update = nn.Linear(scalars, scalars + gates)
        self.gate = GatedNonlinearity(type, "identity") if gates else None
        for layer in (self.hidden, self.update):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, spectra: Spectra) -> Tensor:
        self._check(x)
        own = split_orders(x, self.input)
        diffused = split_orders(self.diffusion(x, spectra), self.diffusion.output)
        both = join_orders(
            {
                order: torch.cat([fields[order] for fields in (own, diffused) if order in fields], dim=2)
                for order in {*own, *diffused}
            }
        )
        z = diffused[1].flatten(1) if self.lift is None else self.lift(both)
        z = self._drop_irreps(z)
        pairs = zip(
            split_orders(z, self.product.input).values(),
            split_orders(self.product(z), self.product.output).values(),
            strict=True,
        )
        products = torch.cat([(a * b).sum(1) for a, b in pairs], dim=1).tanh()
        h = nn.functional.dropout(
            torch.relu(self.scalars(both) + self.invariants(products)), self.dropout, self.training
        )
        h = nn.functional.dropout(torch.relu(self.hidden(h)), self.dropout, self.training)
        update = self.update(h)
        if self.gate is not None:
            update = self.gate(torch.cat([update, z], dim=1))
        return x + self._drop_meshes(update, spectra)

    def _drop_irreps(self, z: Tensor) -> Tensor:
        if not (self.training and self.irrep_dropout):
            return z
        fields = split_orders(z, self.product.input)
        return join_orders(
            {
                order: field * nn.functional.dropout(torch.ones_like(field[:, :1]), self.irrep_dropout)
                for order, field in fields.items()
            }
        )

    def _drop_meshes(self, update: Tensor, spectra: Spectra) -> Tensor:
        if not (self.training and self.stochastic_depth):
            return update
        kept = nn.functional.dropout(update.new_ones(len(spectra.sizes)), self.stochastic_depth)
        sizes = torch.tensor(spectra.sizes, device=update.device)
        return update * kept.repeat_interleave(sizes)[:, None]


class SurfaceNetwork(nn.Module):
    """Residual blocks of learned diffusion: the model `surface` of the command, and with scalars alone the model
    `diffusion` (docs/models.md).

    Args:
        input: type of the input.
        outputs: number of outputs, or their type for outputs of an order above 0.
        blocks: number of blocks.
        channels: channels of the orders from 0.
        times: shortest and longest diffusion time at initialisation.
        block_dropout, irrep_dropout: dropout in the blocks.
        stochastic_depth: probability of dropping the update of a mesh in the last block. It grows linearly with depth.
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
        blocks: int = 4,
        channels: Sequence[int] = (128, 32, 16),
        times: tuple[float, float] = (1e-3, 0.3),
        block_dropout: float = 0.0,
        irrep_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        head: int = 0,
        dropout: float = 0.0,
        pool: str | None = None,
    ) -> None:
        super().__init__()
        if pool not in (None, "mean", "max"):
            raise TaskError(f"pool is `{pool}`, but must be mean or max")
        features = FeatureType(" + ".join(f"{count}x{order}" for order, count in enumerate(channels)))
        output = output_type(outputs)
        self.pool = pool
        self.first = EquivariantLinear(input, features)
        self.blocks = nn.ModuleList(
            DiffusionBlock(
                features,
                times=times,
                dropout=block_dropout,
                irrep_dropout=irrep_dropout,
                stochastic_depth=stochastic_depth * (index + 1) / blocks,
            )
            for index in range(blocks)
        )
        rotates = output.highest_order > 0
        last = output if rotates else f"{channels[0]}x0"
        self.last = EquivariantLinear(features, last) if rotates or features.highest_order else None
        self.head = None if rotates else Head(channels[0], output.dimension, head, dropout)
        self.register_buffer("shift", None)
        self.register_buffer("scale", None)

    def forward(self, x: Tensor, spectra: Spectra, labels: Tensor | None = None) -> Tensor:
        """The outputs, or with `labels` the mean cross-entropy, as `linear_cross_entropy` computes it."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x, spectra)
        if self.last is not None:
            x = self.last(x)
        if self.pool is not None:
            parts = x.split(spectra.sizes)
            x = torch.stack([p.mean(0) if self.pool == "mean" else p.amax(0) for p in parts])
        if self.head is not None:
            x = self.head(x, labels)
        elif labels is not None:
            raise TaskError("labels are for scalar outputs, but these rotate with the frames")
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
    ) -> SurfaceNetwork:
        """The network of a trained model, ready for evaluation: see `gemcnn.TrainedModel.to_torch`. Arguments are those of
        `GemNetwork.of`."""
        model = dict(config["model"])
        if model["diffusion"] != "spectral":
            raise TaskError("models with implicit diffusion do not become modules of PyTorch: use eigenvectors")
        if model["kind"] == "diffusion":
            model |= {"channels": [model["channels"]], "block_dropout": model["dropout"], "dropout": 0.0}
        for unused in ("kind", "eigenvectors", "diffusion", "implicit_times", "decay"):
            del model[unused]
        return trained(cls, model, types, weights, scaling, per)

    def _names(self, weights: Iterable[str]) -> dict[str, str]:
        """The name in this module of each weight of the command."""
        weights = list(weights)
        layers = list(dict.fromkeys(name.split(".")[0] for name in weights))
        maps = [layer for layer in layers if layer.startswith("map")]
        names = dict(zip(maps, ["first", "last"], strict=False))
        blocks = [layer for layer in layers if layer.startswith("block")]
        names |= {layer: f"blocks.{index}" for index, layer in enumerate(blocks)}
        linear = [layer for layer in layers if re.fullmatch(r"linear\d+", layer)]
        if self.head is not None:
            names |= dict(zip(linear, self.head.names, strict=True))
        found = {}
        for name in weights:
            layer, _, rest = name.partition(".")
            found[name] = f"{names[layer]}.{rest}"
        return found
