"""Several inputs and outputs by name, against hand-chained networks, finite differences and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, DataError, DTypeError, InvalidValueError, ShapeError, StateError

RNG = np.random.default_rng(3)
ROWS = 24


def towers(precision: str = "float64", seed: int = 5) -> loom.Network:
    """Two towers, an image's and a category's, and two outputs."""
    net = loom.Network(
        inputs={"image": (1, 4, 4), "table": 3, "city": loom.Categories(6)},
        grid=(1, 6),
        precision=precision,  # type: ignore[arg-type]
        seed=seed,
    )
    net[0, 0].add(nn.Conv2D(2, kernel_size=3, activation="tanh"), nn.Flatten())
    net.enter("table", (0, 1))[0, 1].add(nn.Dense(4, activation="tanh"))
    net.enter("city", (0, 2))[0, 2].add(nn.Embedding(6, 3), nn.Flatten())
    net.link((0, 0), (0, 3), combine="concat").link((0, 1), (0, 3), combine="concat")
    net[0, 3].add(nn.Dense(7, activation="tanh"))
    net[0, 4].add(nn.Dense(1))
    net.link((0, 3), (0, 5), combine="concat")[0, 5].add(nn.Dense(3))
    return net.output("kind", (0, 5)).output("age", (0, 4))


def samples(rows: int = ROWS) -> tuple[dict[str, Any], dict[str, Any]]:
    x = {
        "image": RNG.normal(size=(rows, 1, 4, 4)),
        "table": RNG.normal(size=(rows, 3)),
        "city": RNG.integers(0, 6, rows),
    }
    return x, {"kind": RNG.integers(0, 3, rows), "age": RNG.normal(size=rows)}


def quiet(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "loss": {"kind": "cross_entropy", "age": "huber"},
        "loss_weights": {"age": 0.3},
        "metrics": {"kind": ["accuracy"], "age": ["mae"]},
        "verbose": False,
        "device": "cpu",
    }
    return loom.TrainingConfig(**{**usual, **settings})


def test_training_is_that_of_hand_chained_networks() -> None:
    x, y = samples()
    net = towers()
    image, table, city, trunk, age, kind = (
        loom.Sequential([layer.config for layer in net[0, column]], input_shape=shape, precision="float64")
        for column, shape in enumerate([(1, 4, 4), 3, 1, 3 + 8 + 4, 7, 1 + 7])
    )
    parts = [image, table, city, trunk, age, kind]
    net.build()
    for column, part in enumerate(parts):
        part.build()
        for mine, theirs in zip(net[0, column], part.layers, strict=True):
            for name in mine.parameters:
                theirs.parameters[name] = np.array(mine.parameters[name])
    for part in [net, *parts]:
        part.set_optimizer("sgd")
    for _ in range(3):
        a, b, c = image.forward(x["image"]), table.forward(x["table"]), city.forward(x["city"][:, None])
        d = trunk.forward(np.concatenate([c, a, b], axis=1))
        e = age.forward(d)
        f = kind.forward(np.concatenate([e, d], axis=1))
        _, kind_gradient = loom.losses.cross_entropy(f, y["kind"])
        _, age_gradient = loom.losses.huber(e, y["age"])
        back = kind.backward(kind_gradient)
        to_trunk = age.backward(0.3 * age_gradient + back[:, :1]) + back[:, 1:]
        back = trunk.backward(to_trunk)
        city.backward(back[:, :3])
        image.backward(back[:, 3:11])
        table.backward(back[:, 11:])
        for part in parts:
            part.apply_gradients(0.1)
    one = quiet(epochs=3, batch_size=ROWS, shuffle=False, optimizer="sgd", learning_rate=0.1)
    loom.train(net, (x, y), one)
    for column, part in enumerate(parts):
        for mine, theirs in zip(net[0, column], part.layers, strict=True):
            for name in mine.parameters:
                np.testing.assert_allclose(mine.parameters[name], theirs.parameters[name], rtol=0, atol=1e-12)


def test_gradients_are_finite_differences() -> None:
    net, (x, _) = towers(), samples(3)
    weights = {"kind": RNG.normal(size=(3, 3)), "age": RNG.normal(size=(3, 1))}

    def total() -> float:
        output = net.predict(x)
        return float(sum((output[name] * weights[name]).sum() for name in weights))

    net.forward(x, training=False)
    found = net.backward(weights)
    # Read before the weights move.
    gradients = {
        layer.path: {name: np.array(array) for name, array in layer.gradients.items()} for layer in net.layers
    }
    assert set(found) == {"image", "table"}  # whole numbers have no gradient
    step = 1e-6
    for name, gradient in found.items():
        for at in np.ndindex(gradient.shape):
            before = x[name][at]
            x[name][at] = before + step
            above = total()
            x[name][at] = before - step
            slope = (above - total()) / (2 * step)
            x[name][at] = before
            assert abs(slope - gradient[at]) < 1e-8
    for layer in net.layers:
        for name, gradient in gradients[layer.path].items():
            before = np.array(layer.parameters[name])
            for at in list(np.ndindex(before.shape))[:6]:
                ends = []
                for change in (step, -step):
                    values = before.copy()
                    values[at] += change
                    layer.parameters[name] = values
                    ends.append(total())
                layer.parameters[name] = before
                assert abs((ends[0] - ends[1]) / (2 * step) - gradient[at]) < 1e-8


def test_loss_is_the_weighted_sum_and_figures_have_names() -> None:
    net, (x, y) = towers(), samples()
    result = loom.train(net, (x, y), quiet(), validation=(x, y))
    found = net.evaluate((x, y))
    assert list(found) == ["loss", "kind_loss", "age_loss", "kind_accuracy", "age_mae"]
    assert abs(found["loss"] - found["kind_loss"] - 0.3 * found["age_loss"]) < 1e-12
    output = net.predict(x)
    assert abs(found["kind_loss"] - loom.losses.cross_entropy(output["kind"], y["kind"])[0]) < 1e-12
    assert found["kind_accuracy"] == np.mean(output["kind"].argmax(axis=1) == y["kind"])
    assert abs(found["age_mae"] - np.abs(output["age"][:, 0] - y["age"]).mean()) < 1e-12
    assert abs(result.metrics["val_kind_loss"][-1] - found["kind_loss"]) < 1e-12
    weighted = net.evaluate((x, y, np.arange(ROWS) / ROWS), quiet(metrics={}))
    weights = np.arange(ROWS) / ROWS
    mine = loom.losses.cross_entropy(output["kind"], y["kind"], weight=weights)[0]
    mine += 0.3 * loom.losses.huber(output["age"], y["age"], weight=weights)[0]
    assert abs(weighted["loss"] - mine) < 1e-12


@pytest.mark.parametrize("precision", ["float32", "float64", "mixed"])
def test_files_and_resumed_runs_have_the_same_bits(precision: str, tmp_path: Path) -> None:
    (x, y), whole, first = samples(), towers(precision), towers(precision)
    loom.train(whole, (x, y), quiet(epochs=4))
    loom.train(first, (x, y), quiet(epochs=2))
    first.save(tmp_path / "net.loom", optimizer=True)
    second = loom.load(tmp_path / "net.loom")
    loom.train(second, (x, y), quiet(epochs=4), resume=True)
    assert second.fingerprint() == whole.fingerprint()
    for name, output in whole.predict(x).items():
        assert np.array_equal(output, second.predict(x)[name])
    assert loom.Network.from_json(whole.to_json()).config == whole.config


def test_batches_of_dictionaries_are_the_arrays() -> None:
    (x, y), arrays, batches = samples(), towers(), towers()
    loom.train(arrays, (x, y), quiet(shuffle=False))
    cut = [slice(start, start + 8) for start in range(0, ROWS, 8)]
    listed = [({n: a[c] for n, a in x.items()}, {n: a[c] for n, a in y.items()}) for c in cut]
    loom.train(batches, listed, quiet())
    assert batches.fingerprint() == arrays.fingerprint()


def test_fit_takes_names_and_frames() -> None:
    pandas = pytest.importorskip("pandas")
    net = loom.Network(inputs={"price": 1, "shop": loom.Categories(4)}, grid=(1, 3))
    net.enter("shop", (0, 1))[0, 1].add(nn.Embedding(4, 2), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(1))
    x = {"price": RNG.normal(size=ROWS), "shop": RNG.integers(0, 4, ROWS)}
    y = RNG.normal(size=ROWS)
    net.fit(x, y, epochs=2, loss="mse", verbose=False, device="cpu")
    frame = pandas.DataFrame({**x, "other": 0})
    assert np.array_equal(net.predict(frame), net.predict(x))
    assert net.evaluate((frame, y)) == net.evaluate((x, y))


def test_gpu_computes_the_same(gpu: str) -> None:
    (x, y), here, there = samples(), towers("float32"), towers("float32")
    loom.train(here, (x, y), quiet())
    loom.train(there, (x, y), quiet(device="gpu"))
    for name, output in here.predict(x).items():
        np.testing.assert_allclose(there.predict(x)[name], output, rtol=0, atol=2e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_are_those_of_numpy(seed: int) -> None:
    """Each cell takes what enters, or what the one before makes, then links; NumPy does the same."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    widths = [int(rng.integers(1, 4)) for _ in range(count)]
    net = loom.Network(
        inputs={f"i{n}": w for n, w in enumerate(widths)}, grid=(1, count + 1), precision="float64", seed=seed
    )
    x = {f"i{n}": rng.normal(size=(5, w)) for n, w in enumerate(widths)}
    made = []
    for n in range(count):
        net.enter(f"i{n}", (0, n))[0, n].add(nn.Dense(2, activation="tanh"))
        made.append(n)
    links = [n for n in range(count - 1) if rng.random() < 0.5]
    for n in links:
        net.link((0, n), (0, count), combine="concat")
    net[0, count].add(nn.Dense(3))
    outputs = [n for n in range(count - 1) if n not in links] + [count]
    for n in rng.permutation(outputs):
        net.output(f"o{n}", (0, int(n)))

    def dense(column: int, value: np.ndarray) -> np.ndarray:
        weights = net[0, 0, column, 0].parameters
        return value @ np.asarray(weights["weight"]).T + np.asarray(weights["bias"])

    net.build()
    cells = [np.tanh(dense(n, x[f"i{n}"])) for n in range(count)]
    joined = np.concatenate([cells[-1], *(cells[n] for n in links)], axis=1)
    cells.append(dense(count, joined))
    for name, output in net.predict(x).items():
        np.testing.assert_allclose(output, cells[int(name[1:])], rtol=0, atol=1e-12)


