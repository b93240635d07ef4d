"""Files that are damaged, or say what is not so: found, never read, and never believed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import loom
from file_mutants import joined, parts, samples
from loom import nn

SOAK = os.environ.get("LOOM_SOAK") == "1"


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    return samples()


def test_a_flipped_bit_anywhere_is_found(files: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    rng = random.Random(0)
    for data in files:
        whole = range(8 * len(data))
        for place in whole if SOAK else rng.sample(whole, 80):
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises((loom.SerializationError, loom.FileError)):
                loom.load(path)


def test_whatever_else_happens_to_a_file_is_found(files: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    rng = random.Random(1)
    for data in files:
        for _ in range(2000 if SOAK else 20):
            start, length = rng.randrange(len(data)), rng.choice([1, 2, 8, 64, 512])
            part = data[start : start + length]
            other = rng.choice([bytes(len(part)), part[::-1], rng.randbytes(len(part)), b"", part + part])
            changed = data[:start] + other + data[start + length :]
            if changed != data:
                path.write_bytes(changed)
                with pytest.raises((loom.SerializationError, loom.FileError)):
                    loom.load(path)


def test_the_damaged_tensor_is_named_and_the_rest_can_be_had(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(3), nn.Dense(2)], 4)
    path = tmp_path / "net.loom"
    net.save(path)
    header, _ = parts(path.read_bytes())
    data = bytearray(path.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + header["0.0.0.1.weight"]["data_offsets"][0]] ^= 1
    path.write_bytes(data)
    with pytest.raises(loom.SerializationError, match=r"net\.loom.*\"0\.0\.0\.1\.weight\""):
        loom.load(path)
    rest = loom.load(path, verify=False)
    np.testing.assert_array_equal(rest.layers[0].weight, net.layers[0].weight)
    assert (rest.layers[1].weight != net.layers[1].weight).sum() == 1
    # Opened, nothing is read but the header; asked, all is.
    with loom.open_tensors(path) as tensors:
        assert sorted(tensors) == [f"0.0.0.{layer}.{name}" for layer in (0, 1) for name in ("bias", "weight")]
        with pytest.raises(loom.SerializationError, match=r"0\.0\.0\.1\.weight"):
            tensors.verify()
    net.save(path)
    assert loom.open_tensors(path).verify() is True
    net.load_state_dict(loom.open_tensors(path))
    net.save_safetensors(tmp_path / "plain.safetensors")
    assert loom.open_tensors(tmp_path / "plain.safetensors").verify() is False


def test_a_damaged_header_is_found_when_a_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    loom.Sequential([nn.Dense(3)], 4).save(path)
    # Still valid JSON; without the metadata's mark the tensors might be any network's.
    for old, new in ((b'seed\\":0', b'seed\\":1'), (b'"loom.format"', b'"loom.formau"')):
        data = path.read_bytes()
        assert data.count(old) == 1
        (tmp_path / "other.loom").write_bytes(data.replace(old, new))
        for read in (loom.load, loom.open_tensors):
            with pytest.raises(loom.SerializationError, match="header"):
                read(tmp_path / "other.loom")


def test_files_of_format_2_have_checksums(tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    loom.Sequential([nn.Dense(3)], 4).save(path)
    header, data = parts(path.read_bytes())
    start, _ = header.pop("loom.checksums")["data_offsets"]
    path.write_bytes(joined(header, data[:start]))
    with pytest.raises(loom.SerializationError, match="lacks its checksums"):
        loom.load(path)
    header["__metadata__"]["loom.format"] = "1"
    path.write_bytes(joined(header, data[:start]))
    assert loom.load(path).output_shape == (3,)


LYING = """
import resource, sys, time
import loom
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
for path in sys.argv[1:]:
    try:
        loom.load(path)
    except loom.SerializationError as error:
        print(error)
    else:
        sys.exit(path + " was read")
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_what_a_file_says_is_not_believed(tmp_path: Path) -> None:
    net = loom.Sequential([nn.LSTM(2, stateful=True), nn.Dense(2), nn.BatchNorm()], (3, 4))
    net.forward(np.ones((2, 3, 4)))
    net.save(tmp_path / "net.loom", optimizer=True)
    header, data = parts((tmp_path / "net.loom").read_bytes())
    text = json.dumps(header)
    lies = {
        "units": text.replace('\\"units\\":2', '\\"units\\":20000'),
        "more": text.replace('\\"units\\":2', '\\"units\\":1000000000000'),
        "input": text.replace('\\"input_shape\\":[3,4]', '\\"input_shape\\":[3,1000000000]'),
    }
    for name, lie in lies.items():
        (tmp_path / name).write_bytes(joined(lie.encode(), data))
    entry = next(name for name in header if "@carried" in name)
    header[entry]["shape"] = [10**12, 0]
    (tmp_path / "carried").write_bytes(joined(header, data))
    run = subprocess.run(
        [sys.executable, "-c", LYING, *(str(tmp_path / name) for name in [*lies, "carried"])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    *told, last = run.stdout.splitlines()
    assert len(told) == len(lies) + 1
    assert '"0.0.0.0.weight_ih_l0" is float32 of shape (8, 4)' in told[0]
    assert "of shape (80000, 4) in the network that the file describes" in told[0]
    seconds, kilobytes = map(float, last.split())
    assert seconds < 2
    assert kilobytes < 30_000


def test_names_that_are_kept_twice_are_refused(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(3, activation="tanh"), nn.Dense(3)], 4)
    x, y = np.ones((6, 4)), np.ones((6, 3))
    loom.TweenTrainer(net, loom.TweenConfig(mode="chain_rule")).fit(
        (x, y), loom.TrainingConfig(epochs=1, batch_size=3, verbose=False)
    )
    net.save(tmp_path / "net.loom", optimizer=True)
    header, data = parts((tmp_path / "net.loom").read_bytes())
    watched = json.loads(header["__metadata__"]["loom.watched"])
    assert len(watched["kept"]) > 1
    watched["kept"].append(watched["kept"][-1])
    header["__metadata__"]["loom.watched"] = json.dumps(watched)
    (tmp_path / "net.loom").write_bytes(joined(header, data))
    with pytest.raises(loom.SerializationError, match="does not fit"):
        loom.load(tmp_path / "net.loom")


def test_random_mutants_are_refused_or_sound() -> None:
    count, seconds = (200_000, 10_000) if SOAK else (1500, 4)
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("file_mutants.py")), "0", str(count), str(seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOOM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


MEMORY = """
import sys
import numpy as np
import loom
from loom import nn

def told(what):
    lines = dict(line.split(":") for line in open("/proc/self/status").read().splitlines())
    return 1024 * int(lines[what].split()[0])

# Of this process alone: getrusage counts what whoever started it held.
def peak():
    return told("VmHWM")

def now():
    return told("VmRSS")

if sys.argv[1] == "save":
    # Layers of equal size, so that one of them is a small part.
    net = loom.Sequential([nn.Dense(1024) for _ in range(16)], 1024)
    net.build()
    loom.Sequential([nn.Dense(2)], 3).save(sys.argv[2])
    before = now()
    net.save(sys.argv[2])
else:
    loom.Sequential([nn.Dense(2)], 3).save(sys.argv[2] + "x")
    loom.load(sys.argv[2] + "x")
    before = now()
    net = loom.load(sys.argv[2])
print((peak() - before) / (16 * 4 * 1024 * 1025))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_network_is_in_memory_once_when_it_is_saved_and_loaded(tmp_path: Path) -> None:
    def more(what: str) -> float:
        run = subprocess.run(
            [sys.executable, "-c", MEMORY, what, str(tmp_path / "net.loom")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return float(run.stdout)

    assert more("save") < 0.3
    assert more("load") < 1.3


def test_a_pipe_without_end_is_not_read_for_good(tmp_path: Path) -> None:
    with pytest.raises(loom.SerializationError):
        loom.load("/dev/zero")
    start = time.process_time()
    with pytest.raises((loom.SerializationError, loom.FileError)):
        loom.load("/dev/urandom")
    assert time.process_time() - start < 2
