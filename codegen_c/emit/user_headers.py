"""Headers that custom operators bring with their C."""

from __future__ import annotations

from codegen_c.program.program import Program
from tvm_ext.core.errors import UnsupportedModel


def user_headers(program: Program) -> dict[str, str]:
    """Name -> text of the headers that functions of the program bring. Raises UnsupportedModel for two of one name."""
    found: dict[str, str] = {}
    for call in program.kernel_calls():
        for name, text in call.implementation.function.headers:
            if found.setdefault(name, text) != text:
                raise UnsupportedModel(
                    f"custom operators bring two different headers {name}; one of them needs another name."
                )
    return dict(sorted(found.items()))
