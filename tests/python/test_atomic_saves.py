"""Saving: the old file or the new one, whole, whatever fails; and what is no file stays what it is."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import loom
from loom import nn
from networks import weights

if sys.platform == "win32":
    pytest.skip("about what POSIX promises", allow_module_level=True)

import fcntl
import resource

SOAK = os.environ.get("LOOM_SOAK") == "1"
HERE = Path(__file__).parent


def net(seed: int, units: int = 20) -> loom.Network:
    return loom.Sequential([nn.Dense(units)], 30, seed=seed)


def held(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leftovers(folder: Path) -> list[str]:
    return [name for name in held(folder) if name.startswith(".loom")]


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_have_the_permissions_that_the_umask_says(
    mask: int, expected: int, tmp_path: Path, umask: None
) -> None:
    os.umask(mask)
    net(1).save(tmp_path / "net.loom")
    assert mode(tmp_path / "net.loom") == expected


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664, 0o444, 0o755])
def test_permissions_of_an_existing_file_stay(permissions: int, tmp_path: Path, umask: None) -> None:
    path = tmp_path / "net.loom"
    net(1).save(path)
    path.chmod(permissions)
    net(2).save(path)
    assert mode(path) == permissions
    assert weights(loom.load(path)) == weights(net(2))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_an_existing_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    net(1).save(path)
    os.chown(path, 1234, 2345)
    path.chmod(0o640)
    net(2).save(path)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (1234, 2345, 0o640)


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "relative").symlink_to("deep/net.loom")
    (tmp_path / "deep" / "back").symlink_to("../relative")
    (tmp_path / "absolute").symlink_to(tmp_path / "deep" / "back")
    for seed, link in enumerate(["relative", "deep/back", "absolute"]):
        # The first leads nowhere yet.
        net(seed).save(tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert not (tmp_path / "deep" / "net.loom").is_symlink()
        assert weights(loom.load(tmp_path / "deep" / "net.loom")) == weights(net(seed))
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(loom.FileError, match="circle"):
        net(1).save(tmp_path / "circle")
    assert (tmp_path / "circle").is_symlink()
    assert not leftovers(tmp_path) + leftovers(tmp_path / "deep")


def test_pipes_sockets_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    thread.start()
    net(1, 400).save(pipe)
    thread.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "net.loom").write_bytes(read[0])
    assert weights(loom.load(tmp_path / "net.loom")) == weights(net(1, 400))
    # And read from one.
    thread = threading.Thread(target=lambda: pipe.write_bytes(read[0]))
    thread.start()
    loaded = loom._native.Network.load(pipe)
    thread.join()
    assert loaded.to_bytes(False) == net(1, 400)._engine.native.to_bytes(False)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        with pytest.raises(loom.FileError, match="socket"):
            net(1).save(tmp_path / "socket")
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    (tmp_path / "folder").mkdir()
    with pytest.raises(loom.FileError, match="folder") as raised:
        net(1).save(tmp_path / "folder")
    assert raised.value.errno == errno.EISDIR
    assert not leftovers(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_device_is_an_error_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(loom.FileError, match=str(tmp_path / "full")) as raised:
        net(1).save(tmp_path / "full")
    assert raised.value.errno == errno.ENOSPC
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_file_that_becomes_too_large_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    net(1).save(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 1, 1000, 5000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(loom.FileError, match=rf"could not write {path}") as raised:
                net(2, 400).save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert raised.value.errno == errno.EFBIG
        assert weights(loom.load(path)) == weights(net(1))
        assert held(tmp_path) == ["net.loom"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        net(1).save(place / "net.loom")
        with pytest.raises(loom.FileError, match=rf"could not write {place}/net\.loom") as raised:
            net(2, 2000).save(place / "net.loom")
        assert raised.value.errno == errno.ENOSPC
        assert held(place) == ["net.loom"]
        assert weights(loom.load(place / "net.loom")) == weights(net(1))
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_what_dead_savers_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    host = "".join(filter(str.isalnum, os.uname().nodename))[:64]
    if not Path("/proc/sys/kernel/hostname").exists():
        host = ""
    dead = tmp_path / f".loom-saving-{host}-1-1-1"
    alive = tmp_path / f".loom-saving-{host}-2-2-2"
    elsewhere = tmp_path / ".loom-saving-another.machine-3-3-3"
    own = tmp_path / ".loom-notes"
    for path in (dead, alive, elsewhere, own):
        path.write_bytes(b"something")
    with alive.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        net(1).save(tmp_path / "net.loom")
        left = held(tmp_path)
        assert left == sorted([alive.name, elsewhere.name, own.name, "net.loom"])
    net(1).save(tmp_path / "net.loom")
    assert held(tmp_path) == sorted([elsewhere.name, own.name, "net.loom"])


FAILING = """
import ctypes, errno, os, sys
from pathlib import Path
import loom
from loom import nn

