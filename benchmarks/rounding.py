"""Bytes of quantized .tflite files in each rounding, beside the runtime whose bytes the rounding promises.

    python benchmarks/rounding.py ../shared FOLDER_OR_FILE
    python benchmarks/rounding.py ../shared --match kws --inputs 50 --results /tmp/rounding.json

Each file with int8, uint8 or int16 activations is built for this machine with `tflm`, `litert` and `once`. The C runs
on random inputs, whose integers cover the range of their type and whose floats cover the range to which the file
quantizes them, and on the inputs that are recorded beside the file in an .npz. `tflm` and `once` are compared with
TensorFlow Lite Micro, `litert` with LiteRT's default interpreter, and the interpreters with each other. Floats count as
equal within 1e-5 of the largest. A file of more than 20 million multiply-adds takes fewer inputs. For the files that
BOARD names, instructions are counted on a Cortex-M4 in QEMU for one input. Files are not part of the repository: a
result has their SHA-256, and the name is repository and path for files that `benchmarks/real_files.tsv` lists. Results
are written after each file; other files keep theirs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.real_files import sources  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.limits import Limits  # noqa: E402
from tvm_ext.core.processes.child import Child, ChildLimits  # noqa: E402
from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, TfliteFile, read_tflite  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "rounding.json"
RUNTIME_OF = {"tflm": "tflm", "litert": "litert", "once": "tflm"}
"""The interpreter beside which each rounding is compared."""
BOARD = (
    "kws_int8", "resnet_int8", "vww", "ad", "har", "micro_kws_int8", "micro_speech_uint8", "fingerprint",
    "rnnoise_int8",
)  # fmt: skip
"""Files, by their names without suffix, whose instructions are counted."""
NUM_INPUTS = 1000
_MOST_MACS, _ALL_MACS, _FEWEST = 20_000_000, 4_000_000_000, 4
"""Multiply-adds up to which a file takes all inputs, those of all inputs of a larger file, and its fewest inputs."""
_SECONDS = 1800.0
_ARENA_BYTES = 1 << 26
_PLATFORM = "cortex_m4"

Sample = dict[str, np.ndarray]
Run = Callable[[Sample], Sample]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the files, smallest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="files, and folders whose files are taken at any depth")
    parser.add_argument("--match", default="", help="part of a file's name in the results")
    parser.add_argument("--missing", action="store_true", help="only files without a result")
    parser.add_argument("--inputs", type=int, default=NUM_INPUTS)
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = known(options.results).get("files", {})
    for name, path in _named(options.files):
        if options.match not in name or (options.missing and name in results):
            continue
        types = _types(path)
        if not set(types) & set(ACTIVATIONS):
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        row = measured(path, options.inputs, on_board=path.stem in BOARD)
        results[name] = stamped({"sha256": digest, "types": types, **row})
        print(name, results[name], flush=True)
        write_result(options.results, {"files": results})


def _named(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each different file, smallest first."""
    listed = {source.sha256: source.key for source in sources()}
    found: dict[str, tuple[str, Path]] = {}
    for given in paths:
        for path in sorted(given.rglob("*.tflite")) if given.is_dir() else [given]:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            name = str(path.relative_to(given.parent)) if given.is_dir() else path.name
            found.setdefault(digest, (listed.get(digest, name), path))
    yield from sorted(found.values(), key=lambda item: (item[1].stat().st_size, item[0]))


def _types(path: Path) -> list[str]:
    """Return the element types that operators write; none for a file that is refused when it is read."""
    try:
        file = read_tflite(path, Limits())
    except TvmExtError:
        return []
    written = [file.tensors[index].dtype for node in file.nodes for index in node.outputs if index >= 0]
    return sorted({dtype for dtype in written if dtype})


def measured(path: Path, count: int, *, on_board: bool) -> dict[str, Any]:
    """Return the results of one file. A file that ends its process or takes too long has the error of the child."""
    try:
        with Child("benchmarks.rounding", limits=ChildLimits(seconds=_SECONDS), trusted=True) as child:
            return child.call("measured_here", str(path.resolve()), count, on_board)
    except TvmExtError as error:
        return {"error": type(error).__name__, "reason": " ".join(str(error).split())[:500]}


def prepare() -> None:
    """Import all that `measured_here` needs, ahead of the first call."""
    import tvm_ext.building.build
    import tvm_ext.verification.input_ranges  # noqa: F401


