"""Compiles kernels alone and calls them through ctypes, so that they can be held against their numpy references."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from codegen_c.emit.functions import definition
from codegen_c.kernels.contract import Implementation, Kept, Kernel, StoredRows
from codegen_c.kernels.registry import kernels
from codegen_c.operators.kinds import Operator
from codegen_c.program.share_functions import has_constants_of, parameters_of, ring_numbers, with_parameters
from codegen_c.targets.registry import target_of
from tests.kernels.guarded import GUARD, Guarded
from tests.support.runtime_headers import INCLUDE_FLAGS
from tests.support.single_turns import single_turns
from tvm_ext.assurance.coverage import LOOPS_APART
from tvm_ext.core.platform import NO_SIMD, Platform

HOST = target_of(Platform.load("host").processor)
PORTABLE = target_of(replace(HOST.processor, simd=NO_SIMD))
WARNINGS = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-qual"),
    *("-Werror", "-Wno-unused-function"),
)
FLAGS = (
    # A kernel runs for a moment and takes seconds to compile: -O1 takes more than twice as long as -O0. What
    # optimization makes of the C is compared on the boards.
    *("-std=c11", "-O0", "-fPIC", "-shared"),
    *WARNINGS,
    *("-fsanitize=undefined", "-fno-sanitize-recover=undefined"),
    LOOPS_APART,  # a copy in every layer takes gcc up to thirty times as long; packages have them inlined
)
Entry = Callable[..., None]


def source_text(implementations: Sequence[Implementation]) -> str:
    """A C file that holds each kernel behind an external function `kernel<index>`."""
    headers = sorted({name for i in implementations for name in i.function.includes} | {"tvm_ext_kernels.h"})
    parts = [f'#include "{name}"' for name in headers]
    for index, implementation in enumerate(implementations):
        parameters = implementation.function.parameters
        head = f"void kernel{index}({', '.join(parameter.declaration() for parameter in parameters)})"
        call = f"step{index}({', '.join(parameter.name for parameter in parameters)})"
        parts += [definition(implementation.function, f"step{index}"), f"{head};\n{head}\n{{\n    {call};\n}}\n"]
    text = "\n".join(parts)
    assert not single_turns(text), single_turns(text)
    return text


def compile_kernels(implementations: Sequence[Implementation], flags: Sequence[str] = ()) -> list[Entry]:
    """The kernels, compiled in one go, each as a function for `run_kernel` and `run_ring`. flags: further ones."""
    text = source_text(implementations)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(text)
        command = ["gcc", *FLAGS, *flags, *INCLUDE_FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        loaded = ctypes.CDLL(str(library))
        return [loaded[f"kernel{index}"] for index in range(len(implementations))]


def run_kernel(
    operator: Operator,
    implementation: Implementation,
    inputs: list[np.ndarray],
    rows: list[tuple[int, int]] | None = None,
    entry: Entry | None = None,
) -> list[np.ndarray]:
    """Outputs of the compiled kernel; `rows` calls it once for each range of output rows."""
    entry = entry or compile_kernels([implementation])[0]
    guarded = [Guarded(t.shape, t.dtype) for t in operator.outputs]
    outputs = [buffer.array for buffer in guarded]
    whole = [(0, _num_rows(implementation))]
    for begin, end in rows or whole:
        call_rows(entry, implementation, inputs, outputs, begin, end)
    assert all(buffer.is_intact() for buffer in guarded), "written outside the output"
    return outputs


def run_ring(
    operator: Operator,
    implementation: Implementation,
    stored: StoredRows,
    inputs: list[np.ndarray],
    entry: Entry | None = None,
) -> list[np.ndarray]:
    """The output of a spatial kernel made for `stored` rows: a call of `at_once` rows, or of one, after the other, each
    operand in its ring of rows."""
    entry = entry or compile_kernels([implementation])[0]
    spatial = implementation.spatial
    assert spatial is not None
    kept = [stored.input(index) or Kept(stored=array.shape[1]) for index, array in enumerate(inputs)]
    rings = [
        np.full((1, rows.stored, *array.shape[2:]), GUARD, array.dtype)
        for rows, array in zip(kept, inputs, strict=True)
    ]
    filled = [0] * len(inputs)
    output = operator.output
    result = np.zeros(output.shape, output.dtype)
    written = stored.output or Kept(stored=output.shape[1])
    guarded = Guarded((1, written.stored, *output.shape[2:]), output.dtype)
    step = stored.at_once or 1
    for row in range(0, spatial.output_rows, step):
        last = min(row + step, spatial.output_rows)
        for index, access in enumerate(spatial.inputs):
            begin, end = access.read(row, last)
            assert end - begin <= kept[index].stored, "the ring is too small for a window"
            for h in range(filled[index], end):
                rings[index][0, kept[index].slot(h)] = inputs[index][0, h]
            filled[index] = max(filled[index], end)
        call_rows(entry, implementation, rings, [guarded.array], row, last, ring_numbers(stored))
        for h in range(row, last):
            result[0, h] = guarded.array[0, written.slot(h)]
    assert guarded.is_intact(), "written outside the output"
    return [result]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The outputs of one operator: `whole`, and those of the other ways to run it, which must be the same bits."""

    implementation: Implementation
    whole: np.ndarray
    others: dict[str, np.ndarray]


