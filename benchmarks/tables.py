"""Writes the figures of the documents anew, from the files in `benchmarks/results`.

    python benchmarks/tables.py
    python benchmarks/tables.py --check

A document holds a block between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; `benchmarks/measure/blocks.py` says
what stands in it. With `--check` nothing is written, and the exit status is 1 where a block is not what results say.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.blocks import BLOCKS  # noqa: E402

DOCUMENTS = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"(?<=<!-- begin: )(\w+)( -->\n)(.*?)(?=<!-- end: (\w+) -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    stale = 0
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        new = updated(text)
        if new == text:
            continue
        stale += 1
        if options.check:
            print(f"{name}: its figures are not those of benchmarks/results; run python benchmarks/tables.py")
        else:
            path.write_text(new, encoding="utf-8")
            print(f"{name}: written")
    return 1 if stale and options.check else 0


def updated(text: str) -> str:
    """A document with its blocks made anew. Raises ValueError for a block that nobody makes, or that does not end."""
    begun, ended = (re.findall(rf"<!-- {word}: (\w+) -->", text) for word in ("begin", "end"))
    unknown = [name for name in begun if name not in BLOCKS]
    if unknown or begun != ended:
        raise ValueError(f"blocks begin {begun} and end {ended}; there are {', '.join(BLOCKS)}.")
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{BLOCKS[found[1]]()}", text)


def without_blocks(text: str) -> str:
    """A document's own words."""
    return _BLOCK.sub("", text)


if __name__ == "__main__":
    sys.exit(main())
