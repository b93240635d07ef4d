"""What a network gives to go through, and refuses to be changed by."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from loom.errors import ConfigError

__all__ = ["Listed"]

T = TypeVar("T")


class Listed(list[T]):
    """A list of what there is: changing it would change nothing of the network, so that is refused."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ConfigError(
            "layers are changed in their cell: net[0, 0, 0][-1] = nn.Dense(5), net[0, 0, 0].add(...), "
            ".insert(place, layer), .pop(); net.layers lists what there is"
        )

    def __reduce__(self) -> tuple[type[list[T]], tuple[list[T]]]:
        """Copies and pickles are made at once: what Python makes of lists otherwise, it appends to."""
        return type(self), (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
