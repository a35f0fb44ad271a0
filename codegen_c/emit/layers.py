"""Layers of the model as comments name them: `conv_1, relu_2`, without operators that only carry scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_c.c_text.lines import comment_block
from codegen_c.c_text.text import comment
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Tensor

CARRIES_SCALES = ("quantizelinear", "dequantizelinear", "quantize", "dequantize", "dynamicquantizelinear")
"""Operators, in lower case, that stand around layers of a quantized model."""


def layer_names(call: KernelCall, operators: Mapping[str, str]) -> str:
    """The model's operators that a call computes; with their kind where the name does not begin with it.

    operators: kind of each of the model's operators by its name.
    """
    names = [name for name in call.source_nodes if operators.get(name, "").lower() not in CARRIES_SCALES]
    return ", ".join(_named(name, operators.get(name, "")) for name in names or call.source_nodes) or call.name


def function_comment(program: Program, users: Sequence[KernelCall], operators: Mapping[str, str]) -> str:
    """Layers that a function computes, on which shapes, and by which kernel; layers of the same shapes together."""
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
