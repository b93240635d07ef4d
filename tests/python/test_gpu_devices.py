"""Devices: what there is, what they are called, where networks go, and what is said where there is no GPU."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np
import pytest

import loom
from loom.device import Device, DeviceList, FrameStatistics
from networks import blobs, mlp, quiet, weights
from programs import run


def hardware() -> bool:
    return any(device.name != "cpu" and not device.software for device in loom.devices())


# What there is


def test_the_processor_comes_first_and_gpus_are_numbered() -> None:
    found = loom.devices()
    assert isinstance(found, DeviceList)
    assert (found[0].name, found[0].backend, found[0].software) == ("cpu", "cpu", False)
    assert [device.name for device in found[1:]] == [f"gpu:{n}" for n in range(len(found) - 1)]
    assert (found.reason is None) == (len(found) > 1)
    # Hardware comes before software.
    kinds = [device.software for device in found]
    assert kinds == sorted(kinds)
    assert len(str(found).splitlines()) == len(found) + (found.reason is not None)


def test_a_gpu_is_described(gpu: str) -> None:
    device = loom.init_gpu(gpu)
    assert device == loom.devices()[1]
    assert device.name == gpu
    assert device.hardware
    assert device.driver
    assert device.backend in {"vulkan", "metal", "dx12"}
    assert device.max_buffer is not None
    assert device.max_binding is not None
    assert 1 << 20 <= device.max_binding <= device.max_buffer
    for name in ("software", "float16", "subgroups", "cooperative_matrices", "timestamps"):
        assert isinstance(getattr(device, name), bool)
    assert str(device).startswith(f"gpu:0: {device.hardware} (")


def test_importing_and_computing_on_the_cpu_touch_no_gpu() -> None:
    program = """
import json, pathlib
maps = pathlib.Path("/proc/self/maps")
if not maps.exists():
    print("null")
    raise SystemExit
seen = lambda: [line for line in maps.read_text().splitlines() if "vulkan" in line.lower()]
import numpy as np, loom
from loom import nn
net = loom.Sequential([nn.Dense(2)], input_shape=3)
after = {"import": seen()}
settings = dict(loss="cross_entropy", device="cpu", verbose=False)
loom.train(net, (np.eye(3), [0, 1, 0]), loom.TrainingConfig(**settings))
net.predict(np.eye(3)), net.evaluate((np.eye(3), [0, 1, 0])), net.to("cpu")
after["the CPU"] = seen()
found = loom.devices()
after["GPU"] = len(seen()) > 0 or found.reason is not None or found[1].backend != "vulkan"
print(json.dumps(after))
"""
    finished = run(program)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    if found is None:
        pytest.skip("this system has no /proc")
    assert found == {"import": [], "the CPU": [], "GPU": True}


# No GPU

WITHOUT = {"LOOM_DEVICE": "auto", "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
PROGRAM = """
import json
import numpy as np, loom
from loom import nn
net = loom.Sequential([nn.Dense(2)], input_shape=3)
result = loom.train(net, (np.eye(3), [0, 1, 0]), loom.TrainingConfig(loss="cross_entropy", verbose=True))
errors = []
for call in (lambda: net.to("gpu"), lambda: loom.init_gpu("gpu:1"), lambda: loom.frame_statistics(),
             lambda: loom.reset_frame_statistics(), lambda: loom.time_frames("frames"),
             lambda: loom.train(net, (np.eye(3), np.eye(3)[:, :2]), loom.TrainingConfig(device="gpu"))):
    try:
        call()
    except loom.DeviceError as error:
        errors.append(str(error))
