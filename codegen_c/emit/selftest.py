"""Emit the self-test: stored inputs, expected outputs, and a CRC of all constants."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from codegen_c.c_text.narrow_floats import NARROW_FLOATS, decode_function
from codegen_c.c_text.text import C_TYPES, filled, literal
from codegen_c.emit.drawn_vectors import DrawnVectors, drawn_fields, is_float
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.stream import callback_signature, streamed
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program

Side = Literal["inputs", "outputs"]
SIDES: tuple[Side, Side] = ("inputs", "outputs")
_LINE_LENGTH = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class TestVector:
    """A sample: an array for each port, in the port's shape and dtype, under its name in the model (`Port.source`).

    outputs: None if they are unknown; the self-test then runs the sample and compares nothing.
    """

    __test__ = False  # not a test, although pytest takes the name for one

    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray] | None


def emit_vectors(
    interface: Interface, vectors: Sequence[TestVector], drawn: DrawnVectors | None = None
) -> dict[str, str]:
    """Return `<model>_vectors.h` and `.c`, with at least one vector; floats keep every bit except a NaN's payload.

    drawn: additional vectors that the device draws itself; None for none.
    """
    if not vectors:
        raise ValueError("a self-test needs at least one vector")
    known = SIDES if all(vector.outputs is not None for vector in vectors) else SIDES[:1]
    sides = [(port, _member(port, side), side) for side in known for port in getattr(interface, side)]
    texts = [
        [{"name": name, "lines": _lines(_array(getattr(vector, side), port))} for port, name, side in sides]
        for vector in vectors
    ]
    fields = None if drawn is None else drawn_fields(interface, drawn)
    uses_math = not _all_finite([side for vector in vectors for side in (vector.inputs, vector.outputs)])
    uses_math |= drawn is not None and not _all_finite([vector.outputs for vector in drawn.vectors])
    header = render(
        "vectors.h.j2",
        model=interface.model,
        drawn=fields,
        num_vectors=len(vectors),
        compares=known == SIDES,
        ports=[
            {"c_type": port.c_type, "member": name, "length": _length(interface, port), "source": port.source}
            for port, name, _ in sides
        ],
    )
    source = render("vectors.c.j2", model=interface.model, vectors=texts, drawn=fields, uses_math=uses_math)
    return {f"{interface.model}_vectors.h": header, f"{interface.model}_vectors.c": source}


def emit_selftest(
    interface: Interface, *, tolerance: float = 1e-4, compares: bool = True, drawn: DrawnVectors | None = None,
    constants: Mapping[str, Any] | None = None, run: tuple[str, str] = ("", ""),
) -> dict[str, str]:  # fmt: skip
    """Return `<model>_selftest.h/.c` (no stdio) and `<model>_selftest_main.c` (a program for the host).

    tolerance: float outputs may differ by this fraction of the output's largest expected magnitude. compares: True if
    the vectors hold outputs; else the test runs them, and reports that it compared nothing. drawn: as in
    `emit_vectors`. constants: from `constants_check`; None if constants are not checked. run: the function that runs
    the model, and the header that declares it; by default those of the model.
    """
    model = interface.model
    dtypes = sorted({port.dtype for port in interface.outputs}) if compares else []
    values = {
        "model": model,
        "run": run[0] or interface.run,
        "run_header": run[1],
        "io": interface.io,
        "context": interface.holds_context,
        "compares": compares,
        "resets": interface.state_bytes > 0,
        "warm_up_runs": interface.warm_up_runs,
        "tolerance": repr(float(tolerance)),
        "uses_float": any(is_float(dtype) for dtype in dtypes),
        "kinds": [
            {
                "dtype": dtype,
                "c_type": C_TYPES[dtype],
                "is_float": is_float(dtype),
                "decode": decode_function(f"value_of_{dtype}", dtype) if dtype in NARROW_FLOATS else "",
                "computed": "float" if dtype in NARROW_FLOATS else C_TYPES[dtype],
                "zero": "0.0" if dtype == "float64" else "0.0f",
            }
            for dtype in dtypes
        ],
        "inputs": ports(interface, "inputs", "vector->in_"),
        "outputs": ports(interface, "outputs", "output_"),
        "streams": streams(interface),
        "in_strips": any(port.stream and port.stream.strips for port in interface.inputs),
        "arguments": run_arguments(interface, "vector->in_", "output_"),
        "drawn_arguments": run_arguments(interface, "drawn_", "output_"),
        "drawn": None if drawn is None else drawn_fields(interface, drawn),
        "constants": constants,
        "pipeline": interface.is_pipeline,
    }
    return {
        f"{model}_selftest.h": render(
            "selftest.h.j2", model=model, context=interface.holds_context, compares=compares, drawn=drawn is not None
        ),
        f"{model}_selftest.c": render("selftest.c.j2", **values),
        f"{model}_selftest_main.c": render(
            "selftest_main.c.j2",
            model=model,
            context=interface.holds_context,
            compares=compares,
            drawn=drawn is not None,
            servers=[{"name": name, "function": interface.serve(name)} for name in interface.servers],
        ),
    }


def ports(interface: Interface, side: Side, caller_prefix: str, instance: str = "context") -> list[dict[str, Any]]:
    """Return the template's fields of ports; `place`: C expression of a port's elements.

    instance: C expression of a pointer to the instance, if callers hold instances.
    """
    arena = interface.io == "arena"
    slot = slot_of(interface) if caller_prefix in ("input_", "output_") else ""
    return [
        {
            "name": port.name,
            "dtype": port.dtype,
            "c_type": port.c_type,
            "is_float": is_float(port.dtype),
            "size": interface.size_macro(port),
            "member": _member(port, side),
            "place": f"{interface.accessor(port)}({instance if interface.holds_context else ''})"
            if arena
            else f"{caller_prefix}{port.name}{slot}",
        }
        for port in getattr(interface, side)
    ]


def streams(interface: Interface) -> list[dict[str, Any]]:
    """Return the template's fields of streamed ports; `offset`: bytes before the port in a sample of its side."""
    found: list[dict[str, Any]] = []
    for direction, port in streamed(interface):
        side: Side = "inputs" if direction == "read" else "outputs"
        every: tuple[Port, ...] = getattr(interface, side)
        found.append(
            {
                "direction": direction,
                "name": port.name,
                "dtype": port.dtype,
                "c_type": port.c_type,
                "is_float": is_float(port.dtype),
                "signature": callback_signature(direction, port, f"{direction}_{port.name}"),
                "size": interface.size_macro(port),
                "rows": interface.rows_macro(port),
                "row": interface.row_macro(port),
                "asked_at": port.stream.asked_at if port.stream else (),
                "asked_in": port.stream.asked_in if port.stream else (),
                "strips": port.stream.strips if port.stream else (),
                "pixel": f"({interface.row_macro(port)} / {interface.columns_macro(port)})",
                "member": _member(port, side),
                "offset": sum(other.num_bytes for other in every[: every.index(port)]),
            }
        )
    return found


