"""Axes in another order, any element type: the boundary between the model's layout and the one kept inside."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.operators import Permute
from codegen_c.text import C_TYPES, block


def implement(operator: Permute, target: Target, stored: StoredRows) -> Implementation:
    ctype = C_TYPES[operator.output.dtype]
    parameters = (
        Parameter(name="input", ctype=ctype, role="input"),
        Parameter(name="output", ctype=ctype, role="output"),
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=_body(operator)),
        reference=lambda inputs: [np.ascontiguousarray(inputs[0].transpose(operator.axes))],
        instructions=operator.output.num_elements * 6,
        exact=True,
    )


def _body(operator: Permute) -> str:
    """One loop for each output axis that has an extent; the output is written in order."""
    source = operator.inputs[0].shape
    strides = [int(np.prod(source[axis + 1 :], dtype=np.int64)) for axis in range(len(source))]
    loops = [(f"i{out}", source[axis], strides[axis]) for out, axis in enumerate(operator.axes) if source[axis] > 1]
    index = " + ".join(name if stride == 1 else f"{name} * {stride}" for name, _, stride in loops) or "0"
    lines = [f"*output++ = input[{index}];"]
    for name, extent, _ in reversed(loops):
        lines = [f"for (int32_t {name} = 0; {name} < {extent}; ++{name}) {{", block(lines), "}"]
    return "\n".join(lines)


KERNEL = Kernel(name="permute", operator=Permute, implement=implement)
