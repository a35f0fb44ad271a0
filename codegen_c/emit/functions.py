"""Kernels as C functions, the names of a model's functions, and the names of layers in comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_c.c_text.text import MOST_COLUMNS, block, comment, comment_block
from codegen_c.emit.memory import INSTANCE
from codegen_c.kernels.contract import CFunction
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Tensor
from tvm_ext.core.names import unique


def declaration(function: CFunction, name: str, linkage: str) -> str:
    """Return the head of a function: `<linkage> void name(const int8_t *input, ...)`."""
    declarations = [parameter.declaration() for parameter in function.parameters]
    head = f"{linkage} void {name}({', '.join(declarations)})"
    if len(head) > MOST_COLUMNS:
        head = f"{linkage} void {name}(\n" + block(",\n".join(declarations)) + ")"
    return head


def definition(function: CFunction, name: str, helpers_of: str = "", linkage: str = "TVM_EXT_STEP") -> str:
    """Return the definition of the function under `name`; its macro keeps it from being inlined into another step.

    helpers_of: name of the function under which the helpers are defined elsewhere; by default they are defined before
    this function, under its own name.
    """
    head = declaration(function, name, linkage)
    helpers = f"{function.helpers}\n" if function.helpers and not helpers_of else ""
    text = f"{helpers}{head}\n{{\n{block(function.body)}\n}}\n"
    return text.replace("$", helpers_of or name)


CONTEXT_NAMES = frozenset({"context", "context_bytes", "context_alignment", INSTANCE, "load", "loaded"})
"""Further names of a model whose instances the caller holds, and of an image, which requires this."""

RESERVED = frozenset(
    {
        "run", "after_step", "bytes", "i", "io", "row", "status", "reset", "not_reset", "not_ready", "profile",
        "profile_begin", "profile_end", "profile_layer", "profile_start", "profile_start_dwt", "state_bytes",
        "state_place", "warm_up_runs", "arena", "empty", "full", "labels", "misaligned", "ok", "put", "status_least",
        "status_most", "take",
    }
)  # fmt: skip
"""Names of the model's interface, which no other object of the model may have."""


def function_names(program: Program) -> dict[str, str]:
    """Return the name of each kernel call's function, except of calls of the application's functions.

    Layers of the same shape share a function; a shared function is named after the operation it computes.
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


CARRIES_SCALES = ("quantizelinear", "dequantizelinear", "quantize", "dequantize", "dynamicquantizelinear")
"""Operators, in lower case, that convert between numbers and integers around layers of a quantized model."""


def layer_names(call: KernelCall, operators: Mapping[str, str]) -> str:
    """Return the model's operators that a call computes, with the kind of each whose name does not begin with it.

    operators: kind of each operator of the model by its name.
    """
    names = [name for name in call.source_nodes if operators.get(name, "").lower() not in CARRIES_SCALES]
    return ", ".join(_named(name, operators.get(name, "")) for name in names or call.source_nodes) or call.name


def function_comment(program: Program, users: Sequence[KernelCall], operators: Mapping[str, str]) -> str:
    """Return the lines of the comment on a function: its layers, their shapes and the kernel, grouped by shapes."""
    layers: dict[str, list[str]] = {}
    for call in users:
        inputs = ", ".join(_shape(program.tensors[name]) for name in call.inputs)
        outputs = ", ".join(_shape(program.tensors[name]) for name in call.outputs)
        about = f"{inputs} -> {outputs}; kernel {call.implementation.kernel}"
        layers.setdefault(about, []).append(comment(layer_names(call, operators)))
    lines: list[str] = []
    for about, names in layers.items():
        different = list(dict.fromkeys(names))
        if len(different) == 1:
            lines.append(f"{different[0]}: {about}.")
        else:
            lines += [f"{about}. Layers:", *(f"- {name}" for name in different)]
    return comment_block(lines)


def _named(name: str, kind: str) -> str:
    return name if not kind or name.lower().startswith(kind.lower()) else f"{kind} {name}"


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
