"""Test vectors that the device draws itself: a recipe of each, and a CRC or some elements of the outputs.

If the model's results are the same bytes on every processor (integers by exact kernels), a CRC-32 represents each
output. Floats differ from processor to processor, so some elements are stored and compared within a tolerance; of large
outputs, each vector stores another part.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen_c.c_text.narrow_floats import NARROW_FLOATS, encode_function
from codegen_c.c_text.text import C_TYPES, filled, float_literal, literal
from codegen_c.program.drawn_inputs import Domain, Recipe
from codegen_c.program.interface import Interface, Port

MOST_STORED_BYTES = 8192
"""Limit of the bytes of output elements that all drawn vectors of a self-test store together."""
_LINE_LENGTH = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnVector:
    """A recipe, and the outputs that the reference computes from its inputs, under the names in the model."""

    recipe: Recipe
    outputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnVectors:
    """All drawn vectors of a self-test.

    domains: the values of each input, in the order of the interface. exact: True if every processor computes the same
    bytes. largest: magnitude of each float output, of which the tolerance is a fraction, under the names in the model.
    """

    domains: tuple[Domain, ...]
    vectors: tuple[DrawnVector, ...]
    exact: bool
    largest: Mapping[str, float]

    @property
    def hashed(self) -> bool:
        """True if a CRC represents each output."""
        return self.exact and all(array.dtype.kind in "biu" for array in self.vectors[0].outputs.values())


def drawn_fields(interface: Interface, drawn: DrawnVectors) -> dict[str, Any]:
    """Return the template's fields of drawn vectors."""
    streams = interface.io == "stream"
    outputs = [port for port in interface.outputs if port.stream or not streams]
    inputs = [
        (position, port, domain)
        for position, (port, domain) in enumerate(zip(interface.inputs, drawn.domains, strict=True))
        if port.stream or not streams
    ]
    stored = {port.name: _stored(port, outputs, drawn) for port in outputs}
    narrow = sorted({port.dtype for _, port, _ in inputs} & {*NARROW_FLOATS})
    return {
        "hashed": drawn.hashed,
        "encoded": [encode_function(f"bits_of_{dtype}", dtype).rstrip() for dtype in narrow],
        "inputs": [
            {
                "name": port.name,
                "c_type": port.c_type,
                "position": position,
                "value": _value(port, domain),
                **{bound: f"INT64_C({getattr(domain, bound)})" for bound in ("low", "high", "rest")},
            }
            for position, port, domain in inputs
        ],
        "outputs": [
            {
                "name": port.name,
                "dtype": port.dtype,
                "c_type": port.c_type,
                "size": interface.size_macro(port),
                "member": f"out_{port.name}",
                "stored": stored[port.name],
                "windowed": stored[port.name] < port.num_elements,
                "is_float": is_float(port.dtype),
                "largest": _largest(port, drawn),
            }
            for port in outputs
        ],
        "vectors": [_vector(vector, number, outputs, stored, drawn) for number, vector in enumerate(drawn.vectors)],
    }


def is_float(dtype: str) -> bool:
    """Return True for floats of any width."""
    return dtype.startswith("float") or dtype in NARROW_FLOATS


def _stored(port: Port, outputs: Sequence[Port], drawn: DrawnVectors) -> int:
    """Return the number of elements of an output that each vector stores."""
    most = MOST_STORED_BYTES // (len(drawn.vectors) * len(outputs) * np.dtype(port.dtype).itemsize)
    return max(1, min(port.num_elements, most))


def _value(port: Port, domain: Domain) -> str:
    """Return the C expression of element i of an input, computed from `values`."""
    number = "value_at(&values, (uint32_t)i)"
    if port.dtype == "bool":
        return f"{number} != 0"
    if not is_float(port.dtype):
        return f"({port.c_type}){number}"
    if port.dtype == "float64":
        return f"(double){number} * {2.0**domain.exponent!r}"
    single = f"(float){number} * {float_literal(2.0**domain.exponent)}"
    return f"bits_of_{port.dtype}({single})" if port.dtype in NARROW_FLOATS else single


def _largest(port: Port, drawn: DrawnVectors) -> str:
    """Return the C literal of the magnitude of an output, of which the tolerance is a fraction; empty for integers."""
    if not is_float(port.dtype):
        return ""
    value = drawn.largest[port.source]
    return repr(float(value)) if port.dtype == "float64" else float_literal(value)


def _vector(
    vector: DrawnVector, number: int, outputs: Sequence[Port], stored: Mapping[str, int], drawn: DrawnVectors
) -> dict[str, Any]:
    arrays = {port.name: np.ascontiguousarray(port.handed_over(vector.outputs[port.source])) for port in outputs}
    recipe = f"0x{vector.recipe.word:08x}u"
    if drawn.hashed:
        return {"words": [recipe, *(f"0x{zlib.crc32(arrays[port.name].tobytes()):08x}u" for port in outputs)]}
    members: list[dict[str, Any]] = []
    for port in outputs:
        flat, count = arrays[port.name].reshape(-1), stored[port.name]
        first = (flat.size - count) * number // max(len(drawn.vectors) - 1, 1)
        part = flat[first : first + count]
        members.append(
            {
                "name": f"out_{port.name}",
                "lines": filled(literal(part if part.size else np.zeros(1, part.dtype)), _LINE_LENGTH),
                "first": f"{first}u" if count < flat.size else "",
                "first_name": f"first_{port.name}",
            }
        )
    return {"recipe": recipe, "members": members}


def stored_bytes(interface: Interface, drawn: DrawnVectors | None) -> int:
    """Return the bytes of flash that the drawn vectors occupy."""
    if drawn is None:
        return 0
    fields = drawn_fields(interface, drawn)["outputs"]
    sizes = [4 if drawn.hashed else 4 * port["windowed"] + port["stored"] * _bytes(port["c_type"]) for port in fields]
    return len(drawn.vectors) * (4 + sum(sizes))


def _bytes(c_type: str) -> int:
    return next(np.dtype(dtype).itemsize for dtype, name in C_TYPES.items() if name == c_type)
