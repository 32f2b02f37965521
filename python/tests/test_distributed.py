"""Several processes with gloo: two ranks with a mesh each compute what one process computes with both."""

import os
import socket
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

import gemcnn  # noqa: E402
import gemcnn.torch as gt  # noqa: E402


def network():
    torch.manual_seed(0)
    return gt.Sequential(
        gt.ResidualBlock("3x0", "4x(0,1,2)", batch_norm=True, dtype=torch.float64),
        gt.ResidualBlock(
            "4x(0,1,2)", "4x0", batch_norm=True, nonlinearity=gt.NormNonlinearity, dtype=torch.float64
        ),
    )


def sample(seed):
    mesh = gemcnn.shapes.rough_grid(6, 7, 1.0, seed=seed)
    return torch.from_numpy(mesh.features("xyz").values), gt.Graph.of(mesh, torch.float64)


def steps(model, x, graph):
    """Weights after three steps of gradient descent."""
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model(x, graph).square().mean().backward()
        optimiser.step()
    return {name.removeprefix("module."): value for name, value in model.state_dict().items()}


def rank_of_two(rank, port, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(network())
    torch.save(steps(model, *sample(rank)), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_two_processes_equal_one(tmp_path):
    torch.multiprocessing.spawn(rank_of_two, (free_port(), str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    (x, graph), (other, behind) = sample(0), sample(1)
    expected = steps(network(), torch.cat([x, other]), gt.Graph.collate([graph, behind]))
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        assert torch.allclose(first[name], value, rtol=1e-9, atol=1e-12), name


def test_what_a_step_communicates():
    """The figures of docs/scaling.md."""
    address = f"tcp://127.0.0.1:{free_port()}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        network = gt.GemNetwork("7x(0,1,2)", 14, blocks=2, channels=8, scalars=32, head=64)
        model = torch.nn.parallel.DistributedDataParallel(network)
        graph = gt.Graph.of(gemcnn.shapes.icosphere(1))
        x = torch.randn(42, 35)
        # The buckets of the first step are not yet the final ones.
        model(x, graph).sum().backward()
        with torch.profiler.profile(record_shapes=True) as profile:
            model(x, graph).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    sums = Counter(event.input_shapes[0][0] for event in profile.events() if event.name == "gloo:all_reduce")
    weights = sum(parameter.numel() for parameter in network.parameters())
    # Two batch normalisations of each block, forward and backward: scalars and their count, then squares.
    assert weights == 10782 and sums == {9: 6, 40: 6, 33: 2, 32: 2, weights: 1}
