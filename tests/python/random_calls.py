"""Random calls with odd values: run as a program, it makes sequences of them in a process of its own.

    python random_calls.py SEED FIRST COUNT

A crash ends the process, and a hang does after 60 seconds. What is raised and is no error of loom's, or is an
internal one, is printed, and so is what keeps a network from predicting, being saved and training afterwards;
the exit status is then 1.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import loom
from file_mutants import mutant
from huge_extents import limit_memory
from loom import nn

Call = Callable[[random.Random, Any], object]


def cyclic() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


def odd(draw: random.Random) -> Any:
    """A value that hardly any setting means."""
    pools: list[list[Any]] = [
        [None, True, False, -1, 0, 1, 2, 3, 7],
        [2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**63), 10**5000],
        [0.0, -0.0, 0.5, 1.5, -3.0, 1e-300, 1e300, math.nan, math.inf, -math.inf],
        ["", "x", "same", "relu", "int8", "mean", "mse", "val_loss", "\x00", "é" * 40, b"", b"mse"],
        [[], [1], [0, 0], [1, 2, 3], [[1], [2, 3]], (), (1, 1), (0, 0, 0), (0, 0, 0, 0), cyclic()],
        [
            {},
            {"type": "dense"},
            {"type": "dense", "units": 3},
            {1: 2},
            {"x": cyclic()},
            set(),
            frozenset({1}),
        ],
        [object(), int, len, lambda *_: None, Ellipsis, slice(None), complex(1, 2), range(3)],
        [np.float32(3), np.int64(5), np.bool_(True), np.array(3), np.array([1, 2]), np.zeros((0,)), np.nan],
        [np.full((2, 4), np.nan), np.ones((2, 4), complex), np.array(["a"]), np.ones((3, 2, 4), np.float16)],
        [nn.Dense(2), nn.Flatten(), nn.Residual(nn.Dense(4)), loom.optimizers.SGD(), np.ones((2, 4)).T],
    ]
    return draw.choice(draw.choice(pools))


def maybe(draw: random.Random, usual: Any, odds: float = 0.5) -> Any:
    return odd(draw) if draw.random() < odds else usual


def some(draw: random.Random, **options: Any) -> dict[str, Any]:
    """A few options, most of them odd."""
    names = draw.sample(list(options), min(len(options), draw.randint(0, 2)))
    return {name: maybe(draw, options[name], 0.7) for name in names}


LAYERS: list[Callable[[random.Random], Any]] = [
    lambda draw: nn.Dense(maybe(draw, 4), **some(draw, activation="relu", bias=True)),
    lambda draw: nn.LSTM(maybe(draw, 4), **some(draw, layers=1, bidirectional=True, return_sequences=True)),
    lambda draw: nn.Conv1D(maybe(draw, 3), maybe(draw, 1), **some(draw, stride=1, padding="same", groups=1)),
    lambda draw: nn.MultiHeadAttention(maybe(draw, 2), **some(draw, head_dim=2, window=2, causal=True)),
    lambda draw: nn.Residual(maybe(draw, nn.Dense(4)), **some(draw, projection=())),
    lambda draw: nn.Parallel([maybe(draw, nn.Dense(4)), nn.Dense(4)], **some(draw, combine="add", axis=0)),
    lambda draw: nn.Sequential(maybe(draw, [nn.Dense(4)])),
    lambda draw: nn.Masked(maybe(draw, [nn.Dense(4)]), maybe(draw, 0.0)),
    lambda draw: nn.Reshape(maybe(draw, (4, -1))),
    lambda draw: nn.Dropout(maybe(draw, 0.3)),
    lambda draw: nn.LayerNorm(**some(draw, axes=1, epsilon=1e-5)),
    lambda draw: nn.BatchNorm(**some(draw, momentum=0.1, epsilon=1e-5)),
    lambda draw: nn.Embedding(maybe(draw, 5), maybe(draw, 4)),
    lambda draw: nn.PositionalEmbedding(maybe(draw, 9)),
    lambda draw: nn.layer_from_config({"type": maybe(draw, "dense"), "units": maybe(draw, 3)}),
    lambda draw: nn.layer_from_config(
        mutated(draw, {"type": "residual", "layers": [nn.Dense(4).to_config()]})
    ),
    odd,
]


def layer(draw: random.Random) -> Any:
    return draw.choice(LAYERS)(draw)


def mutated(draw: random.Random, config: Any) -> Any:
    """A config with one odd value in it."""
    changed = copy.deepcopy(config)
    at = changed
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return changed
        key = draw.choice(keys)
        inner = at[key]
        if isinstance(inner, (dict, list)) and inner and draw.random() < 0.7:
            at = inner
            continue
        if isinstance(at, dict) and draw.random() < 0.2:
            at[draw.choice(["", "x", "type", "at", "dtype"])] = odd(draw)
        else:
            at[key] = odd(draw)
        return changed


SHAPES: list[tuple[tuple[int, ...], Callable[[], list[nn.Layer]]]] = [
    ((4,), lambda: [nn.Dense(6, activation="tanh"), nn.Dense(3)]),
    ((4,), lambda: [nn.Residual([nn.Dense(4)]), nn.BatchNorm(), nn.Dense(3)]),
    ((3, 4), lambda: [nn.LSTM(3, return_sequences=True), nn.Flatten(), nn.Dense(3)]),
    ((3, 4), lambda: [nn.MultiHeadAttention(2), nn.Dropout(0.2), nn.GRU(3)]),
    ((2, 6, 6), lambda: [nn.Conv2D(3, 3), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(3)]),
]


def named(draw: random.Random) -> loom.Network:
    """A network of two inputs and two outputs, over steps or over none."""
    steps = draw.random() < 0.5
    inputs: dict[str, Any] = {"a": (3, 4) if steps else 4, "b": loom.Categories(5, length=3 if steps else 1)}
    net = loom.Network(inputs=inputs, grid=(1, 4), precision=draw.choice(["float32", "float64", "mixed"]))
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net.enter("b", (0, 1))[0, 1].add(nn.Embedding(5, 4), *([] if steps else [nn.Flatten()]))
    net.link((0, 0), (0, 2))[0, 2].add(nn.GRU(3) if steps else nn.Dense(3))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(*([nn.Flatten()] if steps else []), nn.Dense(3))
    return net.output("kind", (0, 2)).output("other", (0, 3))


def network(draw: random.Random) -> loom.Network:
    if draw.random() < 0.25:
        return named(draw)
    shape, layers = draw.choice(SHAPES)
    return loom.Sequential(
        layers(), input_shape=shape, precision=draw.choice(["float32", "float64", "mixed"])
    )


def rows(net: loom.Network, count: int = 4) -> Any:
    if net.config.inputs:
        draws = np.random.default_rng(0)
        entries: Any = net.config.inputs
        return {
            entry.name: draws.integers(0, entry.categories, (count, *entry.shape))
            if entry.categories
            else draws.normal(size=(count, *entry.shape))
            for entry in entries
        }
    return np.random.default_rng(0).normal(size=(count, *net.input_shape)).astype(np.float32)


def named_rows(net: loom.Network) -> dict[str, Any]:
    found = rows(net)
    return found if isinstance(found, dict) else {"x": found}


def training(draw: random.Random, odds: float = 1.0) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "loss": "cross_entropy",
        "epochs": 1,
        "batch_size": 2,
        "verbose": False,
        "device": "cpu",
    }
    options = some(
        draw,
        loss="mse",
        epochs=1,
        batch_size=3,
        optimizer="adam",
        learning_rate=0.1,
        schedule="cosine",
        metrics=["accuracy"],
        gradient_clip=1.0,
        weight_decay=0.1,
        accumulate=2,
        early_stopping={"monitor": "loss"},
        validation_split=0.3,
        shuffle=True,
        seed=3,
        class_weight=[1.0, 1.0, 1.0],
        label_smoothing=0.1,
    )
    known = set(loom.TrainingConfig.__dataclass_fields__)
    options = {name: value for name, value in options.items() if name in known and draw.random() < odds}
    # Nobody waits for epochs without end.
    if isinstance(options.get("epochs"), int) and options["epochs"] > 3:
        del options["epochs"]
    return loom.TrainingConfig(**(usual | options))


def labels(net: loom.Network, count: int = 4) -> Any:
    if net.config.outputs:
        return {entry.name: np.arange(count) % 3 for entry in net.config.outputs}  # type: ignore[union-attr]
    return np.arange(count) % 3


def targets(net: loom.Network, count: int = 4) -> Any:
    """Numbers as the network gives them: what it is to come to, or what its outputs are weighed by."""
    if net.config.outputs:
        return {entry.name: np.ones((count, 3)) for entry in net.config.outputs}  # type: ignore[union-attr]
    return np.ones((count, 3))


def handle(net: loom.Network) -> Any:
    return net.layers[0]


def assign(name: str) -> Call:
    return lambda draw, net: setattr(handle(net), name, odd(draw))


def parameter(draw: random.Random, net: Any) -> object:
    name = draw.choice(list(handle(net).parameters))
    handle(net)[name] = odd(draw)
    return setattr(handle(net), name, odd(draw))


def mesh(draw: random.Random, net: Any) -> object:
    made = loom.Mesh(net, rows=maybe(draw, 2), window=maybe(draw, 2))
    return made.tick(draw.choice([0, 1, 2, -1, None, 1.5, "x"]))


def one_odd(draw: random.Random, given: Any) -> Any:
    """Arrays by name, of which one is odd, is missing, or has a name that is not known; or something odd."""
    if not isinstance(given, dict) or draw.random() < 0.2:
        return maybe(draw, given)
    changed, name = dict(given), draw.choice(list(given))
    kind = draw.random()
    if kind < 0.5:
        changed[name] = odd(draw)
    elif kind < 0.7:
        del changed[name]
    elif kind < 0.8:
        changed[odd_key(draw)] = odd(draw)
    return changed


def session(draw: random.Random, net: Any) -> object:
    made = net.session(maybe(draw, 9, 0.2), rows=maybe(draw, 4, 0.2))
    made(one_odd(draw, rows(net)), **some(draw, last=True))
    return made(rows(net))


def clocked(draw: random.Random, net: Any) -> object:
    made = loom.Mesh(net, rows=4, window=3)
    made.set_input(one_odd(draw, rows(net)))
    made.tick(2)
    made.output(maybe(draw, None), **some(draw, age=1))
    held = made.output()
    made.backward(one_odd(draw, held))
    return loom.Stepper(made, training(draw)).step(one_odd(draw, rows(net)), one_odd(draw, labels(net)))


LOADING: list[Callable[[Any], object]] = [
    loom.load,
    loom.open_tensors,
    loom.inspect,
    loom.Mesh.load,
    loom.analysis.Ensemble.load,
    loom.Receipt.load,
    loom.text.load,
    loom.models.from_hub,
]


def anywhere(draw: random.Random) -> Any:
    """Something that a file may be called, or is."""
    names = [
        "net.loom",
        "a/b",
        ".",
        "..",
        "/",
        "/dev/full",
        "/dev/zero",
        "/dev/null",
        "x" * 300,
        "x\0y",
        "\ud800",
    ]
    return draw.choice([odd(draw), draw.choice(names), Path(draw.choice(names))])


def odd_key(draw: random.Random) -> Any:
    """Something that a dictionary can have as a key."""
    key = odd(draw)
    return key if isinstance(key, (str, bytes, int, float, type(None))) else "0.0.0.0.weight"


def damaged(draw: random.Random, net: Any) -> object:
    """Loads what was saved and then damaged, or forged with its checksums right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.loom"
        net.save(path, optimizer=draw.random() < 0.5)
        data, _ = mutant(path.read_bytes(), draw)
        path.write_bytes(data)
        return loom.load(path).predict(rows(net))


