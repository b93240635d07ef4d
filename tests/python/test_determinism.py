"""The same bits: twice, with any number of threads, on any instruction set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from programs import answer, require_kernels, run

PROGRAM = """
import hashlib, json
import numpy as np
import loom
from loom import _native, nn

def wide(precision):
    return loom.Sequential(
        [nn.Dense(200, activation="gelu"), nn.Dropout(0.2), nn.Dense(77, activation="tanh"), nn.Dense(10)],
        input_shape=130, precision=precision)

def convolutional(precision):
    return loom.Sequential(
        [nn.Conv2D(12, 3, padding=1, activation="relu"), nn.MaxPool2D(2),
         nn.Conv2D(20, 3, stride=2, padding="same", activation="silu"), nn.AvgPool2D(2), nn.Flatten(),
         nn.Dropout(0.1), nn.Dense(33, activation="sigmoid"), nn.Dense(10)],
        input_shape=(3, 17, 15), precision=precision)

random = np.random.default_rng(0)
found = {"machine": list(_native.machine())}
for make in (wide, convolutional):
    for precision in ("float32", "float64", "mixed"):
        net = make(precision)
        x = random.normal(size=(112, *net.input_shape))
        y = random.integers(0, 10, 112)
        config = loom.TrainingConfig(epochs=2, batch_size=48, loss="cross_entropy", learning_rate=0.01,
                                     gradient_clip=0.5, label_smoothing=0.1, verbose=False)
        result = loom.train(net, (x, y), config)
        digest = hashlib.sha256()
        for values in net.state_dict().values():
            digest.update(values.tobytes())
        digest.update(json.dumps(result.loss_history).encode())
        found[f"{make.__name__} {precision} trained"] = digest.hexdigest()
        for dtype in (np.dtype(x.dtype if precision == "float64" else "f4").name, "int8", "bfloat16"):
            net.morph(dtype)
            batches = [net.predict(x[:rows]) for rows in (1, 7, 64)]
            assert all(np.array_equal(batch, batches[-1][:len(batch)]) for batch in batches)
            found[f"{make.__name__} {precision} {dtype}"] = hashlib.sha256(batches[-1].tobytes()).hexdigest()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def reference() -> dict[str, object]:
    found: dict[str, object] = answer(PROGRAM)
    found.pop("machine")
    return found


def flags() -> set[str]:
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return set()


INSTRUCTION_SETS = {
    "portable": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


@pytest.mark.parametrize("isa", [isa for isa, needed in INSTRUCTION_SETS.items() if needed <= flags()])
def test_every_instruction_set_gives_the_same_bits(reference: dict[str, object], isa: str) -> None:
    require_kernels(isa)
    found = answer(PROGRAM, LOOM_ISA=isa)
    used = found.pop("machine")
    assert isinstance(used, list)
    assert used[0] == isa
    assert found == reference


@pytest.mark.parametrize("isa", [isa for isa, needed in INSTRUCTION_SETS.items() if needed <= flags()])
def test_ten_trainings_have_the_hashes_that_they_always_had(isa: str) -> None:
    require_kernels(isa)
    golden = Path(__file__).parents[1] / "golden" / "trainings.json"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import golden_trainings as it, json; "
        "print(json.dumps({name: make() for name, make in it.TRAININGS.items()}))"
    )
    found = answer(program, Path(__file__).parent, LOOM_ISA=isa)
    assert found == json.loads(golden.read_text(encoding="utf-8"))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(reference: dict[str, object], threads: int) -> None:
    found = answer(PROGRAM, LOOM_NUM_THREADS=str(threads))
    used = found.pop("machine")
    assert isinstance(used, list)
    assert used[1] == threads
    assert found == reference


def test_a_second_run_gives_the_same_bits(reference: dict[str, object]) -> None:
    found = answer(PROGRAM)
    found.pop("machine")
    assert found == reference


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"LOOM_ISA": "avx1024"}, "avx1024"), ({"LOOM_NUM_THREADS": "none"}, "LOOM_NUM_THREADS")],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], message: str) -> None:
    program = "import loom; loom.Sequential([loom.nn.Dense(1)], 1).predict([[1.0]])"
    finished = run(program, **settings)
    assert finished.returncode == 1
    assert message in finished.stderr.splitlines()[-1]
    assert "loom.errors" in finished.stderr.splitlines()[-1]
