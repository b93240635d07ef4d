"""Reads HDF5 files for `loom.models.keras.hdf5`, in a process of its own: run as a program, never imported.

    python hdf5_reader.py SYS_PATH FILE MEMBER SECONDS BYTES

SYS_PATH is where modules are looked for, as JSON; MEMBER a file inside FILE, where that is an archive, or "".
The process may take so many SECONDS of a processor, and so many BYTES of memory beyond what it begins with,
where the system limits either. It writes a line of JSON, what the file holds, or an error; then an array for
every path that it reads, one a line: a line of JSON, and the bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

_ATTRIBUTES = ("keras_version", "model_config", "name", "weight_names")
"""Of the attributes, those that Keras's files are read by."""


def _limit(seconds: int, memory: int) -> None:
    """Ends this process where it computes for longer, and refuses it more memory."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        most = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Of what other systems count as a process's memory, much is none.
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _value(value: Any) -> Any:  # noqa: ANN401 - of h5py
    """An attribute as JSON: a text, or a list of texts."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else [_value(entry) for entry in value]


def _described(item: Any) -> dict[str, Any]:  # noqa: ANN401 - of h5py
    """What a group or an array holds."""
    if not hasattr(item, "keys"):
        # HDF5 has no bfloat16, and Keras writes it as two bytes that are nothing else.
        plain = item.dtype.str if item.dtype.kind in "fiub" else "other"
        return {
            "shape": list(item.shape),
            "dtype": "bfloat16" if item.dtype.str == "|V2" else plain,
            "stored": item.id.get_storage_size(),
        }
    attributes = {name: _value(item.attrs[name]) for name in _ATTRIBUTES if name in item.attrs}
    return {"attributes": attributes, "members": {name: _described(item[name]) for name in item}}


def _answer(header: dict[str, Any], data: bytes | memoryview = b"") -> None:
    out = sys.stdout.buffer
    out.write(json.dumps(header).encode() + b"\n")
    out.write(data)
    out.flush()


def main() -> None:
    """Answers until nothing is asked any more."""
    place, path, member, seconds, memory = sys.argv[1:]
    sys.path[:] = json.loads(place)
    import h5py
    import numpy as np

    _limit(int(seconds), int(memory))
    try:
        source: Any = path
        if member:
            with zipfile.ZipFile(path) as archive:
                source = io.BytesIO(archive.read(member))
        with h5py.File(source, "r") as file:
            _answer(_described(file))
            for line in sys.stdin.buffer:
                array = np.ascontiguousarray(file[json.loads(line)])
                _answer({"nbytes": array.nbytes}, array.reshape(-1).view(np.uint8).data)
    except OSError as error:
        _answer({"error": str(error), "errno": error.errno})
    except MemoryError:
        _answer({"error": "it asks for more memory than a file of its size can mean"})
    except Exception as error:  # noqa: BLE001 - whatever a damaged file leads to
        _answer({"error": repr(error)})


if __name__ == "__main__":
    main()
