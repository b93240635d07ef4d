"""Plain configuration dataclasses that go to JSON and back.

Three spellings exist. A *tagged* configuration says its kind under "type":
`{"type": "dense", "units": 10}`. A *named* one is its bare name when it has no
settings, and otherwise the name with them: `"relu"`,
`{"leaky_relu": {"slope": 0.2}}`. A plain one, whose class is known from where
it stands, is its settings alone. All reject keys that they do not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from loom._settings.arguments import check_arguments
from loom._settings.spellings import remark
from loom._settings.suggestions import shown, unknown
from loom._tables import settings_table
from loom.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom._typing import JSON


class _Settings:
    """Base of all configurations: arguments that are wrong are named, and notebooks show a table."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __new__(cls, *args: object, **settings: object) -> Self:
            check_arguments(cls, args, settings)
            return super().__new__(cls)

    def _repr_html_(self) -> str:
        """Returns the settings as a table, for notebooks."""
        return settings_table(type(self).__name__, self)


class Plain(_Settings):
    """Base of the configuration dataclasses: their settings to JSON and back."""

    __slots__ = ()

    def to_config(self) -> dict[str, JSON]:
        """Returns the settings as plain JSON values."""
        return _settings(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Builds the configuration from what `to_config` returned.

        Args:
            config: The settings; those that are left out keep their defaults.

        Returns:
            The configuration.

        Raises:
            ConfigError: A key is unknown or missing, or a value is out of range.
        """
        return _build(cls, cls.__name__, _mapping(cls.__name__, config))


class Tagged(_Settings):
    """Base of the configurations that say their kind under "type"."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_config(self) -> dict[str, JSON]:
        """Returns the kind and the settings as plain JSON values."""
        return {"type": self.kind, **_settings(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Builds the configuration from what `to_config` returned.

        Args:
            config: The kind under "type", and the settings; those that are
                left out keep their defaults.

        Returns:
            The configuration.

        Raises:
            ConfigError: The kind is another's, a key is unknown or missing, or
                a value is out of range.
        """
        settings = _mapping(cls.__name__, config)
        kind = settings.pop("type", cls.kind)
        if kind != cls.kind:
            raise ConfigError(f'{cls.__name__}: expected "type": "{cls.kind}", got "{kind}"')
        return _build(cls, cls.__name__, settings)


class Named(_Settings):
    """Base of the configurations that are a bare name where they have no settings."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_config(self) -> JSON:
        """Returns the name alone, or the name with its settings."""
        settings = _settings(self)
        return {self.kind: settings} if settings else self.kind

    @classmethod
    def from_config(cls, config: str | Mapping[str, Any]) -> Self:
        """Builds the configuration from what `to_config` returned.

        Args:
            config: The bare name, or the name with its settings.

        Returns:
            The configuration.

        Raises:
            ConfigError: The name is another's, a key is unknown, or a value is
                out of range.
        """
        kind, settings = _name_and_settings(cls.__name__, config)
        if kind != cls.kind:
            raise ConfigError(f'{cls.__name__}: expected "{cls.kind}", got "{kind}"')
        return _build(cls, cls.__name__, settings)


TaggedT = TypeVar("TaggedT", bound=Tagged)
NamedT = TypeVar("NamedT", bound=Named)
# A method's own, so that `register` gives back the very class, whose arguments editors then know.
TaggedClassT = TypeVar("TaggedClassT", bound=Tagged)
NamedClassT = TypeVar("NamedClassT", bound=Named)
ConfigT = TypeVar("ConfigT")


def _stays(self: object, name: str, value: object) -> None:
    kind = type(self).__name__
    told = remark(f"{kind} setting", name)
    raise dataclasses.FrozenInstanceError(
        f"{kind} stays as it was made: {kind}({name}={shown(value)}) makes another"
        if told is None
        else f"{kind} has no '{name}'; {told}"
    )


class TaggedFamily(Generic[TaggedT]):
    """The tagged configurations of one sort, by their kind."""

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.kinds: dict[str, type[TaggedT]] = {}

    def register(self, kind: str) -> Callable[[type[TaggedClassT]], type[TaggedClassT]]:
        """Enters a class under the kind that its JSON carries."""

        def enter(cls: type[TaggedClassT]) -> type[TaggedClassT]:
            cls.kind = kind
            if "__setattr__" in vars(cls):
                # What a frozen dataclass says would not say what to do instead.
                cls.__setattr__ = _stays  # type: ignore[method-assign]
            self.kinds[kind] = cast("type[TaggedT]", cls)
            return cls

        return enter

    def from_config(self, config: Mapping[str, Any]) -> TaggedT:
        """Builds the member that "type" names."""
        with levels(self.sort):
            try:
                return self._from_config(config)
            except RecursionError:
                raise too_deep(self.sort) from None

    def _from_config(self, config: Mapping[str, Any]) -> TaggedT:
        settings = _mapping(self.sort, config)
        if "type" not in settings:
            raise ConfigError(f'{self.sort}: the key "type" is missing from {shown(dict(config))}')
        kind = settings["type"]
        if not isinstance(kind, str) or kind not in self.kinds:
            raise unknown(f"{self.sort} type", kind, self.kinds)
        return self.kinds[kind].from_config(settings)


class NamedFamily(Generic[NamedT]):
    """The named configurations of one sort: bare names, and classes with settings.

    Args:
        sort: What they are, for messages.
        plain: The names that have no settings.
        aliases: Other accepted spellings.
    """

    def __init__(
        self, sort: str, plain: Iterable[str] = (), aliases: Mapping[str, str] | None = None
    ) -> None:
        self.sort = sort
        self.plain = frozenset(plain)
        self.aliases = dict(aliases or {})
        self.kinds: dict[str, type[NamedT]] = {}

    def register(self, kind: str) -> Callable[[type[NamedClassT]], type[NamedClassT]]:
        """Enters a class under its name."""

        def enter(cls: type[NamedClassT]) -> type[NamedClassT]:
            cls.kind = kind
            self.kinds[kind] = cast("type[NamedT]", cls)
            return cls

        return enter

    def resolve(self, value: object) -> str | NamedT:
        """Returns a bare name, or the configuration of a name with settings.

        Args:
            value: A name, a configuration, or the JSON form of one.

        Returns:
            The name where it has no settings, otherwise its configuration.

        Raises:
            ConfigError: The name or a key is unknown, or a value is out of range.
        """
        if isinstance(value, tuple(self.kinds.values())):
            return cast(NamedT, value)
        if not isinstance(value, (str, Mapping)):
            raise unknown(self.sort, value, self.names())
        kind, settings = _name_and_settings(self.sort, value)
        kind = self.aliases.get(kind, kind)
        if kind in self.plain:
            if settings:
                raise ConfigError(f'{self.sort} "{kind}" has no settings, got {shown(settings)}')
            return kind
        if kind not in self.kinds:
            raise unknown(self.sort, kind, self.names())
        cls = self.kinds[kind]
        return _build(cls, cls.__name__, settings)

    def names(self) -> list[str]:
        """Returns every name, sorted."""
        return sorted({*self.plain, *self.kinds})


MOST_LEVELS = 60
"""The most configurations that may be inside each other."""

_LEVELS: ContextVar[int] = ContextVar("levels", default=0)


@contextmanager
def levels(where: str) -> Iterator[None]:
    """Counts how deep configurations are inside each other, and refuses what is deeper than `MOST_LEVELS`."""
    level = _LEVELS.get() + 1
    if level > MOST_LEVELS:
        raise too_deep(where)
    token = _LEVELS.set(level)
    try:
        yield
    finally:
        _LEVELS.reset(token)


def too_deep(where: str) -> ConfigError:
    """Returns the error for what is nested too deep."""
    return ConfigError(f"{where}: more than {MOST_LEVELS} levels are inside each other, or one holds itself")


def encode(value: object) -> JSON:
    """Turns a setting into plain JSON values."""
    try:
        return _encode(value)
    except RecursionError:
        raise too_deep("configuration") from None


def _encode(value: object) -> JSON:
    if isinstance(value, (Plain, Tagged, Named)):
        return value.to_config()
    if isinstance(value, Mapping):
        return {str(key): _encode(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"{shown(value)} cannot be written to a configuration file")


def _settings(config: object) -> dict[str, JSON]:
    return {
        field.name: encode(getattr(config, field.name))
        for field in dataclasses.fields(cast(Any, config))
        if field.init
    }


def _mapping(where: str, config: object) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}: expected a mapping of settings, got {shown(config)}")
    return dict(config)


def _name_and_settings(where: str, value: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    entries = list(_mapping(where, value).items())
    if len(entries) != 1:
        raise ConfigError(
            f"{where}: expected a name, or one name with its settings, got {shown(dict(value))}"
        )
    kind, settings = entries[0]
    return str(kind), _mapping(f"{where} {kind}", settings)


def _build(cls: type[ConfigT], where: str, settings: Mapping[str, Any]) -> ConfigT:
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls)) if field.init}
    for key in settings:
        if key not in fields:
            raise (
                unknown(f"{where} setting", key, fields)
                if fields
                else ConfigError(f'{where} has no settings, got "{key}"')
            )
    missing = [
        name
        for name, field in fields.items()
        if name not in settings
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where}: missing setting{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return cls(**settings)
