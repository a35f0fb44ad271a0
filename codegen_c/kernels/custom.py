"""Kernel for an operator that the user supplied: the user's C on whole tensors; its reference is the user's numpy."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.operators.kinds import Custom


def implement(operator: Custom, target: Target, stored: StoredRows) -> Implementation:
    code, elements = operator.code, sum(t.num_elements for t in (*operator.inputs, *operator.outputs))
    names, arrays = [name for name, _ in operator.constants], [array for _, array in operator.constants]
    parameters = [
        *_parameters(operator.input_names, [tensor.dtype for tensor in operator.inputs], "input"),
        *_parameters(operator.output_names, [tensor.dtype for tensor in operator.outputs], "output"),
        *_parameters(names, [str(array.dtype) for array in arrays], "constant"),
        *([Parameter(name="scratch", ctype="uint8_t", role="scratch")] if code.scratch_bytes else []),
    ]
    dtypes = [parameter.ctype for parameter in parameters]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=tuple(parameters), body=code.body, helpers=code.helpers, headers=tuple(code.headers.items()),
            includes=tuple(sorted({"stdbool.h", "stdint.h", *code.includes})),
        ),
        reference=operator.reference,
        constants=tuple((name, np.ascontiguousarray(array).reshape(-1)) for name, array in operator.constants),
        scratch_bytes=code.scratch_bytes,
        macs=code.macs,
        instructions=code.instructions or elements * 10,
        accumulation="as its author wrote it",
        exact=not any(dtype in ("float", "double") for dtype in dtypes),
    )  # fmt: skip


def _parameters(names: list[str] | tuple[str, ...], dtypes: list[str], role: str) -> list[Parameter]:
    return [
        Parameter(name=name, ctype=C_TYPES[dtype], role=role)  # pyright: ignore[reportArgumentType]
        for name, dtype in zip(names, dtypes, strict=True)
    ]


KERNEL = Kernel(
    name="custom",
    title="Custom operator of the user: the user's C function on whole tensors",
    operator=Custom,
    implement=implement,
)
