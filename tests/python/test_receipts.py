"""A receipt says what went into a training and what came of it, and training again proves it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.__main__ import main
from networks import blobs, mlp
from programs import require_kernels, run

CONFIG = loom.TrainingConfig(
    epochs=4, batch_size=32, loss="cross_entropy", learning_rate=0.01, device="cpu", verbose=False
)


def receipt_of(
    net: loom.Network, data: Any, config: loom.TrainingConfig = CONFIG, **how: Any
) -> loom.Receipt:
    found = loom.train(net, data, config, receipt=how.pop("receipt", True), **how).receipt
    assert found is not None
    return found


def test_training_again_proves_a_receipt(tmp_path: Path) -> None:
    data, validation = blobs(200), blobs(60, seed=1)
    net = mlp()
    before = net.fingerprint()
    receipt = receipt_of(net, data, validation=validation)
    assert (receipt.initial_weights, receipt.final_weights) == (before, net.fingerprint())
    assert [epoch for epoch, _, _ in receipt.marks] == [1, 2, 3, 4]
    assert receipt.marks[-1][2] == receipt.final_weights
    assert net.receipt == receipt
    receipt.save(tmp_path / "receipt.json")
    net.save(tmp_path / "net.loom")
    for known in (receipt, tmp_path / "receipt.json", loom.load(tmp_path / "net.loom").receipt):
        assert known is not None
        found = loom.reproduce(known, data, validation)
        assert found.matches, str(found)
        assert found.network.fingerprint() == net.fingerprint()
    # What copies and pickles keep of training, they keep of this, too; another training has none.
    loom.train(net, data, CONFIG)
    assert net.receipt is None


def test_without_being_asked_for_there_is_none() -> None:
    net = mlp()
    assert loom.train(net, blobs(40), CONFIG).receipt is None
    assert net.receipt is None


@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_it_is_proved_on_another_processor(tmp_path: Path, isa: str) -> None:
    if isa == "avx2" and "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("this processor has no AVX2")
    require_kernels(isa)
    x, y = blobs(100)
    xv, yv = blobs(30, seed=1)
    receipt_of(mlp(), (x, y), validation=(xv, yv)).save(tmp_path / "receipt.json")
    np.savez(tmp_path / "data.npz", x=x, y=y, x_validation=xv, y_validation=yv)
    program = "import sys; from loom.__main__ import main; sys.exit(main(sys.argv[1:]))"
    words = ("reproduce", tmp_path / "receipt.json", "--data", tmp_path / "data.npz")
    finished = run(program, *words, LOOM_ISA=isa, LOOM_NUM_THREADS="1")
    assert finished.returncode == 0, finished.stderr
    assert "reproduced: the final weights are" in finished.stdout


def test_the_first_step_that_differs_is_named() -> None:
    data = blobs(200)
    honest = receipt_of(mlp(), data, receipt="steps")
    assert [step for _, step, _ in honest.marks] == list(range(1, 4 * 7 + 1))
    marks = list(honest.marks)
    for at in range(16, len(marks)):
        marks[at] = (*marks[at][:2], "0" * 64)
    forged = replace(honest, marks=tuple(marks), final_weights="0" * 64)
    found = loom.reproduce(forged, data)
    assert not found.matches
    assert (
        found.difference == "the weights differ after step 17, in epoch 2; they were the same after step 16"
    )
    by_epochs = replace(
        receipt_of(mlp(), data), final_weights="0" * 64, marks=((1, 7, "0" * 64), *honest.marks[13::7])
    )
    found = loom.reproduce(by_epochs, data)
    assert found.difference == "the weights differ after step 7, in epoch 1; no earlier step was compared"


def test_what_is_not_what_the_receipt_is_of_is_refused() -> None:
    x, y = blobs(100)
    receipt = receipt_of(mlp(), (x, y))
    other = x.copy()
    other[99, 5] = np.nextafter(other[99, 5], np.float32(np.inf))
    with pytest.raises(loom.DataError, match=r"data\.input\.values: other numbers"):
        loom.reproduce(receipt, (other, y))
    with pytest.raises(loom.DataError, match="validation"):
        loom.reproduce(receipt, (x, y), (x, y))
    with pytest.raises(loom.ConfigError, match=r"training\.learning_rate: 0\.01 there, 0\.02 here"):
        loom.reproduce(receipt, (x, y), config=replace(CONFIG, learning_rate=0.02))
    with pytest.raises(loom.StateError, match="other weights than network= has"):
        loom.reproduce(receipt, (x, y), network=mlp(seed=5))
    with pytest.raises(loom.StateError, match="other weights than its configuration"):
        loom.reproduce(replace(receipt, initial_weights="0" * 64), (x, y))


def test_networks_that_no_seed_makes_come_in_a_file(tmp_path: Path) -> None:
    data = blobs(100)
    net = mlp()
    loom.train(net, data, CONFIG)
    net.save(tmp_path / "before.loom")
    receipt = receipt_of(net, data)
    with pytest.raises(loom.StateError, match="give the network as it was before"):
        loom.reproduce(receipt, data)
    before = loom.load(tmp_path / "before.loom")
    fingerprint = before.fingerprint()
    assert loom.reproduce(receipt, data, network=before).matches
    assert before.fingerprint() == fingerprint


def test_functions_among_the_settings_are_given_again() -> None:
    def share(output: Any, target: Any) -> float:
        return float(np.mean(output.argmax(axis=1) == target))

    data, config = blobs(100), replace(CONFIG, metrics=[share])
    receipt = receipt_of(mlp(), data, config)
    with pytest.raises(loom.ConfigError, match="config="):
        loom.reproduce(receipt, data)
    assert loom.reproduce(receipt, data, config=config).matches


CALLBACKS: list[tuple[str, Callable[[], loom.Callback]]] = [
    ("ExponentialMovingAverage", lambda: loom.ExponentialMovingAverage(decay=0.9)),
    ("StochasticWeightAveraging", lambda: loom.StochasticWeightAveraging(1)),
    ("Lookahead", lambda: loom.Lookahead(2)),
    ("MaxNorm", lambda: loom.MaxNorm(0.5)),
    ("ReduceLROnPlateau", lambda: loom.ReduceLROnPlateau("loss", patience=0, min_delta=9.0)),
]


@pytest.mark.parametrize(("name", "made"), CALLBACKS, ids=[name for name, _ in CALLBACKS])
def test_callbacks_that_change_what_is_learned_are_given_again(
    name: str, made: Callable[[], loom.Callback], tmp_path: Path
) -> None:
    data, net = blobs(100), mlp()
    looks = [loom.History(), loom.CSVLogger(tmp_path / "log.csv")]
    receipt = receipt_of(net, data, callbacks=[looks[0], made(), looks[1]])
    with pytest.raises(loom.ConfigError, match=f"{name}, and here are none: give the same, callbacks="):
        loom.reproduce(receipt, data)
    again = loom.reproduce(receipt, data, callbacks=[made()])
    assert again.matches
    assert again.network.fingerprint() == net.fingerprint()
    plain = receipt_of(mlp(), data, callbacks=looks)
    assert loom.reproduce(plain, data).matches
    with pytest.raises(loom.ConfigError, match=f"none, and here are {name}"):
        loom.reproduce(plain, data, callbacks=[made()])


def test_inputs_and_outputs_with_names_are_proved() -> None:
    x, kind = blobs(60)
    net = loom.Network(inputs={"x": 6, "group": loom.Categories(3)}, grid=(1, 4), seed=2)
    net[0, 0].add(nn.Dense(5), nn.Dropout(0.2))
    net.enter("group", (0, 1))[0, 1].add(nn.Embedding(3, 4), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(3))
    net.link((0, 1), (0, 3), combine="replace")[0, 3].add(nn.Dense(1))
    net.output("kind", (0, 2)).output("size", (0, 3))
    inputs = {"x": x, "group": kind}
    targets = {"kind": np.array(["b", "a", "c"])[kind], "size": x[:, 0]}
    config = replace(CONFIG, loss={"kind": "cross_entropy", "size": "huber"}, validation_split=0.2)
    for metrics in ((), {"kind": ["accuracy"]}):
        told, begun = replace(config, metrics=metrics), deepcopy(net)
        receipt = receipt_of(begun, (inputs, targets), told)
        again = loom.reproduce(receipt, (inputs, targets), config=told if metrics else None)
        assert again.matches
        assert again.network.fingerprint() == begun.fingerprint()
        other = {**inputs, "group": kind[::-1]}
        with pytest.raises(loom.DataError, match=r"data\.input.*: other numbers"):
            loom.reproduce(receipt, (other, targets), config=told)


def test_lists_of_batches_are_hashed_and_generators_refused() -> None:
    x, y = blobs(96)
    batches = [(x[at : at + 32], y[at : at + 32]) for at in range(0, 96, 32)]
    receipt = receipt_of(mlp(), batches)
    assert loom.reproduce(receipt, batches).matches
    with pytest.raises(loom.DataError):
        loom.reproduce(receipt, batches[::-1])

    class Endless:
        def __iter__(self) -> Any:
            return iter(batches)

    net = mlp()
    with pytest.raises(loom.DataError, match="cannot be hashed"):
        loom.train(net, Endless(), CONFIG, receipt=True)
    assert net.fingerprint() == mlp().fingerprint()


def test_resumed_runs_have_the_whole_receipt(tmp_path: Path) -> None:
    data = blobs(100)
    whole = receipt_of(mlp(), data)
    net = mlp()
    loom.train(net, data, replace(CONFIG, epochs=2), receipt=True)
    net.save(tmp_path / "half.loom", optimizer=True)
    resumed = receipt_of(loom.load(tmp_path / "half.loom"), data, resume=True)
    assert (resumed.marks, resumed.initial_weights) == (whole.marks, whole.initial_weights)
    assert not resumed.resumed
    # Without one before, it is of the second half alone, and says so.
    net = mlp()
    loom.train(net, data, replace(CONFIG, epochs=2))
    part = receipt_of(net, data, resume=True)
    assert part.resumed
    assert part.final_weights == whole.final_weights
    with pytest.raises(loom.StateError, match="went on from another"):
        loom.reproduce(part, data)


def test_runs_in_folders_keep_their_receipt(tmp_path: Path) -> None:
    data = blobs(100)
    first = receipt_of(mlp(), data, run=tmp_path / "run")
    net = mlp()
    again = loom.train(net, data, CONFIG, receipt=True, run=tmp_path / "run")
    assert again.receipt == first == net.receipt
    assert loom.reproduce(first, data).matches


def test_a_run_that_goes_on_begins_in_its_receipt_as_it_did(tmp_path: Path) -> None:
    """It was said to have begun at the learning rates that a plateau had left it."""
    data, ends = blobs(100), loom.LambdaCallback(on_epoch_begin=lambda epoch, logs=None: 1 / (epoch != 3))
    plateau: Any = {"monitor": "loss", "patience": 0, "min_delta": 9.0}
    run = loom.RunFolder(tmp_path / "run", every_steps=1, background=False)
    with pytest.raises(ZeroDivisionError):
        receipt_of(mlp(), data, callbacks=[loom.ReduceLROnPlateau(**plateau), ends], run=run)
    found = receipt_of(mlp(), data, callbacks=[loom.ReduceLROnPlateau(**plateau)], run=run)
    assert found == receipt_of(mlp(), data, callbacks=[loom.ReduceLROnPlateau(**plateau)])
    assert loom.reproduce(found, data, callbacks=[loom.ReduceLROnPlateau(**plateau)]).matches


def test_tweening_has_receipts_to_compare() -> None:
    data = blobs(100)
    found = [loom.TweenTrainer(mlp()).fit(data, CONFIG, receipt=True).receipt for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].difference(found[1]) is None
    other = loom.TweenTrainer(mlp(seed=1)).fit(data, CONFIG, receipt=True).receipt
    assert other is not None
    assert found[0].difference(other) == "network.seed: 0 there, 1 here"
    with pytest.raises(loom.ConfigError, match="TweenTrainer"):
        loom.reproduce(found[0], data)


def test_on_a_gpu_it_holds_on_the_same_one(gpu: str) -> None:
    data, config = blobs(64), replace(CONFIG, device=gpu, epochs=2)
    receipt = receipt_of(mlp(), data, config)
    assert set(receipt.device) == {"kind", "hardware", "driver"}
    assert loom.reproduce(receipt, data).matches
    elsewhere = replace(receipt, device={**receipt.device, "driver": "another"})
    with pytest.raises(loom.DeviceError, match="which is not here"):
        loom.reproduce(elsewhere, data)


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{}", '{"format": 1}', "[" * 100_000, '"a"'],
    ids=["nothing", "list", "empty", "part", "deep", "text"],
)
def test_what_is_no_receipt_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(loom.SerializationError, match="receipt"):
        loom.Receipt.load(path)


@pytest.mark.parametrize("path", [10**5000, b"a", None, "\0"], ids=["number", "bytes", "none", "null"])
def test_what_is_no_path_says_so(path: Any) -> None:
    with pytest.raises(loom.ConfigError, match=r"Receipt\.load: path"):
        loom.Receipt.load(path)
    with pytest.raises(loom.ConfigError, match=r"Receipt\.save: path"):
        receipt_of(mlp(), blobs(40)).save(path)


def test_forms_of_other_versions_and_damage_say_so(tmp_path: Path) -> None:
    told = receipt_of(mlp(), blobs(40)).to_config()
    assert loom.Receipt.from_config(json.loads(json.dumps(told))).to_config() == told
    for name, value in {"format": 2, "marks": [[1, 2]], "loss_history": ["x"], "learning": 3}.items():
        with pytest.raises(loom.SerializationError, match="receipt"):
            loom.Receipt.from_config({**told, name: value})
    with pytest.raises(loom.FileError):
        loom.Receipt.load(tmp_path / "none.json")
    with pytest.raises(loom.FileError):
        loom.Receipt.from_config(told).save(tmp_path / "no" / "where.json")
    with pytest.raises(loom.ConfigError, match=r"loom\.Receipt"):
        loom.reproduce(3, blobs(40))  # type: ignore[arg-type]


def test_the_command_line_tells_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = blobs(40)
    receipt = receipt_of(mlp(), data)
    receipt.save(tmp_path / "receipt.json")
    (tmp_path / "own_data_of_test.py").write_text(
        "def data():\n    from networks import blobs\n    return blobs(40)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    words = ["reproduce", str(tmp_path / "receipt.json"), "--data"]
    assert main([*words, "own_data_of_test:data"]) == 0
    assert "reproduced" in capsys.readouterr().out
    replace(receipt, final_weights="0" * 64).save(tmp_path / "receipt.json")
    assert main([*words, "own_data_of_test:data"]) == 1
    assert "the final weights differ" in capsys.readouterr().out
    np.savez(tmp_path / "data.npz", a=data[0])
    for wrong, message in (
        ("data.npz", "data is x and y"),
        ("none.npz", "cannot be read"),
        ("no_such_module:x", "module:name"),
    ):
        told = str(tmp_path / wrong) if wrong.endswith("npz") else wrong
        assert main([*words, told]) == 1
        assert message in capsys.readouterr().err


def told_twice(length: int | None) -> loom.Network:
    net = loom.Network(
        inputs={"word": loom.Categories(6, length=length), "table": 2},
        grid=(1, 4),
        precision="float64",
        seed=3,
    )
    net[0, 0].add(nn.Embedding(6, 3), nn.GRU(4))
    net.enter("table", (0, 1)).link((0, 0), (0, 1), combine="concat")[0, 1].add(
        nn.Dense(5, activation="tanh")
    )
    net[0, 2].add(nn.Dense(2))
    net.link((0, 1), (0, 3), combine="replace")[0, 3].add(nn.Dense(1))
    return net.output("kind", (0, 2)).output("age", (0, 3))


@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.parametrize("form", ["arrays", "batches", "split", "given"])
def test_receipts_are_of_data_by_name_and_of_any_length(length: int | None, form: str) -> None:
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 6, 20) if length is None else np.full(20, length)
    words = [rng.integers(0, 6, count) for count in lengths]
    x: Any = {"word": words if length is None else np.array(words), "table": rng.normal(size=(20, 2))}
    y: Any = {"kind": np.array([4, 9])[rng.integers(0, 2, 20)], "age": rng.normal(size=20)}
    cut = [
        tuple({name: part[start : start + 5] for name, part in each.items()} for each in (x, y))
        for start in range(0, 20, 5)
    ]
    data: Any = cut if form == "batches" else (x, y)
    validation: Any = (x, y) if form == "given" else None
    config = loom.TrainingConfig(
        epochs=2,
        batch_size=6,
        loss={"kind": "cross_entropy", "age": "mse"},
        class_weight={"kind": {9: 2.0}},
        validation_split=0.25 if form == "split" else 0.0,
        device="cpu",
        verbose=False,
    )
    receipt = loom.train(told_twice(length), data, config, validation=validation, receipt=True).receipt
    assert loom.reproduce(receipt, data, validation).difference is None
    assert loom.reproduce(receipt, data, validation, config=config).difference is None
    x["table"][13, 1] += 1e-9
    with pytest.raises(loom.DataError, match="not what the receipt is of"):
        loom.reproduce(receipt, data, validation)


def test_a_receipt_of_sequences_of_any_length_into_one_output() -> None:
    rng = np.random.default_rng(2)
    x = [rng.normal(size=(rng.integers(1, 6), 2)) for _ in range(20)]
    data = x, np.array(["no", "yes"])[rng.integers(0, 2, 20)]
    net = loom.Sequential([nn.GRU(3), nn.Dense(2)], input_shape=(None, 2), seed=0)
    receipt = net.fit(*data, epochs=2, validation_split=0.25, receipt=True, verbose=False).receipt
    assert loom.reproduce(receipt, data).difference is None
    x[4][0, 1] += 1e-3
    with pytest.raises(loom.DataError, match="not what the receipt is of"):
        loom.reproduce(receipt, data)
