"""The operators, registered with PyTorch under `torch.ops.gemcnn`.

Each is defined once for the CPU and for CUDA, with its shapes for tracing (`register_fake`) and its gradient. Gradients
are operators of their own, without gradients: a second derivative is refused. Under autocast all of them run in float32.

Layers call the functions in `operators`. Eager calls go from there straight to the kernels: the dispatcher of PyTorch, which
would call back into Python twice, takes longer than the kernels do on a GPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from .. import _gemcnn
from .._cuda import load_cuda_libraries
from .types import dimension, regular_dimension

_library = torch.library.Library("gemcnn", "FRAGMENT")
_GRAPH = (
    "Tensor offsets, Tensor neighbours, Tensor reverse, Tensor phases, Tensor radius, "
    "Tensor coefficients, Tensor reversed_phases, Tensor reversed_radius, "
    "Tensor reversed_coefficients"
)


def _allocate(size: int, ordinal: int, stream: int) -> int:
    if torch.cuda.current_device() == ordinal:
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)  # type: ignore[attr-defined,no-any-return]
    with torch.cuda.device(ordinal):
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)  # type: ignore[attr-defined,no-any-return]


def _allocator() -> tuple[int, int] | None:
    """Addresses of two functions in C, as `_allocate` and its counterpart, where PyTorch has them. They always cache, so not
    if that is switched off."""
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        return None
    prefix = "aoti_torch_cuda_caching_allocator_raw_"
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
        functions = [library[prefix + name] for name in ("alloc", "delete")]
    except (OSError, AttributeError):
        return None
    allocate, free = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return allocate, free


_gemcnn.follow_num_threads(torch.get_num_threads)
_gemcnn.use_torch(
    load_cuda_libraries,
    lambda ordinal: torch._C._cuda_getCurrentRawStream(ordinal),  # type: ignore[attr-defined]
    _allocate,
    lambda address: torch._C._cuda_cudaCachingAllocator_raw_delete(address),  # type: ignore[attr-defined]
    torch._C._get_float32_matmul_precision,
    _allocator(),
)

# A function for each operator, by its name.
operators: Any = SimpleNamespace()
_runs: dict[str, Callable[..., Any]] = {}


def _is_plain(x: Tensor) -> bool:
    """True if only the kernels have to see a call on a tensor: it has its own memory, and no mode, transform, tracer or
    profiler is active."""
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and not torch._C._len_torch_dispatch_stack()  # type: ignore[attr-defined]
        and not torch._C._is_any_autocast_enabled()
        and not torch._C._are_functorch_transforms_active()  # type: ignore[attr-defined]
        and not torch._C._is_torch_function_mode_enabled()  # type: ignore[attr-defined]
        and not torch._C._autograd._profiler_enabled()  # type: ignore[attr-defined]
        and torch._C._get_tracing_state() is None
    )


def _operator(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Defines an operator."""
    name = schema[: schema.index("(")]
    _library.define(schema)
    _library.impl(name, run, "CPU")
    _library.impl(name, run, "CUDA")
    torch.library.register_fake(f"gemcnn::{name}", fake, lib=_library)
    operator = getattr(torch.ops.gemcnn, name)

    def call(*inputs: Any) -> Any:
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _is_plain(inputs[0]):
            return operator(*inputs)
        return run(*inputs)

    _runs[name] = run
    setattr(operators, name, call)


