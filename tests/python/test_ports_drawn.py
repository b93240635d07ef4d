"""Random named outputs, losses and weights: in every precision, in shards, and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
ROWS = 24


class Heads:
    """A network with a few random outputs, and what each is compared with."""

    def __init__(self, seed: int, *, rows: int = ROWS) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.seed, self.rows = rng, seed, rows
        self.x = {"table": rng.normal(size=(rows, 3)), "shop": rng.integers(0, 5, rows)}
        self.layers: dict[str, list[nn.Layer]] = {}
        self.loss: dict[str, str] = {}
        self.y: dict[str, Array] = {}
        self.class_weight: dict[str, list[float]] = {}
        for number in range(int(rng.integers(1, 4))):
            name, kind = f"o{number}", int(rng.integers(0, 6))
            classes = int(rng.integers(2, 5))
            if kind == 0:
                self._add(name, [nn.Dense(classes)], "cross_entropy", rng.integers(0, classes, rows))
            elif kind == 1:  # a class for each of two steps
                layers = [nn.Dense(2 * classes), nn.Reshape((2, classes))]
                self._add(name, layers, "cross_entropy", rng.integers(0, classes, (rows, 2)))
            elif kind == 2:  # a class for each of four pixels
                layers = [nn.Dense(4 * classes), nn.Reshape((classes, 2, 2))]
                self._add(name, layers, "cross_entropy", rng.integers(0, classes, (rows, 2, 2)))
            elif kind == 3:
                layers = [nn.Dense(classes), nn.Softmax()]
                self._add(name, layers, "nll", rng.integers(0, classes, rows))
            elif kind == 4:
                self._add(name, [nn.Dense(classes)], "mse", rng.normal(size=(rows, classes)))
            else:
                self._add(name, [nn.Dense(1)], "binary_cross_entropy", rng.integers(0, 2, (rows, 1)))
            if kind < 4 and rng.random() < 0.5:
                self.class_weight[name] = [float(weight) for weight in rng.uniform(0.2, 3, classes)]
        self.weights = {name: float(rng.uniform(0.2, 2)) for name in self.loss if rng.random() < 0.5}
        self.smoothing = 0.1 if rng.random() < 0.3 else 0.0
        self.row_weights = rng.uniform(0.1, 2, rows) if rng.random() < 0.5 else None

    def _add(self, name: str, layers: list[nn.Layer], loss: str, target: Array) -> None:
        self.layers[name], self.loss[name], self.y[name] = layers, loss, target

    def network(self, precision: str, **settings: Any) -> loom.Network:
        inputs = {"table": 3, "shop": loom.Categories(5)}
        count = len(self.layers)
        of: Any = {"precision": precision, "seed": self.seed, **settings}
        net = loom.Network(inputs=inputs, grid=(1, 3 + count), **of)
        net[0, 0].add(nn.Dense(4, activation="tanh"))
        net.enter("shop", (0, 1))[0, 1].add(nn.Embedding(5, 4), nn.Flatten())
        # A cell without layers hands on the sum.
        net.link((0, 0), (0, 2), combine="add")
        for number, (name, layers) in enumerate(self.layers.items()):
            at = (0, 3 + number)
            if number:
                net.link((0, 2), at, combine="replace")
            net[at].add(*layers)
            net.output(name, at)
        return net

    def data(self, *, shares: bool = False) -> Any:
        y = dict(self.y)
        if shares:
            for name in self.classed():
                shares = np.eye(len(self.spread(name)))[y[name]]
                # The classes of images are their channels.
                y[name] = np.moveaxis(shares, -1, 1) if shares.ndim == 4 else shares
        return (self.x, y) if self.row_weights is None else (self.x, y, self.row_weights)

    def classed(self) -> list[str]:
        return [name for name, loss in self.loss.items() if loss in {"cross_entropy", "nll"}]

    def spread(self, name: str) -> list[float]:
        """The weight of each class."""
        layer = self.layers[name]
        shape: Any = layer[1].shape if isinstance(layer[-1], nn.Reshape) else (layer[0].units,)  # type: ignore[attr-defined]
        return self.class_weight.get(name, [1.0] * int(shape[-1] if len(shape) < 3 else shape[0]))

    def config(self, **settings: Any) -> loom.TrainingConfig:
        usual: dict[str, Any] = {
            "epochs": 2,
            "batch_size": 10,
            "loss": self.loss,
            "loss_weights": self.weights or None,
            "class_weight": self.class_weight or None,
            "label_smoothing": self.smoothing,
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "verbose": False,
            "device": "cpu",
        }
        return loom.TrainingConfig(**{**usual, **settings})

    def expected(self, outputs: dict[str, Array]) -> float:
        """The loss in NumPy."""
        total = 0.0
        rows = np.ones(self.rows) if self.row_weights is None else self.row_weights
        for name, output in outputs.items():
            y, loss = self.y[name], self.loss[name]
            if loss == "mse":
                each = ((output - y) ** 2).mean(axis=1)
            elif loss == "binary_cross_entropy":
                each = (np.logaddexp(0, output) - y * output).mean(axis=1)
            else:
                axis = 1 if output.ndim in {2, 4} else 2
                logs = np.log(output) if loss == "nll" else output
                if loss == "cross_entropy":
                    top = output.max(axis=axis, keepdims=True)
                    logs = output - top - np.log(np.exp(output - top).sum(axis=axis, keepdims=True))
                weights = np.array(self.spread(name))
                logs = np.moveaxis(logs, axis, -1)
                shares = np.eye(len(weights))[y]
                shares = (1 - self.smoothing) * shares + self.smoothing / len(weights)
                each = -(shares * logs * weights).sum(axis=-1).reshape(self.rows, -1).mean(axis=1)
            total += self.weights.get(name, 1.0) * float((each * rows).sum() / rows.sum())
        return total


@pytest.mark.parametrize("seed", range(25))
def test_loss_and_step_are_those_of_numpy(seed: int) -> None:
    """The loss, and one step of gradient descent against the finite differences of NumPy's loss."""
    drawn = Heads(seed, rows=5)
    net, stepped = drawn.network("float64"), drawn.network("float64")
    outputs: Any = net.forward(drawn.x, training=False)
    expected = drawn.expected(outputs)
    config = drawn.config(epochs=1, batch_size=5, shuffle=False, learning_rate=1.0)
    result = loom.train(stepped, drawn.data(), config)
    assert abs(result.loss_history[0] - expected) < 1e-12 * max(1.0, expected)
    gradients = {}
    for name, output in outputs.items():
        gradients[name] = np.zeros(output.shape)
        for place in np.ndindex(output.shape):
            for step, factor in ((1e-4, 8), (-1e-4, -8), (2e-4, -1), (-2e-4, 1)):
                moved = output.copy()
                moved[place] += step
                gradients[name][place] += factor * drawn.expected({**outputs, name: moved}) / 12e-4
    net.set_optimizer("sgd")
    net.backward(gradients)
    net.apply_gradients(1.0)
    for name, value in net.state_dict().items():
        np.testing.assert_allclose(stepped.state_dict()[name], value, rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_labels_are_learned_as_shares_are(seed: int, precision: str) -> None:
    """Indices among numbers, which `Labels` takes out of rows, beside a number for each class."""
    drawn = Heads(seed)
    by_index, by_share = drawn.network(precision), drawn.network(precision)
    found = loom.train(by_index, drawn.data(), drawn.config())
    expected = loom.train(by_share, drawn.data(shares=True), drawn.config())
    np.testing.assert_allclose(found.loss_history, expected.loss_history, rtol=2e-5)
    for name, value in by_share.state_dict().items():
        np.testing.assert_allclose(by_index.state_dict()[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("precision", ["float32", "float64", "mixed"])
def test_shards_and_ranks_give_one_network(seed: int, precision: str) -> None:
    drawn = Heads(seed, rows=23)

    def trained(ranks: Any, **settings: Any) -> tuple[str, Any]:
        net = drawn.network(precision)
        result = loom.train(net, drawn.data(), drawn.config(gradient_clip=1.0, **settings), distributed=ranks)
        return net.fingerprint(), (result.loss_history, net.state_dict())

    mark, (losses, values) = trained(None, shards=4)
    for count in (1, 2, 4):
        for other, (found, _) in loom.distributed.threads(count, lambda ranks: trained(ranks, shards=4)):
            assert other == mark, count
            assert found == losses
    # And as a step that is made whole, but for the order of sums.
    whole = drawn.network(precision)
    loom.train(whole, drawn.data(), drawn.config(gradient_clip=1.0))
    close = 1e-12 if precision == "float64" else 2e-4
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(values[name], value, rtol=close, atol=close, err_msg=name)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_a_gpu_learns_drawn_outputs(seed: int, precision: str, gpu: str) -> None:
    drawn = Heads(seed)
    here, there = drawn.network(precision), drawn.network(precision)
    expected = loom.train(here, drawn.data(), drawn.config())
    found = loom.train(there, drawn.data(), drawn.config(device=gpu))
    # Operands are rounded to float16 there, and to bfloat16 here.
    close = 1e-4 if precision == "float32" else 2e-2
    np.testing.assert_allclose(found.loss_history, expected.loss_history, rtol=close)
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(there.state_dict()[name], value, rtol=close, atol=close, err_msg=name)
    # What follows stays on the device: figures of each output, and of all of them.
    one, two = here.evaluate(drawn.data()), there.evaluate(drawn.data())
    assert list(one) == list(two)
    np.testing.assert_allclose(list(two.values()), list(one.values()), rtol=close, atol=close)
