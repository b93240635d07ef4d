"""Finds kernels whose instructions are calls, in a native module that was built with its symbols.

    tools/called_instructions.py target/quick/lib_native.so

A kernel is compiled for each instruction set, and whatever it calls is to be inlined. What is not, most
often a large closure, is compiled for none, so that each intrinsic of the processor's in it is a call: 10 to
40 times slower, with the same results. Needs objdump (binutils). Ends with 1 where there is such a function.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>.*)>:$")
CALL = re.compile(r"\bcall.*<core::core_arch::")
OURS = re.compile(r"\bloom::|call_mut|try_from_fn")


def calls(module: str) -> Counter[str]:
    """Returns how many intrinsics each function of the module calls."""
    found: Counter[str] = Counter()
    command = ["objdump", "-d", "-C", "--no-show-raw-insn", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        name, any_symbol = "", False
        for line in process.stdout or ():
            if match := FUNCTION.match(line.rstrip()):
                name = match["name"]
                any_symbol |= "loom::" in name
            elif OURS.search(name) and CALL.search(line):
                found[name] += 1
    if process.returncode or not any_symbol:
        raise SystemExit(f"{module}: objdump finds no symbols of loom's; build it with strip = none")
    return found


def main(module: str) -> int:
    """Prints them, the most calls first."""
    found = calls(module)
    for name, count in found.most_common():
        print(f"{count:6} {name}")
    print(f"{module}: {sum(found.values())} instructions are calls, in {len(found)} functions")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
