"""Published figures of peers, from `benchmarks/published.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure.records import Row


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row that was not measured here, the model it is of, and that model's multiply-adds."""

    model: str
    macs: int
    row: Row


def read_published(path: Path) -> list[Published]:
    """All figures, in the file's order."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Published(
            model=model,
            macs=figures["macs"],
            row=Row(system=source["system"], platform=platform, source=source["source"], **values),
        )
        for source in table["sources"]
        for model, figures in source["figures"].items()
        for platform, values in figures.items()
        if platform != "macs"
    ]
