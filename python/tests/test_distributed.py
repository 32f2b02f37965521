"""Several processes with gloo: two ranks with a mesh each compute what one process computes with both."""

import os
import socket

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


def test_two_processes_equal_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(rank_of_two, (port, str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    (x, graph), (other, behind) = sample(0), sample(1)
    expected = steps(network(), torch.cat([x, other]), gt.Graph.collate([graph, behind]))
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        assert torch.allclose(first[name], value, rtol=1e-9, atol=1e-12), name