def _differentiable(
    name: str, count: int, saved: Callable[..., None], backward: Callable[..., Any], gradient: str
) -> None:
    """Gives an operator its gradient, which is another operator without one.

    Args:
        name: the operator.
        count: number of its first inputs that have gradients.
        saved: keeps what `backward` needs, of the inputs and the output.
        backward: gives the gradients of those inputs.
        gradient: the other operator.
    """

    def refuse(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(f"gemcnn::{name} has no second derivative: compute it without create_graph")

    operator, run = getattr(torch.ops.gemcnn, name), _runs[name]

    def below(*inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*inputs)

    # The other inputs come as one, which autograd does not look at.
    def forward(ctx: Any, *grouped: Any) -> Any:
        inputs = (*grouped[:-1], *grouped[-1])
        output = run(*inputs) if _is_plain(inputs[0]) else below(*inputs)
        saved(ctx, inputs, output)
        return output

    def gradients(ctx: Any, *outputs: Any) -> Any:
        return (*backward(ctx, *outputs), None)

    # As `torch.library.register_autograd` does, at a fraction of its cost for each call.
    methods = {"forward": staticmethod(forward), "backward": staticmethod(gradients)}
    node: Any = type(name, (torch.autograd.Function,), methods)
    # That of `torch.autograd.Function` looks for transforms, which plain tensors are not part of.
    apply = super(torch.autograd.Function, node).apply

    def differentiable(*inputs: Any) -> Any:
        if torch.is_grad_enabled():
            return node.apply(*inputs[:count], inputs[count:])
        return below(*inputs)

    def call(*inputs: Any) -> Any:
        if torch.compiler.is_compiling() or not _is_plain(inputs[0]):
            return operator(*inputs)
        if torch.is_grad_enabled():
            return apply(*inputs[:count], inputs[count:])
        return run(*inputs)

    setattr(operators, name, call)
    _library.impl(name, differentiable, "Autograd")
    torch.library.register_autograd(f"gemcnn::{gradient}", refuse, lib=_library)
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        _library.impl(name, _in_single_precision(operator, device), key)


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def _in_single_precision(operator: Any, device: str) -> Callable[..., Any]:
    """As `torch.library.register_autocast` does, which PyTorch 2.6 does not have."""

    def cast(value: Any) -> Any:
        narrow = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(torch.float32) if narrow and value.device.type == device else value

    def run(*inputs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operator(*map(cast, inputs))

    return run


def _wanted(gradients: tuple[Any, ...], needed: tuple[bool, ...]) -> tuple[Any, ...]:
    """Those of the gradients that are needed."""
    return tuple(value if need else None for value, need in zip(gradients, needed, strict=False))


def _contiguous(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def _simple(
    signature: str,
    settings: str,
    shape: Callable[..., tuple[int, ...]],
    forward: Callable[..., None],
    backward: Callable[..., None],
) -> None:
    """Defines an operator that keeps its inputs, and its gradient, which has the shapes of the inputs.

    Args:
        signature: name of the operator and of its inputs; an input with `?` can be None.
        settings: schema of its other arguments.
        shape: of the output, from all arguments.
        forward: computes, from the other arguments and the inputs, the output.
        backward: computes, from the other arguments, the inputs and the gradient of the output, the gradients of the inputs.
    """
    name, *names = signature.split()
    count, gradient = len(names), f"{name}_backward"
    inputs = ", ".join(f"Tensor{'?' * name.endswith('?')} {name.rstrip('?')}" for name in names)

    def fake(*arguments: Any) -> Tensor:
        return cast(Tensor, arguments[0].new_empty(shape(*arguments)))

    def run(*arguments: Any) -> Tensor:
        y = fake(*arguments)
        forward(arguments[count:], _contiguous(arguments[:count]), y)
        return y

    # The gradient of a single input is no tuple.
    def fake_gradient(dy: Tensor, x: Tensor, *arguments: Any) -> Any:
        like = [x.new_empty(0 if part is None else part.shape) for part in (x, *arguments[: count - 1])]
        return tuple(like) if count > 1 else like[0]

    def run_gradient(dy: Tensor, *arguments: Any) -> Any:
        parts = _contiguous(arguments[:count])
        found = fake_gradient(dy, *parts)
        all_found = found if count > 1 else (found,)
        gradients = (None if part is None else value for part, value in zip(parts, all_found, strict=True))
        backward(arguments[count:], parts, dy.contiguous(), tuple(gradients))
        return found

    def saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:count])
        ctx.settings = inputs[count:]

    def gradients(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        found = getattr(operators, gradient)(dy, *ctx.saved_tensors, *ctx.settings)
        return _wanted(found if count > 1 else (found,), ctx.needs_input_grad)

    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    _operator(f"{name}({inputs}, {settings}) -> Tensor", run, fake)
    _operator(f"{gradient}(Tensor dy, {inputs}, {settings}) -> {results}", run_gradient, fake_gradient)
    _differentiable(name, count, saved, gradients, gradient)


def _rows(forward: Any, backward: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two functions of an operator on rows, from those of `_gemcnn`."""
    return (
        lambda settings, inputs, y: forward(settings, y.shape[0], *inputs, y),
        lambda settings, inputs, dy, gradients: backward(settings, dy.shape[0], *inputs, dy, *gradients),
    )


# Gauge convolution.


def _conv_run(
    x: Tensor, weight: Tensor, self_weight: Tensor | None, bias: Tensor | None, *rest: Any
) -> Tensor:
    graph, (input, output, max_radius, aggregation) = rest[:9], rest[9:]
    y = x.new_empty((graph[0].shape[0] - 1, dimension(output)))
    settings = (input, output, weight.shape[0], max_radius, aggregation)
    weights = tuple(None if w is None else w.contiguous() for w in (weight, self_weight, bias))
    _gemcnn.gauge_conv(settings, graph, x.contiguous(), weights, y)
    return y


def _conv_fake(
    x: Tensor, weight: Tensor, self_weight: Tensor | None, bias: Tensor | None, *rest: Any
) -> Tensor:
    return x.new_empty((rest[0].shape[0] - 1, dimension(rest[10])))


def _conv_backward_run(
    dy: Tensor, x: Tensor, weight: Tensor, self_weight: Tensor | None, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    graph, (input, output, max_radius, aggregation, wanted) = rest[:9], rest[9:]
    x = x.contiguous()
    dx = torch.empty_like(x) if wanted else x.new_empty(0)
    settings = (input, output, weight.shape[0], max_radius, aggregation)
    weights = tuple(None if w is None else w.contiguous() for w in (weight, self_weight, bias))
    gradients = tuple(None if w is None else torch.empty_like(w) for w in weights)
    _gemcnn.gauge_conv_backward(
        settings, graph, x, weights, dy.contiguous(), dx if wanted else None, gradients
    )
    none = [x.new_empty(0) if g is None else g for g in gradients]
    return dx, none[0], none[1], none[2]


def _conv_backward_fake(
    dy: Tensor, x: Tensor, weight: Tensor, self_weight: Tensor | None, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    def like(tensor: Tensor | None) -> Tensor:
        if tensor is None:
            return x.new_empty(0)
        return tensor.new_empty(tensor.shape)

    return (like(x if rest[13] else None), like(weight), like(self_weight), like(bias))


def _conv_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.rest = inputs[4:]


def _conv_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    wanted = ctx.needs_input_grad
    found = operators.gauge_conv_backward(dy, *ctx.saved_tensors, *ctx.rest, wanted[0])
    return _wanted(found, wanted)


_SETTINGS = "str input, str output, float max_radius, str aggregation"
_operator(
    f"gauge_conv(Tensor x, Tensor weight, Tensor? self_weight, Tensor? bias, {_GRAPH}, {_SETTINGS})"
    " -> Tensor",
    _conv_run,
    _conv_fake,
)
_operator(
    "gauge_conv_backward(Tensor dy, Tensor x, Tensor weight, Tensor? self_weight, Tensor? bias, "
    f"{_GRAPH}, {_SETTINGS}, bool wanted) -> (Tensor, Tensor, Tensor, Tensor)",
    _conv_backward_run,
    _conv_backward_fake,
)
_differentiable("gauge_conv", 4, _conv_saved, _conv_gradient, "gauge_conv_backward")


# Equivariant linear map of each row.


def _linear_run(x: Tensor, weight: Tensor, bias: Tensor | None, input: str, output: str) -> Tensor:
    y = x.new_empty((x.shape[0], dimension(output)))
    used = None if bias is None else bias.contiguous()
    _gemcnn.linear_forward(
        (input, output), x.shape[0], x.contiguous(), weight.contiguous(), used, y
    )
    return y


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None, input: str, output: str) -> Tensor:
    return x.new_empty((x.shape[0], dimension(output)))


def _linear_backward_run(
    dy: Tensor, x: Tensor, weight: Tensor, biases: int, input: str, output: str, wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = x.contiguous(), weight.contiguous()
    dx = torch.empty_like(x) if wanted else x.new_empty(0)
    dweight, dbias = torch.empty_like(weight), weight.new_empty(biases)
    _gemcnn.linear_backward(
        (input, output),
        x.shape[0],
        x,
        weight,
        dy.contiguous(),
        dx if wanted else None,
        dweight,
        dbias if biases else None,
    )
    return dx, dweight, dbias


def _linear_backward_fake(
    dy: Tensor, x: Tensor, weight: Tensor, biases: int, input: str, output: str, wanted: bool
) -> tuple[Tensor, ...]:
    dx = x.new_empty(x.shape) if wanted else x.new_empty(0)
    return dx, weight.new_empty(weight.shape), weight.new_empty(biases)


def _linear_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, *ctx.types = inputs
    ctx.save_for_backward(x, weight)
    ctx.biases = 0 if bias is None else bias.shape[0]


def _linear_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    wanted = ctx.needs_input_grad
    dx, dweight, dbias = operators.linear_backward(
        dy, *ctx.saved_tensors, ctx.biases, *ctx.types, wanted[0]
    )
    return _wanted((dx, dweight, dbias), wanted)


_operator(
    "linear(Tensor x, Tensor weight, Tensor? bias, str input, str output) -> Tensor",
    _linear_run,
    _linear_fake,
)
_operator(
    "linear_backward(Tensor dy, Tensor x, Tensor weight, int biases, str input, str output, "
    "bool wanted) -> (Tensor, Tensor, Tensor)",
    _linear_backward_run,
    _linear_backward_fake,
)
_differentiable("linear", 3, _linear_saved, _linear_gradient, "linear_backward")


# Nonlinearities: regular, gated and norm.


def _saved_input(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.settings = inputs[1:]


def _regular_run(x: Tensor, type: str, band_limit: int, samples: int, activation: str) -> Tensor:
    y = _regular_fake(x, type, band_limit, samples, activation)
    settings = (type, band_limit, samples, activation)
    _gemcnn.regular_forward(settings, x.shape[0], x.contiguous(), y)
    return y


def _regular_fake(x: Tensor, type: str, band_limit: int, samples: int, activation: str) -> Tensor:
    return x.new_empty((x.shape[0], regular_dimension(type, band_limit)))


def _regular_backward_run(
    dy: Tensor, x: Tensor, type: str, band_limit: int, samples: int, activation: str
) -> Tensor:
    x = x.contiguous()
    dx = torch.empty_like(x)
    settings = (type, band_limit, samples, activation)
    _gemcnn.regular_backward(settings, x.shape[0], x, dy.contiguous(), dx)
    return dx


def _like_input(dy: Tensor, x: Tensor, *settings: Any) -> Tensor:
    return x.new_empty(x.shape)


def _regular_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return (operators.regular_backward(dy, *ctx.saved_tensors, *ctx.settings),)


_REGULAR = "str type, int band_limit, int samples, str activation"
_operator(f"regular(Tensor x, {_REGULAR}) -> Tensor", _regular_run, _regular_fake)
_operator(
    f"regular_backward(Tensor dy, Tensor x, {_REGULAR}) -> Tensor",
    _regular_backward_run,
    _like_input,
)
_differentiable("regular", 1, _saved_input, _regular_gradient, "regular_backward")


_simple(
    "gated x",
    "str type, str activation",
    lambda x, type, _: (x.shape[0], dimension(type)),
    *_rows(_gemcnn.gated_forward, _gemcnn.gated_backward),
)
_simple(
    "norm x bias",
    "str type, str activation, float epsilon",
    lambda x, *_: x.shape,
    *_rows(_gemcnn.norm_forward, _gemcnn.norm_backward),
)


# Pooling with transport, and back.


def _transport(which: str, coarse: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """One of the four maps between fine and coarse rows."""

    def fake(
        x: Tensor, offsets: Tensor, members: Tensor, cluster_of: Tensor, phases: Tensor, type: str
    ) -> Tensor:
        rows = offsets.shape[0] - 1 if coarse else members.shape[0]
        return x.new_empty((rows, dimension(type)))

    def run(
        x: Tensor, offsets: Tensor, members: Tensor, cluster_of: Tensor, phases: Tensor, type: str
    ) -> Tensor:
        y = fake(x, offsets, members, cluster_of, phases, type)
        clusters = [offsets, members, cluster_of, phases]
        _gemcnn.transport_pool(which, type, clusters, x.contiguous(), y)
        return y

    return run, fake


def _transport_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.clusters, ctx.type = inputs[1:5], inputs[5]


def _transport_gradient(backward: str) -> Callable[..., Any]:
    def gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        return (getattr(operators, backward)(dy, *ctx.clusters, ctx.type),)

    return gradient


for _which, _coarse in (("pool", True), ("unpool", False)):
    _arguments = (
        "(Tensor x, Tensor offsets, Tensor members, Tensor cluster_of, Tensor phases, str type)"
        " -> Tensor"
    )
    _backward = f"{_which}_backward"
    _operator(f"{_which}{_arguments}", *_transport(_which, _coarse))
    _operator(f"{_backward}{_arguments}", *_transport(_backward, not _coarse))
    _differentiable(_which, 1, _transport_saved, _transport_gradient(_backward), _backward)
