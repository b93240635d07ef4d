"""What a look at a network and its data has found."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loom.reports.base import Report, TabularReport

__all__ = ["DoctorReport", "Finding"]

_ORDER = ("error", "warning", "hint")


@dataclass(frozen=True, eq=False)
class Finding(Report):
    """One thing that `loom.doctor` has found.

    Args:
        name: What it is called, such as "softmax-before-loss": what `ignore=` takes.
        severity: "error" (training will refuse), "warning" (most likely a mistake) or "hint" (worth a look).
        layer: The layer that it is about, "z.y.x.l"; empty where it is about data or settings.
        seen: What was seen, with numbers.
        remedy: What to do.
        page: The section of the documentation that explains it.
        figures: The numbers by name.
    """

    name: str
    severity: str
    layer: str
    seen: str
    remedy: str
    page: str
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f" (layer {self.layer})" if self.layer else ""
        return f"{self.name}{place}: {self.seen} {self.remedy} See {self.page}"


@dataclass(frozen=True, eq=False)
class DoctorReport(TabularReport):
    """What `loom.doctor` has found, the gravest first; as long as there are findings, and so true.

    Args:
        findings: The findings.
        skipped: What could not be looked at, by the findings that are unknown because of it, and why.
    """

    findings: tuple[Finding, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the findings, each once."""
        return tuple(dict.fromkeys(finding.name for finding in self.findings))

    @property
    def healthy(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return all(finding.severity == "hint" for finding in self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str | int) -> Finding:
        """Returns the first finding of a name, or that of a place; a KeyError where there is none."""
        if isinstance(name, int):
            return self.findings[name]
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    def columns(self) -> dict[str, Any]:
        """Returns a row for each finding: name, severity, layer, seen, remedy, page."""
        names = ("name", "severity", "layer", "seen", "remedy", "page")
        return {name: [getattr(finding, name) for finding in self.findings] for name in names}

    def _counted(self) -> str:
        if not self.findings:
            return "nothing found"
        counts = {kind: sum(finding.severity == kind for finding in self.findings) for kind in _ORDER}
        return ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items() if count)

    def __str__(self) -> str:
        lines = [f"loom.doctor: {self._counted()}"]
        for finding in self.findings:
            place = f", layer {finding.layer}" if finding.layer else ""
            lines += [
                f"{finding.severity}: {finding.name}{place}",
                f"  seen: {finding.seen}",
                f"  do:   {finding.remedy}",
                f"  see:  {finding.page}",
            ]
        lines += [f"not looked at: {name} ({reason})" for name, reason in self.skipped.items()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the findings as an HTML table, for notebooks."""

        def row(cells: list[str], tag: str) -> str:
            made = "".join(f'<{tag} style="text-align:left">{html.escape(cell)}</{tag}>' for cell in cells)
            return f"<tr>{made}</tr>"

        titles = list(self.columns())
        body = "".join(row([getattr(finding, name) for name in titles], "td") for finding in self.findings)
        rest = "".join(
            f"<div>{html.escape(f'not looked at: {name} ({reason})')}</div>"
            for name, reason in self.skipped.items()
        )
        return (
            f"<div><div>{html.escape(f'loom.doctor: {self._counted()}')}</div>"
            f"<table><thead>{row(titles, 'th')}</thead><tbody>{body}</tbody></table>{rest}</div>"
        )
