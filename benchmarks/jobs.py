"""Gain by several services: seconds of a search over budgets with 1, 2 and 4 of them, its points the same.

    python benchmarks/jobs.py
    python benchmarks/jobs.py --network resnet8_int8 --services 1 2 --results /tmp/jobs.json

Seconds are those by the clock, so that they say something on a quiet machine alone: `load` is the machine's average
over the last minute when a run begins, `idle_cores` what of its processors nobody else used meanwhile. cpu_s: seconds
of CPU of the search and its services, which more services must not raise by much. Points must be equal for any number
of services; the first number is what the others are compared with.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "jobs.json"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search: services, seconds by the clock and of CPU, load before it, processors left to it."""

    services: int
    s: float
    cpu_s: float
    load: float
    idle_cores: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, write the JSON. 1 where points differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet_v2_100_224_int8")
    parser.add_argument("--platform", default="cortex_m7")
    parser.add_argument("--services", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        model = Path(name) / f"{options.network}.onnx"
        onnx.save(zoo.build(options.network), model)
        searches: list[Search] = []
        points: list[bytes] = []
        for services in options.services:
            folder = Path(name) / f"services_{services}"
            searches.append(_search(model, options.platform, services, folder))
            points.append((folder / "pareto.json").read_bytes())
            print(searches[-1], flush=True)
    found = {
        "network": options.network, "platform": options.platform, "cores": os.cpu_count(),
        "searches": [asdict(search) for search in searches],
        "ratios": {str(one.services): round(searches[0].s / one.s, 2) for one in searches[1:]},
        "points_equal": len(set(points)) == 1,
    }  # fmt: skip
    write_result(options.results, stamped(found))
    return 0 if found["points_equal"] else 1


def _search(model: Path, platform: str, services: int, folder: Path) -> Search:
    command = [
        sys.executable, "-m", "tvm_ext", "pareto", str(model), "-p", platform, "-o", str(folder),
        "--jobs", str(services),
    ]  # fmt: skip
    load, idle, before = os.getloadavg()[0], _idle_seconds(), os.times()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    after = os.times()
    seconds = after.elapsed - before.elapsed
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Search(
        services=services, s=round(seconds, 1), cpu_s=round(cpu_s, 1), load=round(load, 2),
        idle_cores=round((_idle_seconds() - idle + cpu_s) / seconds, 2),
    )  # fmt: skip


def _idle_seconds() -> float:
    """Seconds that the machine's processors were idle since it started, added up."""
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[1])


if __name__ == "__main__":
    sys.exit(main())
