"""LSTM and GRU of 10 to 1,000 steps, float and quantized: bytes, CPU time of the compiler and instructions.

    python benchmarks/sequence_lengths.py
    python benchmarks/sequence_lengths.py --only gru --platforms cortex_m4

Layers of 64 units on 40 features, with drawn weights, as ONNX files. Each is verified on the board in QEMU against
onnxruntime, and quantized with drawn samples. Seconds are CPU time of a build without verification, from the file to
the package, without the C compilers. Results of layers that are not named are kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "sequence_lengths.json"
GATES = {"lstm": 4, "gru": 3}
LENGTHS = (10, 20, 100, 1000)
FEATURES, UNITS = 40, 64
NUM_SAMPLES = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each layer; write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GATES, default=list(GATES))
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--platforms", nargs="+", default=("cortex_m4", "cortex_m55"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = known(options.results)
    for kind in options.only:
        for platform in options.platforms:
            for length in options.lengths:
                found[f"{kind} {platform} {length}"] = stamped(
                    {quantize: _measured(kind, length, platform, quantize) for quantize in ("none", "int8")}
                )
                print(kind, platform, length, found[f"{kind} {platform} {length}"], flush=True)
                write_result(options.results, found)
    return 0


def _measured(kind: str, length: int, platform: str, quantize: str) -> dict[str, Any]:
    import tvm_ext

    samples = np.random.default_rng(1).standard_normal((NUM_SAMPLES, length, 1, FEATURES)).astype(np.float32)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as folder:
        path = _written(kind, length, Path(folder))
        calibration = {"x": samples} if quantize == "int8" else None

        def built(*verify: str) -> dict[str, Any]:
            options = tvm_ext.BuildOptions(quantize=quantize, verify=verify)  # type: ignore[arg-type]
            out = Path(folder) / f"out{len(verify)}"
            return tvm_ext.build(tvm_ext.load(path), platform, out, options, calibration=calibration).report

        report = built("qemu")
        begun = time.process_time()  # the second build, so that imports do not count
        built()
        seconds = time.process_time() - begun
        verified = report["verify"]["qemu"]
        if not verified["passed"]:
            raise SystemExit(f"{kind} of {length} steps on {platform}, {quantize}: the board's results are wrong.")
        return {
            "weights_bytes": report["weights_bytes"], "code_bytes": report["code_bytes"],
            "macs": report["macs"], "instructions": verified["instructions"], "reference": verified["reference"],
            "seconds": round(seconds, 1),
        }  # fmt: skip


def _written(kind: str, length: int, folder: Path) -> Path:
    """Write a layer that returns all of its outputs."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, gates = np.random.default_rng(0), GATES[kind]
    constants = {
        "w": rng.standard_normal((1, gates * UNITS, FEATURES)) / np.sqrt(FEATURES),
        "r": rng.standard_normal((1, gates * UNITS, UNITS)) / np.sqrt(UNITS),
        "b": rng.standard_normal((1, 2 * gates * UNITS)) / 10,
    }
    node = helper.make_node(kind.upper(), ["x", "w", "r", "b"], ["y"], kind, hidden_size=UNITS)
    graph = helper.make_graph(
        [node], kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (length, 1, FEATURES))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (length, 1, 1, UNITS))],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )  # fmt: skip
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


if __name__ == "__main__":
    raise SystemExit(main())
