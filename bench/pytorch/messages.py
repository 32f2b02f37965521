"""Attention over neighbours and blocks of nonlinear messages, in three evaluation orders.

    attention:  y_p = sum_q a_pq K_v(theta_pq) rho(g_pq) x_q + bias,   a = softmax_q <K_self x_p, K_k(theta_pq) rho(g_pq) x_q> / sqrt(d)
    messages:   y_p = x_p + phi_n(x_p, m_p),   m_p = mean_q rho(theta_pq) phi_e(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)

`direct` works as the published code does: keys, values and messages of every edge, index_add_ for sums, softmax with scatter
operations; eager. `edges` has the edges of each vertex in a table [V, K], K the highest degree, and a gather whose backward
pass is a gather over the reversed edges; made for torch.compile. `gather` is `edges` with the cheap order for attention: the
weights are applied once for each vertex, before the logits and after the sums. Messages have no such order: there `gather` is
`edges`.

Rows of features are [V, order x component x channel] in all forms.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

import convolution as conv
from convolution import Graph, Kind


def turned(rows: Tensor, kind: Kind, waves: Tensor) -> Tensor:
    """rho applied to rows [..., d], given harmonics [..., 2 band + 1] of the angle."""
    parts = rows.unflatten(-1, (kind.components, kind.channels)).unbind(-2)
    return torch.cat(conv.rotated(parts, waves[..., None, : kind.components].unbind(-1)), -1)


class Table(nn.Module):
    """The graph as buffers, which CUDA graphs read in place."""

    def __init__(self, form: str, graph: Graph, band: int, dtype: torch.dtype):
        super().__init__()
        receivers, senders = graph.receivers, graph.neighbours.long()
        vertices, edges = len(graph.scale), len(senders)
        degrees = graph.offsets.diff()
        angles = {"theta": graph.theta, "back": -graph.theta, "transport": graph.g - graph.theta}
        parts = {name: conv.harmonics(angle, band).to(dtype) for name, angle in angles.items()}
        if form == "direct":
            parts |= {"senders": senders, "receivers": receivers, "share": (1 / degrees[receivers]).to(dtype)}
        else:
            row, column, shape = conv.places(receivers, vertices)
            place = row * shape[1] + column
            parts = {name: conv.padded(values, row, column, shape, dtype) for name, values in parts.items()}
            # Where the edges that leave a vertex stand in the table of those that enter.
            order = torch.argsort(senders, stable=True)
            leaving = conv.places(senders[order], vertices)
            every = torch.arange(edges, device=senders.device)
            parts |= {
                "senders": conv.padded(senders[:, None], row, column, shape, torch.int32)[..., 0],
                "leaving": conv.padded(place[order, None], *leaving, torch.int32)[..., 0],
                "mask": conv.padded(torch.ones_like(every)[:, None], row, column, shape, dtype)[..., 0],
                "left": conv.padded(torch.ones_like(every)[:, None], *leaving, dtype)[..., 0],
                "share": (1 / degrees.clamp(min=1)).to(dtype),
            }
        for name, part in parts.items():
            self.register_buffer(name, part, persistent=False)


class Neighbours(torch.autograd.Function):
    """Rows of the neighbours [V, K, d]; backward, sums over the edges that leave each vertex."""

    @staticmethod
    def forward(ctx, x, senders, leaving, left):
        ctx.save_for_backward(leaving, left)
        return x[senders]

    @staticmethod
    def backward(ctx, dy):
        leaving, left = ctx.saved_tensors
        rows = dy.flatten(0, 1)
        return sum(rows[leaving[:, k]] * left[:, k, None] for k in range(leaving.shape[1])), None, None, None


class Parameters(nn.Module):
    """Parameters with the names and shapes of the case files."""

    def __init__(self, weight: list, bias: int = 0):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weight))
        if bias:
            self.bias = nn.Parameter(torch.zeros(bias))


def pairs(input: Kind, output: Kind) -> int:
    return input.channels * output.channels * (2 * min(input.band, output.band) + 1)


class Head(nn.Module):
    def __init__(self, input: Kind, output: Kind):
        super().__init__()
        self.query = Parameters([pairs(input, output)])
        self.key = Parameters([1, output.dimension, input.dimension])
        self.value = Parameters([1, output.dimension, input.dimension], output.channels)


class Attention(nn.Module):
    def __init__(self, form: str, input: Kind, output: Kind, heads: int):
        super().__init__()
        self.form, self.input, self.output = form, input, output
        self.part = Kind(output.channels // heads, output.band)
        for head in range(1, heads + 1):
            self.add_module(f"head{head}", Head(input, self.part))

    def forward(self, x: Tensor, table: Table) -> Tensor:
        attend = {"direct": self.direct, "edges": self.edges, "gather": self.gather}[self.form]
        gathered = None
        if self.form != "direct":
            gathered = Neighbours.apply(x, table.senders, table.leaving, table.left)
            gathered = turned(gathered, self.input, table.transport)
        results = [attend(x, gathered, table, head, self.query(x, head)) for head in self.children()]
        rows = [y.view(len(x), self.part.components, self.part.channels) for y in results]
        return torch.cat(rows, 2).flatten(1)

    def query(self, x: Tensor, head: Head) -> Tensor:
        return conv.own_terms(x, head.query.weight, None, self.input, self.part) / math.sqrt(self.part.dimension)

    def with_bias(self, y: Tensor, head: Head) -> Tensor:
        scalars = self.part.channels
        return torch.cat([y[:, :scalars] + head.value.bias, y[:, scalars:]], 1)

    def direct(self, x, _, table, head, query):
        rows = turned(x[table.senders], self.input, table.transport)
        keys = turned(rows @ head.key.weight[0].T, self.part, table.theta)
        logits = (query[table.receivers] * keys).sum(1)
        most = torch.full((len(x),), -math.inf, dtype=x.dtype, device=x.device)
        most = most.scatter_reduce(0, table.receivers, logits.detach(), "amax")
        weights = torch.exp(logits - most[table.receivers])
        sums = torch.zeros_like(most).index_add_(0, table.receivers, weights)
        weights = weights / sums[table.receivers]
        values = turned(rows @ head.value.weight[0].T, self.part, table.theta)
        y = x.new_zeros(len(x), self.part.dimension).index_add_(0, table.receivers, values * weights[:, None])
        return self.with_bias(y, head)

    def softmax(self, logits: Tensor, table: Table) -> Tensor:
        weights = torch.softmax(torch.where(table.mask > 0, logits, -math.inf), 1)
        return torch.where(table.mask > 0, weights, 0)

    def edges(self, x, rows, table, head, query):
        queries = turned(query[:, None], self.part, table.back)
        keys = rows @ head.key.weight[0].T
        weights = self.softmax((queries * keys).sum(2), table)
        values = turned(rows @ head.value.weight[0].T, self.part, table.theta)
        return self.with_bias((values * weights[:, :, None]).sum(1), head)

    def gather(self, x, rows, table, head, query):
        band, input, part = self.part.band, self.input, self.part
        # B: the query times the weights of the keys, for each harmonic.
        scalar, *others = head.key.weight.view(part.components, part.channels, input.dimension).unbind(0)
        queries = query.view(-1, part.components, part.channels).unbind(1)
        products = [queries[0] @ scalar]
        for n in range(1, part.components, 2):
            a, b = others[n - 1 : n + 1]
            products += [queries[n] @ a + queries[n + 1] @ b, queries[n + 1] @ a - queries[n] @ b]
        products = torch.stack(products, 1)  # [V, harmonic, input]
        waves = table.theta[:, :, : 2 * band + 1]
        logits = (torch.bmm(rows, products.transpose(1, 2)) * waves).sum(2)
        weights = self.softmax(logits, table)
        sums = torch.bmm((waves * weights[:, :, None]).transpose(1, 2), rows)
        return self.with_bias(conv.dense(sums, head.value.weight, input, part), head)


class Messages(nn.Module):
    """All features have the same type."""

    def __init__(self, form: str, kind: Kind, edge_layers: int, node_layers: int, regular):
        super().__init__()
        self.form, self.kind, self.layers = form, kind, (edge_layers, node_layers)
        self.both = Kind(2 * kind.channels, kind.band)
        width = kind.dimension
        for layer in range(1, edge_layers + 1):
            self.add_module(f"edge{layer}", Parameters([width, (2 if layer == 1 else 1) * width], width))
        for layer in range(1, node_layers + 1):
            input = self.both if layer == 1 else kind
            self.add_module(f"node{layer}", Parameters([pairs(input, kind)], kind.channels))
        self.regular = regular

    def act(self, rows: Tensor) -> Tensor:
        if self.form != "direct":
            return self.regular(rows)
        parts = rows.view(len(rows), self.kind.components, self.kind.channels).transpose(1, 2)
        return self.regular.by_matrices(parts).transpose(1, 2).flatten(1)

    def forward(self, x: Tensor, table: Table) -> Tensor:
        if self.form == "direct":
            own = turned(x[table.receivers], self.kind, table.back)
            rows = turned(x[table.senders], self.kind, table.transport)
        else:
            own = turned(x[:, None], self.kind, table.back)
            rows = Neighbours.apply(x, table.senders, table.leaving, table.left)
            rows = turned(rows, self.kind, table.transport)
        rows = torch.cat([own, rows], -1).flatten(0, -2)
        edge_layers, node_layers = self.layers
        for layer in range(1, edge_layers + 1):
            edge = getattr(self, f"edge{layer}")
            rows = self.act(functional.linear(rows, edge.weight, edge.bias))
        if self.form == "direct":
            rows = turned(rows, self.kind, table.theta) * table.share[:, None]
            message = torch.zeros_like(x).index_add_(0, table.receivers, rows)
        else:
            rows = turned(rows.view(*table.mask.shape, -1), self.kind, table.theta)
            message = (rows * table.mask[:, :, None]).sum(1) * table.share[:, None]
        parts = [part.view(len(x), self.kind.components, -1) for part in (x, message)]
        update, input = torch.cat(parts, 2).flatten(1), self.both
        for layer in range(1, node_layers + 1):
            node = getattr(self, f"node{layer}")
            update = conv.own_terms(update, node.weight, node.bias, input, self.kind)
            input = self.kind
            if layer < node_layers:
                update = self.act(update)
        return x + update
