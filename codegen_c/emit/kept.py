"""Values inside a model that stay readable after a run: their part of the header, and functions that give their places.

They are what `BuildOptions.keep` names; without it nothing here writes a line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen_c.c_text.lines import comment_block
from codegen_c.c_text.text import block
from codegen_c.emit.header import describe
from codegen_c.program.interface import Interface, KeptValue


def kept_api(interface: Interface) -> str:
    """Declarations for `<model>.h`, each under what lies there and where."""
    head = (
        "Values inside the model. Read them behind a run: nothing else ever takes their bytes, and the next run "
        "writes them anew."
    )
    texts = [f"{comment_block([_described(value)])}\n{_signature(interface, value)};\n" for value in interface.kept]
    sizes = [f"#define {_elements(interface, value)}" for value in interface.kept]
    return "\n".join([comment_block([head]), *sizes, "", *texts])


def kept_functions(interface: Interface, object_of: Callable[[str], str], instance: list[str]) -> list[str]:
    """Definitions for `<model>_memory.c`. object_of: expression of a memory's arena; instance: lines that make one."""
    return [
        f"{_signature(interface, value)}\n{{\n"
        f"{block([*instance, f'return {object_of(value.memory)}.{value.port.name};'])}\n}}\n"
        for value in interface.kept
    ]


def _signature(interface: Interface, value: KeptValue) -> str:
    parameters = f"const {interface.context_type} *context" if interface.holds_context else "void"
    return f"const {value.port.c_type} *{interface.kept_accessor(value)}({parameters})"


def _elements(interface: Interface, value: KeptValue) -> str:
    """Name of the macro that holds the number of elements stored, and the number."""
    num_elements = value.num_bytes // np.dtype(value.port.dtype).itemsize
    return f"{interface.model.upper()}_KEPT_{value.port.name.upper()}_ELEMENTS {num_elements}"


def _described(value: KeptValue) -> str:
    """`int8[1, 25, 5, 64], real = 0.5 * (value - 3), in the model conv_1, axes 0, 2, 3, 1 of it; sram + 640`."""
    axes = f", whose axes stand in the order {', '.join(map(str, value.layout))}" if value.layout else ""
    rows = (
        f", the last {value.rows_stored} of {value.rows} rows: row h at h % {value.rows_stored}" if value.rows else ""
    )
    pitch = f", a pixel every {value.pitch} elements" if value.pitch else ""
    place = f"{value.num_bytes} B at offset {value.offset} of the arena in {value.memory}"
    return f"{describe(value.port)}{axes}{rows}{pitch}; {place}."
