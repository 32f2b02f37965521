"""Layers. Each takes features `[V, D]` and the graph that they live on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import _gemcnn
from .._arguments import choice, described, instance, integer, number, numbers, wrong
from ..errors import OperatorError
from .batch_norm import ALONE, follow, normalise
from .graph import Clusters, Graph
from .ops import operators
from .types import FeatureType

__all__ = [
    "BatchNorm",
    "EquivariantLinear",
    "GatedNonlinearity",
    "GaugeConv",
    "NormNonlinearity",
    "RegularNonlinearity",
    "ResidualBlock",
    "Scalars",
    "Sequential",
    "TransportPool",
    "TransportUnpool",
    "global_max",
    "global_mean",
]


ACTIVATIONS = ("relu", "elu", "gelu", "tanh", "identity")


class Layer(nn.Module):
    """A layer with a type of its input and of its output."""

    def _set_types(self, input: str, output: str) -> None:
        self.input, self.output = FeatureType(input), FeatureType(output)
        # Plain values, which `torch.compile` traces without a look at the types.
        self._types = (str(self.input), str(self.output))
        self._widths = (self.input.dimension, self.output.dimension)

    def _check(self, x: Tensor) -> None:
        """Features of the type of the input."""
        if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != self._widths[0] or x.layout != torch.strided:
            raise OperatorError(
                f"{self.__class__.__name__}: x must be features of type {self._types[0]} and shape "
                f"[V, {self._widths[0]}], not {described(x)}"
            )

    def _check_both(self, x: Tensor, graph: Graph, weight: Tensor | None = None) -> None:
        """Features that have the numbers, and the vertices, of the graph and the weights."""
        self._check(x)
        if not isinstance(graph, Graph):
            raise OperatorError(
                f"{self.__class__.__name__}: graph must be a gemcnn.torch.Graph, such as Graph.of(mesh), not {described(graph)}"
            )
        numbers = graph.phases
        if x.dtype != numbers.dtype or x.device != numbers.device or (weight is not None and x.dtype != weight.dtype):
            self._refuse(x, numbers, weight)
        if x.shape[0] != graph.vertex_count:
            raise OperatorError(
                f"{self.__class__.__name__}: `x` has {x.shape[0]} rows, but the graph needs {graph.vertex_count}, one for each vertex"
            )

    def _refuse(self, x: Tensor, numbers: Tensor | None, weight: Tensor | None) -> None:
        """Raises for features of another type or on another device, unless autocast converts them."""
        others = [("its geometry is", numbers), ("the weights", weight)]
        present = [(name, other) for name, other in others if other is not None]
        if all(x.device == other.device for _, other in present) and torch.is_autocast_enabled(x.device.type):
            return
        found = ", and ".join(f"{name} {other.dtype} on {other.device}" for name, other in present)
        raise OperatorError(
            f"{self.__class__.__name__}: x is {x.dtype} on {x.device}, but {found}: "
            "convert with the method `to` of the tensor, of the geometry (such as Graph) and of the layer"
        )


class GaugeConv(Layer):
    """Gauge equivariant convolution.

    `y_p = K_self x_p + s sum_q K(theta_pq) rho(g_pq) x_q + bias`, with `K(theta) = rho(theta) W(r) rho(-theta)` and any matrix
    `W` (docs/convolution.md).

    Args:
        input: type of the input.
        output: type of the output.
        rings: number of radial rings; with 1 the kernel does not depend on the distance.
        max_radius: radius of the last ring, in units of the mesh.
        aggregation: `sum`, `mean` over the neighbours, or `mean_with_self` over the neighbours and the vertex.
        self_term: adds a linear map of the vertex itself.
        bias: adds a bias to scalars.
        degree: number of neighbours that the initialisation assumes.
        input_moments: mean square of an input component of each order that the initialisation assumes (1 if not listed).

    Shapes:
        x: `[V, input.dimension]`; result: `[V, output.dimension]`.
    """

    def __init__(
        self,
        input: str,
        output: str,
        *,
        rings: int = 1,
        max_radius: float = 1.0,
        aggregation: str = "sum",
        self_term: bool = True,
        bias: bool = True,
        degree: float = 6.0,
        input_moments: Sequence[float] = (),
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(input, output)
        choice(OperatorError, "aggregation", aggregation, ("sum", "mean", "mean_with_self"))
        rings = integer(OperatorError, "rings", rings, 1, 1024)
        self.aggregation, self.max_radius = aggregation, number(OperatorError, "max_radius", max_radius, 0)
        if self.max_radius == 0:
            raise wrong(OperatorError, "max_radius", "positive", max_radius)
        self.degree = number(OperatorError, "degree", degree, 0, 1e9)
        self.input_moments = tuple(numbers(OperatorError, "input_moments", input_moments, 0))
        options = {"device": device, "dtype": dtype}
        shape = (rings, self.output.dimension, self.input.dimension)
        self.weight = nn.Parameter(torch.empty(shape, **options))
        count = _gemcnn.counts(self.input, self.output)[0] if self_term else 0
        self.self_weight = nn.Parameter(torch.empty(count, **options)) if count else None
        biases = self.output.multiplicity(0) if bias else 0
        self.bias = nn.Parameter(torch.empty(biases, **options)) if biases else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights so that features keep their scale (docs/initialisation.md)."""
        own, rings = self.self_weight is not None, self.weight.shape[0]
        degree = max(self.degree, 1.0)
        scale = {"sum": 1.0, "mean": degree**-2, "mean_with_self": (degree + 1) ** -2}[self.aggregation]
        own_scale = scale if self.aggregation == "mean_with_self" else 1.0
        scale *= 2 / 3 if rings > 1 else 1.0

        def moment(order: int) -> float:
            return self.input_moments[order] if order < len(self.input_moments) else 1.0

        orders = [(n, count) for n, count in enumerate(self.input.multiplicities) if count]
        power = degree * sum(count * (2 if n else 1) * moment(n) for n, count in orders)
        with torch.no_grad():
            for order, count in enumerate(self.output.multiplicities):
                same = self.input.multiplicity(order) * moment(order)
                share = 0.5 if own and same else 1.0
                total = max(power, degree**2 * same) * scale
                deviation = math.sqrt(share / total) if total else 0.0
                self.weight[:, self.output.range(order)].normal_(0, deviation)
            if self.self_weight is not None:
                start = 0
                for order, count in orders:
                    fan = count * (2 if order else 1)
                    end = start + fan * self.output.multiplicity(order)
                    deviation = math.sqrt(0.5 / (fan * moment(order) * own_scale))
                    self.self_weight[start:end].normal_(0, deviation)
                    start = end
            if self.bias is not None:
                self.bias.zero_()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        self._check_both(x, graph, self.weight)
        settings = (*self._types, self.max_radius, self.aggregation)
        result = operators.gauge_conv(
            x, self.weight, self.self_weight, self.bias, *graph._for_operators(), *settings
        )
        return cast(Tensor, result)

    def extra_repr(self) -> str:
        parts = [f"{self.input} -> {self.output}"]
        if self.weight.shape[0] > 1:
            parts.append(f"rings={self.weight.shape[0]}, max_radius={self.max_radius}")
        if self.aggregation != "sum":
            parts.append(f"aggregation={self.aggregation}")
        return ", ".join(parts)


