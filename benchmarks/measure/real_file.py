"""Measure one model file in a child process: does it compile, are its results right, and what does it take?"""

from __future__ import annotations

import os
import re
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

NUM_INPUTS = 4
FLOAT_ERROR = 1e-4
"""Error of floats, relative to the largest, above which the verification of a build judges the file."""
LARGER_BYTES = 1 << 26
"""Bytes of the memories for which a file is built that does not fit into those of the platform."""
_ARENA_BYTES = 1 << 26
_GENERIC = "generic"

Sample = Mapping[str, np.ndarray]


def prepare() -> None:
    """Import all that `built` needs."""
    import tvm_ext.building.build
    import tvm_ext.verification.reference_runtimes.ask  # noqa: F401


def built(path: str, platform: str, rounding: str, loading: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a model file that is built for a platform and compared on this machine.

    rounding: of a TensorFlow Lite file, as in `load`. loading: further arguments of `load`.
    Inputs are random, integers over the whole range that their type and the model's operators allow. The reference is
    the runtime of the file's format. A file that does not fit into the memories of the platform is built for memories
    of `LARGER_BYTES`, which `memory_bytes` says. A file that is refused has `operators`, `error` and `reason` alone.
    """
    import tvm_ext
    from tvm_ext.core.decisions.models import ModelOrigin
    from tvm_ext.core.errors import DoesNotFit, TvmExtError
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.verification.input_ranges import input_ranges, random_inputs
    from tvm_ext.verification.reference_runtimes.ask import ask_others

    operators: dict[str, int] = {}
    memory: dict[str, int] = {}
    target, options = tvm_ext.Platform.load(platform), BuildOptions(verify=())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = _cpu_s()
        try:
            of_file = {"rounding": rounding} if path.endswith(".tflite") else {}
            mod = tvm_ext.load(path, **of_file, **loading)
            operators = dict(Counter(node.operator for node in ModelOrigin.read(mod).nodes))
            try:
                package = tvm_ext.build(mod, target, Path(folder) / "out", options)
            except DoesNotFit:
                memory, target = {"memory_bytes": LARGER_BYTES}, _with_memories(target, LARGER_BYTES)
                package = tvm_ext.build(mod, target, Path(folder) / "larger", options)
        except TvmExtError as error:
            reason = str(error).replace(path, Path(path).name).removeprefix(f"{type(error).__name__}: ")
            return {"operators": operators, "error": type(error).__name__, "reason": " ".join(reason.split())}
        seconds = _cpu_s() - begin
        specs = {name: (spec.shape, spec.dtype) for name, spec in package.inputs.items()}
        ranges = input_ranges(mod)
        samples = [random_inputs(specs, seed, ranges) for seed in range(NUM_INPUTS)]
        reference, refusals = ask_others(mod, samples, ())
        with package.session() as session:
            found = [session.run(sample) for sample in samples]
    told: dict[str, Any] = {"compared_with": None, "not_compared": "; ".join(one.reason for one in refusals)[:300]}
    if reference is not None:
        told = {"compared_with": reference.runtime, **_differences(found, reference.outputs)}
        if not told["differing"] and told["float_error"] > FLOAT_ERROR:
            told["verified"] = _verifies(mod, target)
    return {"operators": operators, "cpu_s": round(seconds, 1), **memory, **_sizes(package.report), **told}


def _with_memories(platform: Any, size: int) -> Any:
    """Return a platform whose memories all hold `size` bytes."""
    return replace(platform, memories=tuple(replace(one, capacity_bytes=size) for one in platform.memories))


def _verifies(mod: Any, platform: Any) -> bool:
    """Return True if the verification of a build, which knows the rounding noise of each output, passes."""
    import tvm_ext
    from tvm_ext.core.errors import VerificationFailed
    from tvm_ext.core.options import BuildOptions

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tvm_ext.build(mod, platform, Path(folder) / "out", BuildOptions(verify=("host",)))
        except VerificationFailed:
            return False
    return True


def _cpu_s() -> float:
    """Return the seconds of CPU of this process and of the processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _sizes(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return type, bytes and share of generic instructions of a package from its report."""
    steps = report["steps"]
    return {
        "dtype": _dtype(report),
        "ram_bytes": sum(memory["used_bytes"] for memory in report["memories"] if memory["kind"] == "ram"),
        "flash_bytes": report["flash"]["total_bytes"],
        "generic_share": _share((step["modelled_instructions"] or 0, step["kernel"]) for step in steps),
    }


def _dtype(report: Mapping[str, Any]) -> str:
    """Return the type of most elements of the tensors that a run writes, inputs and outputs included."""
    elements = Counter[str]()
    for tensor in (*report["tensors"], *report["inputs"], *report["outputs"]):
        if tensor["dtype"] and tensor["shape"] is not None:
            elements[tensor["dtype"]] += int(np.prod(tensor["shape"]))
    return elements.most_common(1)[0][0] if elements else "none"


def _share(steps: Iterable[tuple[int, str]]) -> float:
    """Return the share of modelled instructions in steps that no kernel computes."""
    counted = list(steps)
    total = sum(instructions for instructions, _ in counted)
    generic = sum(instructions for instructions, kernel in counted if kernel == _GENERIC)
    return round(generic / total, 4) if total else 0.0


def _differences(found: Sequence[Sample], expected: Sequence[Sample]) -> dict[str, Any]:
    """Return elements of integers and how many differ, by how much at most, and the largest relative error of floats.

    The error of floats is relative to the largest element of the output in all samples.
    """
    elements = differing = most = 0
    error = 0.0
    for name in expected[0]:
        wanted = np.stack([one[name] for one in expected])
        got = np.stack([one[name].reshape(wanted.shape[1:]) for one in found])
        if wanted.dtype.kind in "iub":
            steps = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
            elements += steps.size
            differing += int((steps > 0).sum())
            most = max(most, int(steps.max(initial=0)))
        elif np.isfinite(wanted).all():
            size = np.abs(wanted).max(initial=0) or 1.0
            error = max(error, float(np.abs(got - wanted).max(initial=0) / size))
        elif not np.array_equal(got, wanted, equal_nan=True):
            error = float("inf")
    return {"elements": elements, "differing": differing, "most_steps": most, "float_error": float(f"{error:.2g}")}


def tflm_arena(path: str) -> dict[str, int]:
    """Return the bytes of arena that TensorFlow Lite Micro needs for a file on this machine.

    total: all. plan: what it plans for tensors and scratch; the rest are structures, which hold pointers of 64 bits
    here, and variables.
    """
    from tflite_micro.python.tflite_micro import runtime

    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            interpreter = runtime.Interpreter.from_bytes(Path(path).read_bytes(), arena_size=_ARENA_BYTES)
            interpreter.print_allocations()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        text = said.read().decode(errors="replace")
    sizes = dict(re.findall(r"Arena allocation (\w+) (\d+) bytes", text))
    return {"total": int(sizes["total"]), "plan": int(sizes["head"])}
