"""Networks of MLPerf Tiny on RV32, plain and with vectors: executed instructions, and vector registers worked on.

    python benchmarks/riscv_vectors.py ../shared/models/kws_int8.onnx ../shared/models/resnet_int8.onnx

One run each on the board in QEMU. Groups of registers let an instruction do the work of several, which flatters a count
of instructions: beside it stands the sum over executed vector instructions of the registers of their widest operand.
Cycles are estimated (docs/riscv.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.profiling import profile_package  # noqa: E402
from tvm_ext.profiling.core_table import core_table  # noqa: E402
from tvm_ext.profiling.instructions import KINDS  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "riscv_vectors.json"
PLATFORMS = ("riscv32", "riscv32_zve32x")
VECTORS = tuple(kind for kind in KINDS if kind.startswith("vector"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for model in options.models:
        for platform in PLATFORMS:
            with TemporaryDirectory(prefix="tvm_ext_") as name:
                package = tvm_ext.build(
                    tvm_ext.load(model), platform, Path(name) / "out", BuildOptions(verify=("host", "qemu"))
                )
                found.setdefault(model.stem, {})[platform] = figures(package)
            print(model.stem, platform, found[model.stem][platform], flush=True)
    write_result(options.results, stamped({"networks": found}))
    return 0


def figures(package: Package) -> dict[str, Any]:
    """Figures of one run whose output is verified."""
    verified = package.report["verify"]["qemu"]
    assert verified["passed"], "the build would have failed"
    profile = package.profile()
    modelled = sum(step["modelled_instructions"] for step in package.report["steps"])
    macs = package.report["macs"]
    registers = num_registers(package)
    return {
        "macs": macs, "instructions": profile.num_instructions,
        "instructions_per_mac": round(profile.num_instructions / macs, 3),
        "vector_registers": registers, "vector_registers_per_mac": round(registers / macs, 3),
        "modelled_instructions": modelled, "modelled_by_executed": round(modelled / profile.num_instructions, 3),
        "estimated_cycles": round(profile.cycles), "code_bytes": package.report["code_bytes"],
    }  # fmt: skip


def num_registers(package: Package) -> int:
    """Registers of the widest operands of all executed vector instructions: cycles of a core that takes only them."""
    table = replace(
        core_table(package.platform), cycles=dict.fromkeys(KINDS, 0.0), per_register=dict.fromkeys(VECTORS, 1.0),
        pairs=(), taken=0.0,
    )  # fmt: skip
    with patch.object(profile_package, "core_table", return_value=table):
        profile = package.profile()
    spent = (function.cycles for layer in profile.layers for function in layer.functions)
    return round(sum(cycles.get(kind, 0.0) for cycles in spent for kind in VECTORS))


if __name__ == "__main__":
    raise SystemExit(main())
