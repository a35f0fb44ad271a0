"""Executed instructions of networks that two cores share, beside those of the faster core alone, on boards in QEMU.

    python benchmarks/two_cores.py --output benchmarks/results/two_cores.json
    python benchmarks/two_cores.py --networks dual_m33:ds_cnn_int8 --pipelines --output /tmp/two_cores.json

The makespan is that of each core's counted instructions, replayed by the signals between them, waits included, as if a
signal were seen at once (`codegen_c.program.makespan`); so is the interval of a pipeline. One core's are counted by
QEMU's clock, or by the same plugin where the other core starts it. Both give the same bytes as the host, or the build
fails.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import measure_each  # noqa: E402
from tvm_ext.core.objectives import Objective  # noqa: E402

NETWORKS = (
    "dual_m33_equal:resnet8_int8",
    "dual_m33:resnet8_int8",
    "dual_m33_equal:mobilenet_v1_025_96_int8",
    "dual_m33:mobilenet_v1_025_96_int8",
    "dual_m33_equal:ds_cnn_int8",
    "dual_m33:ds_cnn_int8",
    "dual_m33:resnet8_fp32",
)
"""board:network. Floats leave cpu0 of dual_m33, which has no FPU, without work."""

PIPELINES = (
    "dual_m33_equal:resnet8_int8",
    "dual_m33:resnet8_int8",
    "dual_m33_equal:ds_cnn_int8",
    "dual_m33:ds_cnn_int8",
)
"""Those that are run as pipelines, too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure networks and pipelines, each named `board:network`."""
    return measure_each(
        arguments, __doc__, {"networks": (NETWORKS, network), "pipelines": (PIPELINES, pipeline)}
    )  # fmt: skip


def built(wanted: str, objective: Objective) -> dict[str, Any]:
    """Report of the package of `board:network`, verified on the board."""
    board, name = wanted.split(":")
    with TemporaryDirectory(prefix="two_cores_") as temporary:
        folder = Path(temporary)
        onnx.save(zoo.build(name), folder / f"{name}.onnx")
        package = tvm_ext.build(
            tvm_ext.load(folder / f"{name}.onnx"), board, folder / "package",
            tvm_ext.BuildOptions(placement_objective=objective, verify=("qemu",)),
        )  # fmt: skip
        return dict(package.report)


def pipeline(wanted: str) -> dict[str, Any]:
    """Figures of a network over successive inputs. above_stage: of the interval, beyond the longest stage."""
    report = built(wanted, "throughput")
    interval, stages, alone = (
        report[key] for key in ("interval_instructions", "stage_instructions", "single_processor_instructions")
    )
    longest = max(stages.values())
    return {
        "interval_instructions": interval,
        "stage_instructions": stages,
        "above_stage": round(interval / longest - 1, 4),
        "single_processor_instructions": alone,
        "times_as_many": round(alone / interval, 3) if alone else None,
        "makespan_instructions": report["makespan_instructions"],
        "signals": report["signals"],
        "arena_bytes": report["arena_bytes"],
        "predicted": report["placement"],
    }


def network(wanted: str) -> dict[str, Any]:
    """Figures of a network's report."""
    report = built(wanted, "makespan")
    makespan, alone = report["makespan_instructions"], report["single_processor_instructions"]
    return {
        "makespan_instructions": makespan,
        "single_processor_instructions": alone,
        "times_as_fast": round(alone / makespan, 3) if makespan and alone else None,
        "instructions": {one["name"]: one["instructions"] for one in report["processors"]},
        "steps": {one["name"]: len(one["steps"]) for one in report["processors"]},
        "signals": report["signals"],
        "arena_bytes": report["arena_bytes"],
        "predicted": report["placement"],
    }


if __name__ == "__main__":
    sys.exit(main())
