"""Checks of gemcnn.torch on a GPU. Needs PyTorch with CUDA and an installed wheel, nothing else:

    pip install --no-deps gemcnn-*.whl && python python/tests/gpu.py

Prints one line for each check. The exit status is 1 if a check fails. With an argument:

    checks [NAME...]  all checks, or some of them
    sanitize [TOOL [NAME...]]
                      some of the checks under compute-sanitizer, with TOOL memcheck (default), racecheck, initcheck or
                      synccheck. It is found on the path, in /usr/local/cuda, or where pip installs
                      nvidia-cuda-sanitizer-api.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

import gemcnn
import gemcnn.torch as gt

HIDDEN = "16x(0,1,2)"
CUDA = torch.device("cuda")
F32, TF32 = 1e-5, 3e-3


def relative(found, expected, least=1e-30):
    """Difference relative to the expected numbers, or to `least` where those vanish."""
    found, expected = found.double().cpu(), expected.double().cpu()
    return ((found - expected).norm() / expected.norm().clamp(min=least)).item()


def rough(rows=40, columns=50, seed=1):
    return gemcnn.shapes.rough_grid(rows, columns, 1.0, seed=seed)


def smooth(kind):
    """Without kinks, where rounding would choose another derivative."""
    return gt.RegularNonlinearity(kind, 7, "tanh")


def layers():
    mesh = rough()
    clusters = mesh.hierarchy([0.3], [3.0])[1].clusters
    graph = gt.Graph.of(mesh, torch.float64)
    pooled = gt.Clusters.of(clusters, torch.float64)
    rows = graph.vertex_count
    return [
        (gt.GaugeConv("3x0", HIDDEN), graph, rows),
        (gt.GaugeConv(HIDDEN, HIDDEN, aggregation="mean"), graph, rows),
        (gt.GaugeConv("5x0 + 3x1 + 1x3", "2x0 + 7x2", rings=3, max_radius=2.0), graph, rows),
        (gt.GaugeConv("2x1", "3x0", self_term=False, bias=False, aggregation="mean_with_self"), graph, rows),
        (gt.GaugeConv(HIDDEN, "4x(0,1)"), gt.Graph.of(mesh, torch.float64, weights="area"), rows),
        (gt.GaugeConv("4x(0,1)", HIDDEN), gt.Graph.of(mesh, torch.float64, weights="jets"), rows),
        (gt.EquivariantLinear("5x0 + 3x1", "2x0 + 4x1 + 1x2"), graph, rows),
        (gt.RegularNonlinearity(HIDDEN, 7, "tanh"), graph, rows),
        (gt.NormNonlinearity("4x0 + 3x1 + 2x2", "tanh"), graph, rows),
        (gt.GatedNonlinearity("4x0 + 3x1", "gelu"), graph, rows),
        (gt.BatchNorm(HIDDEN, "channel"), graph, rows),
        (gt.TransportPool("3x(0,1,2)"), pooled, rows),
        (gt.TransportUnpool("3x(0,1,2)"), pooled, len(clusters)),
        (gt.ResidualBlock("3x0", "8x0", middle=HIDDEN, nonlinearity=smooth, batch_norm=True), graph, rows),
        (gt.GaugeAttention("3x0 + 1x1", "4x(0,1,2)", heads=2), graph, rows),
        (gt.GaugeAttention("2x(0,1)", "5x0 + 3x2"), gt.Graph.of(mesh, torch.float64, weights="area"), rows),
        (gt.GaugeMessages("3x0 + 2x1", "4x(0,1,2)", activation="tanh"), graph, rows),
        (gt.MessageBlock("3x0", "8x0", hidden="4x(0,1)", nonlinearity=smooth, activation="tanh"), graph, rows),
    ]


def run(layer, x, graph, dy):
    """Output, and gradients of the input and of all weights."""
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = layer(x, graph)
    y.backward(dy)
    return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]


def compare(limit):
    """All layers on the GPU against float64 on the CPU. Prints the error of each, and fails at the end."""
    worst, failed = 0.0, []
    for number, (layer, graph, rows) in enumerate(layers()):
        torch.manual_seed(0)
        layer.double()
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        x = torch.randn(rows, layer.input.dimension, dtype=torch.float64)
        dy = torch.randn_like(layer(x, graph))
        expected = run(layer, x, graph, dy)
        name = f"{number} {type(layer).__name__}"
        try:
            layer.to(CUDA, torch.float32)
            there = [value.to(CUDA, torch.float32) for value in (x, graph, dy)]
            found = run(layer, *there)
            # A bias before batch normalisation has no gradient.
            least = 0.01 * max(two.norm().item() for two in expected)
            errors = [relative(one, two, least) for one, two in zip(found, expected, strict=True)]
            print(f"        {name}: " + " ".join(f"{error:.1e}" for error in errors), flush=True)
            worst = max(worst, *errors)
            assert max(errors) < limit, f"error {max(errors):.1e}"
            again = run(layer, *there)
            same = all(torch.equal(one, two) for one, two in zip(found[:2], again[:2], strict=True))
            assert same or "BatchNorm" in repr(layer), "not deterministic"
        except Exception as error:
            failed.append(f"{name}: {error!r}")
    assert not failed, "; ".join(failed)
    return f"largest relative error {worst:.1e}"


def check_single_precision():
    torch.set_float32_matmul_precision("highest")
    return compare(F32)


def check_tensor_cores():
    torch.set_float32_matmul_precision("high")
    try:
        return compare(TF32)
    finally:
        torch.set_float32_matmul_precision("highest")


def network():
    torch.manual_seed(0)
    return gt.Sequential(
        gt.ResidualBlock("3x0", HIDDEN),
        gt.ResidualBlock(HIDDEN, HIDDEN, layer=gt.GaugeAttention, heads=2),
        gt.MessageBlock(HIDDEN, HIDDEN, hidden=HIDDEN),
        gt.ResidualBlock(HIDDEN, "16x0", middle=HIDDEN),
    ).to(CUDA)


def check_networks():
    """Networks and their gradients against float64 on the CPU. Some ReLUs are rounded to their other side, so gradients differ more."""
    mesh = rough(20, 25)
    graph, double = mesh.gauge_graph(), torch.float64
    plain = gt.Graph.of(graph, double)
    levels = gt.Levels.of(mesh.hierarchy([0.4, 0.4], [2.5, 5.0]), double)
    options, failed = {"dropout": 0.0}, []
    for network, place in [
        (gt.GemNetwork("3x0", 7, **options), plain),
        (gt.GemNetwork("3x0", "4x(0,1)", nonlinearity="gated", **options), plain),
        (gt.GemNetwork("3x0", 7, heads=2, pool="mean", **options), plain),
        (gt.HermesNetwork("3x0", 7, **options), plain),
        (gt.UNet("3x0", 7, channels=(4, 8, 16), **options), levels),
        (gt.SurfaceNetwork("3x0", 7, channels=(16, 4, 4)), gt.Spectra.of(mesh, graph, (32, 16, 16), double)),
    ]:
        name = type(network).__name__
        try:
            torch.manual_seed(0)
            x = torch.randn(len(mesh.vertices), 3, dtype=double)
            results = []
            for device, dtype in [("cpu", double), (CUDA, torch.float32)]:
                network.to(device, dtype).zero_grad()
                there = x.to(device, dtype).detach().clone().requires_grad_()
                y = network(there, place.to(device, dtype))
                y.square().mean().backward()
                results.append((y.detach(), there.grad, torch.cat([p.grad.flatten() for p in network.parameters()])))
            errors = [relative(one, two) for one, two in zip(results[1], results[0], strict=True)]
            print(f"        {name}: " + " ".join(f"{error:.1e}" for error in errors), flush=True)
            assert errors[0] < F32 and max(errors) < 0.02, f"errors {errors}"
        except Exception as error:
            failed.append(f"{name}: {error!r}")
    assert not failed, "; ".join(failed)
    return "6 networks, forward and backward"


def check_batch_norm():
    """Rows, gradients and running statistics against float64 on the CPU, by plain calls and by those that a mode sees."""
    torch.manual_seed(0)
    x, dy = 3 * torch.randn(1001, 80, dtype=torch.float64) + 2, torch.randn(1001, 80, dtype=torch.float64)
    worst = 0.0
    for per in ("irrep", "channel"):
        results = []
        for device, dtype, mode in [
            ("cpu", torch.float64, contextlib.nullcontext()),
            (CUDA, torch.float32, contextlib.nullcontext()),
            (CUDA, torch.float32, FlopCounterMode(display=False)),
        ]:
            layer = gt.BatchNorm(HIDDEN, per).to(device, dtype)
            with mode:
                found = run(layer, x.to(device, dtype), None, dy.to(device, dtype))
            results.append([*found, layer.running_mean, layer.running_variance])
        for found in results[1:]:
            worst = max(worst, *(relative(one, two) for one, two in zip(found, results[0], strict=True)))
        assert worst < F32, f"per {per}: {worst:.2e}"
    return f"largest relative error {worst:.1e}"


def check_fused_classifier():
    """Loss and gradients against the CPU, and without the memory of the logits."""
    worst = 0.0
    for rows, channels, classes in [(1001, 33, 14), (6890, 256, 6890)]:
        torch.manual_seed(0)
        parts = [torch.randn(*shape) / 4 for shape in ((rows, channels), (classes, channels), (classes,))]
        labels = torch.randint(classes, (rows,))
        labels[::7] = -100
        class_weights = torch.rand(classes)
        results = []
        for device in ("cpu", CUDA):
            there = [part.to(device).requires_grad_() for part in parts]
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            options = {"class_weights": class_weights.to(device), "label_smoothing": 0.1}
            loss = gt.linear_cross_entropy(*there, labels.to(device), **options)
            results.append([loss.detach(), *torch.autograd.grad(loss, there)])
            with torch.no_grad():
                assert torch.equal(gt.linear_cross_entropy(*there, labels.to(device), **options), loss)
        peak = torch.cuda.max_memory_allocated() - before
        for found, expected in zip(results[1], results[0], strict=True):
            worst = max(worst, relative(found, expected))
        assert worst < F32, f"{classes} classes: {worst:.2e}"
    return f"largest relative error {worst:.1e}, peak {peak / 1e6:.0f} MB where the logits have {4 * rows * classes / 1e6:.0f} MB"


def check_delayed_producer():
    """The input is written on a stream of its own, late: work on any other stream would read what was there before."""
    graph, model = gt.Graph.of(rough()).to(CUDA), network()
    values = torch.randn(graph.vertex_count, 3, device=CUDA)
    expected = run(model, values, graph, torch.ones(graph.vertex_count, 16, device=CUDA))
    stream = torch.cuda.Stream()
    for _ in range(3):
        x = torch.full_like(values, torch.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            x.copy_(values)
            found = run(model, x, graph, torch.ones(graph.vertex_count, 16, device=CUDA))
        stream.synchronize()
        for one, two in zip(found, expected, strict=True):
            assert torch.equal(one, two)
    return "3 runs behind a sleeping stream, bit for bit"


def check_two_streams():
    graph, model = gt.Graph.of(gemcnn.shapes.torus((130, 53))).to(CUDA), network()
    inputs = [torch.randn(graph.vertex_count, 3, device=CUDA) for _ in range(2)]
    with torch.no_grad():
        expected = [model(x, graph) for x in inputs]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in inputs]
        results = [[], []]
        for _ in range(50):
            for stream, x, found in zip(streams, inputs, results, strict=True):
                with torch.cuda.stream(stream):
                    found.append(model(x, graph))
        torch.cuda.synchronize()
    for found, wanted in zip(results, expected, strict=True):
        assert all(torch.equal(y, wanted) for y in found)
    return "50 passes on each of two streams at once, bit for bit"


def check_cuda_graph():
    graph, model = gt.Graph.of(rough()).to(CUDA), network()
    static = torch.randn(graph.vertex_count, 3, device=CUDA)
    ones = torch.ones(graph.vertex_count, 16, device=CUDA)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            model(static, graph).backward(ones)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(captured):
        y = model(static, graph)
        y.backward(ones)
    gradients = [p.grad for p in model.parameters()]
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn_like(static)
        static.copy_(x)
        captured.replay()
        torch.cuda.synchronize()
        replayed = [y.clone(), *(g.clone() for g in gradients)]
        other = network()
        found = other(x, graph)
        found.backward(ones)
        expected = [found, *(p.grad for p in other.parameters())]
        for one, two in zip(replayed, expected, strict=True):
            assert torch.equal(one, two)
        # Work between replays must not touch the memory of the graph, nor the other way round.
        junk = [torch.randn(1 << 20, device=CUDA) for _ in range(8)]
        del junk
    return "3 replays of a step on new inputs, bit for bit"


def captured(call):
    """The call as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Bound(torch.nn.Module):
    """A function of x, with the parameters of a module."""

    def __init__(self, module, run):
        super().__init__()
        self.module, self.run = module, run

    def forward(self, x):
        return self.run(x)


