"""Lowered loops -> a C function, and what a run of it executes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import tirx
from tvm.ir import Var

from codegen_c.kernels.contract import CFunction, Parameter
from codegen_c.tir.expressions import ExpressionPrinter
from codegen_c.tir.merge import Merged
from codegen_c.tir.plain_c import LoopForm
from codegen_c.tir.rows import Around
from codegen_c.tir.statements import StatementPrinter
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.work import work_of_loops


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A function, the scratch bytes that it wants, and the element types that it names."""

    form: LoopForm
    scratch_bytes: int
    dtypes: frozenset[str]


def print_function(function: tirx.PrimFunc, merged: Merged, places: Mapping[Var, tuple[int, int]]) -> Printed:
    """C of loops whose parameters are the inputs, outputs and constants of `merged`. Raises CannotLowerError.

    places: bounds of variables that hold where rows begin.
    """
    storage = place_buffers(function.body)
    printer = ExpressionPrinter()
    parameters = _parameters(function, merged, printer)
    for var, parameter in zip(function.params, parameters, strict=True):
        printer.names[var] = parameter.name
    constants = function.params[merged.num_inputs + merged.num_outputs :]
    tables = {
        var: data
        for var, data in zip(constants, merged.constants, strict=True)
        if data.dtype in (np.int16, np.uint16) and data.ndim == 1
    }
    taken = {parameter.name for parameter in parameters} | {"scratch"}
    around = Around(turns={}, tables=tables, places=places)
    lines = StatementPrinter(printer, storage, taken, around).body(function.body)
    words = set(re.findall(r"\w+", "\n".join(lines)))  # what a relation of a value with itself reads is not printed
    unused = [parameter.name for parameter in parameters if parameter.name not in words]
    if storage.scratch_bytes:
        parameters.append(Parameter(name="scratch", ctype="uint8_t", role="scratch"))
    c_function = CFunction(
        parameters=tuple(parameters),
        body="\n".join([*(f"(void){name};" for name in unused), *lines]),
        helpers="\n".join(helper.text for _, helper in sorted(printer.helpers.items())),
        includes=tuple(sorted(printer.headers)),
    )
    return Printed(
        form=LoopForm(function=c_function, work=work_of_loops(function.body, storage)),
        scratch_bytes=storage.scratch_bytes,
        dtypes=frozenset(printer.dtypes),
    )


def _parameters(function: tirx.PrimFunc, merged: Merged, printer: ExpressionPrinter) -> list[Parameter]:
    num_constants = len(merged.constants)
    roles = ["input"] * merged.num_inputs + ["output"] * merged.num_outputs + ["constant"] * num_constants
    return [
        Parameter(name=var.name, ctype=printer.c_type(str(var.ty.dtype)), role=role)
        for var, role in zip(function.params, roles, strict=True)
    ]
