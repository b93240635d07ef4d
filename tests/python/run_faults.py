"""Fails the n-th write, flush or rename in a run's folder, for all n: a program, run under its own shim.

Usage: run_faults.py FOLDER STRIDE SCENARIO ...; with LD_PRELOAD the library that `SHIM` is compiled to. It
prints how many operations were failed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1, stays = 0, seen = 0;
static int code = 0;
static char folder[512];

void fail_at(long number, int error, int on, const char *where) {
    left = number; code = error; stays = on; seen = 0;
    strncpy(folder, where, sizeof folder - 1);
}
long counted(void) { return seen; }

static int fails_at(const char *path) {
    if (!folder[0] || !strstr(path, folder)) return 0;
    long number = __atomic_fetch_add(&seen, 1, __ATOMIC_SEQ_CST);
    if (left < 0 || number < left || (!stays && number > left)) return 0;
    errno = code;
    return 1;
}

static int fails(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails_at(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
ssize_t write(int f, const void *d, size_t n) { return fails(f) ? -1 : REAL(write)(f, d, n); }
int fsync(int f) { return fails(f) ? -1 : REAL(fsync)(f); }
int fdatasync(int f) { return fails(f) ? -1 : REAL(fdatasync)(f); }
int rename(const char *a, const char *b) {
    char path[4096];
    if (b[0] != '/' && getcwd(path, 2048)) { strcat(path, "/"); strncat(path, b, 2000); }
    else { path[0] = 0; strncat(path, b, 4000); }
    return fails_at(path) ? -1 : REAL(rename)(a, b);
}
"""


def main(folder: Path, stride: int, names: list[str]) -> None:
    import loom
    from run_scenarios import SCENARIOS, run_in_child

    warnings.simplefilter("ignore")
    shim = ctypes.CDLL(None)
    folder.mkdir(parents=True)
    answer = folder.parent / "answer.json"
    failed = told = 0
    for name in names:
        scenario = SCENARIOS[name]
        # So that children have everything at hand.
        scenario(folder.parent / "warm" / name)

        def run(place: Path, number: int, stays: bool) -> int:
            def counting(inner: Path) -> dict[str, object]:
                shim.fail_at(ctypes.c_long(number), errno.ENOSPC, int(stays), str(folder).encode())
                found = scenario(inner)  # noqa: B023 - used within the loop
                return {"counted": shim.counted(), **found}

            return os.waitstatus_to_exitcode(os.waitpid(run_in_child(counting, place, answer), 0)[1])

        assert run(folder / name, -1, stays=False) == 0
        expected = json.loads(answer.read_text())
        count = int(expected.pop("counted"))
        shutil.rmtree(folder / name)
        for number in range(0, count, stride):
            for stays in (False, True):
                place = folder / name
                ended = run(place, number, stays=stays)
                assert ended in (0, 4, 5), f"{name}: operation {number} ended it with {ended}"
                failed += 1
                told += ended != 0
                for file in place.rglob("*.loom"):
                    if not file.name.startswith("."):
                        loom.load(file)
                assert run(place, -1, stays=False) == 0, f"{name}: lost after operation {number}"
                found = json.loads(answer.read_text())
                found.pop("counted")
                assert found == expected, f"{name}: other bits after operation {number}"
                shutil.rmtree(place)
    print(json.dumps({"failed": failed, "told": told}))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
