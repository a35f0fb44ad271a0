"""One case from end to end: load -> C -> gcc -> ctypes -> compare."""

from __future__ import annotations

import ctypes
import re
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from benchmarks.conformance.cases import NARROW_RTOL, Case
from codegen_c.backend.build import Compiled
from codegen_c.program.interface import Interface
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BuildFailed, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, STRICT_FLAGS, find_compiler
from tvm_ext.frontends.load import load
from tvm_ext.frontends.onnx.element_types import in_bytes

_C_FLAGS = (*LANGUAGE_FLAGS, *STRICT_FLAGS, "-O1", "-fPIC", "-shared")

Verdict = Literal["pass", "refused", "wrong", "crash", "rejected"]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """verdict: `refused` is an error of this project's own, raised on purpose; `crash` any other end.

    `rejected`: verification at its default finds fault with C that gives what the suite expects.

    reason: short, the same for cases that fail alike; operators: what the refusal names; detail: the whole message.
    """

    verdict: Verdict
    reason: str = ""
    operators: tuple[str, ...] = ()
    detail: str = ""
    seconds: float = 0.0


def run_case(case: Case) -> Outcome:
    """Outcome of a case, whatever it raises; a fault in the C code ends the process."""
    return outcome_of(case, _run, refusal)


def outcome_of(case: Case, run: Callable[[Case, Path], Outcome], refused: Callable[[TvmExtError], Outcome]) -> Outcome:
    """Outcome of a case that `run` works on in a folder of its own; refused: that of an error of ours."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="conformance_") as name:
        try:
            outcome = run(case, Path(name))
        except TvmExtError as error:
            outcome = refused(error)
        except Exception as error:
            outcome = Outcome(
                verdict="crash",
                reason=f"{type(error).__name__}: {str(error)[:200]}",
                detail=traceback.format_exc()[-3000:],
            )
    return replace(outcome, seconds=round(time.monotonic() - begin, 3))


def refusal(error: TvmExtError) -> Outcome:
    """Outcome of an error of ours: its reason and operators. A C compiler's complaint is a crash."""
    if isinstance(error, BuildFailed):
        return Outcome(verdict="crash", reason="BuildFailed", detail=str(error))
    listed = re.findall(r"^  (.+?), (?:once|\d+ times) \(.*?\): (.*)$", str(error), re.MULTILINE)
    reason = listed[0][1] if listed else re.sub(r"^\S*model\.onnx: ", "", str(error).splitlines()[0])
    return Outcome(
        verdict="refused", reason=f"{type(error).__name__}: {reason}"[:300],
        operators=tuple(operator for operator, _ in listed), detail=str(error)[:3000],
    )  # fmt: skip


def compile_case(case: Case, folder: Path, name: str = "m") -> Compiled:
    """The case's model through the whole compiler; `name` prefixes its C."""
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = load(path, shapes=open_shapes(case), states={})
        return compile_module(mod, Platform.load("host"), BuildOptions(io="caller", name=name))


def call_compiled(library: ctypes.CDLL, interface: Interface, inputs: Arrays) -> Arrays:
    """Outputs by the model's names. Raises ValueError where an input is not what the interface reads."""
    arrays = []
    for port in interface.inputs:
        array = np.ascontiguousarray(inputs[port.source]).reshape(inputs[port.source].shape)
        if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
            raise ValueError(f"{port.source} is {array.dtype}{array.shape}, the C reads {port.dtype}{port.shape}")
        arrays.append(array)
    # Bytes that no result has, so that an element never written shows.
    results = [np.frombuffer(b"\xa5" * port.num_bytes, port.dtype).copy() for port in interface.outputs]
    run = getattr(library, interface.run)
    run.restype = ctypes.c_int32
    status = run(*(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *results)))
    if status != 0:
        raise ValueError(f"run returned {status}")
    return {p.source: array.reshape(p.shape) for p, array in zip(interface.outputs, results, strict=True)}


def judge(case: Case, run: Callable[[Arrays], Arrays]) -> Outcome:
    """Run all data sets of the case and compare. run: outputs of inputs, by the model's names."""
    for inputs, expected in case.data_sets:
        feeds = {
            value.name: in_bytes(array) for value, array in zip(case.inputs, inputs, strict=False) if array is not None
        }
        found = run(feeds)
        names = [value.name for value in case.model.graph.output]
        for name, reference in zip(names, expected, strict=False):
            got = found[name] if reference is None else _selected(found[name], reference, case)
            difference = "is no tensor" if reference is None else _difference(got, in_bytes(reference), case)
            if difference:
                return Outcome(verdict="wrong", reason=difference[:120], detail=f"{name}: {difference}")
    return Outcome(verdict="pass")


def _run(case: Case, folder: Path) -> Outcome:
    compiled = compile_case(case, folder)
    sources = compiled.sources()
    for file_name, text in sources.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    units = [file_name for file_name in sorted(sources) if file_name.endswith(".c")]
    library = build_library(folder, "".join(f'#include "{unit}"\n' for unit in units))
    return judge(case, partial(call_compiled, library, compiled.interface))


def build_library(folder: Path, unit: str) -> ctypes.CDLL:
    """One translation unit with all warnings as errors, loaded. Raises BuildFailed."""
    (folder / "unit.c").write_text(unit, encoding="utf-8")
    command = [*find_compiler(Platform.load("host").toolchain), *_C_FLAGS, "unit.c", "-o", "lib.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(done.stderr[:3000])
    return ctypes.CDLL(str(folder / "lib.so"))


def open_shapes(case: Case) -> dict[str, Sequence[int]]:
    """Shapes of the data for inputs whose shape the model leaves open."""
    shapes = {}
    for value, array in zip(case.inputs, case.data_sets[0][0], strict=False):
        tensor = value.type.tensor_type
        is_open = not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim)
        if array is not None and value.type.HasField("tensor_type") and is_open:
            shapes[value.name] = array.shape
    return shapes


def _selected(found: np.ndarray, reference: np.ndarray, case: Case) -> np.ndarray:
    """Rows that NonMaxSuppression selected, without those of -1 behind them, of which the suite has none."""
    selects = any(node.op_type == "NonMaxSuppression" for node in case.model.graph.node)
    return found[: len(reference)] if selects and (found[len(reference) :] == -1).all() else found


def _difference(found: np.ndarray, reference: np.ndarray, case: Case) -> str | None:
    if found.shape != reference.shape or found.dtype != reference.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {reference.dtype}{list(reference.shape)}"
    rtol = max(case.rtol, NARROW_RTOL.get(found.dtype.name, 0.0))
    if np.allclose(*_wide(found, reference), rtol=rtol, atol=case.atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        worst = np.nanmax(np.abs(found.astype("float64") - reference.astype("float64")), initial=0)
    return f"values differ by up to {worst:g}"


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    """Floats of 16 bits as float32, in which numpy compares."""
    return [array.astype("float32") if array.dtype.name in NARROW_RTOL else array for array in arrays]