def graphed(module, run):
    """The function `run`, whose passes are two CUDA graphs that are captured when it is called first. The rest of a step is eager."""
    callable_ = None

    def call(x):
        nonlocal callable_
        callable_ = callable_ or torch.cuda.make_graphed_callables(Bound(module, run), (x,))
        return callable_(x)

    return call


def check_captured_training():
    """Steps with batch normalisation, the fused loss and Adam as a CUDA graph, against the same steps without."""
    graph = gt.Graph.of(rough()).to(CUDA)
    x, labels = torch.randn(graph.vertex_count, 3, device=CUDA), torch.arange(graph.vertex_count, device=CUDA) % 100
    states = []
    for replays in (0, 5):
        torch.manual_seed(0)
        model = gt.GemNetwork("3x0", 100, dropout=0.0).to(CUDA)
        optimiser = torch.optim.Adam(model.parameters(), 1e-3, fused=True, capturable=True)

        def step(model=model, optimiser=optimiser):
            optimiser.zero_grad(set_to_none=True)
            model(x, graph, labels).backward()
            optimiser.step()

        if replays:
            replay = captured(step)
            for _ in range(replays):
                replay()
        else:
            for _ in range(8):
                step()
        torch.cuda.synchronize()
        states.append(torch.cat([value.flatten().float() for value in model.state_dict().values()]))
    error = relative(states[1], states[0])
    assert error < F32, f"error {error:.1e}"
    return f"3 steps and 5 replays against 8 steps: weights differ by {error:.1e}"


