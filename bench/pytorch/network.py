"""A network from its description in a case file, with a choice of how convolutions are evaluated.

Features are rows [V, order x component x channel] as in the case files; the form `direct` has [V, channel, component]
instead. Parameters have the names and shapes of the case files in all forms.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

import convolution as conv
import diffusion
import messages
from convolution import Graph, Kind

FORMS = {"direct": conv.direct, "edges": conv.Edges.apply, "sparse": conv.sparse.apply, "gather": conv.gather.apply}
EPSILON = 1e-5
MOMENTUM = 0.1


def parse_kind(text: str) -> Kind:
    """`16x0 + 16x1 + 16x2` is 16 channels of the orders 0 to 2."""
    terms = [tuple(map(int, term.split("x"))) for term in text.split("+")]
    channels = terms[0][0]
    if terms != [(channels, order) for order in range(len(terms))]:
        raise ValueError(f"{text}: all orders from 0 need the same multiplicity")
    return Kind(channels, len(terms) - 1)


def to_form(form: str, x: Tensor, kind: Kind) -> Tensor:
    """Rows of features in the layout of a form."""
    if form != "direct":
        return x
    return x.view(-1, kind.components, kind.channels).transpose(1, 2).contiguous()


def from_form(x: Tensor) -> Tensor:
    """The inverse of `to_form`."""
    return x if x.dim() == 2 else x.transpose(1, 2).flatten(1)


class Table(nn.Module):
    """Tensors of the graph that do not change, as buffers: CUDA graphs read these in place."""

    def __init__(self, tensors):
        super().__init__()
        for place, tensor in enumerate(tensors):
            self.register_buffer(f"tensor{place}", tensor, persistent=False)


class Tables(nn.Module):
    """What the convolutions of a network, given by their types, need of the graph."""

    def __init__(self, form: str, graph: Graph, types: list[tuple[Kind, Kind]], dtype: torch.dtype):
        super().__init__()
        if form == "sparse":
            pairs = {(input.band, output.band) for input, output in types}
            made = {str(pair): Table(conv.sparse_tables(graph, *pair, dtype)) for pair in pairs}
        else:
            band = max(kind.band for pair in types for kind in pair)
            make = {"direct": conv.direct_tables, "edges": conv.edge_tables, "gather": conv.gather_tables}[form]
            made = {"all": Table(make(graph, band, dtype))}
        self.tables = nn.ModuleDict(made)

    def of(self, input: Kind, output: Kind) -> list[Tensor]:
        key = "all" if "all" in self.tables else str((input.band, output.band))
        return list(self.tables[key].buffers())


class Convolution(nn.Module):
    def __init__(self, form: str, input: Kind, output: Kind):
        super().__init__()
        self.form, self.input, self.output = form, input, output
        pairs = input.channels * output.channels * (2 * min(input.band, output.band) + 1)
        self.weight = nn.Parameter(torch.zeros(1, output.dimension, input.dimension))
        self.self_weight = nn.Parameter(torch.zeros(pairs))
        self.bias = nn.Parameter(torch.zeros(output.channels))

    def forward(self, x, tables):
        tables = tables.of(self.input, self.output)
        return FORMS[self.form](x, self.weight, self.self_weight, self.bias, self.input, self.output, *tables)


class Skip(nn.Module):
    """The equivariant linear map of each vertex by itself."""

    def __init__(self, form: str, input: Kind, output: Kind):
        super().__init__()
        self.form, self.input, self.output = form, input, output
        pairs = input.channels * output.channels * (2 * min(input.band, output.band) + 1)
        self.weight = nn.Parameter(torch.zeros(pairs))

    def forward(self, x, tables):
        if self.form == "direct":
            bases = tables.of(self.input, self.output)[-1]
            kernel = conv.direct_self_kernel(self.weight, bases, self.input, self.output)
            return torch.einsum("vjm,jmin->vin", x, kernel)
        return conv.own_terms(x, self.weight, None, self.input, self.output)


class Norm(nn.Module):
    """Batch normalisation of samples around the circle: one mean and variance per channel over vertices and samples, or the
    running ones if it is not `training`."""

    def __init__(self, channels: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def of_samples(self, samples: Tensor) -> Tensor:
        """[V, channel, sample]"""
        running = self.mean, self.variance
        return functional.batch_norm(samples, *running, self.gamma, self.beta, self.training, MOMENTUM, EPSILON)

    def of_components(self, parts: list[Tensor]) -> list[Tensor]:
        """The same on components [V, channel]: over N >= 2 band + 1 samples, the mean of x_0 + x_a cos + x_b sin + ... is
        x_0, and the mean square x_0^2 + (x_a^2 + x_b^2 + ...) / 2."""
        mean, variance = self.mean, self.variance
        if self.training:
            variance, mean = torch.var_mean(parts[0], 0, correction=0)
            for part in parts[1:]:
                variance = variance + part.square().mean(0) / 2
            with torch.no_grad():
                self.mean.lerp_(mean.detach(), MOMENTUM)
                self.variance.lerp_(variance.detach(), MOMENTUM)
        scale = self.gamma * torch.rsqrt(variance + EPSILON)
        return [(parts[0] - mean) * scale + self.beta, *(part * scale for part in parts[1:])]


class Regular(nn.Module):
    """ReLU of samples around the circle: s_t = sum_k c_k(2 pi t / N) x_k, projected back by 1/N and 2/N."""

    def __init__(self, form: str, kind: Kind, samples: int, norm: bool):
        super().__init__()
        self.form, self.kind = form, kind
        if norm:
            self.norm = Norm(kind.channels)
        angles = 2 * math.pi * torch.arange(samples, dtype=torch.float64) / samples
        self.waves = conv.harmonics(angles, kind.band).tolist()  # [sample][component]

    def forward(self, x, tables=None):
        if self.form == "direct":
            return self.by_matrices(x)
        parts = list(x.view(len(x), self.kind.components, -1).unbind(1))
        if hasattr(self, "norm"):
            parts = self.norm.of_components(parts)
        if self.kind.band == 0:
            return functional.relu(parts[0])
        samples = [functional.relu(weighted(parts, waves)) for waves in self.waves]
        columns = enumerate(zip(*self.waves))
        return torch.cat([weighted(samples, wave) * (min(k + 1, 2) / len(samples)) for k, wave in columns], 1)

    def by_matrices(self, x):
        waves = torch.tensor(self.waves, dtype=x.dtype, device=x.device)
        back = waves * 2 / len(waves)
        back[:, 0] /= 2
        samples = x @ waves.T
        if hasattr(self, "norm"):
            samples = self.norm.of_samples(samples)
        return functional.relu(samples) @ back


def weighted(parts: list[Tensor], weights) -> Tensor:
    return sum(part * weight for part, weight in zip(parts[1:], weights[1:])) + parts[0] * weights[0]


class Block(nn.Module):
    """act2(conv2(act1(conv1(x))) + skip(x))"""

    def __init__(self, form: str, input: Kind, middle: Kind, output: Kind, samples: int):
        super().__init__()
        self.conv1 = Convolution(form, input, middle)
        self.act1 = Regular(form, middle, samples, norm=True)
        self.conv2 = Convolution(form, middle, output)
        if input != output:
            self.skip = Skip(form, input, output)
        self.act2 = Regular(form, output, samples, norm=True)

    def forward(self, x, tables):
        inner = self.act1(self.conv1(x, tables), tables)
        skipped = self.skip(x, tables) if hasattr(self, "skip") else x
        return self.act2(self.conv2(inner, tables) + skipped, tables)


class Dropout(nn.Module):
    """Drops irreps, both components or none, while `training`."""

    def __init__(self, form: str, kind: Kind, probability: float):
        super().__init__()
        self.kind, self.probability = kind, probability
        self.component = 2 if form == "direct" else 1

    def forward(self, x, tables):
        if not self.training:
            return x
        if self.kind.band == 0:
            return functional.dropout(x, self.probability)
        features = x if x.dim() == 3 else x.view(len(x), self.kind.components, self.kind.channels)
        # One number for each irrep, taken by both of its components.
        widths = [1] + [2] * self.kind.band
        parts = features.split(widths, self.component)
        kept = [part * self.mask(part) for part in parts]
        return torch.cat(kept, self.component).view_as(x)

    def mask(self, part: Tensor) -> Tensor:
        return functional.dropout(torch.ones_like(part.narrow(self.component, 0, 1)), self.probability)


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, tables):
        return functional.linear(x.flatten(1), self.weight, self.bias)


class Map(nn.Module):
    """The equivariant linear map of scalars."""

    def __init__(self, input: Kind, output: Kind):
        super().__init__()
        if input.band or output.band:
            raise ValueError("the layer `map` is for scalars")
        self.weight = nn.Parameter(torch.zeros(output.channels * input.channels))
        self.bias = nn.Parameter(torch.zeros(output.channels))

    def forward(self, x, tables):
        return functional.linear(x, self.weight.view(len(self.bias), -1), self.bias)


class Relu(nn.Module):
    def forward(self, x, tables):
        return functional.relu(x)


class MaxPool(nn.Module):
    """The largest value over the vertices of each mesh; all meshes have the same number of vertices."""

    def __init__(self, meshes: int):
        super().__init__()
        self.meshes = meshes

    def forward(self, x, tables):
        return x.view(self.meshes, len(x) // self.meshes, -1).max(1).values


class Network(nn.Module):
    """All layers, named as in the case files."""

    def __init__(self, description: dict, form: str, meshes: int):
        super().__init__()
        self.input = kind = parse_kind(description["input"])
        self.aggregation = "mean" if description["mean"] else "sum"
        for place, layer in enumerate(description["layers"], 1):
            (word, value), = [(layer, None)] if isinstance(layer, str) else layer.items()
            match word:
                case "conv":
                    output = parse_kind(value["output"])
                    self.add_module(f"conv{place}", Convolution(form, kind, output))
                    kind = output
                case "attention":
                    output = parse_kind(value["output"])
                    self.add_module(f"conv{place}", messages.Attention(form, kind, output, value["heads"]))
                    kind = output
                case "messages":
                    if kind != parse_kind(value["output"]):
                        raise ValueError(f"layer {place} does not fit features of {kind}: {layer}")
                    regular = Regular(form, kind, value["samples"], norm=False)
                    block = messages.Messages(form, kind, value["edge_layers"], value["node_layers"], regular)
                    self.add_module(f"block{place}", block)
                case "residual":
                    middle, output = parse_kind(value["middle"]), parse_kind(value["output"])
                    self.add_module(f"block{place}", Block(form, kind, middle, output, value["samples"]))
                    kind = output
                case "regular":
                    self.add_module(f"regular{place}", Regular(form, kind, value["samples"], value["batch_norm"]))
                case "dropout":
                    self.add_module(f"dropout{place}", Dropout(form, kind, value["probability"]))
                case "linear":
                    self.add_module(f"linear{place}", Linear(kind.dimension, value["outputs"]))
                    kind = Kind(value["outputs"], 0)
                case "relu":
                    self.add_module(f"activation{place}", Relu())
                case "max_pool":
                    self.add_module(f"pool{place}", MaxPool(meshes))
                case "map":
                    output = parse_kind(value["output"])
                    self.add_module(f"map{place}", Map(kind, output))
                    kind = output
                case "diffusion":
                    if kind.band or kind != parse_kind(value["features"]):
                        raise ValueError(f"layer {place} does not fit features of {kind}: {layer}")
                    self.add_module(f"block{place}", diffusion.Block(kind.channels, value["dropout"]))
                case _:
                    raise ValueError(f"layer {place} is unknown: {layer}")
        self.output = kind

    def types(self) -> list[tuple[Kind, Kind]]:
        """Input and output of each convolution."""
        return [(m.input, m.output) for m in self.modules() if isinstance(m, Convolution)]

    def forward(self, x, tables):
        for layer in self.children():
            x = layer(x, tables)
        return x