def test_bad_input_is_told_by_name() -> None:
    net, (x, y) = towers(), samples()
    with pytest.raises(DataError, match='input "city" is missing'):
        net.predict({"image": x["image"], "table": x["table"]})
    with pytest.raises(ConfigError, match=r"tabel.*table"):
        net.predict({"image": x["image"], "tabel": x["table"], "city": x["city"]})
    with pytest.raises(ShapeError, match=r'input "table": expected shape \(rows, 3\), got \(24, 2\)'):
        net.predict({**x, "table": x["table"][:, :2]})
    with pytest.raises(DTypeError, match='input "city": it takes whole numbers'):
        net.predict({**x, "city": x["city"] / 2})
    city = x["city"].copy()
    city[7] = 6
    with pytest.raises(InvalidValueError, match=r'input "city" holds 6 in row 7; .* from 0 to 5'):
        net.predict({**x, "city": city})
    with pytest.raises(DataError, match='"image" has 24 samples but input "table" has 9'):
        net.predict({**x, "table": x["table"][:9]})
    with pytest.raises(InvalidValueError, match='output "kind": class index 3 of row 2'):
        loom.train(net, (x, {**y, "kind": np.where(np.arange(ROWS) == 2, 3, 0)}), quiet())
    with pytest.raises(ConfigError, match=r"knd.*kind"):
        loom.train(net, (x, y), quiet(loss={"knd": "mse", "age": "mse"}, loss_weights=None, metrics={}))
    with pytest.raises(ConfigError, match='output "age" has none'):
        loom.train(net, (x, y), quiet(loss={"kind": "mse"}, loss_weights=None, metrics={}))
    with pytest.raises(DataError, match="dictionary"):
        net.predict(np.zeros((3, 25)))