def check_graphed_callable():
    """Training with `torch.cuda.make_graphed_callables`, whose passes are CUDA graphs, against the same steps without."""
    graph = gt.Graph.of(rough()).to(CUDA)
    labels = torch.arange(graph.vertex_count, device=CUDA) % 100
    states = []
    for is_graphed in (False, True):
        torch.manual_seed(0)
        model = gt.GemNetwork("3x0", 100, dropout=0.0, batch_norm=False).to(CUDA)

        def loss(x, model=model):
            return model(x, graph, labels)

        run = graphed(model, loss) if is_graphed else loss
        optimiser = torch.optim.SGD(model.parameters(), 1e-2)
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(graph.vertex_count, 3, device=CUDA)
            optimiser.zero_grad(set_to_none=True)
            run(x).backward()
            optimiser.step()
        states.append(model.state_dict())
    for name, expected in states[0].items():
        assert torch.equal(expected, states[1][name]), name
    return "3 steps, bit for bit"


def check_capture_without_warm_up():
    graph = gt.Graph.of(rough()).to(CUDA)
    layer = gt.GaugeConv("3x0", "13x0 + 11x2").to(CUDA)
    x = torch.randn(graph.vertex_count, 3, device=CUDA)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()), torch.no_grad():
            layer(x, graph)
    except gemcnn.CudaError as error:
        message = str(error)
    else:
        raise AssertionError("it was captured")
    torch.cuda.synchronize()
    with torch.no_grad():
        assert torch.isfinite(layer(x, graph)).all()
    return f"refused ({message}), and works afterwards"


