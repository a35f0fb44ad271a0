"""Pictures of `results/side_by_side.json`: executed instructions per multiply-add, one bar per model and system.

    python benchmarks/plots.py --output out/plots

Needs matplotlib, of the extra `bench`. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.published import Published, read_published  # noqa: E402
from benchmarks.measure.records import Record, read_records  # noqa: E402

PICTURES = (("cortex_m4", "instructions"), ("cortex_m55", "instructions"), ("host", "callgrind_ir"))


def main(arguments: Sequence[str] | None = None) -> None:
    """One SVG per platform."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "side_by_side.json")
    parser.add_argument("--output", type=Path, default=Path("out/plots"))
    options = parser.parse_args(arguments)
    records, published = read_records(options.results), read_published(ROOT / "benchmarks" / "published.toml")
    options.output.mkdir(parents=True, exist_ok=True)
    for platform, metric in PICTURES:
        path = options.output / f"{platform}.svg"
        draw(per_mac(records, published, platform, metric), f"{metric} per multiply-add, {platform}", path)
        print(path)


def per_mac(
    records: Mapping[str, Record], published: Sequence[Published], platform: str, metric: str
) -> dict[str, dict[str, float]]:
    """System -> model -> value."""
    found: dict[str, dict[str, float]] = {}
    for record in records.values():
        rows = [*record.rows, *(p.row for p in published if p.model == record.model)]
        for row in rows:
            count = getattr(row, metric)
            if row.platform == platform and count is not None and record.macs:
                found.setdefault(row.system, {})[record.model] = count / record.macs
    return found


def draw(systems: Mapping[str, Mapping[str, float]], title: str, path: Path) -> None:
    """Horizontal bars, a group for each model."""
    models = list(dict.fromkeys(model for values in systems.values() for model in values))
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.5 * len(models)))
    height = 0.8 / max(len(systems), 1)
    for index, (system, values) in enumerate(systems.items()):
        places = [models.index(model) + index * height for model in values]
        axes.barh(places, list(values.values()), height=height, label=system)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(models))], models)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
