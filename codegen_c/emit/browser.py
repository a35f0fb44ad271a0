"""Emit the C by which a page runs a package as WebAssembly, and the calls that report its steps to the page."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.emit.inspection import arena_inside
from codegen_c.emit.module import entry_points
from codegen_c.emit.selftest import ports
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface

STEPS_HEADER = "tvm_ext_page.h"
_STEPS_HEADER_TEXT = """\
#ifndef TVM_EXT_PAGE_H
#define TVM_EXT_PAGE_H

#include <stdint.h>

#define IMPORTED(name) __attribute__((import_module("page"), import_name(name)))

/* Functions of the page: a step begins or ends; the memory of this number has its arena at this address. */
IMPORTED("begins") void tvm_ext_page_begins(uint32_t step);
IMPORTED("ends") void tvm_ext_page_ends(uint32_t step);
IMPORTED("arena") void tvm_ext_page_arena(uint32_t memory, const void *address);

#endif
"""


def emit_browser(interface: Interface, *, compares: bool) -> dict[str, str]:
    """Return the C files by which a page runs a package for one processor. compares: vectors have expected outputs."""
    known = ports(interface, "outputs", "") if compares else []
    vectors = render(
        "browser.c.j2",
        model=interface.model,
        context=interface.holds_context,
        sides=[("input", ports(interface, "inputs", "")), ("output", known)],
    )
    return {"tvm_ext_page.c": vectors, "tvm_ext_entries.c": entry_points(interface), STEPS_HEADER: _STEPS_HEADER_TEXT}


def begin_lines(interface: Interface, step: int, memories: Sequence[str]) -> list[str]:
    """Return the lines that go before a step. memories: those with an arena, in the order of their numbers.

    The first step also tells the page where the arenas are, because an instance may lie anywhere.
    """
    places = [f"&{arena_inside(interface, memory)}" for memory in memories] if step == 0 else []
    arenas = [f"    tvm_ext_page_arena({number}u, {place});" for number, place in enumerate(places)]
    return [*arenas, f"    tvm_ext_page_begins({step}u);"]


def end_line(step: int) -> str:
    """Return the line that goes after a step."""
    return f"    tvm_ext_page_ends({step}u);"