def run_every_way(
    operators: Sequence[Operator],
    inputs: Sequence[list[np.ndarray]],
    implement: Callable[[Operator, StoredRows], Implementation],
    flags: Sequence[str] = (),
) -> list[Runs]:
    """Every operator whole, row by row, upwards too, in the smallest rings, with pixels or rows apart, and in place, as
    far as it can be.

    Rings of rows are for single images; their numbers are parameters. Compiled in one go, with further flags. Every way
    reads the constants that the whole has: a program holds those alone.
    """
    plain = [implement(operator, StoredRows()) for operator in operators]
    ways: list[dict[str, tuple[StoredRows, Implementation]]] = []
    for operator, whole in zip(operators, plain, strict=True):

        def make(rows: StoredRows, operator: Operator = operator) -> Implementation:
            return implement(operator, rows)

        stored: dict[str, StoredRows] = {}
        if whole.spatial and make(StoredRows(at_once=1)).function != whole.function:
            stored["rows"] = StoredRows(at_once=1)
        if whole.spatial and operator.output.shape[0] == 1:
            stored["rings"] = smallest_rings(whole)
        if whole.pitched and operator.output.shape:
            stored["pitched"] = StoredRows(pitch=operator.output.shape[-1] + 3)
        if whole.row_pitched and operator.output.shape[0] == 1:
            stored["rows pitched"] = StoredRows(row_pitch=(operator.output.shape[2] + 3) * operator.output.shape[3])
        ways.append({way: (rows, with_parameters(make, rows, _passed(make, rows))) for way, rows in stored.items()})
        assert all(has_constants_of(made, whole) for _, made in ways[-1].values()), "constants depend on stored rows"
    entries = compile_kernels([*plain, *(made for way in ways for _, made in way.values())], flags)
    further = iter(entries[len(plain) :])
    found: list[Runs] = []
    for operator, arrays, whole, entry in zip(operators, inputs, plain, entries, strict=False):
        (result,), others = run_kernel(operator, whole, arrays, entry=entry), dict[str, np.ndarray]()
        if whole.spatial and "rows" not in ways[len(found)]:
            others["rows"] = run_by_row(operator, whole, StoredRows(), arrays, entry)[0]
        if _may_descend(operator, whole):  # the plan then calls the kernel that computes all
            upwards = [(h, h + 1) for h in reversed(range(_num_rows(whole)))]
            others["rows, the last first"] = run_kernel(operator, whole, arrays, upwards, entry)[0]
        for way, (kept, made) in ways[len(found)].items():
            others[way] = _WAYS[way](operator, made, kept, arrays, next(further))[0]
        for index in whole.in_place:
            if operator.inputs[index].dtype == operator.output.dtype:
                assert result.nbytes <= arrays[index].nbytes, "the output ends past the input whose place it takes"
                others[f"in place of {index}"] = _first(run_in_place(whole, arrays, index, entry), result)
                if not whole.goes_back and arrays[index].nbytes == result.nbytes:
                    others[f"below {index}"] = _first(run_in_place(whole, arrays, index, entry, below_bytes=16), result)
        found.append(Runs(implementation=whole, whole=result, others=others))
    return found


def _first(memory: np.ndarray, result: np.ndarray) -> np.ndarray:
    """The elements that a result takes of the memory of an input, which may have more rows."""
    return memory.reshape(-1)[: result.size].reshape(result.shape)


def run_by_row(
    operator: Operator, implementation: Implementation, stored: StoredRows, inputs: list[np.ndarray], entry: Entry
) -> list[np.ndarray]:
    """The output of a kernel that is called for each row by itself."""
    one_by_one = [(h, h + 1) for h in range(_num_rows(implementation))]
    return run_kernel(operator, implementation, inputs, one_by_one, entry)


def _may_descend(operator: Operator, implementation: Implementation) -> bool:
    """True where a plan may have rows computed from the last to the first."""
    spatial = implementation.spatial
    may = spatial is not None and spatial.descends and not spatial.rows_still_read and not spatial.accumulates
    return may and not implementation.in_place and operator.output.shape[0] == 1


def _passed(make: Callable[[StoredRows], Implementation], stored: StoredRows) -> list[str]:
    return parameters_of(make, stored, ring_numbers(stored))


