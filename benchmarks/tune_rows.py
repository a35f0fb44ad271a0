"""Gain of rows per call that `--tune` measures, on networks that run row by row to fit: whole runs on a board in QEMU.

    python benchmarks/tune_rows.py
    python benchmarks/tune_rows.py --platforms cortex_m4 --cases resnet8_int8:25600

Kernels are tuned first, and the same in both: what differs are rows per call alone. Executed instructions are exact,
cycles estimated, as `tvm-ext profile` has them; outputs are the same to the bit, or the build fails.
"""

from __future__ import annotations

import argparse
import os
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
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.services.cache import FOLDER  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "tune_rows.json"
PLATFORMS = ("cortex_m4", "cortex_m7")
CASES = ("resnet8_int8:25600", "resnet8_int8:20000", "mcunet_5fps_vww_int8:50000", "mcunet_5fps_vww_int8:30000")
"""network:bytes of RAM."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="network:bytes of RAM")
    parser.add_argument("--platforms", nargs="*", default=list(PLATFORMS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {platform: {} for platform in options.platforms}
    for case in options.cases:
        network, _, ram = case.partition(":")
        for platform in options.platforms:
            found[platform][case] = gained(network, platform, int(ram))
            print(case, platform, found[platform][case], flush=True)
            write_result(options.results, stamped({"cases": found}))
    return 0


def gained(network: str, platform: str, ram: int) -> dict[str, Any]:
    """Figures of a network within so much memory. Raises TvmExtError."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        os.environ[FOLDER] = str(folder / "cache")
        onnx.save(zoo.build(network), folder / "model.onnx")
        options = BuildOptions(verify=(), name="network", ram=ram, tune=True)
        report = tvm_ext.build(tvm_ext.load(folder / "model.onnx"), platform, folder / "out", options).report
    rows = report["tuning"]["rows"]
    if rows is None:
        return {"method": report["fit"]["attempts"][-1]["method"], "sequences": 0}
    tried = [one for sequence in rows["sequences"] for one in sequence["candidates"]]
    return {
        "method": report["fit"]["attempts"][-1]["method"], "sequences": len(rows["sequences"]), "tried": len(tried),
        "measured": sum(one["not_measured"] is None for one in tried), "before": rows["before"], "after": rows["after"],
        "arena_bytes": {"before": rows["arena_bytes"], "after": report["arena_bytes"]},
        "changed": [
            {"layers": len(one["layers"]), "modelled": one["modelled"], "chosen": one["chosen"]}
            for one in rows["sequences"] if one["modelled"] != one["chosen"]
        ],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
