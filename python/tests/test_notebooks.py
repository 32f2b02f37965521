"""The notebooks and examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[1]


def executed(name, folder):
    """The code cells of a notebook after it ran in a folder."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(PYTHON / "notebooks" / name, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "the notebooks are stored without outputs"
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell for cell in book.cells if cell.cell_type == "code"]


def views(cells):
    """The number of interactive pages among the outputs."""
    pages = [output["data"] for cell in cells for output in cell.outputs if "data" in output]
    return sum("srcdoc=" in data.get("text/html", "") for data in pages)


def last_number(cells):
    """The value of the last cell."""
    return float(cells[-1].outputs[-1]["data"]["text/plain"])


def test_quickstart(tmp_path):
    cells = executed("quickstart.ipynb", tmp_path)
    assert views(cells) == 3
    assert last_number(cells) > 0.5


def test_matching(tmp_path):
    cells = executed("matching.ipynb", tmp_path)
    assert views(cells) == 1
    assert last_number(cells) > 0.8


def test_own_data(tmp_path):
    cells = executed("own_data.ipynb", tmp_path)
    assert views(cells) == 2
    assert last_number(cells) > 0.5
    assert not list(tmp_path.iterdir()), "the notebook leaves files behind"


def run(*command):
    """The output of a program with two threads at most."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


SMALL = ["--bodies", "4", "--vertices", "500"]


def test_a_run_continues_with_another_number_of_processes(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("GEMCNN_CACHE", str(tmp_path / "cache"))
    script, checkpoint = PYTHON / "examples" / "segmentation.py", tmp_path / "run.pt"
    arguments = [script, *SMALL, "--data", tmp_path / "bodies", "--checkpoint", checkpoint, "--epochs"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert re.findall(r"epoch (\d+)", run(*launch, *arguments, 1)) == ["1"]
    assert re.findall(r"epoch (\d+)", run(*arguments, 3)) == ["2", "3"]
    assert re.findall(r"epoch (\d+)", run(*launch, *arguments, 4)) == ["4"]


def test_lightning_in_two_processes_and_one(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    monkeypatch.setenv("GEMCNN_CACHE", str(tmp_path / "cache"))
    script = PYTHON / "examples" / "lightning_segmentation.py"
    arguments = [script, *SMALL, "--data", tmp_path / "bodies", "--batch", "1", "--runs", tmp_path]
    # Two steps of two processes, then four more of one.
    first = run(*arguments, "--devices", 2, "--epochs", 1)
    assert re.findall(r"step (\d+)", first) == ["2"]
    second = run(*arguments, "--epochs", 2, "--resume", tmp_path / "last.ckpt")
    assert re.findall(r"step (\d+)", second) == ["6"]
