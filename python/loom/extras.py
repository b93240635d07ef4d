"""Optional dependencies: imported when used, with an error that names the extra."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from loom.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Imports an optional dependency.

    Args:
        module: What is imported.
        extra: The extra of loom-nn that installs it.
        purpose: What it is needed for, for the message.

    Returns:
        The module.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'loom-nn[{extra}]'", name=package
        ) from error
