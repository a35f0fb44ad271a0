"""Gain by several services: seconds of a search over budgets, and of a package, with 1, 2 and 4; both the same.

    python benchmarks/jobs.py
    python benchmarks/jobs.py --network resnet8_int8 --services 1 2 --results /tmp/jobs.json

The package is one of a network of 80 layers, within less RAM than it takes whole, verified on host and board.

Seconds are those by the clock, so that they say something on a quiet machine alone: `load` is the machine's average
over the last minute when a run begins, `idle_cores` what of its processors nobody else used meanwhile. cpu_s: seconds
of CPU of a run and its services, which more services must not raise by much. Files must be equal for any number of
services; the first number is what the others are compared with.
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
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.mobile import Bottleneck, mcunet  # noqa: E402
from benchmarks.networks.quantize import quantized  # noqa: E402
from tests.support.packages import files_of  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "jobs.json"


_LAYERS_80 = ((8, 16, 2), *[(16, 16, 1)] * 3, (16, 24, 2), *[(24, 24, 1)] * 3, (24, 40, 2), *[(40, 40, 1)] * 4,
              (40, 64, 1), *[(64, 64, 1)] * 5, (64, 96, 1), (96, 96, 1))  # fmt: skip
"""Channels in and out, and stride, of bottlenecks."""
PACKAGE_RAM = 40 << 10


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: services, seconds by the clock and of CPU, load before it, processors left to it."""

    services: int
    s: float
    cpu_s: float
    load: float
    idle_cores: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, write the JSON. 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet_v2_100_224_int8")
    parser.add_argument("--platform", default="cortex_m7")
    parser.add_argument("--services", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        folder = Path(name)
        model, layers_80 = folder / f"{options.network}.onnx", folder / "layers_80.onnx"
        onnx.save(zoo.build(options.network), model)
        whole = mcunet("layers_80", _blocks(), size=96, num_classes=10)
        onnx.save(quantized(whole), layers_80)
        commands = {
            "search": ["pareto", str(model), "-p", options.platform],
            "package": ["compile", str(layers_80), "-p", "cortex_m4", "--ram", str(PACKAGE_RAM)],
        }
        found = {name: _compared(command, options.services, folder / name) for name, command in commands.items()}
    whole = {"network": options.network, "platform": options.platform, "cores": os.cpu_count(), **found}
    write_result(options.results, stamped(whole))
    return 0 if all(one["equal"] for one in found.values()) else 1


def _blocks() -> list[Bottleneck]:
    return [
        Bottleneck(c_in=c_in, c_out=c_out, expansion=4, stride=stride, kernel=3) for c_in, c_out, stride in _LAYERS_80
    ]


def _compared(command: Sequence[str], services: Sequence[int], folder: Path) -> dict[str, Any]:
    """Runs of one command with these services, ratios to the first one, and if they leave the same files."""
    runs = [_run([*command, "-o", str(folder / str(count))], count) for count in services]
    left = [files_of(folder / str(count)) for count in services]
    return {
        "runs": [asdict(run) for run in runs],
        "ratios": {str(one.services): round(runs[0].s / one.s, 2) for one in runs[1:]},
        "equal": all(files == left[0] for files in left),
    }


def _run(command: Sequence[str], services: int) -> Run:
    load, idle, before = os.getloadavg()[0], _idle_seconds(), os.times()
    whole = [sys.executable, "-m", "tvm_ext", *command, "--jobs", str(services)]
    subprocess.run(whole, cwd=ROOT, check=True, capture_output=True)
    after = os.times()
    seconds = after.elapsed - before.elapsed
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    run = Run(
        services=services, s=round(seconds, 1), cpu_s=round(cpu_s, 1), load=round(load, 2),
        idle_cores=round((_idle_seconds() - idle + cpu_s) / seconds, 2),
    )  # fmt: skip
    print(command[0], run, flush=True)
    return run


def _idle_seconds() -> float:
    """Seconds that the machine's processors were idle since it started, added up."""
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[1])


if __name__ == "__main__":
    sys.exit(main())
