"""The `light` networks of the ONNX backend suite: well-known networks whose weights are made, not stored.

    python benchmarks/light_networks.py

Each is compiled for the host, run on the suite's own input, and compared with the suite's own output. One whose C
text would exceed 100 MB is loaded and counted, not written. Writes `benchmarks/conformance/LIGHT.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import commit  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
RESULT = ROOT / "benchmarks" / "conformance" / "LIGHT.md"
MOST_C_BYTES = 100_000_000
LEAST_LITERAL_BYTES = 5
"""Least bytes of a float weight in C text, with its comma: `0.5f,`."""
RTOL, ATOL = 1e-3, 1e-5


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if no network is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, help="one .onnx file: print its result as JSON")
    options = parser.parse_args(arguments)
    if options.network:
        print(json.dumps(_measure(options.network)))
        return 0
    rows: list[dict[str, Any]] = []
    for path in sorted(DATA.glob("*.onnx")):
        # A process each: the largest take most of a machine's memory.
        command = [sys.executable, __file__, "--network", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        result = json.loads(done.stdout) if done.returncode == 0 else {"verdict": f"crash: {done.stderr[-200:]}"}
        rows.append({"network": path.stem.removeprefix("light_"), **result})
        print(rows[-1], flush=True)
    RESULT.write_text(_table(rows), encoding="utf-8")
    return int(any(row["verdict"] == "wrong" or row["verdict"].startswith("crash") for row in rows))


def _measure(path: Path) -> dict[str, Any]:
    weights = sum(int(np.prod(shape)) for shape in _made_shapes(path))
    if weights * LEAST_LITERAL_BYTES > MOST_C_BYTES:
        least = weights * LEAST_LITERAL_BYTES // 1_000_000
        return {"verdict": f"not written: {weights:,} weights are at least {least} MB of C", "weights": weights}
    with TemporaryDirectory(prefix="light_") as name:
        try:
            package = tvm_ext.build(tvm_ext.load(path), "host", Path(name) / "out", tvm_ext.BuildOptions(verify=()))
        except TvmExtError as error:
            return {"verdict": f"refused: {error}", "weights": weights}
        (key, spec), (result,) = next(iter(package.inputs.items())), package.outputs
        count = int(np.prod(spec.shape))
        # The suite's runner makes its input so.
        found = package.run({key: (np.arange(count).reshape(spec.shape) / count).astype(np.float32)})[result]
        expected = numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
        agrees = np.allclose(found, expected.reshape(found.shape), rtol=RTOL, atol=ATOL)
        return {
            "verdict": "pass" if agrees else "wrong",
            "weights": weights,
            "c_bytes": sum(file.stat().st_size for file in package.folder.glob("*.c")),
            "arena_bytes": package.report["arena_bytes"],
            "steps": len(package.report["steps"]),
            "error": float(np.abs(found - expected.reshape(found.shape)).max()),
        }


def _made_shapes(path: Path) -> list[Sequence[int]]:
    """Shapes of the weights a light network makes instead of storing them."""
    graph = onnx.load(path).graph
    stored = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
    return [stored[node.input[0]].tolist() for node in graph.node if node.op_type == "ConstantOfShape"]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    columns = ("network", "verdict", "weights", "c_bytes", "arena_bytes", "steps", "error")
    lines = [
        "# Light networks of the ONNX backend suite",
        "",
        "Written by `python benchmarks/light_networks.py`: compiled for the host, run on the suite's input, compared",
        f"with the suite's output (rtol {RTOL:g}, atol {ATOL:g}), at commit {commit()}. Error: the largest difference.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        lines.append("| " + " | ".join(f"{c:,}" if isinstance(c, int) else f"{c}" for c in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