def net(seed, units):
    return loom.Sequential([nn.Dense(units)], 30, seed=seed)

shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
folder = Path(sys.argv[1])
path = folder / "net.loom"
states = {}
for seed, units in ((1, 20), (2, 3000)):
    net(seed, units).save(path)
    states[seed] = path.read_bytes()
assert states[1] != states[2]
for kind in ("write", "short", "fsync", "rename", "fchmod", "flock"):
    new, failed = 2, 0
    for calls in range(100):
        new = 3 - new
        path.write_bytes(states[3 - new])
        shim.fail_after(kind.encode(), calls, errno.EIO)
        raised = None
        try:
            net(new, 20 if new == 1 else 3000).save(path)
        except loom.FileError as error:
            raised = error
        reached = shim.fail_after(b"", -1, 0) < 0
        found = path.read_bytes()
        assert found in states.values(), (kind, calls)
        if raised is None:
            assert found == states[new], (kind, calls)
        else:
            assert raised.errno == errno.EIO and str(path) in str(raised), raised
            assert (found == states[new]) == ("its folder" in str(raised)), (kind, calls, raised)
            failed += 1
        left = [name for name in os.listdir(folder) if name != "net.loom"]
        assert not left, (kind, calls, left)
        if not reached:
            break
    print(kind, calls, failed)
"""


@pytest.mark.skipif(not shutil.which("cc") or sys.platform != "linux", reason="needs Linux and a C compiler")
def test_whichever_call_fails_the_old_file_or_the_new_one_is_there(tmp_path: Path) -> None:
    shim, folder = tmp_path / "failing.so", tmp_path / "folder"
    folder.mkdir()
    source = HERE / "failing_calls.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    ctypes.CDLL(str(shim))
    run = subprocess.run(
        [sys.executable, "-c", FAILING, folder],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # How many calls there are, and how many savers saw one fail.
    counted = {
        kind: (int(calls), int(failed)) for kind, calls, failed in map(str.split, run.stdout.splitlines())
    }
    assert counted["write"][1] == counted["write"][0] >= 2
    assert counted["fsync"] == (2, 2)
    assert counted["rename"] == (1, 1)
    # Neither of these is worth a lost file: a short write goes on, mounts may know no permissions, nor locks.
    assert counted["short"][1] == counted["fchmod"][1] == counted["flock"][1] == 0


def _saving(path: str, seed: int, units: int, count: int) -> None:
    saved = net(seed, units)
    for _ in range(count):
        saved.save(path)


def test_of_savers_at_once_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    net(1).save(path)
    made = {weights(net(seed, 20 * seed)) for seed in (1, 2, 3)}
    spawn = multiprocessing.get_context("spawn")
    count = 2000 if SOAK else 15
    savers = [spawn.Process(target=_saving, args=(str(path), seed, 20 * seed, count)) for seed in (2, 3)]
    for saver in savers:
        saver.start()
    threads = [threading.Thread(target=_saving, args=(str(path), seed, 20 * seed, count)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    loads = 0
    while any(worker.is_alive() for worker in (*savers, *threads)):
        assert weights(loom.load(path)) in made
        loads += 1
    for worker in (*savers, *threads):
        worker.join()
    assert [saver.exitcode for saver in savers] == [0, 0]
    assert loads > 0
    assert held(tmp_path) == ["net.loom"]


KILLING = """
import os, random, signal, sys, time
from pathlib import Path
import loom
from loom import nn

path, kills, savers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
nets = [loom.Sequential([nn.Dense(units)], units, seed=seed) for seed, units in ((1, 30), (2, 300), (3, 301))]
expected = set()
for net in nets:
    net.save(path)
    expected.add(path.read_bytes())
rng = random.Random(0)
litter = 0
for _ in range(kills):
    children = []
    for _ in range(savers):
        child = os.fork()
        while child == 0:
            for net in nets:
                net.save(path)
        children.append(child)
    for child in children:
        time.sleep(rng.random() * 0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert path.read_bytes() in expected
    left = [name for name in os.listdir(path.parent) if name != path.name]
    # A saver removes what those before it have left.
    assert len(left) <= 2 * savers, left
    litter += len(left)
nets[0].save(path)
assert os.listdir(path.parent) == [path.name], os.listdir(path.parent)
loom.load(path)
print(f"{kills * savers} savers were killed, {litter} temporary files were seen")
"""


@pytest.mark.parametrize("savers", [1, 3])
def test_a_saver_that_is_killed_leaves_a_whole_file_and_no_litter_for_long(
    savers: int, tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLING, tmp_path / "net.loom", str(3000 if SOAK else 10), str(savers)],
        # Without threads of its own a process may be copied.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOOM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