found = loom.devices()
print(json.dumps([result.device, net.device, len(found), found.reason, errors, str(found)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="hides the Vulkan drivers of Linux")
def test_without_a_driver_everything_runs_on_the_cpu_and_says_why_there_is_no_gpu() -> None:
    finished = run(PROGRAM, **WITHOUT)
    assert finished.returncode == 0, finished.stderr
    *shown, last = finished.stdout.splitlines()
    assert shown[0] == "training on cpu"
    result, device, count, reason, errors, text = json.loads(last)
    assert (result, device, count, len(errors)) == ("cpu", "cpu", 1, 6)
    assert "no Vulkan, Metal or DX12 driver answered" in reason
    assert "mesa-vulkan-drivers" in reason
    assert f"no GPU: {reason}" in text
    # Where an NVIDIA card lacks its driver alone, errors say so at their end.
    cause, _, driver = reason.partition("; an NVIDIA GPU is here")
    for error in errors:
        assert "there is no GPU" in error
        assert cause in error
        assert driver in error
        assert 'use the device "cpu"' in error


def test_a_gpu_that_is_not_there_is_refused_with_what_is(gpu: str) -> None:
    net = mlp()
    before = weights(net)
    with pytest.raises(loom.DeviceError, match=r'no gpu:77; this machine has gpu:0 .* use the device "cpu"'):
        net.to("gpu:77")
    with pytest.raises(loom.DeviceError, match=r"no gpu:77"):
        loom.train(net, blobs(), quiet(device="gpu:77"))
    with pytest.raises(loom.DeviceError, match=r"no gpu:77"):
        loom.Trainer(net, quiet(device="gpu:77"))
    assert net.device == "cpu"
    assert weights(net) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda name: mlp().to(name),
        loom.init_gpu,
        loom.frame_statistics,
        lambda name: loom.TrainingConfig(device=name),
    ],
)
@pytest.mark.parametrize("name", ["cuda", "mps:0", "rocm", "gpu:-1", "gpu:first", "cpus", "", 0, None])
def test_wrong_names_are_refused(call: Any, name: Any) -> None:
    with pytest.raises(loom.ConfigError, match="gpu"):
        call(name)


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_what_only_gpus_have_is_not_asked_of_others(name: str) -> None:
    for call in (loom.init_gpu, loom.frame_statistics, loom.reset_frame_statistics):
        with pytest.raises(loom.ConfigError, match="is no GPU"):
            call(name)
    with pytest.raises(loom.ConfigError, match="is no GPU"):
        loom.time_frames("frames", name)


# Where networks go


def test_a_network_goes_where_it_is_sent_and_stays(gpu: str) -> None:
    net = mlp()
    assert net.to("gpu") is net
    assert net.device == gpu
    assert net.to(gpu).device == gpu
    result = loom.train(net, blobs(), quiet())
    assert (result.device, net.device) == (gpu, gpu)
    assert f"on {gpu}" in repr(result)
    result = loom.train(net, blobs(), quiet(device="cpu"))
    assert (result.device, net.device) == ("cpu", "cpu")
    # A config that names a device places the network as `to` does.
    assert loom.train(net, blobs(), quiet(device="gpu")).device == gpu
    assert loom.train(net, blobs(), quiet()).device == gpu
    assert net.to("auto").device == "cpu"


def test_auto_takes_hardware_or_the_cpu_but_never_software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_DEVICE")
    net = mlp()
    result = loom.train(net, blobs(), quiet())
    assert result.device == net.device == ("gpu:0" if hardware() else "cpu")
    double = mlp(precision="float64")
    assert loom.train(double, blobs(), quiet()).device == "cpu"
    assert double.to("auto").device == "cpu"


