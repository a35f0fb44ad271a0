"""A lowered module of which a package is made is one region, whole, of steps that the processor can run."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from codegen_c.backend.build import Compiled
from codegen_c.backend.byoc import CODEGEN
from relay_passes.dataflow import bindings, op_name, outputs
from tvm_ext.core.decisions.composites import Region
from tvm_ext.core.errors import UnsupportedModel


def single_region(mod: tvm.IRModule, output_names: Sequence[str]) -> relax.Function:
    """The region that is the whole of main. Raises UnsupportedModel naming what else main computes."""
    main = mod["main"]
    constant = [
        name for name, result in zip(output_names, outputs(main), strict=True) if not isinstance(result, relax.Var)
    ]
    if constant:
        raise UnsupportedModel(
            f"these outputs do not depend on any input: {', '.join(constant)}. Remove them from the model's outputs."
        )
    left = [name for binding in bindings(main) if (name := op_name(binding.value))]
    regions = [func for _, func in mod.functions_items() if Region.read(func).codegen == CODEGEN]
    if not left and not regions:
        raise UnsupportedModel("the model computes nothing: its outputs are its inputs. There is nothing to compile.")
    if left or len(regions) != 1:
        listed = ", ".join(f"{name} ({left.count(name)} times)" for name in dict.fromkeys(left))
        raise UnsupportedModel(
            f"a package needs the whole model as C, but this is left over: {listed}. Remove these operators from the "
            "model, or run it through tvm.compile with tvm_ext.relax_pipeline, which leaves them to TVM."
            f"{_halves(main)}"
        )
    if not _hands_over(main):
        raise UnsupportedModel(
            "the region's inputs and outputs are not the model's, in their order: a defect of tvm_ext. Please report "
            "it with the model."
        )
    return regions[0]


def _halves(main: relax.Function) -> str:
    """Advice where what is left over computes in float16, which few processors do; else empty."""
    types = [binding.var.ty for binding in bindings(main) if op_name(binding.value)]
    if not any(isinstance(ty, relax.TensorType) and str(ty.dtype) == "float16" for ty in types):
        return ""
    return (
        " They compute in float16, as relax.transform.ToMixedPrecision makes it: hand over the module as it was before "
        "that; weights stay as small with quantize = 'int8'."
    )


def _hands_over(main: relax.Function) -> bool:
    """True where main hands its parameters to one region and returns the region's results, in their order."""
    values = {binding.var: binding.value for binding in bindings(main)}
    (region,) = (var for var, value in values.items() if isinstance(value, relax.Call))
    results = outputs(main)
    given = [values.get(result) for result in results]
    in_order = len(results) == 1 and results[0].same_as(region)
    in_order |= all(
        isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(region) and value.index == index
        for index, value in enumerate(given)
    )
    params = list(values[region].args)
    return in_order and len(params) == len(main.params) and all(map(relax.Var.same_as, params, main.params))


def refuse_floats(compiled: Compiled) -> None:
    """Raises UnsupportedModel naming the steps of a quantized model whose C computes in float."""
    computing = [call for call in compiled.program.kernel_calls() if call.implementation.computes_floats]
    if computing:
        names = [", ".join(call.source_nodes) or call.name for call in computing]
        raise UnsupportedModel(
            f"{compiled.platform.name} has no FPU, and these steps have no integer kernel: {'; '.join(names[:5])}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}. Replace them in the model, or choose a "
            "processor with an FPU."
        )
