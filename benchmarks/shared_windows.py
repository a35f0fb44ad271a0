"""Layers that read one tensor: what it saves that one call computes all of them from windows in scratch.

    python benchmarks/shared_windows.py
    python benchmarks/shared_windows.py gates        the others' results are kept

Each network is quantized to int8 and built with joined layers, as it comes, and with each layer in a call of its own.
Both are verified on the board, and their outputs must be equal. Instructions are executed ones of one inference; flash
is constants and code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.boards import figures  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.networks.branches import cross_stage, detector, inception  # noqa: E402
from benchmarks.networks.sequences import drawn  # noqa: E402
from tests.support.transformer_models import compact_transformer, encoder_block  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "shared_windows.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gates": lambda: drawn("wavenet", 0, "sequence"),
    "wide_heads": lambda: detector("wide_heads", kernel=3),
    "narrow_heads": lambda: detector("narrow_heads"),
    "inception": lambda: inception("inception"),
    "cross_stage": lambda: cross_stage("cross_stage"),
    "attention_16": compact_transformer,
    "attention_64": encoder_block,
}
JOINING = "codegen_c.backend.build.with_shared_windows"
"""Function that joins layers. It is replaced to measure the network with calls apart."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    before = known(options.results)
    found: dict[str, Any] = {}
    for network in NETWORKS:
        if network in options.networks:
            before[network] = stamped({platform: measured(network, platform) for platform in PLATFORMS})
            print(network, before[network], flush=True)
        found |= {network: before[network]} if network in before else {}
        write_result(options.results, found)
    return 0


def measured(network: str, platform: str) -> dict[str, Any]:
    """Results with joined layers and with each layer in a call of its own."""
    with patch(JOINING, lambda program, apart=(): program):
        alone, expected = built(network, platform)
    together, outputs = built(network, platform)
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)
    return {"alone": alone, "joined": together}


def built(network: str, platform: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Results of one package that is verified on the board, and its outputs for one input."""
    model = NETWORKS[network]()
    port = model.graph.input[0]
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    samples = np.random.default_rng(0).standard_normal((6, *shape)).astype(np.float32)
    options = BuildOptions(quantize="int8", verify=("host", "qemu"))
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        onnx.save(model, Path(name) / "model.onnx")
        module = tvm_ext.load(Path(name) / "model.onnx")
        package = tvm_ext.build(module, platform, Path(name) / "package", options, calibration={port.name: samples})
        outputs = package.run({port.name: samples[0]})
        return {**figures(package), "calls": len(package.report["steps"])}, dict(outputs)


if __name__ == "__main__":
    raise SystemExit(main())
