"""A call of an operator that the user brought, as an Operator: its C is in the module, its reference in the process."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm.ir import DictAttrs

from codegen_c.composites.graph import Composite, NoMatch
from codegen_c.custom.contract import CustomCode
from codegen_c.custom.registry import run_reference
from codegen_c.operators.kinds import Custom, Operator
from tvm_ext.core.decisions.custom import CustomUse

Array = np.ndarray


def custom_operator_of(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """The operator of a composite that is one call of a custom operator."""
    call = composite.calls[0] if len(composite.calls) == 1 else None
    use = CustomUse.read(call) if call is not None and isinstance(call.attrs, DictAttrs) else CustomUse()
    if call is None or use.code is None:
        return NoMatch("is no custom operator")
    split = len(call.operands) - use.num_tables
    tables = [operand.array for operand in call.operands[split:]]
    assert all(table is not None for table in tables), "tables are constants of the composite"
    code = CustomCode.from_json(use.code, [table for table in tables if table is not None])
    operands, names = call.operands[:split], (*code.inputs, *use.states)
    given = [(name, operand) for name, operand in zip(names, operands, strict=True) if operand.array is None]
    arguments = tuple(operand.parameter for _, operand in given if operand.parameter is not None)
    if len(arguments) != len(given):
        return NoMatch("reads what it computes itself")
    constants = [(name, operand.array) for name, operand in zip(names, operands, strict=True)
                 if operand.array is not None]  # fmt: skip
    operator = Custom(
        inputs=tuple(composite.inputs[index] for index in arguments),
        outputs=composite.outputs,
        name=use.operator,
        code=code,
        input_names=tuple(name for name, _ in given),
        output_names=(*code.outputs, *(f"{state}_next" for state in use.states)),
        constants=(*constants, *code.tables.items()),
        reference=partial(_run, use, [operand.array for operand in operands]),
    )
    return operator, arguments


def _run(use: CustomUse, operands: list[Array | None], inputs: list[Array]) -> list[Array]:
    """The user's reference; constants stand among the inputs where the call has them."""
    given = iter(inputs)
    return run_reference(use.operator, use.call, [next(given) if array is None else array for array in operands])
