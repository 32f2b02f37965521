"""The gauge equivariant convolution

    y_p = K_self f_p + s_p sum_q rho_out(theta_pq) W rho_in(g_pq - theta_pq) f_q + bias,    s_p = 1 or 1/|N(p)|

in four evaluation orders: `direct` as the published code works, one product for each `edge`, and aggregation before the product
by torch.`sparse` or by compiled `gather`s. All but `direct` have backward passes of their own, in which sums over
neighbours are again gathers over (reversed) edges, never atomic additions.

What was tried, in ms on one thread of a Zen 4 core, for a torus of 6,890 vertices with 41,340 edges and 16x(0,1,2). These are
the least of 15 to 40 calls on a machine with other work on it, single runs: differences below a fifth mean little.

- Sums of rows of edges [E, 80]: index_add_ 0.61, scatter_reduce 0.97, segment_reduce 4.6, a CSR matrix 1.1. Compiled:
  index_add_ 0.31 and a table of the edges of each vertex 0.32. With two threads, beside another busy process, three runs
  of these gave 4.3, 16 and 7.9 for index_add_, and 6.8, 0.16 and 0.31 for the table.
- Aggregation: CSR matrix 3.9 to 4.3 (6.1 with 64-bit indices), a CSR matrix of harmonics times rotated rows 4.8. Compiled:
  gathers and a batched product 2.4 to 4.3, one sum over a dimension of neighbours 1.5 (2.7 with degree 8), a sum for each
  pair of harmonic and component 1.2 to 1.7 (2.7; twice as long to compile), a sum for each component 1.2 to 1.6 (1.7).
- The self term as further columns of A instead of products of its own: no faster.
- max-autotune for the products: no faster. oneDNN's linear, which has no public name: 10 to 20 % faster than MKL, not used.

Convolution, forward and forward + backward: direct 63 and 154, edges 10.9 and 31, sparse 8.0 and 21, gather 4.7 and 15.
With two threads: direct 29 and 80, edges 5.8 and 18, sparse 4.5 and 11, gather 2.3 and 8.0.

Tables are as wide as the highest degree, 8 or less on the meshes that are compared; a mesh with a few vertices of very high
degree would need another way.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


class Kind(NamedTuple):
    """Type of features: `channels` copies of every order from 0 to `band`."""

    channels: int
    band: int

    @property
    def components(self) -> int:
        return 2 * self.band + 1

    @property
    def dimension(self) -> int:
        return self.components * self.channels


class Graph(NamedTuple):
    """Directed edges p <- q grouped by the receiver p."""

    offsets: Tensor  # [V + 1]
    neighbours: Tensor  # [E], q
    theta: Tensor  # [E]
    g: Tensor  # [E]
    scale: Tensor  # [V], s_p

    @property
    def receivers(self) -> Tensor:
        vertices = torch.arange(len(self.scale), device=self.offsets.device)
        return torch.repeat_interleave(vertices, self.offsets.diff())


def harmonics(angle: Tensor, band: int) -> Tensor:
    """1, cos a, sin a, cos 2a, sin 2a, ... along a new last dimension."""
    waves = [wave(n * angle) for n in range(1, band + 1) for wave in (torch.cos, torch.sin)]
    return torch.stack([torch.ones_like(angle), *waves], -1)


def rotated(parts, waves):
    """rho applied to components (order 0, order 1 cos, order 1 sin, ...), given harmonics of the angle."""
    result = [waves[0] * parts[0]]
    for n in range(1, len(parts), 2):
        (a, b), (cosine, sine) = parts[n : n + 2], waves[n : n + 2]
        result += [cosine * a - sine * b, sine * a + cosine * b]
    return result


def self_blocks(weight: Tensor, input: Kind, output: Kind) -> list[tuple[Tensor, Tensor]]:
    """The numbers a and b [out, in] of each order that both types have; order 0 has only a."""
    parts = weight.view(-1, output.channels, input.channels).unbind(0)
    return [(parts[0], parts[0])] + [(parts[n], parts[n + 1]) for n in range(1, len(parts), 2)]


def self_matrices(weight: Tensor, input: Kind, output: Kind) -> list[Tensor]:
    """K_self of each order that both types have: a, and [[a, b], [-b, a]] from order 1 on."""
    (scalar, _), *others = self_blocks(weight, input, output)
    turned = [torch.cat([torch.cat([a, b], 1), torch.cat([-b, a], 1)], 0) for a, b in others]
    return [scalar, *turned]


def order_columns(kind: Kind, order: int) -> slice:
    """Where an order lies in rows of features."""
    start = max(2 * order - 1, 0) * kind.channels
    return slice(start, (2 * order + 1) * kind.channels)


def transposed_self(weight: Tensor, input: Kind, output: Kind) -> Tensor:
    """The self weights of the transposed map."""
    (scalar, _), *others = self_blocks(weight, input, output)
    parts = [scalar.T] + [part for a, b in others for part in (a.T, -b.T)]
    return torch.stack(parts).flatten()


def own_terms(x: Tensor, self_weight: Tensor, bias: Tensor | None, input: Kind, output: Kind) -> Tensor:
    """K_self f_p + bias."""
    matrices = self_matrices(self_weight, input, output)
    parts = [x[:, order_columns(input, n)] @ matrix.T for n, matrix in enumerate(matrices)]
    if bias is not None:
        parts[0] = parts[0] + bias
    if output.band > input.band:
        parts.append(x.new_zeros(len(x), 2 * (output.band - input.band) * output.channels))
    return torch.cat(parts, 1)


def own_gradients(x: Tensor, dy: Tensor, input: Kind, output: Kind) -> tuple[Tensor, Tensor]:
    """Gradients of the self weights and of the bias: of dy_n^T x_n the parts that commute with rotations."""
    columns = [(order_columns(output, n), order_columns(input, n)) for n in range(min(input.band, output.band) + 1)]
    scalar, *others = (dy[:, out].T @ x[:, into] for out, into in columns)
    parts = [scalar]
    for product in others:
        aa, ab = product[: output.channels].split(input.channels, 1)
        ba, bb = product[output.channels :].split(input.channels, 1)
        parts += [aa + bb, ab - ba]
    return torch.stack(parts).flatten(), dy[:, : output.channels].sum(0)


# Aggregate first.
#
# The sum over neighbours meets theta only through its harmonics t_k(theta), so neighbours are summed first,
#
#     A_p[k] = s_p sum_q t_k(theta) rho_in(g - theta) f_q,
#
# and multiplied once for each vertex: with W_m = [W_a; W_b] the rows of W for the two components of output order m,
#
#     y_m = [A[cos m], A[sin m]] [[W_a, -W_b], [W_b, W_a]]^T.
#
# The transposed convolution has the same form: reversed edges, angles -(g - theta) and -theta in the places of theta and
# g - theta, W^T. So the backward pass aggregates dy into B, and both the gradient of x and that of W are products with B.


def dense(sums: Tensor, weight: Tensor, input: Kind, output: Kind) -> Tensor:
    """y from A [V, harmonic, input]."""
    scalar, *rows = weight.view(output.components, output.channels, input.dimension).unbind(0)
    parts = [sums[:, 0] @ scalar.T]
    for n in range(1, output.components, 2):
        a, b = rows[n - 1 : n + 1]
        matrix = torch.cat([torch.cat([a, -b], 1), torch.cat([b, a], 1)], 0)
        parts.append(sums[:, n : n + 2].flatten(1) @ matrix.T)
    return torch.cat(parts, 1)


def dense_gradient(sums: Tensor, x: Tensor, input: Kind, output: Kind) -> Tensor:
    """Gradient of W from B [V, harmonic, output]."""
    columns = [sums[:, 0].T @ x[:, order_columns(input, 0)]]
    for n in range(1, input.band + 1):
        product = sums[:, 2 * n - 1 : 2 * n + 1].flatten(1).T @ x[:, order_columns(input, n)]
        (cos_a, cos_b), (sin_a, sin_b) = (part.split(input.channels, 1) for part in product.split(output.dimension))
        columns += [cos_a + sin_b, cos_b - sin_a]
    return torch.cat(columns, 1)


def aggregate_first(aggregate):
    """The convolution as an autograd function, given how neighbours are summed:
    `aggregate(x, input kind, output band, *tables)` gives A."""

    class AggregateFirst(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, self_weight, bias, input, output, a0, a1, a2, b0, b1, b2):
            ctx.kinds = input, output
            ctx.save_for_backward(x, weight, self_weight, b0, b1, b2)
            sums = aggregate(x, input, output.band, a0, a1, a2)
            return dense(sums, weight, input, output) + own_terms(x, self_weight, bias, input, output)

        @staticmethod
        def backward(ctx, dy):
            input, output = ctx.kinds
            x, weight, self_weight, *tables = ctx.saved_tensors
            dy = dy.contiguous()
            sums = aggregate(dy, output, input.band, *tables)
            dx = None
            if ctx.needs_input_grad[0]:
                back = transposed_self(self_weight, input, output)
                dx = dense(sums, weight[0].T.contiguous(), output, input) + own_terms(dy, back, None, output, input)
            dweight = dense_gradient(sums, x, input, output)
            return dx, dweight[None], *own_gradients(x, dy, input, output), *(None,) * 8

    return AggregateFirst


def gathered(x: Tensor, input: Kind, band: int, neighbours: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    """A by gathering the k-th neighbour of all vertices, for each k: made for torch.compile, which turns all of it into
    one loop that keeps the sums in registers."""
    features = x.view(-1, input.components, input.channels)
    sums = [0] * input.components
    for k in range(neighbours.shape[1]):
        parts = rotated(features[neighbours[:, k]].unbind(1), inner[:, k, :, None].unbind(1))
        waves = outer[:, k, : 2 * band + 1, None]
        sums = [total + waves * part[:, None] for total, part in zip(sums, parts)]
    return torch.stack(sums, 2).flatten(2)


def places(of: Tensor, vertices: int) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """For edges grouped by a vertex, where they stand in a table [V, K], K the highest degree: row, column, shape."""
    degrees = torch.bincount(of, minlength=vertices)
    column = torch.arange(len(of), device=of.device) - (degrees.cumsum(0) - degrees)[of]
    return of, column, (vertices, int(degrees.max()))


def padded(values: Tensor, row: Tensor, column: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Values of edges in a table, 0 where there is none."""
    result = values.new_zeros((*shape, values.shape[1]), dtype=dtype)
    result[row, column] = values.to(dtype)
    return result


