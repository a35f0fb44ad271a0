"""Boards and models: what each network costs on each platform with a board, verified there.

    python benchmarks/boards.py ../shared/models/kws_int8.tflite ../shared/models/resnet_int8.tflite
    python benchmarks/boards.py --platforms cortex_m4        the others' results are kept

The digits of the tutorials are quantized here and stand beside the models that are named. Every package is verified on
the host and on its board in QEMU, or has no row. Instructions are executed ones of one inference; flash is constants
and code; RAM is arenas and the stack that the run was seen to use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "boards.json"
DIGITS = ROOT / "tutorials" / "digits"
PLATFORMS = (
    "cortex_m0plus", "cortex_m3", "cortex_m4", "cortex_m7", "cortex_m33", "cortex_m55", "cortex_m85", "riscv32",
    "riscv32_zve32x",
)  # fmt: skip
VERIFIED = ("host", "qemu")
Build = Callable[[str, Path], Package]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = known(options.results).get("models", {})
    for model, build in builds(options.models).items():
        for platform in options.platforms:
            with TemporaryDirectory(prefix="tvm_ext_") as name:
                found.setdefault(model, {})[platform] = stamped(figures(build(platform, Path(name) / "out")))
            print(model, platform, found[model][platform], flush=True)
            write_result(options.results, {"models": found})
    return 0


def builds(models: Sequence[Path]) -> Mapping[str, Build]:
    """How to build each model for a platform, by its name."""
    given = {path.stem: _as_it_is(tvm_ext.load(path)) for path in models}
    return {**given, "digits": _quantized(tvm_ext.load(DIGITS / "digits.onnx"))}


def figures(package: Package) -> dict[str, Any]:
    """Figures of one inference whose outputs are verified on the board."""
    report = package.report
    verified = report["verify"]["qemu"]
    assert verified["passed"], "the build would have failed"
    return {
        "macs": report["macs"], "instructions": verified["instructions"],
        "instructions_per_mac": round(verified["instructions"] / report["macs"], 3),
        "weights_bytes": report["weights_bytes"], "code_bytes": report["code_bytes"],
        "arena_bytes": sum(memory["used_bytes"] for memory in report["memories"] if memory["kind"] == "ram"),
        "stack_bytes": report["stack_bytes"],
    }  # fmt: skip


def _as_it_is(module: tvm.IRModule) -> Build:
    return lambda platform, folder: tvm_ext.build(module, platform, folder, BuildOptions(verify=VERIFIED))


def _quantized(module: tvm.IRModule) -> Build:
    with np.load(DIGITS / "digits_calibration.npz") as file:
        samples = dict(file)
    options = BuildOptions(verify=VERIFIED, quantize="int8")
    return lambda platform, folder: tvm_ext.build(module, platform, folder, options, calibration=samples)


if __name__ == "__main__":
    raise SystemExit(main())
