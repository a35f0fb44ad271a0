"""A composite whose operators have no kernel of their own -> plain C."""

from __future__ import annotations

import re
from dataclasses import replace

import tvm
from tvm import relax, tirx

from codegen_c.kernels.contract import CFunction, Parameter
from codegen_c.tir.aliasing import in_place_inputs
from codegen_c.tir.expressions import ExpressionPrinter
from codegen_c.tir.legalize import legalize_composite, operator_names
from codegen_c.tir.lower import lower_function
from codegen_c.tir.macs import macs_of_loops
from codegen_c.tir.merge import Merged, merge_stages
from codegen_c.tir.plain_c import CannotLowerError, NoPlainC, PlainC
from codegen_c.tir.schedule import schedule_merged
from codegen_c.tir.statements import StatementPrinter
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.tabulate import tabulate
from codegen_c.tir.work import work_of_loops


def lower_composite(function: relax.Function, module: tvm.IRModule | None = None) -> PlainC | NoPlainC:
    """One C function that computes what the composite `function` computes.

    function: params are tensors of static shape, weights are constants inside, the result is a tensor or a
    tuple of tensors. module: where the PrimFuncs stand that it calls already. Floats are summed in the order
    of TVM's PrimFuncs.

    A NoPlainC says why C cannot express it: shapes that depend on data, calls of TVM's runtime (sort, topk),
    element types that C11 lacks, or an operator that TVM cannot legalise.
    """
    try:
        return _printed(*_lowered(function, module))
    except CannotLowerError as error:
        return _refusal(function, f"it needs {error}")


def _lowered(function: relax.Function, module: tvm.IRModule | None) -> tuple[tirx.PrimFunc, Merged]:
    try:
        merged = merge_stages(legalize_composite(function, module))
        made = tabulate(lower_function(schedule_merged(merged.function)), len(merged.constants))
        return made.function, replace(merged, constants=(*merged.constants, *made.tables))
    except CannotLowerError:
        raise
    except Exception as error:  # TVM raises what it likes about a model that it cannot lower
        raise CannotLowerError("loops, which TVM does not make of it") from error


def _printed(lowered: tirx.PrimFunc, merged: Merged) -> PlainC:
    storage = place_buffers(lowered.body)
    printer = ExpressionPrinter()
    parameters = _parameters(lowered, merged, printer)
    for var, parameter in zip(lowered.params, parameters, strict=True):
        printer.names[var] = parameter.name
    taken = {parameter.name for parameter in parameters} | {"scratch"}
    lines = StatementPrinter(printer, storage, taken).body(lowered.body)
    words = set(re.findall(r"\w+", "\n".join(lines)))  # what a relation of a value with itself reads is not printed
    unused = [parameter.name for parameter in parameters if parameter.name not in words]
    if storage.scratch_bytes:
        parameters.append(Parameter(name="scratch", ctype="uint8_t", role="scratch"))
    return PlainC(
        function=CFunction(
            parameters=tuple(parameters),
            body="\n".join([*(f"(void){name};" for name in unused), *lines]),
            helpers="\n".join(helper.text for _, helper in sorted(printer.helpers.items())),
            includes=tuple(sorted(printer.headers)),
        ),
        constants=tuple((f"constant{index}", data) for index, data in enumerate(merged.constants)),
        scratch_bytes=storage.scratch_bytes,
        macs=macs_of_loops(lowered.body),
        work=work_of_loops(lowered.body, storage),
        in_place=in_place_inputs(lowered, merged.num_inputs, merged.num_outputs, storage.aliases),
        integers_only=not any(dtype.startswith("float") for dtype in printer.dtypes),
    )


def _parameters(lowered: tirx.PrimFunc, merged: Merged, printer: ExpressionPrinter) -> list[Parameter]:
    num_constants = len(merged.constants)
    roles = ["input"] * merged.num_inputs + ["output"] * merged.num_outputs + ["constant"] * num_constants
    return [
        Parameter(name=var.name, ctype=printer.c_type(str(var.ty.dtype)), role=role)
        for var, role in zip(lowered.params, roles, strict=True)
    ]


def _refusal(function: relax.Function, reason: str) -> NoPlainC:
    names = operator_names(function)
    return NoPlainC(operators=names, reason=f"{', '.join(names) or 'the function'}: {reason}")