def gather_tables(graph: Graph, band: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """For both directions: the neighbours [V, K] of each vertex, harmonics [V, K, 2 band + 1] of the outer angle with the
    scale, and of the inner angle."""
    receivers, senders = graph.receivers, graph.neighbours.long()
    transport = graph.g - graph.theta
    scale = graph.scale[receivers, None]

    def table(of, other, order, outer, inner):
        place = places(of[order], len(graph.scale))
        values = other[:, None], scale * harmonics(outer, band), harmonics(inner, band)
        dtypes = torch.int32, dtype, dtype
        neighbours, *waves = (padded(v[order], *place, t) for v, t in zip(values, dtypes))
        return neighbours[..., 0], *waves

    every = torch.arange(len(senders), device=senders.device)
    forward = table(receivers, senders, every, graph.theta, transport)
    by_sender = torch.argsort(senders, stable=True)
    return *forward, *table(senders, receivers, by_sender, -transport, -graph.theta)


gather = aggregate_first(gathered)


# The same with torch.sparse: A = G f, where G has a row for each vertex, harmonic and rotated component, and f a row for
# each vertex and component.


@torch.library.custom_op("gemcnn::sparse_product", mutates_args=())
def sparse_product(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """A CSR matrix times x. One operator, so that torch.compile takes it as it is."""
    shape = len(starts) - 1, len(x)
    matrix = torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
    return matrix @ x


@sparse_product.register_fake
def _(starts, columns, values, x):
    return x.new_empty(starts.shape[0] - 1, x.shape[1])


def multiplied(x: Tensor, input: Kind, band: int, starts: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """A by a sparse product."""
    product = sparse_product(starts, columns, values, x.view(-1, input.channels))
    return product.view(len(x), 2 * band + 1, input.dimension)


def sparse_tables(graph: Graph, input_band: int, output_band: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Starts of rows, columns and values of G, for both directions."""
    receivers, senders = graph.receivers, graph.neighbours.long()
    transport = graph.g - graph.theta
    scale = graph.scale[receivers, None]
    vertices = len(graph.scale)

    def table(of, other, order, outer, inner, input, output):
        components, harmonic_count = 2 * input + 1, 2 * output + 1
        of, column, _ = places(of[order], vertices)
        other, waves, turns = other[order], (scale * harmonics(outer, output))[order], harmonics(inner, input)[order]
        # What an edge has in the row of each rotated component: components of f and their factors.
        entries = [[(0, turns[:, 0])]]
        for n in range(1, components, 2):
            cosine, sine = turns[:, n], turns[:, n + 1]
            entries += [[(n, cosine), (n + 1, -sine)], [(n, sine), (n + 1, cosine)]]
        lengths = torch.tensor([len(row) for row in entries], device=of.device).repeat(harmonic_count)
        lengths = torch.bincount(of, minlength=vertices)[:, None] * lengths
        starts = torch.cat([lengths.new_zeros(1), lengths.flatten().cumsum(0)])
        columns = torch.empty(int(starts[-1]), dtype=torch.int32, device=of.device)
        values = torch.empty(len(columns), dtype=dtype, device=of.device)
        for k, wave in enumerate(waves.unbind(1)):
            for j, row in enumerate(entries):
                first = starts[(of * harmonic_count + k) * components + j] + column * len(row)
                for place, (component, factor) in enumerate(row):
                    columns[first + place] = (other * components + component).int()
                    values[first + place] = (wave * factor).to(dtype)
        return starts.int(), columns, values

    every = torch.arange(len(senders), device=senders.device)
    by_sender = torch.argsort(senders, stable=True)
    return (
        *table(receivers, senders, every, graph.theta, transport, input_band, output_band),
        *table(senders, receivers, by_sender, -transport, -graph.theta, output_band, input_band),
    )


sparse = aggregate_first(multiplied)


# One product for each edge.


def edge_rows(x: Tensor, kind: Kind, vertices: Tensor, waves: Tensor) -> Tensor:
    """Features of a vertex for each edge, rotated: [E, d]."""
    features = x.view(-1, kind.components, kind.channels)[vertices]
    return torch.cat(rotated(features.unbind(1), waves[:, :, None].unbind(1)), 1)


def edge_sums(rows: Tensor, kind: Kind, edges: Tensor, waves: Tensor) -> Tensor:
    """Sum over the k-th edges of each vertex, rotated: [V, d]."""
    sums = [0] * kind.components
    for k in range(edges.shape[1]):
        parts = rows.view(-1, kind.components, kind.channels)[edges[:, k]].unbind(1)
        parts = rotated(parts, waves[:, k, :, None].unbind(1))
        sums = [total + part for total, part in zip(sums, parts)]
    return torch.cat(sums, 1)


class Edges(torch.autograd.Function):
    """Rows of edges u = rho_in(g - theta) f_q, one product with W, rotation by theta, and the sum over the edges of
    each vertex. Sums go through a table of edges [V, K], in the backward pass over the reversed edges."""

    @staticmethod
    def forward(ctx, x, weight, self_weight, bias, input, output, *tables):
        ctx.kinds = input, output
        neighbours, inner, edges, outer, *back = tables
        ctx.save_for_backward(x, weight, self_weight, *back)
        rows = edge_rows(x, input, neighbours, inner) @ weight[0].T
        return edge_sums(rows, output, edges, outer) + own_terms(x, self_weight, bias, input, output)

    @staticmethod
    def backward(ctx, dy):
        input, output = ctx.kinds
        x, weight, self_weight, neighbours, inner, edges, outer, owners, turn = ctx.saved_tensors
        dy = dy.contiguous()
        rows = edge_rows(dy, output, neighbours, inner)
        dx = None
        if ctx.needs_input_grad[0]:
            back = transposed_self(self_weight, input, output)
            dx = edge_sums(rows @ weight[0], input, edges, outer) + own_terms(dy, back, None, output, input)
        dweight = rows.T @ edge_rows(x, input, owners, turn)
        return dx, dweight[None], *own_gradients(x, dy, input, output), *(None,) * 12


def edge_tables(graph: Graph, band: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """For both directions: the other vertex of each edge and the harmonics of the inner angle, edges grouped by vertex;
    the edges [V, K] of each vertex and the harmonics of the outer angle with the scale. For the second direction also the
    vertex that each edge is grouped by, and the harmonics of the reversed outer angle with the scale."""
    receivers, senders = graph.receivers, graph.neighbours.long()
    transport = graph.g - graph.theta
    scale = graph.scale[receivers, None]

    def table(of, other, order, outer, inner):
        place = places(of[order], len(graph.scale))
        edges = padded(torch.arange(len(order), device=order.device)[:, None], *place, torch.int32)[..., 0]
        waves = padded((scale * harmonics(outer, band))[order], *place, dtype)
        return other[order].int(), harmonics(inner, band)[order].to(dtype), edges, waves

    every = torch.arange(len(senders), device=senders.device)
    by_sender = torch.argsort(senders, stable=True)
    return (
        *table(receivers, senders, every, graph.theta, transport),
        *table(senders, receivers, by_sender, -transport, -graph.theta),
        senders[by_sender].int(),
        (scale * harmonics(transport, band))[by_sender].to(dtype),
    )


# As the published code works: features [V, channel, component], the self term as edges of their own.


def direct(x, weight, self_weight, bias, input, output, senders, receivers, inner, outer, rings, scale, bases):
    """One product for each edge with a kernel combined from two rings, that of the vertex itself and that of its
    neighbours."""
    own = direct_self_kernel(self_weight, bases, input, output)
    kernel = torch.stack([own, direct_kernel(weight, input, output)])
    features = rotated_rows(x[senders], inner)
    messages = torch.einsum("er,ejm,rjmin->ein", rings, features, kernel)
    messages = rotated_rows(messages, outer) * scale[:, None, None]
    y = messages.new_zeros(len(x), output.channels, output.components).index_add_(0, receivers, messages)
    return torch.cat([y[:, :, :1] + bias[:, None], y[:, :, 1:]], 2)


def direct_kernel(weight: Tensor, input: Kind, output: Kind) -> Tensor:
    """[in channel j, in component m, out channel i, out component n]"""
    shape = output.components, output.channels, input.components, input.channels
    return weight.view(shape).permute(3, 2, 1, 0)


def direct_self_kernel(weight: Tensor, bases: Tensor, input: Kind, output: Kind) -> Tensor:
    """The same of K_self."""
    weight = weight.view(-1, output.channels, input.channels)
    return torch.einsum("bij,bmn->jmin", weight, bases[: len(weight), : input.components, : output.components])


def rotated_rows(x: Tensor, waves: Tensor) -> Tensor:
    """Order by order on the last dimension."""
    parts = [x[:, :, :1]]
    for n in range(1, x.shape[2], 2):
        a, b = x[:, :, n], x[:, :, n + 1]
        cosine, sine = waves[:, n, None], waves[:, n + 1, None]
        parts.append(torch.stack([cosine * a - sine * b, sine * a + cosine * b], 2))
    return torch.cat(parts, 2)


def direct_tables(graph: Graph, band: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Edges, and after them an edge of each vertex to itself: senders and receivers, harmonics of g - theta and of theta,
    ring (1 in the column of its own), scale; and the bases of K_self."""
    device = graph.neighbours.device
    own = torch.arange(len(graph.scale), device=device)
    zeros, ones = torch.zeros_like(graph.scale), torch.ones_like(graph.scale)
    is_own = torch.cat([torch.zeros_like(graph.theta), ones])
    bases = torch.zeros(2 * band + 1, 2 * band + 1, 2 * band + 1)
    bases[0, 0, 0] = 1
    for n in range(1, 2 * band, 2):
        bases[n, n, n] = bases[n, n + 1, n + 1] = 1
        bases[n + 1, n + 1, n], bases[n + 1, n, n + 1] = 1, -1
    return (
        torch.cat([graph.neighbours.long(), own]),
        torch.cat([graph.receivers, own]),
        harmonics(torch.cat([graph.g - graph.theta, zeros]), band).to(dtype),
        harmonics(torch.cat([graph.theta, zeros]), band).to(dtype),
        torch.stack([is_own, 1 - is_own], 1).to(dtype),
        torch.cat([graph.scale[graph.receivers], ones]).to(dtype),
        bases.to(device, dtype),
    )
