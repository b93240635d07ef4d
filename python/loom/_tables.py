"""Tables for notebooks, in HTML that follows the page's own colours, dark or light."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["settings_table", "table"]


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Returns a table as HTML; what stands in it is text, whatever it holds.

    Args:
        title: What it is a table of.
        head: The names of its columns.
        rows: Its cells.
        note: What is said below.
    """

    def line(cells: Iterable[object], tag: str) -> str:
        made = "".join(f'<{tag} style="text-align:left">{html.escape(str(cell))}</{tag}>' for cell in cells)
        return f"<tr>{made}</tr>"

    body = "".join(line(row, "td") for row in rows)
    below = f"<div>{html.escape(note)}</div>" if note else ""
    return (
        f"<div><div><strong>{html.escape(title)}</strong></div><table><thead>{line(head, 'th')}</thead>"
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def settings_table(title: str, value: Any) -> str:  # noqa: ANN401 - any dataclass
    """Returns the settings of a dataclass as a table, those first that are not their defaults."""
    fields = [field for field in dataclasses.fields(value) if field.repr]

    def usual(field: dataclasses.Field[Any]) -> bool:
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        return bool(repr(default) == repr(getattr(value, field.name)))

    ordered = sorted(fields, key=usual)
    rows = [
        (field.name, repr(getattr(value, field.name)), "" if usual(field) else "set") for field in ordered
    ]
    return table(title, ("setting", "value", ""), rows)