def check_memory():
    graph = gt.Graph.of(gemcnn.shapes.torus((130, 53))).to(CUDA)
    layer = gt.GaugeConv(HIDDEN, HIDDEN).to(CUDA)
    x = torch.randn(graph.vertex_count, 80, device=CUDA)
    with torch.no_grad():
        for _ in range(2):
            layer(x, graph)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        y = layer(x, graph)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        after = torch.cuda.memory_allocated() - before
    size = y.numel() * 4
    assert peak > 2 * size, f"scratch is not visible: peak {peak} for a result of {size} bytes"
    assert after < size + 4096, f"{after} bytes are still allocated for a result of {size} bytes"
    return f"peak {peak / 1e6:.1f} MB, of which the result is {size / 1e6:.1f} MB; {after / 1e6:.1f} MB stay"


def check_compile():
    graph, model = gt.Graph.of(rough()).to(CUDA), network()
    x = torch.randn(graph.vertex_count, 3, device=CUDA)
    expected = model(x, graph)
    compiled = torch.compile(model, fullgraph=True)
    assert relative(compiled(x, graph), expected) < F32
    compiled(x, graph).sum().backward()
    return "fullgraph, forward and backward"


def check_autocast():
    graph, model = gt.Graph.of(rough()).to(CUDA), network()
    x = torch.randn(graph.vertex_count, 3, device=CUDA)
    with torch.autocast("cuda", torch.bfloat16):
        found = model(x.bfloat16().float(), graph)
    assert found.dtype == torch.float32
    assert relative(found, model(x.bfloat16().float(), graph)) < 1e-6
    return "float32 under bfloat16"


