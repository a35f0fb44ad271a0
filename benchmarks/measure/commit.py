"""The commit that made a result: every figure in `benchmarks/results` lies below a field `commit`.

`measure_each` is the command line of a benchmark that measures one network after the other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MEASURED = ("tvm_ext", "relay_passes", "codegen_c", "benchmarks", ":!benchmarks/results")
"""Paths that a figure depends on."""


def commit() -> str:
    """The commit that is checked out, twelve digits of it; `-dirty` behind it where what is measured has changed."""
    head = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{head}-dirty" if _git("status", "--porcelain", "--", *MEASURED) else head


def stamped(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one run behind the commit that made them."""
    return {"commit": commit(), **{key: value for key, value in figures.items() if key != "commit"}}


def known(path: Path) -> dict[str, Any]:
    """The result that an earlier run wrote; empty where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def unstamped(result: Any) -> list[str]:
    """Places in a result, as keys joined by `/`, that lie below no field `commit`."""
    if isinstance(result, dict) and "commit" in result:
        return []
    if not isinstance(result, dict | list) or not result:
        return [""]
    parts = result.items() if isinstance(result, dict) else enumerate(result)
    return [f"{key}/{place}".rstrip("/") for key, part in parts for place in unstamped(part)]


def commits_in(result: Any) -> set[str]:
    """All commits that a result names."""
    if isinstance(result, list):
        return {one for part in result for one in commits_in(part)}
    if not isinstance(result, dict):
        return set()
    own = {result["commit"]} if "commit" in result else set()
    return own.union(*(commits_in(part) for part in result.values()))


def write_result(path: Path, result: Any) -> None:
    """A result as JSON. Raises ValueError where a figure in it lies below no commit."""
    if places := unstamped(result):
        raise ValueError(f"{path.name}: no commit says what made {', '.join(places)}; write it with stamped().")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure_each(
    arguments: Sequence[str] | None,
    documentation: str | None,
    measures: Mapping[str, tuple[Sequence[str], Callable[[str], Mapping[str, Any]]]],
) -> int:
    """Measure networks that the command line names, by default all, and write the results after each; return 0.

    documentation: the benchmark's own. measures: for each kind of results, such as `networks`, the names of all and the
    function that measures one. The kind is an option of the command line and a key of the result; results that are not
    measured again are kept.
    """
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, (names, _) in measures.items():
        parser.add_argument(f"--{kind}", nargs="*", default=list(names))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = known(options.output)
    for kind, (_, measure) in measures.items():
        for name in getattr(options, kind):
            results.setdefault(kind, {})[name] = stamped(measure(name))
            print(kind, name, json.dumps(results[kind][name]), flush=True)
            write_result(options.output, results)
    return 0


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