def forked(net: Any) -> None:
    """A child predicts and trains as its parent does, which goes on as it was."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            signal.alarm(30)
            # What somebody has set or learned may be large, as it may in the parent.
            with contextlib.suppress(loom.NonFiniteError, loom.ShapeError, loom.StateError):
                net.predict(rows(net))
                loom.train(net, (rows(net), labels(net)), training(random.Random(0), 0))
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells of it
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise AssertionError(f"a forked child has ended by {status}")


CALLS: dict[str, Call] = {
    "predict": lambda draw, net: net.predict(maybe(draw, rows(net)), batch_size=maybe(draw, 2)),
    "forward": lambda draw, net: net.forward(maybe(draw, rows(net)), **some(draw, training=True)),
    "backward": lambda draw, net: (net.forward(rows(net)), net.backward(maybe(draw, targets(net)))),
    "clip": lambda draw, net: net.clip_gradients(maybe(draw, 1.0)),
    "apply": lambda draw, net: net.apply_gradients(maybe(draw, 0.1)),
    "optimizer": lambda draw, net: net.set_optimizer(maybe(draw, "adam")),
    "morph": lambda draw, net: net.morph(
        maybe(draw, "int8"), **some(draw, granularity="channel", calibration="mse", rounding="nearest")
    ),
    "calibrate": lambda draw, net: net.calibrate(maybe(draw, rows(net)), **some(draw, batch_size=2)),
    "cell": lambda draw, net: net[odd(draw)],
    "layer": lambda draw, net: net[0, 0, 0, odd(draw)],
    "item": lambda draw, net: handle(net)[odd(draw)],
    "trainable": assign("trainable"),
    "rate_factor": assign("rate_factor"),
    "parameter": parameter,
    "link": lambda draw, net: net.link(
        maybe(draw, (0, 0, 0)), odd(draw), **some(draw, combine="add", axis=0)
    ),
    "to": lambda draw, net: net.to(draw.choice(["cpu", "x", "", None, 3, [], "gpu:99", "cpu:7"])),
    "summary": lambda draw, net: net.summary(file=io.StringIO(), depth=odd(draw)),
    "blueprint": lambda draw, net: net.blueprint(),
    "session": lambda draw, net: net.session(maybe(draw, 4), **some(draw, rows=2)),
    "mesh": mesh,
    "train": lambda draw, net: loom.train(net, (rows(net), labels(net)), training(draw)),
    "train on": lambda draw, net: loom.train(
        net, (maybe(draw, rows(net)), maybe(draw, labels(net))), training(draw, 0)
    ),
    "fit": lambda draw, net: net.fit(
        odd(draw), training(draw, 0), **some(draw, validation=None, callbacks=())
    ),
    "by name": lambda draw, net: draw.choice(
        [
            lambda: net.predict(one_odd(draw, rows(net))),
            lambda: net.fit(one_odd(draw, rows(net)), one_odd(draw, labels(net)), epochs=1, verbose=False),
            lambda: net.evaluate(
                (one_odd(draw, rows(net)), one_odd(draw, labels(net))), loss="cross_entropy"
            ),
            lambda: net.backward(one_odd(draw, net.forward(one_odd(draw, rows(net)), training=True))),
            lambda: net.resized(
                one_odd(draw, {name: np.shape(x)[1:] for name, x in named_rows(net).items()})
            ),
            lambda: net.cut(draw.choice(list(net.layers))).predict(rows(net)),
        ]
    )(),
    "session by name": session,
    "clocked": clocked,
    "evaluate": lambda draw, net: net.evaluate(
        (maybe(draw, rows(net)), maybe(draw, labels(net))), **some(draw, loss="cross_entropy", batch_size=2)
    ),
    "activations": lambda draw, net: net.activations(maybe(draw, rows(net)), **some(draw, batch_size=2)),
    "input gradients": lambda draw, net: net.input_gradients(
        maybe(draw, rows(net)), maybe(draw, targets(net))
    ),
    "observe": lambda draw, net: net.unobserve(net.observe(odd(draw), **some(draw, depth=1)) and None),
    "config": lambda draw, net: loom.Network.from_config(mutated(draw, net.config.to_config())).predict(
        rows(net)
    ),
    "json": lambda draw, net: loom.Network.from_json(odd(draw)),
    "pickle": lambda draw, net: pickle.loads(pickle.dumps(net)).predict(rows(net)),
    "copy": lambda draw, net: copy.deepcopy(net).predict(rows(net)),
    "save": lambda draw, net: save(maybe(draw, None, 0.3), net),
    "new layer": lambda draw, net: loom.Sequential([layer(draw)], input_shape=(3, 4)).predict(
        np.ones((2, 3, 4))
    ),
    "new network": lambda draw, net: loom.Network(
        maybe(draw, 3), **some(draw, grid=(1, 1), precision="mixed", seed=1)
    ),
    "early stopping": lambda draw, net: loom.EarlyStopping(
        **some(draw, monitor="loss", patience=1, mode="min")
    ),
    "tween": lambda draw, net: loom.TweenTrainer(
        net, loom.TweenConfig(**some(draw, mode="difference", local_steps=2, feedback_steps=2))
    ).fit((rows(net), labels(net)), training(draw, 0)),
    "trainer": lambda draw, net: loom.Trainer(net, training(draw)).step(maybe(draw, rows(net)), labels(net)),
    "save anywhere": lambda draw, net: draw.choice([net.save, net.save_safetensors])(anywhere(draw)),
    "load": lambda draw, net: draw.choice(LOADING)(anywhere(draw)),
    "weights": lambda draw, net: net.load_state_dict(
        {**net.state_dict(), **({odd_key(draw): odd(draw)} if draw.random() < 0.8 else {})}
    ),
    "damaged file": damaged,
    "run": lambda draw, net: loom.train(
        net, (rows(net), labels(net)), training(draw, 0), run=maybe(draw, f"run-{draw.random()}")
    ),
    "fork": lambda draw, net: forked(net),
}


def save(odd_options: Any, net: Any) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        net.save(path, **({} if odd_options is None else {"optimizer": odd_options}))
        return loom.load(path).predict(rows(net))


def healthy(net: loom.Network) -> None:
    """Checks that a network predicts, saves and trains; raises what keeps it from doing so."""
    if any(link.source == link.target for link in net.config.links):
        # For a mesh alone.
        return
    expected: Any = net.predict(rows(net))
    again = pickle.loads(pickle.dumps(net))
    # What somebody has learned may be beyond numbers.
    if isinstance(expected, dict):
        found: Any = again.predict(rows(net))
        assert all(np.array_equal(found[name], value, equal_nan=True) for name, value in expected.items())
    else:
        assert expected.shape == (4, *net.output_shape), expected.shape
        assert np.array_equal(again.predict(rows(net)), expected, equal_nan=True)
    loom.train(again, (rows(net), labels(net)), training(random.Random(0), 0))


def sequence(draw: random.Random) -> str | None:
    """What is wrong with one random sequence of calls, if something is."""
    net = network(draw)
    told = []
    for _ in range(draw.randint(1, 5)):
        name = draw.choice(list(CALLS))
        told.append(name)
        try:
            CALLS[name](draw, net)
        except loom.InternalError:
            return f"{told}: {traceback.format_exc(limit=-4)}"
        except loom.LoomError:
            pass
        except Exception:  # noqa: BLE001 - what else there is, is what is looked for
            return f"{told}: {traceback.format_exc(limit=-4)}"
    try:
        healthy(net)
    except (loom.OutOfMemoryError, loom.NonFiniteError):
        # What somebody has set or learned may be large.
        pass
    except loom.ShapeError:
        # A link that points back is for clock mode.
        return None if net.config.links else f"{told}, afterwards: {traceback.format_exc(limit=-4)}"
    except Exception:  # noqa: BLE001 - as above
        return f"{told}, afterwards: {traceback.format_exc(limit=-4)}"
    return None


def main(seed: int, first: int, count: int) -> int:
    warnings.simplefilter("ignore")
    net = loom.Sequential([nn.Dense(1)], input_shape=1)
    loom.train(
        net, (np.zeros((4, 1)), np.zeros((4, 1))), loom.TrainingConfig(loss="mse", epochs=1, verbose=False)
    )
    limit_memory()
    wrong = 0
    for number in range(first, first + count):
        sys.stderr.write(f"\r{number}")
        sys.stderr.flush()
        signal.alarm(60)
        problem = sequence(random.Random(f"{seed}/{number}"))
        if problem is not None:
            wrong += 1
            sys.stdout.write(f"{seed}/{number}: {problem}\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    # Files of odd names go there.
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        sys.exit(main(*map(int, sys.argv[1:4])))
