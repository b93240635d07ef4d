"""What is in a network's file: by the page's own reader, and in files of before."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
GOLDEN = Path(__file__).parents[1] / "golden" / "networks"


@pytest.fixture(scope="module")
def reader() -> dict:
    """The functions of the page's reader."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "def read(path)" in block]
    names: dict = {}
    exec(compile(block, str(PAGE), "exec"), names)
    assert block.count("\n") <= 120
    return names


PACKED = [entry.name for entry in loom.dtypes() if entry.name not in ("float64", "float32")]


@pytest.mark.parametrize("granularity", [None, "tensor", "block(5)"])
@pytest.mark.parametrize("dtype", PACKED)
def test_numpy_reads_every_type(dtype: str, granularity: str | None, reader: dict, tmp_path: Path) -> None:
    net = loom.Sequential(
        [nn.Conv2D(5, 3), nn.Flatten(), nn.Dense(7)], (3, 4, 4), precision="float64", seed=2
    )
    try:
        net.morph(dtype, granularity=granularity)
    except loom.LoomError:
        assert granularity is not None
        return
    net.save(tmp_path / "net.loom", deploy=True)
    _, tensors = reader["read"](tmp_path / "net.loom")
    assert "0.0.0.0.weight" not in tensors
    for place in (0, 2):
        name = f"0.0.0.{place}.weight@{dtype}"
        data = tensors[name]
        expected = loom.load(tmp_path / "net.loom").unpack().layers[place].weight
        matrix = expected.reshape(len(expected), -1).T
        if f"{name}.scale" in tensors or dtype[0] in "qm":
            words = tensors.get(f"{name}.scale", np.zeros(0, np.float32))
            group = net.layers[place].weights.stored["weight"].version.granularity
            found = reader["packed_of"](dtype, data.view("u1").reshape(-1), words, *matrix.shape, group)
        else:
            found = data.reshape(matrix.shape)
        np.testing.assert_allclose(found, matrix, rtol=1e-12 if "64" in dtype else 1e-6, atol=1e-300)


def test_a_file_to_deploy_is_as_small_as_its_bits_and_predicts_the_same(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(256, activation="relu"), nn.LayerNorm(), nn.Dense(10)], 512, seed=1)
    x, y = np.random.default_rng(0).normal(size=(64, 512)), np.arange(64) % 10
    config = loom.TrainingConfig(epochs=1, loss="cross_entropy", metrics=["accuracy"], verbose=False)
    loom.train(net, (x, y), config)
    net.morph("int4", where=lambda layer: layer.kind == "dense")
    before = net.predict(x)
    net.save(tmp_path / "whole.loom", optimizer=True)
    net.save(tmp_path / "small.loom", deploy=True)
    bits = (512 * 256 + 256 * 10) // 2
    assert bits < (tmp_path / "small.loom").stat().st_size < bits + 8000
    assert (tmp_path / "small.loom").stat().st_size < (tmp_path / "whole.loom").stat().st_size / 10
    small = loom.load(tmp_path / "small.loom")
    np.testing.assert_array_equal(small.predict(x), before)
    np.testing.assert_array_equal(net.predict(x), before)
    assert net.layers[0].weights.dropped is False
    assert small.evaluate((x, y)) == net.evaluate((x, y))
    told = json.loads(small._engine.native.card())
    assert told["fingerprint"] == loom.load(tmp_path / "whole.loom").fingerprint() == net.fingerprint()
    with pytest.raises(loom.LoomError, match="master"):
        loom.train(small, (x, y), config)
    small.unpack()
    loom.train(small, (x, y), config)


def test_deploy_leaves_no_room_for_an_optimizer(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(2)], 3)
    with pytest.raises(loom.ConfigError, match="leave one of both out"):
        net.save(tmp_path / "net.loom", optimizer=True, deploy=True)
    assert not (tmp_path / "net.loom").exists()


def test_cards_go_with_the_network_wherever_it_goes(tmp_path: Path) -> None:
    import copy
    import pickle

    net = loom.Sequential([nn.Dense(2)], 3)
    assert net.card == loom.ModelCard()
    net.card = loom.ModelCard(
        labels=["cat", "dog"],
        preprocessing={"mean": [0.5], "std": [0.25]},
        description="Tells cats from dogs.",
        license="MIT",
        metadata={"data": {"rows": 12}},
    )
    net.save(tmp_path / "net.loom")
    for other in (loom.load(tmp_path / "net.loom"), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.card == net.card
        assert other.card.labels == ("cat", "dog")
    net.card = loom.ModelCard()
    net.save(tmp_path / "bare.loom")
    assert b"loom.card" not in (tmp_path / "bare.loom").read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": "cat"},
        {"labels": ["cat", "cat"]},
        {"labels": [1, "2"]},
        {"labels": [1, 1]},
        {"description": 3},
        {"metadata": ["no dictionary"]},
        {"metadata": {"array": np.zeros(2)}},
        {"preprocessing": {"mean": float("nan")}},
    ],
)
def test_what_is_no_card_is_refused(wrong: dict) -> None:
    with pytest.raises(loom.ConfigError, match="ModelCard"):
        loom.ModelCard(**wrong)


def test_a_card_is_a_card() -> None:
    net = loom.Sequential([nn.Dense(2)], 3)
    with pytest.raises(loom.ConfigError, match="ModelCard"):
        net.card = {"labels": ["cat", "dog"]}


@pytest.mark.parametrize("loss", ["cross_entropy", loom.losses.Huber(delta=0.5)])
def test_a_loaded_network_knows_by_what_it_was_judged(loss: object, tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(3)], 4)
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.eye(3)[np.arange(30) % 3]
    metrics = ["accuracy"] if loss == "cross_entropy" else ["mae"]
    config = loom.TrainingConfig(epochs=1, loss=loss, metrics=metrics, verbose=False)
    loom.train(net, (x, y), config)
    net.save(tmp_path / "net.loom")
    assert loom.load(tmp_path / "net.loom").evaluate((x, y)) == net.evaluate((x, y))


def test_fingerprints_tell_networks_apart() -> None:
    def made(seed: int = 1, units: int = 3) -> loom.Network:
        return loom.Sequential([nn.Dense(units)], 4, seed=seed)

    net = made()
    assert net.fingerprint() == made().fingerprint()
    assert len({net.fingerprint(), made(seed=2).fingerprint(), made(units=4).fingerprint()}) == 3
    before = net.fingerprint()
    net.card = loom.ModelCard(license="MIT")
    assert net.fingerprint() == before
    net.layers[0].bias = np.array([0.0, 0.0, 1e-7])
    assert net.fingerprint() != before


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.loom")), ids=lambda path: path.stem)
def test_files_of_before_are_read_and_predict_what_they_did(path: Path) -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())[path.stem]
    net = loom.load(path)
    x = np.random.default_rng(0).normal(size=(4, *net.input_shape))
    assert hashlib.sha256(net.predict(x).tobytes()).hexdigest() == expected["outputs"]
    assert net.fingerprint() == expected["fingerprint"]
    if expected["resumes"]:
        y = np.arange(4) % 3
        config = loom.TrainingConfig(
            epochs=2, batch_size=2, loss="cross_entropy", optimizer="adam", verbose=False
        )
        loom.train(net, (x, y), config, resume=True)
        assert hashlib.sha256(net.predict(x).tobytes()).hexdigest() == expected["trained"]
