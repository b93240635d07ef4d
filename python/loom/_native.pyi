# The native half of the package; users import `loom`.

from typing import Final

__all__ = ["__version__"]
__version__: Final[str]
