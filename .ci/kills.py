"""Commands that are killed at random moments and repeated end with the same files as without a disturbance.

Kills train, predict, experiment, data make and data prepare in turn, most often by SIGKILL, sometimes by SIGINT or SIGTERM.
After a few kills a command is left to finish, and its files are compared with those of an undisturbed run: the same
names, so that nothing is left over, and the same content apart from measured times. Fails on the first difference.

    cargo build --release -p gemcnn && python3 .ci/kills.py --kills 1000 target/release/gemcnn
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """task = "correspondence"
data = { folder = "bodies" }
model = { kind = "gem", channels = 2, scalars = 4, head = 8 }
training = { epochs = 8, validation = 0.4, keep_best = true, checkpoint = { steps = 2 } }
"""
BODIES = ["--count", "5", "--vertices", "500"]
TIMES = re.compile(r"^(seconds|training_seconds|meshes_per_second)")
# Kills in a row before a command is left to finish.
MAX_KILLS = 8


class Command:
    """A command, the folders that it writes, what to say instead of it once a path exists, and when it was killed too late."""

    def __init__(self, name, arguments, folders, later=None, is_done=lambda work: False):
        self.name, self.arguments, self.folders = name, arguments, folders
        self.later, self.is_done = later, is_done

    def now(self, work):
        if self.later and (work / self.later[0]).exists():
            return self.later[1]
        return self.arguments


def is_made(work):
    """Nothing but the end of the process was missing; the same command would find the folder not empty."""
    return (work / "made/dataset.toml").exists() and not (work / "made/.gemcnn-unfinished").exists()


COMMANDS = [
    Command("data make", ["data", "make", "bodies", "made", *BODIES], ["made"], is_done=is_made),
    Command(
        "data prepare",
        ["data", "prepare", "bodies", "--model", "gem", "--features", "matrix", "--cache", "prepared"],
        ["prepared"],
    ),
    Command(
        "train",
        ["train", "--device", "cpu", "run.toml", "--run-dir", "run"],
        ["run", "cache"],
        ("run/config.toml", ["train", "--device", "cpu", "--resume", "run"]),
    ),
    Command(
        "predict",
        ["predict", "--device", "cpu", "trained", "bodies/meshes", "-o", "labelled"],
        ["labelled"],
    ),
    Command(
        "experiment",
        ["experiment", "bodies", "--device", "cpu", "--out", "out", "--rows", "gem", "--seeds", "1"]
        + ["--bodies", "2", "--vertices", "500", "--epochs", "2"],
        ["out", "cache"],
    ),
]


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(of) for key, of in value.items() if not TIMES.match(key)}
    return [timeless(of) for of in value] if isinstance(value, list) else value


def content(path):
    """What of a file does not depend on the clock."""
    data = path.read_bytes()
    if path.name == "checkpoint.safetensors":
        # The header has the times of the records; the tensors follow.
        return data[8 + int.from_bytes(data[:8], "little") :]
    if path.name == "results.json":
        return json.dumps(timeless(json.loads(data))).encode()
    if path.name == "metrics.jsonl":
        return json.dumps([timeless(json.loads(line)) for line in data.splitlines()]).encode()
    if path.name == "table.md":
        rows = [line.split("|") for line in data.decode().splitlines()]
        times = {place for row in rows for place, cell in enumerate(row) if "training (s)" in cell}
        return json.dumps([[cell for place, cell in enumerate(row) if place not in times] for row in rows]).encode()
    return data


def tree(work, folders):
    """Names and checksums of all files."""
    found = {}
    for folder in folders:
        for path in sorted((work / folder).rglob("*")):
            if path.is_file():
                name = str(path.relative_to(work))
                found[name] = hashlib.sha256(content(path)).hexdigest()
    return found


def differences(expected, found):
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is left over"
        elif expected[name] != found[name]:
            yield f"{name} differs"


class Workshop:
    def __init__(self, binary, folder):
        self.binary, self.work = binary, folder
        self.environment = dict(os.environ, GEMCNN_CACHE=str(folder / "cache"))

    def start(self, arguments):
        return subprocess.Popen(
            [self.binary, "--threads", "1", *arguments],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finish(self, arguments):
        process = self.start(arguments)
        message = process.communicate()[1].decode(errors="replace")
        if process.returncode != 0:
            sys.exit(f"`gemcnn {' '.join(arguments)}` ends with {process.returncode}:\n{message}")

    def clear(self, command):
        for folder in command.folders:
            shutil.rmtree(self.work / folder, ignore_errors=True)

    def prepare(self):
        self.finish(["data", "make", "bodies", "bodies", *BODIES])
        (self.work / "run.toml").write_text(CONFIG)
        self.finish(["train", "--device", "cpu", "run.toml", "--run-dir", "trained"])

    def undisturbed(self, command):
        self.clear(command)
        started = time.monotonic()
        self.finish(command.arguments)
        return time.monotonic() - started, tree(self.work, command.folders)

    def disturbed(self, command, seconds, moments, most):
        """Kills a command a few times and lets it finish; gives the number of kills."""
        self.clear(command)
        kills = 0
        for _ in range(moments.randint(1, MAX_KILLS)):
            if kills == most or command.is_done(self.work):
                break
            process = self.start(command.now(self.work))
            time.sleep(moments.uniform(0, seconds))
            how = moments.choice([signal.SIGKILL] * 4 + [signal.SIGINT, signal.SIGTERM])
            if process.poll() is None:
                process.send_signal(how)
                kills += 1
            process.communicate()
        if not command.is_done(self.work):
            self.finish(command.now(self.work))
        return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=50, help="in all, as many of each command")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(options.binary.resolve(), pathlib.Path(folder).resolve())
        workshop.prepare()
        expected = {command.name: workshop.undisturbed(command) for command in COMMANDS}
        kills = dict.fromkeys(expected, 0)
        each = -(-options.kills // len(COMMANDS))
        while min(kills.values()) < each:
            command = min(COMMANDS, key=lambda command: kills[command.name])
            seconds, files = expected[command.name]
            most = each - kills[command.name]
            kills[command.name] += workshop.disturbed(command, seconds, moments, most)
            found = list(differences(files, tree(workshop.work, command.folders)))
            if found:
                sys.exit(f"{command.name}, after {kills[command.name]} kills:\n  " + "\n  ".join(found))
            print(f"{command.name}: {kills[command.name]} kills, no difference", file=sys.stderr)
    counts = ", ".join(f"{name} {count}" for name, count in kills.items())
    print(f"{sum(kills.values())} kills, no difference and nothing left over: {counts}")


if __name__ == "__main__":
    main()
