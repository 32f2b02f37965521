"""Training and trained models."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gemcnn

GEM = {"kind": "gem", "blocks": 2, "channels": 4, "scalars": 8, "head": 16, "dropout": 0.0}


def write_data(folder, count=6):
    """Small spheres whose upper half has label 1."""
    folder.mkdir()
    for index in range(count):
        mesh = gemcnn.shapes.icosphere(1)
        stretched = gemcnn.Mesh(mesh.vertices * [1, 1, 1 + 0.1 * index], mesh.faces)
        stretched.write(folder / f"{index}.ply")
        np.save(folder / f"{index}.npy", (stretched.vertices[:, 2] > 0.01).astype(np.int64))


def config_of(folder, **training):
    return {
        "task": "segmentation",
        "data": {"folder": folder},
        "features": {"kind": "xyz"},
        "model": GEM,
        "training": {"epochs": 3, "batch": 2, "validation": 0.0, "keep_best": False} | training,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder / "data")
    records = []
    model = gemcnn.train(
        config_of(folder / "data", epochs=12, rate=0.02),
        run_dir=folder / "run",
        device="cpu",
        cache=False,
        on_epoch=records.append,
    )
    return folder, model, records


def test_training_reports_each_epoch(trained):
    folder, model, records = trained
    assert [record["epoch"] for record in records] == list(range(1, 13))
    assert records[-1]["training"]["loss"] < 0.5 * records[0]["training"]["loss"]
    assert (folder / "run" / "model.safetensors").exists()
    assert model.config["model"]["channels"] == 4 and model.input == "3x0" and model.output == "2x0"


def test_models_are_loaded_and_used(trained):
    folder, model, _ = trained
    mesh = gemcnn.read(folder / "data" / "2.ply")
    labels = np.load(folder / "data" / "2.npy")
    found = model.predict(mesh)
    assert np.allclose(found.probabilities.sum(1), 1, atol=1e-5)
    assert np.array_equal(found.probabilities.argmax(1), found.classes)
    assert found.values is None and np.mean(found.classes == labels) > 0.9
    again = gemcnn.load(folder / "run", device="cpu")
    assert np.array_equal(again.predict(folder / "data" / "2.ply").classes, found.classes)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict(mesh).classes, found.classes)
    assert len(model.classes) == 2 and "conv1" in "".join(model.weights())
    scores = model.evaluate(part="train", cache=False)["scores"]
    assert scores["accuracy"] > 0.9 and scores["counted"] % 42 == 0
    with pytest.raises(gemcnn.TaskError):
        model.evaluate(part="best")
    with pytest.raises(gemcnn.TaskError):
        gemcnn.load(folder / "data")


def test_data_sets_are_those_of_training(trained, tmp_path):
    folder, model, _ = trained
    config = config_of(folder / "data")
    parts = {part: gemcnn.DataSet(config, part, cache=False) for part in ("train", "validation", "test")}
    train, test = parts["train"], parts["test"]
    assert [len(parts[part]) for part in parts] == [5, 0, 1]
    names = {sample.name for sample in train} | {sample.name for sample in test}
    assert len(names) == 6 and (train.input, train.output, train.classes) == ("3x0", "2x0", model.classes)
    sample = train[-1]
    mesh = gemcnn.read(folder / "data" / f"{Path(sample.name).stem}.ply")
    assert np.array_equal(sample.labels, np.load(folder / "data" / f"{Path(sample.name).stem}.npy"))
    assert np.array_equal(sample.graph.neighbours, mesh.gauge_graph().neighbours)
    assert sample.features.shape == (42, 3) and sample.values is None
    copied = pickle.loads(pickle.dumps(train))
    assert [s.name for s in copied[1:3]] == [s.name for s in train][1:3]
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            train[wrong]
    with pytest.raises(gemcnn.TaskError):
        gemcnn.DataSet(config, "best")
    with pytest.raises(gemcnn.TaskError):
        gemcnn.DataSet(config_of(tmp_path / "none"))
    # The second reader finds what the first one has prepared.
    environment = os.environ | {"GEMCNN_CACHE": str(tmp_path / "cache")}
    program = "import gemcnn, sys; print(len(list(gemcnn.DataSet(sys.argv[1]))))"
    (tmp_path / "config.toml").write_text((folder / "run" / "config.toml").read_text())
    seen = []
    for _ in range(2):
        command = [sys.executable, "-c", program, str(tmp_path / "config.toml")]
        assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout.strip() == b"5"
        seen.append({path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*.prepared")})
    assert len(seen[0]) == 5 and seen[0] == seen[1]


def test_bad_configurations_are_refused(tmp_path):
    write_data(tmp_path / "data", 3)
    for change in [{"task": "colouring"}, {"training": {"epoch": 3}}, {"model": {"kind": "gem", "blocks": 0}}]:
        with pytest.raises(gemcnn.TaskError):
            gemcnn.train(config_of(tmp_path / "data") | change, run_dir=tmp_path / "run", device="cpu", cache=False)
    with pytest.raises(gemcnn.TaskError):
        gemcnn.train(config_of(tmp_path / "none"), run_dir=tmp_path / "run", device="cpu", cache=False)
    with pytest.raises(gemcnn.TaskError):
        gemcnn.train(tmp_path / "none.toml")
    assert not (tmp_path / "run").exists()


def test_files_are_configurations(trained, tmp_path):
    folder, _, _ = trained
    path = tmp_path / "config.toml"
    text = (folder / "run" / "config.toml").read_text()
    path.write_text(text.replace("epochs = 12", "epochs = 1"))
    model = gemcnn.train(path, run_dir=tmp_path / "run", device="cpu", cache=False, on_epoch=None)
    assert model.config["training"]["epochs"] == 1


def test_an_exception_of_the_callback_stops_and_the_run_resumes(tmp_path):
    write_data(tmp_path / "data", 3)
    config = config_of(tmp_path / "data", epochs=4)

    def stop(record):
        if record["epoch"] == 2:
            raise LookupError("enough")

    options = {"run_dir": tmp_path / "run", "device": "cpu", "cache": False}
    with pytest.raises(LookupError, match="enough"):
        gemcnn.train(config, on_epoch=stop, **options)
    epochs = []
    gemcnn.train(config, resume=True, on_epoch=lambda record: epochs.append(record["epoch"]), **options)
    assert epochs == [3, 4]


def test_other_threads_run_meanwhile(tmp_path):
    write_data(tmp_path / "data", 3)
    count = 0
    done = threading.Event()

    def work():
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    options = {"run_dir": tmp_path / "run", "device": "cpu", "cache": False, "on_epoch": None}
    gemcnn.train(config_of(tmp_path / "data", epochs=10), **options)
    done.set()
    thread.join()
    assert count > 10


def test_threads_share_a_model(trained, tmp_path):
    """In a process of its own, with a time limit: threads that wait for each other would hang."""
    folder, model, _ = trained
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import threading
            import gemcnn, numpy as np
            gemcnn.set_num_threads(2)
            model = gemcnn.load({str(folder / "run")!r}, device="cpu")
            meshes = [gemcnn.shapes.rough_grid(40, 40 + size, 1.0, seed=size) for size in range(4)]
            expected = [model.predict(mesh).probabilities for mesh in meshes]
            together, wrong = threading.Barrier(8), []

            def work(index):
                together.wait()
                for turn in range(10):
                    at = (index + turn) % 4
                    found = model.predict(meshes[at]).probabilities
                    if not np.array_equal(found, expected[at]):
                        wrong.append(at)

            threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            raise SystemExit(len(wrong))
            """
        )
    )
    assert subprocess.run([sys.executable, str(program)], timeout=120).returncode == 0


