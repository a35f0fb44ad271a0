"""Names of a model's generated functions, and those that nothing else of it may have."""

from __future__ import annotations

from codegen_c.emit.memory import INSTANCE
from codegen_c.kernels.contract import CFunction
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from tvm_ext.core.names import unique

CONTEXT_NAMES = frozenset({"context", "context_bytes", "context_alignment", INSTANCE, "load", "loaded"})
"""Names that a model has, too, where the caller holds its instances; images, which need it so, are loaded."""

RESERVED = frozenset(
    {
        "run", "after_step", "bytes", "i", "io", "row", "status", "reset", "not_reset", "not_ready", "profile",
        "profile_begin", "profile_end", "profile_layer", "profile_start", "profile_start_dwt", "state_bytes",
        "state_place", "warm_up_runs", "arena", "empty", "full", "labels", "misaligned", "ok", "put", "status_least",
        "status_most", "take",
    }
)  # fmt: skip
"""Names of the model's own that nothing else of it may have."""


def function_names(program: Program) -> dict[str, str]:
    """Name of each kernel call's function: layers of one shape share it, then it is named for what it computes.

    Calls of the application's functions have none.
    """
    users: dict[CFunction, list[KernelCall]] = {}
    for call in program.kernel_calls():
        if not call.implementation.callback:
            users.setdefault(call.implementation.function, []).append(call)
    calls_of = {call.name for call in program.kernel_calls()}
    taken = {*RESERVED, *CONTEXT_NAMES, *calls_of, *program.tensors, *program.constants}
    taken |= {tensor.memory for tensor in program.tensors.values()}
    names: dict[str, str] = {}
    for same in users.values():
        layers = {call.source_nodes or (call.name,) for call in same}
        name = unique(same[0].computes, taken) if len(layers) > 1 and same[0].computes else same[0].name
        names |= {call.name: name for call in same}
    return names
