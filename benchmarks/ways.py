"""Bytes that each way of fitting a budget comes to, where results wait long for their readers: a U-Net, a dense block.

    python benchmarks/ways.py --output benchmarks/results/ways.json

Bytes are those of the arena on the Cortex-M4, input and output included. `least_bytes`: the fewest that each method of
`tvm_ext.fitting.fit` comes to where one byte is asked for. The packages of the whole and within the nearest budget that
the error names are compared on the host and on the board in QEMU, which counts their instructions.
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
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

NETWORKS = ("gated_unet_16_int8", "gated_dense_block_8_int8")
PLATFORM = "cortex_m4"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = stamped({"platform": PLATFORM, "networks": {}})
    for network in options.networks:
        with TemporaryDirectory(prefix="ways_") as folder:
            results["networks"][network] = ways(network, Path(folder))
        print(network, results["networks"][network], flush=True)
        write_result(options.output, results)
    return 0


def ways(network: str, folder: Path) -> dict[str, Any]:
    """Least bytes of a network by method, and what its whole and its least package execute."""
    onnx.save(zoo.build(network), folder / "net.onnx")
    module = tvm_ext.load(folder / "net.onnx")
    try:
        compile_module(module, Platform.load(PLATFORM), tvm_ext.BuildOptions(ram=1))
    except DoesNotFit as error:
        least, nearest = dict(error.least_bytes), error.nearest_bytes
    else:
        raise AssertionError("nothing fits one byte")
    built = {
        name: tvm_ext.build(module, PLATFORM, folder / name, tvm_ext.BuildOptions(ram=ram, verify=("host", "qemu")))
        for name, ram in (("whole", NO_SHORTAGE), ("nearest", nearest))
    }
    return {
        "least_bytes": least,
        "nearest_bytes": nearest,
        "packages": {
            name: {
                "arena_bytes": package.report["arena_bytes"],
                "method": package.report["fit"]["attempts"][-1]["method"],
                "instructions": package.report["verify"]["qemu"]["instructions"],
            }
            for name, package in built.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