def test_ctrl_c_saves_and_interrupts(tmp_path):
    write_data(tmp_path / "data", 3)
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import gemcnn, signal
            # Ignored if the tests run in the background.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            config = {config_of(str(tmp_path / "data"), epochs=100000)!r}
            try:
                gemcnn.train(config, run_dir={str(tmp_path / "run")!r}, device="cpu", cache=False,
                             on_epoch=lambda record: print(record["epoch"], flush=True))
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout.readline().strip() == "1"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest.split()[-1] == "interrupted" and process.returncode == 0
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_have_threads_of_their_own(tmp_path):
    """A pool of threads does not survive a fork; a worker that waits for one would hang."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, gemcnn
            gemcnn.set_num_threads(2)
            mesh = gemcnn.shapes.icosphere(4)
            graph = mesh.gauge_graph()
            child = os.fork()
            if child == 0:
                again = mesh.gauge_graph()
                os._exit(0 if (again.theta == graph.theta).all() else 3)
            _, status = os.waitpid(child, 0)
            assert mesh.gauge_graph().edge_count == graph.edge_count
            raise SystemExit(os.waitstatus_to_exitcode(status))
            """
        )
    )
    assert subprocess.run([sys.executable, str(program)], timeout=60).returncode == 0


def test_number_of_threads():
    before = gemcnn.get_num_threads()
    with pytest.raises(gemcnn.OperatorError):
        gemcnn.set_num_threads(0)
    script = "import gemcnn; gemcnn.set_num_threads(3); print(gemcnn.get_num_threads())"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "3"
    assert gemcnn.get_num_threads() == before >= 1
