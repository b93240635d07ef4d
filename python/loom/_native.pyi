# The native half of the package; users import `loom`.

from typing import Final

__version__: Final[str]
