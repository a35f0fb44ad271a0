"""Kernels as C text: the definition of a function and the order of its arguments."""

from __future__ import annotations

from codegen_c.c_text.lines import MOST_COLUMNS
from codegen_c.c_text.text import block
from codegen_c.kernels.contract import CFunction


def declaration(function: CFunction, name: str, linkage: str) -> str:
    """`<linkage> void name(const int8_t *input, ...)`."""
    declarations = [parameter.declaration() for parameter in function.parameters]
    head = f"{linkage} void {name}({', '.join(declarations)})"
    if len(head) > MOST_COLUMNS:
        head = f"{linkage} void {name}(\n" + block(",\n".join(declarations)) + ")"
    return head


def definition(function: CFunction, name: str, helpers_of: str = "", linkage: str = "TVM_EXT_STEP") -> str:
    """The function under `name`, never inlined into another step.

    helpers_of: name under which its helpers stand elsewhere; by default they stand before it, under its own.
    """
    head = declaration(function, name, linkage)
    helpers = f"{function.helpers}\n" if function.helpers and not helpers_of else ""
    text = f"{helpers}{head}\n{{\n{block(function.body)}\n}}\n"
    return text.replace("$", helpers_of or name)
