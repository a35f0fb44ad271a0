"""Networks on the Coral NPU: executed instructions, estimated cycles and bytes of each memory, verified in QEMU.

    python benchmarks/coral_npu.py mobilenet_v1_025_224_int8_real.tflite ../shared/models/kws_int8.tflite

The first network is that of github.com/aurotripathy/coralnpu-mobilenet-kernels (at a3b7077), whose README gives the
cycles of its port in the simulator npusim. The simulator counts one cycle for each instruction (sim/coralnpu_top.cc of
github.com/google-coral/coralnpu-mpact).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.core.options import CompileFor  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "coral_npu.json"
PLATFORM = "coral_npu"
FORMS: tuple[CompileFor, ...] = ("speed", "size")
PUBLISHED = {"instructions": 26_000_000, "reference_kernels": 136_000_000}
"""Figures of the port's README: about 26 million with its kernels, 136 million with reference kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for model in options.models:
        for optimize in FORMS:
            found.setdefault(model.stem, {})[optimize] = figures(model, optimize)
            print(model.stem, optimize, found[model.stem][optimize], flush=True)
    write_result(options.results, stamped({"published": PUBLISHED, "networks": found}))
    return 0


def figures(model: Path, optimize: CompileFor) -> dict[str, Any]:
    """Figures of one run whose output is verified."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        options = BuildOptions(verify=("host", "qemu"), optimize=optimize)
        package = tvm_ext.build(tvm_ext.load(model), PLATFORM, Path(name) / "out", options)
        assert package.report["verify"]["qemu"]["passed"], "the build would have failed"
        profile, report = package.profile(), package.report
        return {
            "sha256": hashlib.sha256(model.read_bytes()).hexdigest(), "macs": report["macs"],
            "instructions": profile.num_instructions, "estimated_cycles": round(profile.cycles),
            "code_bytes": report["code_bytes"],
            "memories": {memory["name"]: memory["used_bytes"] for memory in report["memories"]},
        }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