def test_what_has_no_meaning_is_refused_by_name() -> None:
    net, (x, y) = towers(), samples()
    with pytest.raises(ConfigError, match="layerwise passes targets back from one output"):
        loom.TweenTrainer(net, loom.TweenConfig(mode="layerwise")).fit((x, y))
    # Its image goes through as a whole.
    with pytest.raises(StateError, match="needs whole sequences, so it cannot run in a session"):
        net.session(4)
    with pytest.raises(ConfigError, match="class_weight"):
        loom.train(net, (x, y), quiet(class_weight=[1.0, 2.0, 1.0]))
    single = loom.Sequential([nn.Dense(2)], input_shape=3)
    with pytest.raises(ConfigError, match="named outputs"):
        loom.train(single, (np.ones((2, 3)), [0, 1]), quiet())


def test_layers_that_go_nowhere_are_told() -> None:
    net = loom.Network(inputs={"a": 2, "b": 2}, grid=(1, 2))
    net[0, 0].add(nn.Dense(2))
    net[0, 1].add(nn.Dense(2))
    with pytest.raises(InvalidValueError, match='input "b" enters no cell'):
        net.build()
    net.enter("b", (0, 1))
    with pytest.raises(InvalidValueError, match=r"cell \(0, 0, 0\) makes goes nowhere"):
        net.build()
    assert net.link((0, 0), (0, 1)).build().predict({"a": np.ones((1, 2)), "b": np.ones((1, 2))}).shape == (
        1,
        2,
    )