def test_the_environment_says_what_auto_stands_for(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_DEVICE", "gpu:0")
    assert loom.train(mlp(), blobs(), quiet()).device == gpu
    assert loom.train(mlp().to("cpu"), blobs(), quiet()).device == "cpu"
    assert loom.train(mlp(precision="float64"), blobs(), quiet()).device == "cpu"
    monkeypatch.setenv("LOOM_DEVICE", "gpu:77")
    with pytest.raises(loom.DeviceError, match="no gpu:77"):
        loom.train(mlp(), blobs(), quiet())
    monkeypatch.setenv("LOOM_DEVICE", "everything")
    with pytest.raises(loom.InvalidValueError, match='unknown device "everything"'):
        loom.train(mlp(), blobs(), quiet())


def test_progress_and_callbacks_say_where(gpu: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    hook = loom.LambdaCallback(on_train_begin=lambda logs: seen.append(hook.params["device"]))
    loom.train(
        mlp(), blobs(), loom.TrainingConfig(device=gpu, loss="cross_entropy", verbose=True), callbacks=[hook]
    )
    assert seen == [gpu]
    assert capsys.readouterr().out.startswith(f"training on {gpu}, {loom.devices()[1].hardware} (")


def test_float64_is_for_the_cpu(gpu: str) -> None:
    net = mlp(precision="float64")
    with pytest.raises(loom.DeviceError, match='float64 networks run on the device "cpu" alone'):
        net.to(gpu)
    with pytest.raises(loom.DeviceError, match="float32"):
        loom.train(net, blobs(), quiet(device=gpu))
    assert net.device == "cpu"


def test_files_and_copies_start_on_the_cpu(gpu: str, tmp_path: Any) -> None:
    import copy
    import pickle

    net = mlp()
    loom.train(net, blobs(), quiet(device=gpu))
    net.save(tmp_path / "net.loom")
    for other in (
        loom.load(tmp_path / "net.loom"),
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
    ):
        assert other.device == "cpu"
        assert weights(other) == weights(net)


def test_a_released_gpu_serves_the_networks_that_are_on_it(gpu: str) -> None:
    net = mlp().to(gpu)
    x = blobs()[0]
    expected = net.predict(x)
    loom.release_gpu()
    loom.release_gpu()
    np.testing.assert_array_equal(net.predict(x), expected)
    # It is still the same one for others: what one network does counts for all.
    loom.reset_frame_statistics(gpu)
    net.predict(x)
    assert loom.frame_statistics(gpu).frames > 0
    loom.init_gpu(gpu)
    np.testing.assert_array_equal(mlp().to(gpu).predict(x), expected)


def test_moving_is_refused_while_another_thread_trains(gpu: str) -> None:
    net = mlp()
    refused = []

    def move() -> None:
        with pytest.raises(loom.StateError, match="training in another thread"):
            net.to(gpu)
        refused.append(net.device)

    def hook(epoch: int, logs: object) -> None:
        thread = threading.Thread(target=move)
        thread.start()
        thread.join()

    loom.train(net, blobs(), quiet(device="cpu"), callbacks=[loom.LambdaCallback(on_epoch_end=hook)])
    assert refused == ["cpu"]


# What frames did


def test_frames_are_counted(gpu: str) -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(device=gpu))
    loom.reset_frame_statistics(gpu)
    empty = loom.frame_statistics(gpu)
    assert (empty.frames, empty.steps, empty.dispatches, empty.submits) == (0, 0, 0, 0)
    assert (empty.bytes_up, empty.bytes_down, empty.device_seconds) == (0, 0, 0.0)
    loom.train(net, blobs(), quiet(epochs=3, batch_size=50))
    counted = loom.frame_statistics(gpu)
    assert isinstance(counted, FrameStatistics)
    assert counted.steps == 18
    assert 3 <= counted.frames <= 18
    assert counted.dispatches >= 18 * 5
    assert counted.submits >= counted.frames
    x, y = blobs()
    # The examples go up once; what comes down is an outcome for each step, and the weights at the end.
    assert x.nbytes + 4 * len(y) <= counted.bytes_up < 2 * x.nbytes + 50_000
    assert 0 < counted.bytes_down < 50_000
    assert counted.memory > 0
    assert counted.device_seconds == 0
    assert counted.kernels == ()


def test_frames_and_kernels_are_timed_where_asked(gpu: str) -> None:
    device = loom.init_gpu(gpu)
    if not device.timestamps:
        with pytest.raises(loom.DeviceError, match="cannot measure"):
            loom.time_frames("frames", gpu)
        pytest.skip("this GPU has no timestamps")
    net = mlp().to(gpu)
    try:
        loom.time_frames("frames", gpu)
        loom.reset_frame_statistics(gpu)
        loom.train(net, blobs(), quiet())
        timed = loom.frame_statistics(gpu)
        assert timed.device_seconds > 0
        assert timed.kernels == ()
        loom.time_frames("kernels", gpu)
        loom.reset_frame_statistics(gpu)
        loom.train(net, blobs(), quiet())
        timed = loom.frame_statistics(gpu)
    finally:
        loom.time_frames("off", gpu)
    seconds = [kernel.seconds for kernel in timed.kernels]
    assert len(seconds) > 4
    assert seconds == sorted(seconds, reverse=True)
    assert all(kernel.label and kernel.runs > 0 for kernel in timed.kernels)
    with pytest.raises(loom.ConfigError, match='did you mean "frames"'):
        loom.time_frames("frame", gpu)


def test_devices_are_plain_values() -> None:
    device = Device("gpu:0", "Some GPU", "vulkan", "driver 1", software=True)
    assert str(device) == "gpu:0: Some GPU (vulkan, driver 1, software)"
    assert str(DeviceList([device], "it is a test")).splitlines()[1] == "no GPU: it is a test"
    assert device == Device("gpu:0", "Some GPU", "vulkan", "driver 1", software=True)
