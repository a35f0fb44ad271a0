"""Runs a package with streamed inputs and outputs on the host: the application's functions, in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen_c.emit.stream import streamed
from codegen_c.interface import Interface, Port

OUT_OF_ORDER = 1000
"""What a function here answers, and the run with it, when it is called for other rows than the next ones."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)


def run_streamed(
    run: Callable[[Any], int], interface: Interface, inputs: Sequence[np.ndarray]
) -> tuple[int, list[np.ndarray]]:
    """Status and outputs of one run.

    run: the library's function, of a pointer to the package's io struct. inputs: in the order of the interface.
    """
    sources = dict(zip((port.name for port in interface.inputs), inputs, strict=True))
    results = {port.name: np.zeros(port.num_elements, port.dtype) for port in interface.outputs}
    fields: list[tuple[str, Any]] = [("context", ctypes.c_void_p)]
    functions: list[Any] = []
    for direction, port in streamed(interface):
        elements = port.handed_over(sources[port.name]) if direction == "read" else results[port.name]
        fields.append((f"{direction}_{port.name}", _CALLBACK))
        functions.append(_CALLBACK(_hand_over(direction, port, elements)))
    struct = type("Io", (ctypes.Structure,), {"_fields_": fields})
    status = run(ctypes.byref(struct(None, *functions)))
    return status, [port.taken_back(results[port.name]) for port in interface.outputs]


def _hand_over(direction: str, port: Port, elements: np.ndarray) -> Callable[[int, int, int, int], int]:
    """Copies rows from or to an array that holds all of them; each once, in order."""
    assert port.stream is not None, "the port is streamed"
    num_rows = port.stream.rows
    row_bytes = elements.nbytes // num_rows
    done = 0

    def hand_over(_context: int, rows: int, row_begin: int, row_end: int) -> int:
        nonlocal done
        if row_begin != done or not row_begin < row_end <= num_rows:
            return OUT_OF_ORDER
        done = row_end
        inside = elements.ctypes.data + row_begin * row_bytes
        target, source = (rows, inside) if direction == "read" else (inside, rows)
        ctypes.memmove(target, source, (row_end - row_begin) * row_bytes)
        return 0

    return hand_over
