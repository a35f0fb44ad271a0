"""Operators that are slower than the usual layers: executed instructions beside bounds by hand.

    python benchmarks/soft_spots.py
    python benchmarks/soft_spots.py --only "softmax over 32" --platforms cortex_m4      other results are kept

Each operator is in a small model of its own (`networks/soft_spots.py`, where the bounds are). It is built for the
platform and profiled on its board in QEMU: instructions are executed, cycles are estimated by the core's table. Steps
that compute something else do not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from benchmarks.networks.forms import samples  # noqa: E402
from benchmarks.networks.soft_spots import M4, M55, Dtype, Spot, spots, value_of  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "soft_spots.json"
PLATFORMS = (M4, M55)
NUM_SAMPLES = 8


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(spots()), default=list(spots()), metavar="SPOT")
    parser.add_argument("--platforms", nargs="+", choices=PLATFORMS, default=PLATFORMS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = known(options.results)
    for name in options.only:
        spot = spots()[name]
        for dtype in spot.dtypes:
            key = f"{name}, {dtype}"
            rows = {platform: measured(spot, dtype, platform) for platform in options.platforms}
            found[key] = stamped({**found.get(key, {}), **rows})
            for platform, row in rows.items():
                print(f"{key:44} {platform:11} {row}", flush=True)
        order = [f"{one}, {dtype}" for one, spot in spots().items() for dtype in spot.dtypes]
        write_result(options.results, {key: found[key] for key in order if key in found})
    return 0


def measured(spot: Spot, dtype: Dtype, platform: str) -> dict[str, Any]:
    """Return instructions and cycles for each counted thing, the bound, and their ratio."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        package = _built(spot, dtype, platform, Path(name))
        report, trace = package.report, json.loads((package.folder / "trace.json").read_text(encoding="utf-8"))
        layers = {layer.name: layer for layer in package.profile().layers}
    calls = {entry["name"]: entry["steps"] for entry in trace["code"] if entry["is"] == "step"}
    steps = [step for step in report["steps"] if _is_of(spot, step)]
    own = [layers[call] for step in steps for call in calls[step["name"]] if call in layers]
    instructions, bound = sum(layer.num_instructions for layer in own), value_of(spot.bounds[dtype, platform])
    return {
        "kernels": sorted({step["kernel"] for step in steps}),
        "instructions": round(instructions / spot.counted, 2),
        "cycles": round(sum(layer.cycles for layer in own) / spot.counted, 2),
        "bound": round(bound, 2), "ratio": round(instructions / spot.counted / bound, 2),
    }  # fmt: skip


def _is_of(spot: Spot, step: dict[str, Any]) -> bool:
    """Return True for a step that a kernel of the operator computes, or that only its kernel's layout needs."""
    return any(part in step["kernel"] or step["name"].startswith(part) for part in spot.kernels)


def _built(spot: Spot, dtype: Dtype, platform: str, folder: Path) -> Package:
    """Return the package of a model, whose outputs are verified on the host and on the board."""
    is_int8 = dtype == "int8"
    options = BuildOptions(
        quantize="int8" if is_int8 else "none", ram=spot.ram.get(dtype, NO_SHORTAGE), memories="default",
        min_snr_db=-100.0, verify=("host", "qemu"),
    )  # fmt: skip
    path = folder / "spot.onnx"
    onnx.save(spot.model, path)
    calibration = samples(spot.model, NUM_SAMPLES) if is_int8 else None
    package = tvm_ext.build(tvm_ext.load(path), platform, folder / "out", options, calibration=calibration)
    assert package.report["verify"]["qemu"]["passed"], "it computes what it says"
    return package


if __name__ == "__main__":
    raise SystemExit(main())
