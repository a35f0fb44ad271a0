"""Networks as WebAssembly: fuel with and without vectors, and the time of a run in node beside two other runtimes.

    npm install onnxruntime-web@1.30.0 @litertjs/core@2.5.3      in a folder of its own
    python benchmarks/wasm_times.py --npm FOLDER ../shared/models/kws_int8.tflite ../shared/models/resnet_int8.tflite

Each file is verified in wasmtime. LiteRT.js, which computes with XNNPACK, runs the same file in the same process, in
turn, with one thread; its inputs and outputs are converted from and to floats, because it has no tensors of int8. The
file of the same name with the ending .onnx also has floats there; onnxruntime-web runs it if it exists. Times are the
least of 40 rounds of 20 runs.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions, Package, Platform  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "wasm_times.json"
SCRIPT = Path(__file__).with_suffix(".mjs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--npm", type=Path, required=True, help="folder with both packages in node_modules")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for model in options.models:
        with TemporaryDirectory(prefix="tvm_ext_") as name:
            found[model.stem] = measured(model, Path(name), options.npm)
        print(model.stem, found[model.stem], flush=True)
    write_result(options.results, stamped({"networks": found, "load": round(os.getloadavg()[1], 1)}))
    return 0


def measured(model: Path, folder: Path, npm: Path) -> dict[str, Any]:
    """Return the measurements of a file."""
    platform = Platform.load("wasm")
    (folder / "plain.toml").write_text(plain(ROOT / "tvm_ext" / "platforms" / "wasm.toml"), encoding="utf-8")
    vectors = built(model, platform, folder / "vectors")
    scalars = built(model, Platform.load(folder / "plain.toml"), folder / "scalars")
    onnx = model.with_suffix(".onnx")
    same = folder / "floats.tflite"
    same.write_bytes(with_float_ports(model.read_bytes()))
    command = ["node", str(SCRIPT), str(module_of(vectors)), str(same), *([str(onnx)] if onnx.is_file() else [])]
    times = json.loads(subprocess.run(command, cwd=npm, capture_output=True, check=True, text=True).stdout)
    theirs = times["onnxruntime_web"]
    return {
        "fuel": fuel(vectors), "plain_fuel": fuel(scalars), "module_bytes": module_of(vectors).stat().st_size,
        "plain_module_bytes": module_of(scalars).stat().st_size, "microseconds": round(times["ours"], 1),
        "onnxruntime_web_microseconds": None if theirs is None else round(theirs, 1),
        "ratio": None if theirs is None else round(times["ours"] / theirs, 3),
        "litert_microseconds": round(times["litert"], 1),
        "litert_ratio": round(times["ours"] / times["litert"], 3), "versions": times["versions"],
    }  # fmt: skip


def with_float_ports(model: bytes) -> bytes:
    """Return a quantized TFLite file whose inputs are quantized from floats, and its outputs dequantized to them."""
    content: Any = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    graph = content.subgraphs[0]

    def as_float(index: int) -> int:
        tensor = copy.copy(graph.tensors[index])
        tensor.type, tensor.quantization, tensor.buffer = schema.TensorType.FLOAT32, None, 0
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def converting(kind: int, pairs: Sequence[tuple[int, int]]) -> list[Any]:
        code: Any = schema.OperatorCodeT()
        code.deprecatedBuiltinCode = code.builtinCode = kind
        content.operatorCodes.append(code)
        operators = [schema.OperatorT() for _ in pairs]
        for operator, (source, result) in zip(operators, pairs, strict=True):
            operator.opcodeIndex, operator.inputs, operator.outputs = len(content.operatorCodes) - 1, [source], [result]
        return operators

    inputs = [(as_float(index), index) for index in graph.inputs]
    outputs = [(index, as_float(index)) for index in graph.outputs]
    before = converting(schema.BuiltinOperator.QUANTIZE, inputs)
    after = converting(schema.BuiltinOperator.DEQUANTIZE, outputs)
    graph.operators = [*before, *graph.operators, *after]
    graph.inputs, graph.outputs = [one for one, _ in inputs], [one for _, one in outputs]
    content.signatureDefs = []
    builder = flatbuffers.Builder(len(model))
    builder.Finish(content.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def plain(platform: Path) -> str:
    """Return the platform's file without vectors."""
    text = platform.read_text(encoding="utf-8")
    return text.replace('simd = "simd128"\n', "").replace('"-msimd128", ', "")


def built(model: Path, platform: Platform, folder: Path) -> Package:
    return tvm_ext.build(tvm_ext.load(model), platform, folder, BuildOptions(verify=("qemu",)))


def module_of(package: Package) -> Path:
    return package.folder / f"{package.interface.model}.wasm"


def fuel(package: Package) -> int:
    """Return the units of fuel of a run whose output is verified."""
    verified = package.report["verify"]["qemu"]
    assert verified["passed"], "the build would have failed"
    return int(verified["instructions"])


if __name__ == "__main__":
    raise SystemExit(main())
