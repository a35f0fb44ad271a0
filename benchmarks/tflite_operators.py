"""TensorFlow Lite operators by element type, against TensorFlow Lite Micro, byte for byte, on the host.

    python benchmarks/tflite_operators.py
    python benchmarks/tflite_operators.py --match GATHER

Writes files of one operator each, for every operator that TensorFlow Lite Micro's Python runtime registers but control
flow, variables and custom ones: activations of float32, int8, int16 beside weights of int8, with random scales, zero
points and inputs. Each file is run in processes of its own. Float results are equal within 1e-5 of the largest.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tflite_micro.python.tflite_micro import runtime

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.fuzzing.forked import Limits, apart  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.tflite_cases import elementwise, layers, movement  # noqa: E402
from benchmarks.tflite_cases.case import Case, distance_from_real  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.options import BuildOptions  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "tflite_operators.json"
CASES: dict[str, list[Case]] = dict(sorted({**elementwise.CASES, **movement.CASES, **layers.CASES}.items()))
_SEEDS = {"float32": (0,), "int8": (0, 1), "int16x8": (0, 1)}
_TOLERANCE = 1e-5
_ARENA_BYTES = 1 << 20
# Words of errors that are not ours: they tell a user of TVM something, not one of this package.
_FOREIGN = ("TVM's importer fails", "InternalError", "Traceback")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One file. verdict: `equal`, `off`, `refused`, `tflm refuses`, `tflm off`, `foreign`.

    `tflm off`: the package's integers are at most one step from the real result, TensorFlow Lite Micro's are others.
    off: steps of the type at most; of floats parts of the largest one. message: of a refusal.
    """

    operator: str
    dtype: str
    case: str
    seed: int
    verdict: str
    off: float = 0.0
    message: str = ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the JSON, print rows that are not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="part of an operator's name")
    parser.add_argument("--types", default="float32,int8,int16x8", help="element types, with commas between")
    parser.add_argument("--results", type=Path, help=f"default: {RESULT}, with all operators")
    options = parser.parse_args(arguments)
    rows = []
    for row in measured(options.match, options.types.split(",")):
        rows.append(row)
        if row.verdict not in ("equal", "tflm refuses", "tflm off"):
            print(row, flush=True)
    print({verdict: sum(row.verdict == verdict for row in rows) for verdict in sorted({row.verdict for row in rows})})
    if options.results or not options.match:
        figures = {"files": len(rows), "rows": [asdict(row) for row in rows]}
        write_result(options.results or RESULT, stamped(figures))


def measured(match: str, types: Sequence[str]) -> Iterator[Row]:
    """Rows of all files of the operators whose names hold `match`, two at a time."""
    work = [
        (operator, case, dtype, seed)
        for operator, cases in CASES.items() if match in operator
        for case in cases
        for dtype in case.types if dtype in types
        for seed in _SEEDS[dtype]
    ]  # fmt: skip
    begun_warm()
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda one: row(*one), work)


def row(operator: str, case: Case, dtype: str, seed: int) -> Row:
    """A file written, run by both, compared."""
    data, arrays = case.file(dtype, seed)
    named = {"operator": operator, "dtype": dtype, "case": case.name, "seed": seed}
    expected = apart(answers, data, arrays, limits=Limits(wall_s=120))
    if expected.value is None:
        return Row(**named, verdict="tflm refuses", message=_last_line(expected.said))
    found = apart(packaged, data, arrays, limits=Limits(wall_s=300))
    if found.value is None:
        return Row(**named, verdict="foreign", message=_last_line(found.said) or f"signal {found.signal}")
    if isinstance(found.value, str):
        verdict = "foreign" if any(word in found.value for word in _FOREIGN) else "refused"
        return Row(**named, verdict=verdict, message=found.value)
    off = max(map(distance, found.value, expected.value))
    if off and case.real is not None:
        steps = distance_from_real(case.real, data, arrays, found.value[0])
        return Row(**named, verdict="tflm off" if steps <= 1 else "off", off=steps)
    return Row(**named, verdict="off" if off else "equal", off=off)


def _last_line(said: str) -> str:
    """The last line of what a child printed: an exception's message."""
    return said.strip().rpartition("\n")[2].strip()


def begun_warm() -> None:
    """Compiles one file here, so that children inherit all that is imported and need not begin with it."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "one.tflite"
        path.write_bytes(CASES["RELU"][0].file("int8", 0)[0])
        tvm_ext.build(tvm_ext.load(path), "host", Path(folder) / "out", BuildOptions(verify=()))


def answers(data: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of TensorFlow Lite Micro."""
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA_BYTES)
    for place, array in enumerate(arrays):
        interpreter.set_input(array, place)
    interpreter.invoke()
    return [np.array(interpreter.get_output(place)) for place in range(_num_outputs(data))]


def _num_outputs(data: bytes) -> int:
    import tflite

    return tflite.Model.GetRootAs(data, 0).Subgraphs(0).OutputsLength()


def packaged(data: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Outputs of the package that is built of a file; the reason of a refusal."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "one.tflite"
        path.write_bytes(data)
        try:
            package = tvm_ext.build(tvm_ext.load(path), "host", Path(folder) / "out", BuildOptions(verify=()))
        except TvmExtError as error:
            return str(error).removeprefix(f"{path}: ")
        sample = dict(zip(package.inputs, arrays, strict=True))
        with package.session() as session:
            return list(session.run(sample).values())


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Steps between integers at most; of floats parts of the largest beyond the tolerance, of another shape: inf."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    most = float(apart.max(initial=0))
    if found.dtype != np.float32:
        return most
    return 0.0 if np.array_equal(found, expected) or most <= _TOLERANCE * np.abs(expected).max(initial=0) else most


if __name__ == "__main__":
    main()
