"""Named inputs and outputs in whatever else takes a network, and links that begin branches or multiply."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom._typing import TargetKind
from loom.errors import ConfigError, InvalidValueError, ShapeError, StateError

RNG = np.random.default_rng(11)
ROWS = 20


def heads(precision: str = "float64", seed: int = 3, classes: int = 4) -> loom.Network:
    """A trunk that reads two inputs, and two heads, each of which begins at the trunk."""
    net = loom.Network(
        inputs={"table": 3, "shop": loom.Categories(5)},
        grid=(1, 5),
        precision=precision,  # type: ignore[arg-type]
        seed=seed,
    )
    net[0, 0].add(nn.Dense(6, activation="tanh"))
    net.enter("shop", (0, 1))[0, 1].add(nn.Embedding(5, 2), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(7, activation="tanh"))
    net[0, 3].add(nn.Dense(classes))
    net.link((0, 2), (0, 4), combine="replace")[0, 4].add(nn.Dense(1))
    return net.output("kind", (0, 3)).output("age", (0, 4))


def data(rows: int = ROWS, classes: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    x = {"table": RNG.normal(size=(rows, 3)), "shop": RNG.integers(0, 5, rows)}
    return x, {"kind": RNG.integers(0, classes, rows), "age": RNG.normal(size=rows)}


def quiet(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "loss": {"kind": "cross_entropy", "age": "huber"},
        "loss_weights": {"age": 0.3},
        "verbose": False,
        "device": "cpu",
    }
    return loom.TrainingConfig(**{**usual, **settings})


@pytest.mark.parametrize("precision", ["float32", "float64", "mixed"])
def test_class_indices_train_as_a_number_for_each_class_does(precision: str) -> None:
    (x, y), by_index, by_number = data(), heads(precision), heads(precision)
    loom.train(by_index, (x, y), quiet(metrics={"kind": ["accuracy"]}))
    shares = {**y, "kind": np.eye(4)[y["kind"]]}
    loom.train(by_number, (x, shares), quiet(metrics={"kind": ["accuracy"]}))
    for name, expected in by_number.state_dict().items():
        np.testing.assert_allclose(by_index.state_dict()[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
    found, expected = by_index.evaluate((x, y)), by_index.evaluate((x, shares))
    assert list(found) == list(expected) == ["loss", "kind_loss", "age_loss", "kind_accuracy"]
    assert np.allclose(list(found.values()), list(expected.values()), rtol=1e-6)


def test_a_class_index_takes_one_number_however_many_classes_there_are() -> None:
    """Of 300,000 classes a number for each would be 240 MB for these samples."""
    net = loom.Network(inputs={"a": 2}, grid=(1, 2))
    net[0, 0].add(nn.Dense(1))
    net[0, 1].add(nn.Dense(300_000))
    net.output("value", (0, 0)).output("word", (0, 1)).build()
    ports = loom.engine.engine_of(net).ports
    assert ports is not None
    classes: dict[str, TargetKind] = {"value": "numbers", "word": "classes"}
    y = {"value": np.zeros(200), "word": np.arange(200) * 1499}
    row = ports.pack_targets(y, classes, "float32")
    assert row.shape == (200, 2)
    assert np.array_equal(row[:, 1], y["word"])
    with pytest.raises(InvalidValueError, match=r'"word": class index 300000 of row 3'):
        ports.pack_targets({**y, "word": np.where(np.arange(200) == 3, 300_000, 0)}, classes, "float32")


def test_class_weights_are_by_output_and_the_mean_is_over_samples() -> None:
    (x, y), net = data(), heads()
    weights = {"kind": {1: 5.0, 3: 0.5}}
    settings = quiet(class_weight=weights, loss_weights=None)
    loom.train(net, (x, y), settings)
    output = net.predict(x)
    kind = output["kind"] - output["kind"].max(axis=1, keepdims=True)
    logs = kind - np.log(np.exp(kind).sum(axis=1, keepdims=True))
    each = np.array([1.0, 5.0, 1.0, 0.5])[y["kind"]]
    mine = -(each * logs[np.arange(ROWS), y["kind"]]).mean()
    found = net.evaluate((x, y))
    assert abs(found["kind_loss"] - mine) < 1e-12
    assert abs(found["loss"] - mine - loom.losses.huber(output["age"], y["age"])[0]) < 1e-12
    assert loom.TrainingConfig.from_config(settings.to_config()) == settings
    # One gradient step is that of the weighted loss.
    one, two = heads(), heads()
    step = quiet(epochs=1, batch_size=ROWS, shuffle=False, optimizer="sgd", learning_rate=1.0)
    loom.train(one, (x, y), loom.TrainingConfig.from_config({**step.to_config(), "class_weight": weights}))
    two.set_optimizer("sgd")
    given = two.forward(x, training=False)
    shares = np.exp(given["kind"] - given["kind"].max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    gradient = {
        "kind": each[:, None] * (shares - np.eye(4)[y["kind"]]) / ROWS,
        "age": 0.3 * loom.losses.huber(given["age"], y["age"])[1],
    }
    two.backward(gradient)
    two.apply_gradients(1.0)
    for name, expected in two.state_dict().items():
        np.testing.assert_allclose(one.state_dict()[name], expected, rtol=0, atol=1e-12, err_msg=name)
    with pytest.raises(ConfigError, match=r'"age" has the loss "huber"'):
        loom.train(net, (x, y), quiet(class_weight={"age": [1.0]}))
    with pytest.raises(ConfigError, match=r"give class_weight by output"):
        loom.train(net, (x, y), quiet(class_weight=[1.0, 2.0, 1.0, 1.0]))


def test_observing_changes_no_bit_and_tells_of_every_layer() -> None:
    (x, y), watched, plain = data(), heads(), heads()
    with warnings.catch_warnings():
        # What the measures of six steps come to is no bottleneck.
        warnings.simplefilter("ignore", loom.BottleneckWarning)
        loom.train(watched, (x, y), quiet(), observe=loom.Observe(history=1))
    loom.train(plain, (x, y), quiet())
    assert watched.fingerprint() == plain.fingerprint()
    gaps = watched.measures.history.gaps
    assert watched.measures.layers == tuple(layer.path for layer in watched.layers)
    assert np.isfinite(gaps).all()
    assert (gaps > 0).all()


def test_probabilities_are_of_the_outputs_that_tell_classes() -> None:
    (x, y), net = data(), heads()
    found: Any = net.predict_probabilities(x)
    assert set(found) == {"kind"}
    loom.train(net, (x, y), quiet())
    found = net.predict_probabilities(x)
    scores = net.predict(x)["kind"]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["kind"], shares, rtol=1e-12)
    numbers = {"kind": np.eye(4)[y["kind"]], "age": y["age"]}
    loom.train(net, (x, numbers), quiet(loss={"kind": "mse", "age": "mse"}, loss_weights=None))
    with pytest.raises(StateError, match="no output of the network is of classes"):
        net.predict_probabilities(x)


def test_input_gradients_are_finite_differences() -> None:
    (x, y), net = data(5), heads()
    loom.train(net, data(), quiet())
    found: Any = net.input_gradients(x, y)
    chosen: Any = net.input_gradients(x, target={"kind": 2})
    assert set(found) == set(chosen) == {"table"}

    def losses(table: np.ndarray) -> np.ndarray:
        output = net.predict({**x, "table": table})
        kind = [
            loom.losses.cross_entropy(output["kind"][r : r + 1], y["kind"][r : r + 1])[0] for r in range(5)
        ]
        age = [loom.losses.huber(output["age"][r : r + 1], y["age"][r : r + 1])[0] for r in range(5)]
        return np.array(kind) + 0.3 * np.array(age)

    for column in range(3):
        step = np.zeros((5, 3))
        step[:, column] = 1e-6
        slope = (losses(x["table"] + step) - losses(x["table"] - step)) / 2e-6
        np.testing.assert_allclose(found["table"][:, column], slope, atol=1e-8)
        ends = [net.predict({**x, "table": x["table"] + sign * step})["kind"][:, 2] for sign in (1, -1)]
        np.testing.assert_allclose(chosen["table"][:, column], (ends[0] - ends[1]) / 2e-6, atol=1e-8)
    with pytest.raises(ConfigError, match=r"target=\{\"kind\": 0\}"):
        net.input_gradients(x)
    with pytest.raises(ConfigError, match="knd"):
        net.input_gradients(x, target={"knd": 0})


def test_the_doctor_names_inputs_and_outputs() -> None:
    (x, y), net = data(600), heads("float32")
    assert not loom.doctor(net, (x, y), quiet(learning_rate=1e-2)).findings
    before = net.fingerprint()
    wide = {**x, "table": x["table"] * 3000}
    net[0, 3].add(nn.Softmax(), nn.Flatten())
    report = loom.doctor(net, (wide, y), quiet(learning_rate=1e-2))
    seen = {entry.name: entry.seen for entry in report.findings}
    assert seen["unscaled-inputs"].startswith('Input "table": ')
    assert seen["softmax-before-loss"].startswith('Output "kind": The network ends in softmax')
    beyond = {**y, "kind": y["kind"] + 1}
    assert loom.doctor(net, (x, beyond), quiet()).names[0] == "labels-out-of-range"
    x["table"][7, 1] = np.nan
    report = loom.doctor(net, [(x, y)], quiet())
    assert report.names[0] == "not-finite"
    assert 'input "table"' in report.findings[0].seen
    assert report.skipped
    assert heads("float32").build().fingerprint() == before


@pytest.mark.parametrize("vote", ["mean", "majority", "weighted"])
def test_ensembles_decide_output_by_output(vote: Any, tmp_path: Path) -> None:
    (x, y), nets = data(), [heads(seed=seed) for seed in range(3)]
    for net in nets:
        loom.train(net, (x, y), quiet())
    ensemble = loom.analysis.Ensemble(nets, vote=vote)
    if vote == "weighted":
        ensemble.fit_weights((x, y), monitor="loss", rounds=5)
    together: Any = ensemble.predict(x)
    each = [net.predict(x) for net in nets]
    if vote == "majority":
        counts = sum(np.eye(4)[output["kind"].argmax(axis=1)] for output in each)
        np.testing.assert_allclose(together["kind"], counts / 3, atol=1e-12)
    else:
        for name in ("kind", "age"):
            mean = sum(w * output[name] for w, output in zip(ensemble.weights, each, strict=True))
            np.testing.assert_allclose(together[name], mean, rtol=1e-12)
        found = ensemble.evaluate((x, y))
        assert abs(found["kind_loss"] - loom.losses.cross_entropy(together["kind"], y["kind"])[0]) < 1e-12
        assert ensemble.evaluate([(x, y)])["loss"] == found["loss"]
    classes: Any = ensemble.predict_classes(x)
    assert set(classes) == {"kind"}
    assert classes["kind"].shape == (ROWS,)
    ensemble.save(tmp_path / "all.ensemble")
    again: Any = loom.analysis.Ensemble.load(tmp_path / "all.ensemble").predict(x)
    assert all(np.array_equal(again[name], together[name]) for name in together)
    other = loom.Network(inputs={"table": 3, "town": loom.Categories(5)}, grid=(1, 2))
    other[0, 0].add(nn.Dense(4))
    other.enter("town", (0, 1))[0, 1].add(nn.Embedding(5, 1), nn.Flatten())
    other.output("kind", (0, 0)).output("age", (0, 1))
    with pytest.raises(ShapeError, match="the same"):
        loom.analysis.Ensemble([nets[0], other])


def test_a_replacing_link_begins_a_branch_and_a_multiplying_one_is_a_product() -> None:
    """Random products of two towers, against NumPy and, behind them, finite differences."""
    net = loom.Network(inputs={"user": 3, "film": 2}, grid=(1, 4), precision="float64", seed=2)
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net.enter("film", (0, 1))[0, 1].add(nn.Dense(5))
    net.link((0, 0), (0, 2), combine="multiply")
    net[0, 2].add(nn.Dense(2, activation="tanh"))
    net.link((0, 0), (0, 3), combine="replace").link((0, 0), (0, 3), combine="multiply")[0, 3].add(
        nn.Dense(2)
    )
    net.output("both", (0, 2)).output("own", (0, 3)).build()

    def dense(column: int, value: np.ndarray) -> np.ndarray:
        held = net[0, 0, column, 0].parameters
        return value @ np.asarray(held["weight"]).T + np.asarray(held["bias"])

    x = {"user": RNG.normal(size=(4, 3)), "film": RNG.normal(size=(4, 2))}
    user, film = np.tanh(dense(0, x["user"])), dense(1, x["film"])
    output = net.predict(x)
    np.testing.assert_allclose(output["both"], np.tanh(dense(2, film * user)), atol=1e-12)
    np.testing.assert_allclose(output["own"], dense(3, user * user), atol=1e-12)
    weights = {name: RNG.normal(size=value.shape) for name, value in output.items()}
    net.forward(x, training=False)
    found: Any = net.backward(weights)
    for name, gradient in found.items():
        for at in np.ndindex(gradient.shape):
            ends = []
            for change in (1e-6, -1e-6):
                moved = {**x, name: x[name].copy()}
                moved[name][at] += change
                made = net.predict(moved)
                ends.append(sum((made[each] * weights[each]).sum() for each in made))
            assert abs((ends[0] - ends[1]) / 2e-6 - gradient[at]) < 1e-8
    assert "replace" in str(net)
    assert "multiply" in str(net)
    assert loom.Network.from_json(net.to_json()).config == net.config


def test_links_that_replace_are_checked() -> None:
    net = loom.Network(input_shape=2, grid=(1, 3))
    for column in range(3):
        net[0, column].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")
    with pytest.raises(InvalidValueError, match=r"cell \(0, 0, 1\) makes goes nowhere"):
        net.build()
    net.link((0, 1), (0, 2), combine="add")
    assert net.predict(np.ones((1, 2))).shape == (1, 2)
    with pytest.raises(InvalidValueError, match="make it the first link"):
        net.link((0, 0), (0, 2), combine="replace")
    wide = loom.Network(input_shape=2, grid=(1, 3))
    wide[0, 0].add(nn.Dense(3))
    wide[0, 1].add(nn.Dense(2))
    wide.link((0, 0), (0, 2), combine="multiply")[0, 2].add(nn.Dense(2))
    with pytest.raises(ShapeError, match="multiplies"):
        wide.build()
    product = loom.Network(input_shape=3, grid=(1, 2))
    product[0, 0].add(nn.Dense(3))
    product[0, 1].add(nn.Dense(3))
    product.link((0, 0), (0, 1), combine="multiply")
    with pytest.raises(StateError, match="clock mode"):
        loom.Mesh(product)


def test_gpu_computes_replaced_and_multiplied_branches(gpu: str) -> None:
    (x, y), here, there = data(), heads("float32"), heads("float32")
    weighted = {"class_weight": {"kind": [1.0, 2.0, 1.0, 0.5]}}
    loom.train(here, (x, y), quiet(**weighted))
    loom.train(there, (x, y), quiet(**weighted, device="gpu"))
    for name, output in here.predict(x).items():
        np.testing.assert_allclose(there.predict(x)[name], output, rtol=0, atol=2e-4)


@pytest.mark.parametrize("seed", range(6))
def test_random_models_of_onnx_come_back(seed: int) -> None:
    """Towers that meet by sums, products and joins, and heads that part: written, read, the same outputs."""
    pytest.importorskip("onnx")
    from loom.models.onnx.export import onnx_model

    rng = np.random.default_rng(seed)
    inputs = {f"i{n}": int(rng.integers(2, 5)) for n in range(rng.integers(1, 4))}
    net = loom.Network(inputs={**inputs, "word": loom.Categories(7)}, grid=(1, 12), seed=seed)
    cells: list[int] = []
    for column, name in enumerate(inputs):
        net.enter(name, (0, column))[0, column].add(nn.Dense(4, activation="tanh"))
        cells.append(column)
    column = len(inputs)
    net.enter("word", (0, column))[0, column].add(nn.Embedding(7, 4), nn.Flatten(), nn.LayerNorm())
    cells.append(column)
    unread = set(cells)
    while column < 9:
        column += 1
        first, *rest = (int(cells[n]) for n in rng.permutation(len(cells))[: int(rng.integers(1, 4))])
        net.link((0, first), (0, column), combine="replace")
        for source in rest:
            net.link((0, source), (0, column), combine=str(rng.choice(["add", "multiply", "concat"])))  # type: ignore[arg-type]
            if net.config.links[-1].combine == "concat":  # type: ignore[union-attr]
                break
        used = [link.source[2] for link in net.config.links if tuple(link.target) == (0, 0, column)]  # type: ignore[union-attr]
        unread -= set(used)
        net[0, column].add(nn.Dense(4, activation="relu"))
        cells.append(column)
        unread.add(column)
    # Whatever nobody reads is an output, and one cell that somebody does.
    for place in sorted(unread | {int(cells[-3])}):
        net.output(f"o{place}", (0, place))
    for place in (10, 11):
        net.link((0, int(cells[0])), (0, place), combine="replace")[0, place].add(nn.Dense(place))
        net.output(f"o{place}", (0, place))
    x: dict[str, Any] = {
        name: rng.normal(size=(6, width)).astype(np.float32) for name, width in inputs.items()
    }
    x["word"] = rng.integers(0, 7, (6, 1))
    names = [entry.name for entry in net.config.outputs]  # type: ignore[union-attr]
    again = loom.models.onnx.load(onnx_model(net).SerializeToString())
    expected, found = net.predict(x), again.predict(x)
    assert set(found) == set(names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=name)


def test_several_outputs_of_one_input_are_asked_for_by_name() -> None:
    pytest.importorskip("onnx")
    from loom.models.onnx.export import onnx_model

    net = loom.Network(input_shape=5, grid=(1, 3), seed=4)
    net[0, 0].add(nn.Dense(6, activation="tanh"))
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(3))
    net.output("small", (0, 1)).output("large", (0, 2))
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    expected: Any = net.predict(x)
    content = onnx_model(net).SerializeToString()
    # By themselves all that loom has written come back.
    for asked in (["large", "small"], None):
        found: Any = loom.models.onnx.load(content, output=asked).predict(x)
        assert set(found) == {"small", "large"}
        for name in found:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    large = loom.models.onnx.load(content, output="large").predict(x)
    np.testing.assert_allclose(large, expected["large"], atol=1e-5)


def test_one_input_of_whole_numbers_without_a_name_has_outputs_with_names() -> None:
    def made(**inputs: Any) -> loom.Network:
        net = loom.Network(**inputs, grid=(1, 3), precision="float64", seed=2)
        net[0, 0].add(nn.Embedding(6, 3), nn.GRU(5))
        net[0, 1].add(nn.Dense(2))
        net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
        return net.output("kind", (0, 1)).output("age", (0, 2))

    x = RNG.integers(0, 6, (ROWS, 4))
    y = {"kind": RNG.integers(0, 2, ROWS), "age": RNG.normal(size=ROWS)}
    net, named = made(input_shape=4), made(inputs={"word": loom.Categories(6, length=4)})
    settings = quiet(validation_split=0.2)
    one, two = loom.train(net, (x, y), settings), loom.train(named, ({"word": x}, y), settings)
    assert one.history == two.history
    assert net.evaluate((x, y)) == named.evaluate(({"word": x}, y))
    assert loom.Trainer(net, quiet()).step(x, y) == loom.Trainer(named, quiet()).step({"word": x}, y)
    found, expected = loom.find_rate(net, (x, y), quiet()), loom.find_rate(named, ({"word": x}, y), quiet())
    np.testing.assert_array_equal(found.losses, expected.losses)


def test_files_pickles_receipts_and_runs_know_metrics_by_output(tmp_path: Path) -> None:
    """Files and pickles forgot them, receipts could not be followed, and runs took others for the same."""
    net, told = heads(), data()
    config = quiet(metrics={"kind": ["accuracy", "f1"], "age": ["mae", lambda given, wanted: 1.0]})
    result = loom.train(net, told, config, receipt=True, run=tmp_path / "run")
    expected = net.evaluate(told)
    assert {"kind_accuracy", "kind_f1", "age_mae"} < expected.keys()
    net.save(tmp_path / "net.loom")
    for again in (loom.load(tmp_path / "net.loom"), pickle.loads(pickle.dumps(net))):
        # A function need not be known elsewhere.
        assert again.evaluate(told) == {name: expected[name] for name in expected if "lambda" not in name}
    assert result.receipt is not None
    with pytest.raises(ConfigError, match="unknown metric"):
        loom.reproduce(result.receipt, told)
    assert loom.reproduce(result.receipt, told, config=config).matches
    others = quiet(metrics={"kind": ["accuracy", "f1"], "age": ["r2"]})
    with pytest.raises(ConfigError, match=r"training\.metrics"):
        loom.train(heads(), told, others, run=tmp_path / "run")
    receipt = loom.train(heads(), told, others, receipt=True).receipt
    assert receipt is not None
    assert loom.reproduce(receipt, told).matches


def test_training_warns_of_what_an_output_ends_in() -> None:
    """A softmax is taken into the loss only where it is the very last layer."""
    (x, y), net = data(60), heads("float32")
    config = quiet(learning_rate=1e-2)
    net[0, 3].add(nn.Softmax(), nn.Flatten())
    with pytest.warns(loom.DoctorWarning, match=r'softmax-before-loss.*"kind".*nll.*leave the softmax out'):
        loom.train(net, (x, y), config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.train(net, (x, y), replace(config, ignore_findings=["softmax-before-loss"]))
        loom.train(heads("float32"), (x, y), config)
