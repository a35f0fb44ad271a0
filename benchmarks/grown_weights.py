"""Weights that grow for speed: what convolutions by Winograd's tiles bought, beside the same networks without.

    python benchmarks/grown_weights.py
    python benchmarks/grown_weights.py resnet8_int8        the others' results are kept

Each network is built for the Cortex-M4 as it comes and with `least_flash`, and verified on the board. Instructions are
executed ones of one inference; flash is constants and code.
"""

from __future__ import annotations

import argparse
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
from benchmarks.boards import figures  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "grown_weights.json"
NETWORKS = ("resnet8_int8", "words_1d_int8", "factored_int8", "wide_windows_int8")
PLATFORM = "cortex_m4"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = known(options.results)
    for network in options.networks:
        with TemporaryDirectory(prefix="tvm_ext_") as name:
            found[network] = stamped(measured(zoo.build(network), Path(name)))
        print(network, found[network], flush=True)
        write_result(options.results, found)
    return 0


def measured(model: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    """Figures with weights that grow and without, and what the report of the first says that they bought."""
    onnx.save(model, folder / "model.onnx")
    module = tvm_ext.load(folder / "model.onnx")
    found: dict[str, Any] = {}
    for way, least in (("grown", False), ("least", True)):
        options = BuildOptions(verify=("host", "qemu"), optimize="speed", least_flash=least)
        package = tvm_ext.build(module, PLATFORM, folder / way, options)
        grown = [step["grown_weights"] for step in package.report["steps"] if "grown_weights" in step]
        found[way] = {
            **figures(package), "layers": len(grown), "grown_bytes": sum(one["bytes"] for one in grown),
            "modelled_instructions_saved": sum(one["modelled_instructions_saved"] for one in grown),
        }  # fmt: skip
    return found


if __name__ == "__main__":
    raise SystemExit(main())