def check_errors():
    graph = gt.Graph.of(rough())
    layer = gt.GaugeConv("3x0", "1x0").to(CUDA)
    x = torch.randn(graph.vertex_count, 3, device=CUDA)
    for arguments in [(x, graph), (x.double(), graph.to(CUDA)), (x[:-1], graph.to(CUDA))]:
        try:
            layer(*arguments)
        except gemcnn.OperatorError:
            continue
        raise AssertionError("wrong arguments were accepted")
    return "3 kinds of wrong arguments"


# With memory that is not cached there are no CUDA graphs, and no peaks of memory. The others are slow or say no more.
SANITIZED = ("single_precision", "networks", "batch_norm", "fused_classifier", "delayed_producer", "two_streams", "errors")


def without_cache():
    """Takes scratch memory from `torch.empty` as well, so that it is not cached either: the sanitizer then knows the bounds
    of every buffer."""
    held = {}

    def allocate(size, stream):
        memory = torch.empty(size, dtype=torch.uint8, device=CUDA)
        held[memory.data_ptr()] = memory
        return memory.data_ptr()

    torch._C._cuda_cudaCachingAllocator_raw_alloc = allocate
    torch._C._cuda_cudaCachingAllocator_raw_delete = held.pop


def sanitize(tool="memcheck", *names):
    """Runs this file again under compute-sanitizer."""
    roots = [Path("/usr/local/cuda/bin"), *(root for path in sys.path for root in Path(path).glob("nvidia/*/bin"))]
    folders = os.pathsep.join([os.environ["PATH"], *map(str, roots)])
    program = shutil.which("compute-sanitizer", path=folders)
    if program is None:
        sys.exit("compute-sanitizer is not installed: pip install nvidia-cuda-sanitizer-api")
    # Errors of calls are reported by PyTorch and gemcnn themselves; PyTorch also tries calls that may fail.
    options = ["--tool", tool, "--error-exitcode", "1", "--print-limit", "20"]
    options += ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [program, *options, sys.executable, __file__, "sanitized", *names]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    print(" ".join(command), flush=True)
    return subprocess.run(command, env=environment).returncode


def checks(names=None):
    """Runs checks, and gives the number that failed."""
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_") or (names is not None and name[6:] not in names):
            continue
        try:
            print(f"ok      {name[6:].replace('_', ' ')}: {check()}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name[6:].replace('_', ' ')}", flush=True)
            traceback.print_exc()
    return failed


def main():
    parser = argparse.ArgumentParser(description="Checks of gemcnn.torch on a GPU.")
    parser.add_argument("what", nargs="?", choices=["checks", "sanitize", "sanitized"], default="checks")
    parser.add_argument("names", nargs="*", help="tool of the sanitizer, or names of checks")
    arguments = parser.parse_args()
    if arguments.what == "sanitize":
        return sanitize(*arguments.names)
    if arguments.what == "sanitized":
        without_cache()
        return 1 if checks(arguments.names or SANITIZED) else 0
    return 1 if checks(arguments.names or None) else 0


if __name__ == "__main__":
    sys.exit(main())