def test_onnx_has_the_same_names() -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from loom.models.onnx.export import onnx_model

    net, (x, _) = towers("float32"), samples(5)
    model = onnx_model(net)
    onnx.checker.check_model(model, full_check=True)
    given = {
        "image": x["image"].astype(np.float32),
        "table": x["table"].astype(np.float32),
        "city": x["city"][:, None].astype(np.int64),
    }
    found = dict(zip(["kind", "age"], ReferenceEvaluator(model).run(["kind", "age"], given), strict=True))
    for name, expected in net.predict(x).items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5)


def test_a_trainer_takes_names_and_learns_as_train_does() -> None:
    x, y = samples()
    mine, theirs = towers(), towers()
    config = quiet(epochs=1, batch_size=ROWS, shuffle=False)
    loom.train(theirs, (x, y), config)
    assert loom.Trainer(mine, config).step(x, y) > 0
    for one, other in zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert np.array_equal(one, other)


def test_a_divergence_counts_rows_as_cross_entropy_does() -> None:
    """Their gradients are the same ones, so that networks come out alike."""
    x, y = samples()
    shares = {**y, "kind": RNG.dirichlet(np.ones(3), ROWS)}
    found = []
    for loss in ("cross_entropy", "kl_divergence"):
        net = towers()
        loom.train(net, (x, shares), quiet(loss={"kind": loss, "age": "huber"}, metrics={}))
        found.append(net.state_dict())
    for name, expected in found[0].items():
        np.testing.assert_allclose(found[1][name], expected, rtol=1e-10, atol=1e-12, err_msg=name)


def test_what_tells_classes_is_numbers_or_booleans() -> None:
    net, other, (x, y) = towers(), towers(), samples()
    loom.train(net, (x, {**y, "kind": y["kind"] > 0}), quiet())
    loom.train(other, (x, {**y, "kind": (y["kind"] > 0).astype(int)}), quiet())
    assert net.fingerprint() == other.fingerprint()
    named = {**y, "kind": np.array(["a", "b", "c"])[y["kind"]]}
    with pytest.raises(
        DTypeError, match=r'output "kind": got labels of dtype .* has no names for its classes'
    ):
        net.evaluate((x, named), quiet())
    loom.train(net, (x, named), quiet())
    loom.train(other, (x, y), quiet())
    assert net.fingerprint() == other.fingerprint()
    with pytest.raises(ConfigError, match=r"input 'text': input_shape .* time, is open, no other"):
        loom.Network(inputs={"text": (None, None), "table": 3})


def test_a_network_with_names_is_cut() -> None:
    net = loom.Network(inputs={"a": 2, "b": 3, "c": 2}, grid=(1, 4), precision="float64", seed=1)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net.enter("b", (0, 1))[0, 1].add(nn.Dense(4))
    net.link((0, 0), (0, 2))[0, 2].add(nn.Dense(5), nn.Dense(2))
    net.enter("c", (0, 3))[0, 3].add(nn.Dense(1))
    net.output("two", (0, 2)).output("one", (0, 3)).build()
    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=(4, width)) for name, width in (("a", 2), ("b", 3), ("c", 2))}
    features = net.cut(until=net.layers[2])
    head = net.layers[3].parameters
    made = features.predict({"a": x["a"], "b": x["b"]}) @ np.asarray(head["weight"]).T + np.asarray(
        head["bias"]
    )
    np.testing.assert_allclose(made, net.predict(x)["two"], rtol=0, atol=1e-12)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match='"c"'):
        features.predict(x)
