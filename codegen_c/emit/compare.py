"""Files that hand over what the steps of a run wrote: on the host by C's files, on boards by semihosting.

They are compiled into a copy of a package, and are part of none.
"""

from __future__ import annotations

import json

from codegen_c.emit.memory import INSTANCE, union_name
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface

HEADER = "tvm_ext_compare.h"
_SOURCE = "tvm_ext_compare.c"
_HEADER_TEXT = """\
#ifndef TVM_EXT_COMPARE_H
#define TVM_EXT_COMPARE_H

#include <stddef.h>

void tvm_ext_compare(size_t place, void *value, size_t bytes);

#endif
"""


def emit_compare(path: str, *, on_board: bool) -> dict[str, str]:
    """File name -> text. path: of the file of values, as `tvm_ext.comparison` lays it out."""
    source = render("compare.c.j2", path=json.dumps(path), on_board=on_board)
    return {HEADER: _HEADER_TEXT, f"board/{_SOURCE}" if on_board else _SOURCE: source}


def compare_line(interface: Interface, memory: str, name: str, place: int) -> str:
    """Line of a run that hands a tensor over; it stands behind the step that writes it."""
    arena = union_name(interface.model, memory)
    if interface.holds_context:
        arena = f"((struct {interface.model}_{INSTANCE} *)(void *)context->bytes)->{memory}"
    return f"    tvm_ext_compare({place}u, {arena}.{name}, sizeof {arena}.{name});"
