"""What goes wrong on a GPU, and who shares one: documented errors, and networks that go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from networks import blobs, mlp, quiet, weights
from programs import run

SHARING = """
import sys
import numpy as np, loom
from loom import nn
x = np.random.default_rng(int(sys.argv[1])).normal(size=(64, 6)).astype(np.float32)
y = np.arange(64) % 3
net = loom.Sequential([nn.Dense(16, activation="relu"), nn.Dense(3)], input_shape=6)
result = loom.train(net, (x, y), loom.TrainingConfig(
    loss="cross_entropy", epochs=3, batch_size=16, device="gpu", verbose=False))
print(net.device, len(result.loss_history), np.isfinite(net.predict(x)).all())
"""


def in_threads(*works: Callable[[], object]) -> list[BaseException]:
    """Runs works side by side; returns what they raised."""
    raised: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is looked at
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_two_processes_share_a_device(gpu: str) -> None:
    said: list[str] = []
    raised = in_threads(*[lambda n=n: said.append(run(SHARING, n).stdout) for n in range(2)])
    assert raised == []
    assert said == [f"{gpu} 3 True\n"] * 2


def test_threads_with_networks_of_their_own_share_a_device(gpu: str) -> None:
    def learn(number: int, net: loom.Network) -> None:
        loom.train(net, blobs(seed=number), quiet(device=gpu))

    alone, together = ([mlp(seed) for seed in range(3)] for _ in range(2))
    for number, net in enumerate(alone):
        learn(number, net)
    raised = in_threads(*[lambda n=n, net=net: learn(n, net) for n, net in enumerate(together)])
    assert raised == []
    assert [weights(net) for net in together] == [weights(net) for net in alone]


def test_moving_and_releasing_during_a_training_changes_nothing(gpu: str) -> None:
    expected = mlp()
    loom.train(expected, blobs(), quiet(device=gpu, epochs=4))
    net, refused, over = mlp(), [], threading.Event()

    def disturb() -> None:
        loom.release_gpu()
        try:
            net.to("cpu")
        except loom.StateError as error:
            refused.append(error)

    def disturb_all() -> None:
        while not over.is_set():
            disturb()
            over.wait(0.005)

    def learn() -> None:
        hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: over.wait(0.02))
        try:
            loom.train(net, blobs(), quiet(device=gpu, epochs=4), callbacks=[hook])
        finally:
            over.set()

    raised = in_threads(disturb_all, learn)
    assert raised == []
    assert refused
    if net.device == gpu:
        assert weights(net) == weights(expected)
    net.to("cpu").predict(blobs()[0])


def test_a_device_that_is_lost_in_training_leaves_one_step_to_go_on_from(gpu: str, tmp_path: Any) -> None:
    from loom import _native

    config = quiet(epochs=4, batch_size=50)
    whole = mlp().to(gpu)
    loom.train(whole, blobs(), config)
    net = mlp().to(gpu)

    def lose(epoch: int, logs: object) -> None:
        if epoch == 1:
            _native.meet_fault(gpu, "loss", 0)

    with pytest.raises(loom.DeviceError, match=r"was lost .* left of step \d+ \(epoch \d, batch \d+\)"):
        loom.train(net, blobs(), config, callbacks=[loom.LambdaCallback(on_epoch_end=lose)])
    with pytest.raises(loom.DeviceError, match="was lost"):
        net.predict(blobs()[0])
    net.to("cpu").save(tmp_path / "left.loom")
    loom.load(tmp_path / "left.loom").predict(blobs()[0])
    # It is opened anew, and goes on to the same bits.
    loom.train(net.to(gpu), blobs(), config, resume=True)
    assert weights(net) == weights(whole)


def test_batches_that_do_not_fit_go_through_in_parts(gpu: str) -> None:
    from loom import _native

    x, y = blobs(rows=4000)
    net = mlp().to(gpu)
    expected = net.predict(x, batch_size=4000)
    figures = net.evaluate((x, y), loss="cross_entropy", batch_size=4000)
    held = loom.frame_statistics(gpu).memory
    _native.meet_fault(gpu, "memory", held + 200_000)
    try:
        np.testing.assert_array_equal(net.predict(x, batch_size=4000), expected)
        assert net.evaluate((x, y), loss="cross_entropy", batch_size=4000) == figures
        with pytest.raises(loom.DeviceError, match=r"out of memory.*rows at a time need .* MiB.*accumulate="):
            loom.train(net, (x, y), quiet(batch_size=4000, epochs=1))
    finally:
        _native.meet_fault(gpu, "memory", 2**64 - 1)
    loom.train(net, (x, y), quiet(batch_size=4000, epochs=1))


HANGING = """
import numpy as np, loom
from loom import _native
from networks import blobs, mlp, quiet
net = mlp().to("gpu")
net.predict(blobs()[0])
_native.meet_fault("gpu", "hang", 0)
for call in (lambda: net.predict(blobs()[0]), lambda: loom.train(net, blobs(), quiet())):
    try:
        call()
    except loom.DeviceError as error:
        print(error)
print(loom.train(net.to("gpu"), blobs(), quiet(epochs=1)).device)
"""


def test_a_device_that_hangs_is_given_up_and_the_process_goes_on_and_ends(gpu: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(__file__).rsplit('/', 1)[0]!r})\n{HANGING}"
    finished = run(program, LOOM_GPU_TIMEOUT="0.3")
    assert finished.returncode == 0, finished.stderr
    first, second, device = finished.stdout.splitlines()
    assert "did not end within 0.3 seconds; LOOM_GPU_TIMEOUT sets the limit" in first
    assert "was lost" in second
    assert device == gpu


def test_a_limit_that_is_no_time_is_refused(gpu: str) -> None:
    program = """
import loom
try:
    loom.init_gpu()
except loom.LoomError as error:
    print(type(error).__name__, error)
"""
    finished = run(program, LOOM_GPU_TIMEOUT="soon")
    assert "LOOM_GPU_TIMEOUT" in finished.stdout
    assert "InvalidValueError" in finished.stdout