def measured_here(path: str, count: int, on_board: bool) -> dict[str, Any]:
    """Return the differences of a file: of the interpreters, and of the C in each rounding from its interpreter."""
    import tvm_ext
    from tvm_ext.core.options import BuildOptions

    row: dict[str, Any] = {}
    samples: list[Sample] = []
    expected: dict[str, list[Sample] | str] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rounding, runtime in RUNTIME_OF.items():
            try:
                mod = tvm_ext.load(path, rounding=rounding)
                chosen = BuildOptions(rounding=rounding, verify=())
                package = tvm_ext.build(mod, "host", Path(folder) / rounding, chosen)
                if not expected:
                    samples = _samples(mod, package, count)
                    expected = {name: _outputs(make, Path(path), samples) for name, make in _INTERPRETERS.items()}
                    row |= {"macs": package.report["macs"], "interpreters": _differences(*expected.values())}
                with package.session() as session:
                    row[rounding] = _differences([dict(session.run(sample)) for sample in samples], expected[runtime])
                if on_board:
                    board = tvm_ext.build(mod, _PLATFORM, Path(folder) / f"{rounding}_board", chosen)
                    row[rounding]["instructions"] = board.run_board(samples[:1]).instructions
            except TvmExtError as error:
                text = str(error).replace(path, Path(path).name).removeprefix(f"{type(error).__name__}: ")
                row[rounding] = {"refused": " ".join(text.split())[:500]}
    return row


def _samples(mod: Any, package: Any, count: int) -> list[Sample]:
    """Return the recorded inputs of a model and random ones, whose number depends on its multiply-adds."""
    from tvm_ext.core.decisions.models import ModelOrigin
    from tvm_ext.verification.input_ranges import input_ranges, random_inputs

    macs = package.report["macs"]
    if macs > _MOST_MACS:
        count = min(count, max(_FEWEST, _ALL_MACS // macs))
    specs = {name: (spec.shape, spec.dtype) for name, spec in package.inputs.items()}
    ranges, beside = input_ranges(mod), Path(ModelOrigin.read(mod).path).with_suffix(".npz")
    recorded: list[Sample] = []
    if beside.exists():
        arrays = np.load(beside)
        recorded.append({name: arrays[f"in{place}"] for place, name in enumerate(specs)})
    return [*recorded, *(random_inputs(specs, seed, ranges) for seed in range(count - len(recorded)))]


def _tflite_micro(data: bytes, file: TfliteFile) -> Run:
    """Return a function that runs TensorFlow Lite Micro, which keeps states from one call to the next."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA_BYTES)

    def run(sample: Sample) -> Sample:
        for place, index in enumerate(file.inputs):
            interpreter.set_input(sample[file.tensors[index].name], place)
        interpreter.invoke()
        return {file.tensors[index].name: interpreter.get_output(place) for place, index in enumerate(file.outputs)}

    return run


def _litert_default(data: bytes, file: TfliteFile) -> Run:
    """Return a function that runs LiteRT's default interpreter, which keeps states from one call to the next."""
    from ai_edge_litert import interpreter as litert

    interpreter = litert.Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()

    def run(sample: Sample) -> Sample:
        for index in file.inputs:
            interpreter.set_tensor(index, sample[file.tensors[index].name])
        interpreter.invoke()
        return {file.tensors[index].name: interpreter.get_tensor(index) for index in file.outputs}

    return run


_INTERPRETERS: Mapping[str, Callable[[bytes, TfliteFile], Run]] = {"tflm": _tflite_micro, "litert": _litert_default}


def _outputs(make: Callable[[bytes, TfliteFile], Run], path: Path, samples: Sequence[Sample]) -> list[Sample] | str:
    """Return the outputs of an interpreter, or the reason why it does not run the file."""
    try:
        run = make(path.read_bytes(), read_tflite(path, Limits()))
        return [{name: np.array(array) for name, array in run(sample).items()} for sample in samples]
    except (RuntimeError, ValueError) as error:
        return " ".join(str(error).split())[:200]


def _differences(found: list[Sample] | str, expected: list[Sample] | str) -> dict[str, Any]:
    """Return in how many inputs and elements two lists of outputs differ, and the largest difference."""
    if isinstance(found, str) or isinstance(expected, str):
        return {"not_compared": found if isinstance(found, str) else expected}
    pairs = [
        [(one[name].reshape(wanted.shape), wanted) for name, wanted in other.items()]
        for one, other in zip(found, expected, strict=True)
    ]
    counts = [sum(int(_differs(a, b).sum()) for a, b in pair) for pair in pairs]
    furthest = max(float(np.abs(a.astype(np.float64) - b).max(initial=0)) for pair in pairs for a, b in pair)
    return {
        "inputs": len(pairs),
        "differing_inputs": sum(count > 0 for count in counts),
        "elements": sum(b.size for pair in pairs for _, b in pair),
        "differing_elements": sum(counts),
        "largest_difference": furthest,
    }


def _differs(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return True for each integer that differs, and each float that differs by more than 1e-5 of the largest."""
    tolerance = 1e-5 * float(np.abs(expected).max(initial=0)) if expected.dtype.kind == "f" else 0.0
    return np.abs(found.astype(np.float64) - expected) > tolerance


if __name__ == "__main__":
    main()
