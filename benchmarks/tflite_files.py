"""TensorFlow Lite files against TensorFlow Lite Micro, byte for byte, on the host and on a Cortex-M4 in QEMU.

    python benchmarks/tflite_files.py FOLDER

FOLDER holds .tflite files, at any depth, for instance a checkout of TensorFlow Lite Micro's repository. Each file is
compiled for both, and run on inputs drawn at random over the whole range of their types. Float outputs count as equal
within 1e-4 of the largest. A file that is refused is listed with the reason.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tflite_micro.python.tflite_micro import runtime

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.limits import Limits  # noqa: E402
from tvm_ext.core.options import BuildOptions  # noqa: E402
from tvm_ext.frontends.tflite.read_file import read_tflite  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "tflite_files.json"
NUM_INPUTS = 20
_TOLERANCE = 1e-4
_ARENA_BYTES = 1 << 26
_BOARD = "cortex_m4"

Sample = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One file. verdict: `equal`, `differs` or `refused`. differing: elements, of how many. reason: of a refusal."""

    file: str
    verdict: str
    differing: int = 0
    elements: int = 0
    reason: str = ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the JSON, print rows that are not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="part of a file's path")
    parser.add_argument("--host-only", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    files = sorted(path for path in options.folder.rglob("*.tflite") if options.match in str(path))
    rows = []
    for path in files:
        rows.append(measure(path, str(path.relative_to(options.folder)), on_board=not options.host_only))
        if rows[-1].verdict != "equal":
            print(rows[-1], flush=True)
    equal = sum(row.verdict == "equal" for row in rows)
    print(f"{equal} of {len(rows)} files equal TensorFlow Lite Micro on {NUM_INPUTS} inputs")
    figures = {"files": len(rows), "equal": equal, "inputs": NUM_INPUTS, "rows": [asdict(row) for row in rows]}
    write_result(options.results, stamped(figures))


def measure(path: Path, name: str, *, on_board: bool) -> Row:
    """A file compiled, and its outputs on all inputs compared."""
    try:
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mod = tvm_ext.load(path)
            package = tvm_ext.build(mod, _BOARD if on_board else "host", Path(folder) / "out", BuildOptions(verify=()))
            samples = [drawn(package, np.random.default_rng(seed)) for seed in range(NUM_INPUTS)]
            expected = answers(path, samples)
            with package.session() as session:
                found = [session.run(sample) for sample in samples]
            found += list(package.run_board(samples).outputs) if on_board else []
    except TvmExtError as error:
        reason = str(error).split("\n", 1)[-1].replace(str(path), path.name).strip()
        return Row(file=name, verdict="refused", reason=reason[:500])
    pairs = [(one[key], other[key]) for one, other in zip(found, expected * 2, strict=False) for key in other]
    differing = sum(differences(one, other) for one, other in pairs)
    elements = sum(other.size for _, other in pairs)
    return Row(file=name, verdict="differs" if differing else "equal", differing=differing, elements=elements)


def drawn(package: tvm_ext.Package, random: np.random.Generator) -> Sample:
    """An input of random elements, of integers over the whole range of their type."""
    sample = {}
    for name, spec in package.inputs.items():
        if np.issubdtype(spec.dtype, np.integer):
            limits = np.iinfo(spec.dtype)
            sample[name] = random.integers(limits.min, limits.max, spec.shape, dtype=spec.dtype, endpoint=True)
        else:
            sample[name] = random.normal(0, 1, spec.shape).astype(spec.dtype)
    return sample


def answers(path: Path, samples: Sequence[Sample]) -> list[Sample]:
    """Outputs of TensorFlow Lite Micro, which keeps states from one sample to the next, as packages do."""
    file = read_tflite(path, Limits())
    interpreter = runtime.Interpreter.from_bytes(path.read_bytes(), arena_size=_ARENA_BYTES)
    found = []
    for sample in samples:
        for place, index in enumerate(file.inputs):
            interpreter.set_input(sample[file.tensors[index].name], place)
        interpreter.invoke()
        outputs = {file.tensors[index].name: interpreter.get_output(n) for n, index in enumerate(file.outputs)}
        found.append({name: np.array(array) for name, array in outputs.items()})
    return found


def differences(found: np.ndarray, expected: np.ndarray) -> int:
    """Elements that differ; of floats by more than 1e-4 of the largest."""
    if np.issubdtype(expected.dtype, np.integer):
        return int((found != expected).sum())
    return int((np.abs(found - expected) > _TOLERANCE * np.abs(expected).max(initial=0)).sum())


if __name__ == "__main__":
    main()
