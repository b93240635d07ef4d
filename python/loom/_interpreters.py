"""Refuses to be imported in a sub-interpreter of Python: neither loom's native module nor NumPy's can be."""

from __future__ import annotations

from importlib import import_module


def _is_main() -> bool:
    """Whether this is the interpreter that the process began with, as far as can be told."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = import_module(name)
        except ImportError:
            continue
        return bool(module.get_current() == module.get_main())
    return True


if not _is_main():
    raise ImportError(
        "loom cannot be used in a sub-interpreter of Python, nor can NumPy; use threads, which may call "
        "predict of one network at once, or processes (multiprocessing)"
    )