def run_pitched(
    operator: Operator, implementation: Implementation, stored: StoredRows, inputs: list[np.ndarray], entry: Entry
) -> list[np.ndarray]:
    """The output of a kernel made for pixels, or rows, that lie apart; what lies between must not be written."""
    output, pitch = operator.output, stored.pitch or stored.row_pitch
    assert pitch is not None
    run = output.shape[-1] if stored.pitch else output.shape[-2] * output.shape[-1]
    guarded = Guarded((output.num_elements // run, pitch), output.dtype)
    guarded.bytes[:] = GUARD
    call_rows(entry, implementation, inputs, [guarded.array], 0, _num_rows(implementation))
    between = np.ascontiguousarray(guarded.array[:, run:]).view(np.uint8)
    assert guarded.is_intact() and (between == GUARD).all(), "written outside the output"
    return [np.ascontiguousarray(guarded.array[:, :run]).reshape(output.shape)]


_WAYS = {"rows": run_by_row, "rings": run_ring, "pitched": run_pitched, "rows pitched": run_pitched}


def run_accumulating(
    operator: Operator,
    implementation: Implementation,
    inputs: list[np.ndarray],
    *,
    parts: int,
    at_once: int,
    entry: Entry | None = None,
) -> list[np.ndarray]:
    """Outputs of a kernel that adds up rows of its input: it comes in equal parts, `at_once` of them per call.

    The parts lie in a ring of so many.
    """
    entry = entry or compile_kernels([implementation])[0]
    (whole,) = inputs
    types = [operator.output, *([implementation.sums] if implementation.sums else [])]
    guarded = [Guarded(kind.shape, kind.dtype) for kind in types]
    rows = whole.reshape(parts, -1)
    ring = np.full((at_once, rows.shape[1]), GUARD, whole.dtype)
    for begin in range(0, parts, at_once):
        end = min(begin + at_once, parts)
        for part in range(begin, end):
            ring[part % at_once] = rows[part]
        call_rows(entry, implementation, [ring], [buffer.array for buffer in guarded], begin, end)
    assert all(buffer.is_intact() for buffer in guarded), "written outside the outputs"
    return [buffer.array for buffer in guarded]


def run_in_place(
    implementation: Implementation,
    inputs: list[np.ndarray],
    index: int,
    entry: Entry | None = None,
    *,
    below_bytes: int = 0,
) -> np.ndarray:
    """The output of the compiled kernel, written over a copy of input `index`, or from `below_bytes` before it on."""
    entry = entry or compile_kernels([implementation])[0]
    copies = [np.array(array, order="C") for array in inputs]
    memory = np.zeros(below_bytes + copies[index].nbytes, np.uint8)
    memory[below_bytes:] = copies[index].reshape(-1).view(np.uint8)
    copies[index] = memory[below_bytes:].view(copies[index].dtype).reshape(copies[index].shape)
    output = memory[: copies[index].nbytes].view(copies[index].dtype).reshape(copies[index].shape)
    call_rows(entry, implementation, copies, [output], 0, _num_rows(implementation))
    return output


def smallest_rings(implementation: Implementation, at_once: int = 1) -> StoredRows:
    """Rings of as few rows per input as calls of so many rows need, and of the output one more; no row 0 in slot 0.

    at_once: kernels are told where it is not 1.
    """
    spatial = implementation.spatial
    assert spatial is not None
    calls = [(row, min(row + at_once, spatial.output_rows)) for row in range(0, spatial.output_rows, at_once)]
    reads = [[access.read(*call) for call in calls] for access in spatial.inputs]
    most = [max(1, *(end - begin for begin, end in rows)) for rows in reads]
    inputs = tuple(Kept(stored=rows, shift=rows // 2) for rows in most)
    told = at_once if at_once > 1 else None
    return StoredRows(inputs=inputs, output=Kept(stored=at_once + 1, shift=1), at_once=told)


def _num_rows(implementation: Implementation) -> int:
    return implementation.spatial.output_rows if implementation.spatial else 1


def call_rows(
    entry: Entry,
    implementation: Implementation,
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
    begin: int,
    end: int,
    numbers: Mapping[str, int] | None = None,
) -> None:
    """Output rows [begin, end) of a kernel; scratch is its own. numbers: values of its ring parameters, by name."""
    scratch = Guarded((implementation.scratch_bytes,), "uint8")
    parts = {
        "input": iter([np.ascontiguousarray(array) for array in inputs]),
        "output": iter(outputs),
        "constant": iter([np.ascontiguousarray(array) for _, array in implementation.constants]),
        "scratch": iter([scratch.array]),
        "row": iter((begin, end)),
        "ring": iter([(numbers or {})[p.name] for p in implementation.function.parameters if p.role == "ring"]),
    }
    taken = [(parameter.role, next(parts[parameter.role])) for parameter in implementation.function.parameters]
    entry(*(ctypes.c_int32(v) if role in ("row", "ring") else v.ctypes.data_as(ctypes.c_void_p) for role, v in taken))
    assert scratch.is_intact(), "written outside the scratch"


def registered(name: str) -> Kernel:
    """A kernel as the registry has it: those of a target refuse other targets."""
    return next(kernel for kernel in kernels() if kernel.name == name)
