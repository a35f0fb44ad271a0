"""Models that run all day, beside TensorFlow Lite Micro with its reference kernels: instructions and arenas on the M4.

    python benchmarks/tflm_reference.py ../tflite-micro

The argument is a checkout of tflite-micro whose `third_party` holds flatbuffers, gemmlowp and ruy. Both are compiled
with -O3 here, and counted in QEMU over one run after two others; instructions are not cycles.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.tflm import library, measured  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402

SHARED = Path(os.environ.get("TVM_EXT_SHARED", ROOT.parent / "shared"))
RESULTS = ROOT / "benchmarks" / "results" / "tflm_reference.json"
MODELS = ("okay_nabu_v2", "vad_v2")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", type=Path, help="of tflite-micro")
    parser.add_argument("--archive", type=Path, help="libtflm.a of an earlier run, instead of compiling it")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        archive = options.archive or library(options.checkout, folder / "library")
        for model in MODELS:
            path = SHARED / "streaming" / f"{model}.tflite"
            report = tvm_ext.build(
                tvm_ext.load(path), "cortex_m4", folder / model, BuildOptions(verify=("qemu",))
            ).report
            ours = {
                "instructions": report["verify"]["qemu"]["instructions"], "arena_bytes": report["arena_bytes"],
            }  # fmt: skip
            found[model] = {"ours": ours, "tflm": asdict(measured(options.checkout, archive, path, folder))}
            print(model, found[model], flush=True)
    write_result(options.results, stamped({"models": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
