#!/usr/bin/env python3
"""From a folder of labelled meshes to a model: DiffusionNet in PyTorch with operators by SciPy, and `gemcnn train` with its default model
and with DiffusionNet. Seconds of wall-clock time from the command, first with empty caches, then again.

    bench/whole_way.py FOLDER [--epochs N] [--gemcnn PROGRAM] [--device cpu]

FOLDER is one for bench/pytorch/segmentation.py, which needs PyTorch and SciPy (bench/pytorch/install).
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, Popen


def lines(path: Path) -> int:
    """Epochs that a run has recorded: lines of metrics.jsonl, or objects of a JSON list."""
    if not path.exists():
        return 0
    return path.read_text().count('"epoch":')


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def timed(command: list[str], record: Path) -> tuple[float, float]:
    """Seconds to the end of the first epoch, and to the end."""
    start, first = time.time(), None
    with Popen(command, stdout=DEVNULL) as process:
        while process.poll() is None:
            if first is None and lines(record) > 0:
                first = time.time() - start
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    end = time.time() - start
    return first or end, end


def main():
    options = argparse.ArgumentParser(description="from a folder to a model")
    options.add_argument("folder", type=Path)
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--gemcnn", default="gemcnn")
    options.add_argument("--device", default="auto")
    chosen = options.parse_args()
    folder, epochs = str(chosen.folder), str(chosen.epochs)
    published = str(Path(__file__).parent / "pytorch/segmentation.py")
    print("| | first epoch | model | again: first epoch | model | cache |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        for name in ["PyTorch DiffusionNet", "gemcnn diffusion", "gemcnn surface"]:
            kind, cells = name.split()[1], []
            cache = Path(place) / kind
            for attempt in ["cold", "warm"]:
                run = Path(place) / f"{kind}-{attempt}"
                if kind == "DiffusionNet":
                    record = run.with_suffix(".json")
                    own = ["--operators", str(cache), "--json", str(record)]
                    command = [sys.executable, published, folder, "--epochs", epochs, *own]
                else:
                    record = run / "metrics.jsonl"
                    own = ["--model", kind, "--device", chosen.device, "--cache", str(cache), "--run-dir", str(run)]
                    command = [chosen.gemcnn, "train", "segmentation", "--quiet", "--data", folder, "--epochs", epochs, *own]
                cells += [f"{seconds:.1f} s" for seconds in timed(command, record)]
            print(f"| {name} | {' | '.join(cells)} | {megabytes(cache):.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