def run_arguments(interface: Interface, input_prefix: str, output_prefix: str, instance: str = "context") -> str:
    """Return the C arguments of `<model>_run` if its buffers are named prefix + port name."""
    names = [instance] if interface.holds_context else []
    if interface.io == "stream":
        names += ["&io"]
    elif interface.io == "caller":
        slot = slot_of(interface)
        names += [input_prefix + port.name + (slot if input_prefix == "input_" else "") for port in interface.inputs]
        names += [output_prefix + port.name + slot for port in interface.outputs]
    return ", ".join(names)


def slot_of(interface: Interface) -> str:
    """Return the C index of the buffers of an input in flight, if a pipeline works on the caller's buffers."""
    return "[slot]" if interface.is_pipeline and interface.io == "caller" else ""


def _member(port: Port, side: Side) -> str:
    """Return the name of a port's array in the vector struct; an input and an output may share a name."""
    return f"{'in' if side == 'inputs' else 'out'}_{port.name}"


def _length(interface: Interface, port: Port) -> str:
    """Return the length of a port's array; at least 1, because C has no arrays of length 0."""
    return interface.size_macro(port) if port.num_elements else "1"


def _array(stored: Mapping[str, np.ndarray], port: Port) -> np.ndarray:
    array = np.asarray(stored[port.source])
    if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
        raise ValueError(f"{port.source}: {array.dtype}{list(array.shape)} stored for {port.dtype}{list(port.shape)}")
    return port.handed_over(array)


def _all_finite(stored: Sequence[Mapping[str, np.ndarray] | None]) -> bool:
    return all(np.isfinite(array).all() for side in stored for array in (side or {}).values())


def _lines(array: np.ndarray) -> list[str]:
    flat = array.ravel() if array.size else np.zeros(1, array.dtype)
    if flat.dtype == np.float32 or str(flat.dtype) in NARROW_FLOATS:
        return filled(literal(flat), _LINE_LENGTH)
    return filled([*map(_literal(flat.dtype), flat)], _LINE_LENGTH)


def _literal(dtype: np.dtype) -> Callable[[np.generic], str]:
    """Return a function that writes one element, of any type but float32, as a C literal."""
    if dtype == np.float64:
        return lambda value: _double_literal(float(value))
    if dtype == np.bool_:
        return lambda value: "true" if value else "false"
    if dtype == np.int32:
        return lambda value: "INT32_MIN" if value == -(1 << 31) else str(value)
    if dtype == np.int64:
        return lambda value: "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"
    if dtype == np.uint64:
        return lambda value: f"UINT64_C({value})"
    return lambda value: f"{value}u" if dtype.kind == "u" else str(value)


def _double_literal(value: float) -> str:
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def constants_check(program: Program, model: str, sharing: Sharing = ALONE) -> dict[str, Any] | None:
    """Return the template's fields: C expressions of the arrays, and the CRC-32 of their concatenated bytes.

    Arrays with a NaN are left out, because C literals do not keep its payload. None if no other arrays exist.
    """
    arrays: list[tuple[str, np.ndarray]] = []
    for constant in program.constant_objects:
        symbol = sharing.constants.get(constant.name, f"{model}_{constant.name}")
        if constant.members:
            arrays += [(f"{symbol}.{one.member}", one.data) for one in constant.members if one.data.size]
        elif constant.data.size:
            arrays.append((symbol, constant.data))
    kept = [(name, data) for name, data in arrays if not _has_nan(data)]
    crc = 0
    for _, data in kept:
        crc = zlib.crc32(np.ascontiguousarray(data).tobytes(), crc)
    return {"arrays": [name for name, _ in kept], "crc": f"0x{crc:08x}u"} if kept else None


def _has_nan(data: np.ndarray) -> bool:
    is_float = data.dtype.kind == "f" or data.dtype.name == "bfloat16"
    return is_float and bool(np.isnan(data.astype(np.float64)).any())