class EquivariantLinear(Layer):
    """Equivariant linear map of each row: orders do not mix, and an order above 0 has two weights for each pair of channels.

    Args:
        input: type of the input.
        output: type of the output.
        bias: adds a bias to scalars.
    """

    def __init__(
        self,
        input: str,
        output: str,
        *,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(input, output)
        options = {"device": device, "dtype": dtype}
        count = _gemcnn.counts(self.input, self.output)[0]
        self.weight = nn.Parameter(torch.empty(count, **options))
        biases = self.output.multiplicity(0) if bias else 0
        self.bias = nn.Parameter(torch.empty(biases, **options)) if biases else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights of variance 1 over the number of inputs."""
        start = 0
        with torch.no_grad():
            for order, count in enumerate(self.input.multiplicities):
                fan = count * (2 if order else 1)
                end = start + fan * self.output.multiplicity(order)
                if fan:
                    self.weight[start:end].normal_(0, fan**-0.5)
                start = end
            if self.bias is not None:
                self.bias.zero_()

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        self._check(x)
        if x.dtype != self.weight.dtype or x.device != self.weight.device:
            self._refuse(x, None, self.weight)
        result = operators.linear(x, self.weight, self.bias, *self._types)
        return cast(Tensor, result)

    def extra_repr(self) -> str:
        return f"{self.input} -> {self.output}"


class RegularNonlinearity(Layer):
    """Regular nonlinearity: an activation of samples of the features around the circle (docs/nonlinearity.md). Equivariance
    is approximate, and improves with the number of samples.

    Args:
        type: type of the input, with the same multiplicity for all orders up to the highest.
        samples: number of samples (default: twice the highest order, plus 1).
        activation: `relu`, `elu`, `gelu`, `tanh` or `identity`.
        output_band_limit: highest order of the output (default: that of the input).
    """

    def __init__(
        self,
        type: str,
        samples: int | None = None,
        activation: str = "relu",
        output_band_limit: int | None = None,
    ) -> None:
        super().__init__()
        kind = FeatureType(type)
        highest = kind.highest_order
        self.samples = 2 * highest + 1 if samples is None else integer(OperatorError, "samples", samples, 1, 65_536)
        self.activation = choice(OperatorError, "activation", activation, ACTIVATIONS)
        limit = highest if output_band_limit is None else output_band_limit
        self.band_limit = integer(OperatorError, "output_band_limit", limit, 0, 1000)
        if len(set(kind.multiplicities)) > 1:
            raise OperatorError(f"{kind} needs the same multiplicity for all orders from 0")
        self._set_types(kind, FeatureType.uniform(kind.multiplicity(0), self.band_limit))

    def forward(self, x: Tensor, graph: Graph | None = None, norm: BatchNorm | None = None) -> Tensor:
        """With `norm` that of the normalised features, which are not stored."""
        self._check(x)
        settings = (self.band_limit, self.samples, self.activation)
        if norm is not None:
            return norm._normalised(x, settings)
        return cast(Tensor, operators.regular(x, self._types[0], *settings))

    def extra_repr(self) -> str:
        return f"{self.input}, samples={self.samples}, activation={self.activation}"


class NormNonlinearity(Layer):
    """An activation of norms: `y = f(|x| + b) x / |x|` for each irrep of order above 0, and `f(x)` for scalars. Exactly
    equivariant.

    Args:
        type: type of input and output.
        activation: as in `RegularNonlinearity`.
        epsilon: added to squared norms.
    """

    def __init__(
        self,
        type: str,
        activation: str = "relu",
        epsilon: float = 1e-8,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(type, type)
        self.activation = choice(OperatorError, "activation", activation, ACTIVATIONS)
        self.epsilon = number(OperatorError, "epsilon", epsilon, 0)
        count = _gemcnn.counts(self.input, self.input)[1]
        self.bias = nn.Parameter(torch.zeros(count, device=device, dtype=dtype))

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        self._check(x)
        settings = (self._types[0], self.activation, self.epsilon)
        return cast(Tensor, operators.norm(x, self.bias, *settings))

    def extra_repr(self) -> str:
        return f"{self.input}, activation={self.activation}"


class GatedNonlinearity(Layer):
    """Scalars through an activation, and each irrep of order above 0 times the sigmoid of a scalar of its own, its gate.
    Exactly equivariant.

    Args:
        type: type of the output. That of the input, `self.input`, has one more scalar for each gate, after the others.
        activation: as in `RegularNonlinearity`.
    """

    def __init__(self, type: str, activation: str = "relu") -> None:
        super().__init__()
        self.activation = choice(OperatorError, "activation", activation, ACTIVATIONS)
        type = FeatureType(type)
        gates = _gemcnn.counts(type, type)[1]
        self._set_types(f"{type} + {gates}x0", type)

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        self._check(x)
        return cast(Tensor, operators.gated(x, self._types[1], self.activation))

    def extra_repr(self) -> str:
        return f"{self.input} -> {self.output}, activation={self.activation}"


class _SumOfProcesses(torch.autograd.Function):
    """Sum over all processes; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        total = gradient.clone()
        torch.distributed.all_reduce(total)
        return total


class BatchNorm(Layer):
    """Equivariant batch normalisation: only scalars are shifted, and the components of an irrep share one scale.

    With `per="channel"`, all orders of a channel share mean, variance, scale and shift, which is batch normalisation of the
    samples of a regular nonlinearity. In training with several processes (`torch.distributed`), statistics are those of all of
    them if `synchronised` is true; it is then made of operators of PyTorch.

    Args:
        type: type of input and output.
        per: `irrep`, or `channel` for types with the same multiplicity for all orders.
        epsilon: added to variances.
        momentum: weight of the batch in the running statistics.
        synchronised: shares statistics between processes.
    """

    running_mean: Tensor
    running_variance: Tensor
    slot: Tensor
    share: Tensor

    def __init__(
        self,
        type: str,
        per: str = "irrep",
        epsilon: float = 1e-5,
        momentum: float = 0.1,
        synchronised: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(type, type)
        self.per, self.epsilon = per, number(OperatorError, "epsilon", epsilon, 0)
        self.momentum = number(OperatorError, "momentum", momentum, 0, 1)
        self.synchronised = synchronised
        counts = self.input.multiplicities
        choice(OperatorError, "per", per, ("irrep", "channel"))
        if per == "channel" and len(set(counts)) > 1:
            raise OperatorError(f"{self.input} needs the same multiplicity for all orders from 0")
        slots: list[int] = []
        first = 0
        for order, count in enumerate(counts):
            slots += list(range(first, first + count)) * (2 if order else 1)
            first += count if per == "irrep" else 0
        self.slots = max(slots, default=-1) + 1
        self.scalars = self.input.multiplicity(0)
        share = [1.0] * self.scalars + [0.5] * (self.input.dimension - self.scalars)
        self.register_buffer("slot", torch.tensor(slots, device=device, dtype=torch.long), False)
        self.register_buffer("share", torch.tensor(share, device=device, dtype=dtype), False)
        options = {"device": device, "dtype": dtype}
        self.gamma = nn.Parameter(torch.ones(self.slots, **options))
        # Slots without scalars have no shift.
        self.beta = nn.Parameter(torch.zeros(self.scalars, **options))
        self.register_buffer("running_mean", torch.zeros(self.scalars, **options))
        self.register_buffer("running_variance", torch.ones(self.slots, **options))

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        self._check(x)
        return self._normalised(x, ALONE)

    def _normalised(self, x: Tensor, act: tuple[int, int, str]) -> Tensor:
        """The normalised features, or a regular nonlinearity of them, with these settings."""
        distributed = torch.distributed
        several = self.synchronised and distributed.is_available() and distributed.is_initialized()
        if self.training and several:
            y = self._of_all_processes(x)
            return y if act == ALONE else cast(Tensor, operators.regular(y, self._types[0], *act))
        rest = (0, self.slots - self.scalars)
        beta = nn.functional.pad(self.beta, rest) if rest[1] else self.beta
        settings = (self._types[0], self.per, self.epsilon, *act)
        if self.training:
            running = (self.running_mean, self.running_variance)
            return normalise(x, self.gamma, beta, running, self.momentum, *settings)
        mean = nn.functional.pad(self.running_mean, rest) if rest[1] else self.running_mean
        y, _ = operators.batch_norm(x, self.gamma, beta, mean, self.running_variance, *settings)
        return cast(Tensor, y)

    def _of_all_processes(self, x: Tensor) -> Tensor:
        """The normalisation with the statistics of all processes, through which gradients flow."""
        scalars = x[:, : self.scalars]
        totals = _SumOfProcesses.apply(torch.cat([scalars.sum(0), x.new_full((1,), x.shape[0])]))
        count = totals[-1].clamp(min=1)
        mean = totals[:-1] / count
        squares = torch.cat([(scalars - mean).square().sum(0), x[:, self.scalars :].square().sum(0)])
        shared = self.share.to(x.dtype) * _SumOfProcesses.apply(squares) / count
        variance = x.new_zeros(self.slots).index_add(0, self.slot, shared)
        follow((self.running_mean, self.running_variance), mean, variance, self.momentum)
        scale = (self.gamma * torch.rsqrt(variance + self.epsilon))[self.slot]
        shift = self.beta - mean * scale[: self.scalars]
        rest = self._widths[0] - self.scalars
        return torch.addcmul(nn.functional.pad(shift, (0, rest)), x, scale)

    def extra_repr(self) -> str:
        return f"{self.input}, per={self.per}"


class TransportPool(Layer):
    """Mean over each cluster, after parallel transport to the vertex of the cluster: `[V, D]` to `[C, D]`.

    Args:
        type: type of the features.
    """

    _operator = "pool"

    def __init__(self, type: str) -> None:
        super().__init__()
        self._set_types(type, type)

    def forward(self, x: Tensor, clusters: Clusters) -> Tensor:
        self._check(x)
        instance(OperatorError, "clusters", clusters, Clusters, "gemcnn.torch.Clusters")
        if x.dtype != clusters.phases.dtype or x.device != clusters.phases.device:
            self._refuse(x, clusters.phases, None)
        operator = getattr(operators, self._operator)
        return cast(Tensor, operator(x, *clusters, self._types[0]))

    def extra_repr(self) -> str:
        return self.input


class TransportUnpool(TransportPool):
    """Features of each cluster, transported back to its vertices: `[C, D]` to `[V, D]`."""

    _operator = "unpool"


def normalisation(type: FeatureType, act: nn.Module, **options: Any) -> BatchNorm:
    """The batch normalisation before a nonlinearity."""
    return BatchNorm(type, "channel" if isinstance(act, RegularNonlinearity) else "irrep", **options)


def activated(act: nn.Module, norm: BatchNorm | None, x: Tensor) -> Tensor:
    """The nonlinearity after a batch normalisation, if there is one. Hooks see both."""
    if norm is None:
        return cast(Tensor, act(x))
    hooks = (norm._forward_hooks, norm._forward_pre_hooks, norm._backward_hooks, norm._backward_pre_hooks)
    if isinstance(act, RegularNonlinearity) and not any(hooks):
        return cast(Tensor, act(x, norm=norm))
    return cast(Tensor, act(norm(x)))


class ResidualBlock(nn.Module):
    """Residual block: `act2(conv2(act1(conv1(x))) + skip(x))`. The skip connection is the identity, or an equivariant linear
    map without bias if the types differ.

    Args:
        input: type of the input.
        output: type of the output.
        middle: type between the convolutions (default: the largest multiplicity of the output, for all orders up to the
            highest of input and output).
        nonlinearity: makes a nonlinearity with a given output type (default: `RegularNonlinearity`).
        batch_norm: normalises before each nonlinearity.
        layer: makes `conv1` and `conv2` from their types (default: `GaugeConv`), such as `GaugeAttention`.
        conv: further arguments of both.
    """

    def __init__(
        self,
        input: str,
        output: str,
        *,
        middle: str | None = None,
        nonlinearity: Callable[[str], nn.Module] = RegularNonlinearity,
        batch_norm: bool = False,
        layer: Callable[..., nn.Module] = GaugeConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        self.input, self.output = FeatureType(input), FeatureType(output)
        if middle is None:
            highest = max(self.input.highest_order, self.output.highest_order)
            middle = FeatureType.uniform(max(self.output.multiplicities, default=0), highest)
        options = {key: conv[key] for key in ("device", "dtype") if key in conv}
        self.act1 = nonlinearity(middle).to(**options)
        self.act2 = nonlinearity(self.output).to(**options)
        inner, after = (cast(FeatureType, act.input) for act in (self.act1, self.act2))

        self.conv1 = layer(self.input, inner, **conv)
        self.norm1 = normalisation(inner, self.act1, **options) if batch_norm else None
        self.conv2 = layer(middle, after, **conv)
        self.norm2 = normalisation(after, self.act2, **options) if batch_norm else None
        self.skip = (
            None
            if self.input == after
            else EquivariantLinear(self.input, after, bias=False, **options)
        )

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        inner = activated(self.act1, self.norm1, self.conv1(x, graph))
        inner = self.conv2(inner, graph)
        inner = inner + (x if self.skip is None else self.skip(x))
        return activated(self.act2, self.norm2, inner)


class Scalars(nn.Module):
    """A module of PyTorch, such as `nn.Linear`, as a layer on scalars.

    Args:
        module: takes and gives `[V, channels]`.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        return cast(Tensor, self.module(x))


class Sequential(nn.Sequential):
    """Layers one after the other, all on the same graph."""

    def forward(self, x: Tensor, graph: Graph) -> Tensor:  # type: ignore[override]
        for layer in self:
            x = layer(x, graph)
        return x


def _check_rows(x: Tensor, graph: Graph) -> None:
    instance(OperatorError, "graph", graph, Graph, "a gemcnn.torch.Graph")
    fits = isinstance(x, Tensor) and x.dim() == 2 and x.layout == torch.strided and x.is_floating_point()
    if not fits or x.shape[0] != graph.vertex_count or x.device != graph.offsets.device:
        raise wrong(OperatorError, "x", f"scalars of shape [{graph.vertex_count}, D]", x)


def global_mean(x: Tensor, graph: Graph) -> Tensor:
    """Mean of scalars over each mesh of a batch: `[V, D]` to `[B, D]`."""
    _check_rows(x, graph)
    mesh = graph.mesh_of_vertex()
    counts = graph.mesh_offsets.diff().clamp(min=1).to(x.dtype)
    return x.new_zeros((graph.mesh_count, x.shape[1])).index_add(0, mesh, x) / counts[:, None]


def global_max(x: Tensor, graph: Graph) -> Tensor:
    """Maximum of scalars over each mesh of a batch: `[V, D]` to `[B, D]`."""
    _check_rows(x, graph)
    mesh = graph.mesh_of_vertex()[:, None].expand_as(x)
    start = x.new_full((graph.mesh_count, x.shape[1]), -torch.inf)
    return start.scatter_reduce(0, mesh, x, "amax")
