"""Threads that use loom first at the same moment: one of them loads what there is, and the others wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOAK = os.environ.get("LOOM_SOAK") == "1"

THREADS = """
import json, random, sys, threading
import loom

sys.setswitchinterval(1e-6)
barrier, wrong, loading, most = threading.Barrier(8), [], [], 0
load = loom.import_module

def watched(name):
    # How many threads are in the middle of it at once; what is loaded may ask for more in the same one.
    global most
    loading.append(threading.get_ident())
    most = max(most, len(set(loading)))
    try:
        return load(name)
    finally:
        loading.remove(threading.get_ident())

loom.import_module = watched

def touch(number):
    names = [*loom.__all__, "handles", "spectra"]
    random.Random(number + 8 * int(sys.argv[1])).shuffle(names)
    barrier.wait()
    for name in names:
        try:
            getattr(loom, name)
        except AttributeError as error:
            if name != "spectra":
                wrong.append(f"{name}: {error}")
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")

threads = [threading.Thread(target=touch, args=(number,), daemon=True) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
alive = sum(thread.is_alive() for thread in threads)
print(json.dumps({"wrong": wrong, "alive": alive, "most": most}))
"""


def test_threads_that_use_loom_first_at_once_load_it_one_by_one() -> None:
    for turn in range(200 if SOAK else 2):
        command = [sys.executable, "-c", THREADS, str(turn)]
        finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert json.loads(finished.stdout) == {"wrong": [], "alive": 0, "most": 1}


CROSSING = r"""
import sys, threading, time
import loom

with open("crossing.py", "w") as module:
    module.write("import loom, __main__ as main\nmain.begun.set()\nmain.asked.wait()\n")
    module.write("found = loom.Network, loom.train\n")
sys.path.insert(0, "")
begun, asked = threading.Event(), threading.Event()
load = loom.import_module

def watched(name):
    # The other thread is in the middle of its import: this one has the turn and waits for that module.
    loom.import_module = load
    asked.set()
    import crossing
    return load(name)

loom.import_module = watched
other = threading.Thread(target=lambda: __import__("crossing"), daemon=True)
other.start()
begun.wait()
loom.analysis
other.join(60)
sys.exit(other.is_alive())
"""


def test_a_module_that_uses_loom_while_it_loads_waits_for_nobody_who_waits_for_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CROSSING]
    assert subprocess.run(command, check=False, timeout=100, cwd=tmp_path).returncode == 0
