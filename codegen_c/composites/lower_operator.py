"""Lower a fused operator of Relax to an Operator, including custom operators of users.

An operator that no kernel computes becomes a Generic operator, whose plain C is generated from its PrimFuncs. An
operator that cannot become plain C either is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import DictAttrs

from codegen_c.composites.floats import float_operator, half_operator
from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.composites.movement import extreme_operator, slice_places
from codegen_c.composites.quantized import quantized_operator
from codegen_c.composites.real_layers import real_layer
from codegen_c.composites.recurrent import recurrent_layer
from codegen_c.composites.spectra import power_spectrum
from codegen_c.custom.contract import CustomCode
from codegen_c.custom.registry import run_reference
from codegen_c.kernels.contract import Alternative, Implementation, Refusal, Target
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Custom, Generic, Operator, Permute, Reshape, Stream
from codegen_c.tir.composite import lower_composite
from codegen_c.tir.llvm import reference_of
from codegen_c.tir.plain_c import NoPlainC, PlainC
from tvm_ext.core.decisions.composites import CustomUse, KeptWeights, PrimFuncs, RepeatedStep, StreamDirection


@dataclass(frozen=True, kw_only=True, eq=False)
class Lowered:
    """An operator with its implementation. arguments[i]: index of the composite's parameter that is operator input i.

    implementation is None for a Reshape, which copies no bytes.
    """

    operator: Operator
    arguments: tuple[int, ...]
    implementation: Implementation | None


Lower = Callable[[relax.Function, Target], Lowered | Refusal]
LowerToPlainC = Callable[[relax.Function, tvm.IRModule], PlainC | NoPlainC]


def remembering_lower() -> Lower:
    """Return a cached `lower_operator`, for passes that ask often about the same composites.

    A pass that writes a decision into a composite creates another function. Plain C takes the longest to generate and
    depends on no decision, so it is cached by the structure of the function, without attributes and target.
    """
    known: dict[tvm_ffi.StructuralKey, PlainC | NoPlainC] = {}

    def to_plain_c(function: relax.Function, module: tvm.IRModule) -> PlainC | NoPlainC:
        computed = relax.Function(function.params, function.body, function.ret_ty, function.is_pure)
        key = tvm_ffi.StructuralKey([computed, dict(module.functions)])
        if key not in known:
            known[key] = lower_composite(function, module)
        return known[key]

    return cache(partial(lower_operator, to_plain_c=to_plain_c))


def lower_operator(
    function: relax.Function, target: Target, *, to_plain_c: LowerToPlainC | None = None
) -> Lowered | Refusal:
    """Return the cheapest implementation of a composite: a kernel, or plain C from its PrimFuncs.

    Returns a Refusal with the reason if there is none. to_plain_c: a cached `lower_composite`, or None.
    """
    composite = Composite.read(function)
    if KeptWeights.read(function).is_set:
        target = replace(target, least_flash=True)
    found = _by_kernel(composite, target)
    if isinstance(found, Lowered):
        return found
    if target.is_offload:
        reasons = [other.reason for other in found if other.reason] or ["its driver does not support this operator"]
        return Refusal(kernel=target.processor.name, reason="; ".join(reasons))
    return _generic(composite, target, found, to_plain_c or lower_composite)


def has_kernel(function: relax.Function, target: Target) -> bool:
    """Return True if a kernel computes a composite. Generates no plain C."""
    found = _by_kernel(Composite.read(function), target)
    return isinstance(found, Lowered) and found.implementation is not None


def _by_kernel(composite: Composite, target: Target) -> Lowered | tuple[Alternative, ...]:
    """Return the composite lowered to a kernel, or the kernels that do not take it, with their reasons.

    Each function of `matches` recognizes one family of operators. The first whose operator has a kernel is taken: an
    operator on integers before the float layer on the same calls.
    """
    quantizes = any(call.name in ("quantize", "dequantize") for call in composite.calls)
    passed: list[Alternative] = []
    matches = (
        custom_operator_of, _movement, extreme_operator, recurrent_layer, quantized_operator, real_layer, half_operator,
        power_spectrum, float_operator,
    )  # fmt: skip
    for match in matches:
        found = match(composite)
        if isinstance(found, NoMatch):
            if match is quantized_operator and quantizes:
                reason = "stands between float and integer tensors" if len(composite.calls) == 1 else found.reason
                passed.append(Alternative(kernel="int8", reason=reason))
            continue
        operator, arguments = found
        if isinstance(operator, Reshape):
            return Lowered(operator=operator, arguments=arguments, implementation=None)
        chosen = select(operator, target)
        if isinstance(chosen, Implementation):
            chosen = replace(chosen, alternatives=(*passed, *chosen.alternatives)) if passed else chosen
            return Lowered(operator=operator, arguments=arguments, implementation=chosen)
        passed += [Alternative(kernel=refusal.kernel, reason=refusal.reason) for refusal in chosen]
    return tuple(passed)


def _movement(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """Match a single reshape or permutation of a parameter, or a slice of a permuted parameter."""
    if len(composite.calls) not in (1, 2) or len(composite.inputs) != 1 or len(composite.outputs) != 1:
        return NoMatch("is more than one operator")
    call, types = composite.calls[0], {"inputs": composite.inputs, "outputs": composite.outputs}
    if len(composite.calls) == 2:
        return _part_of_permuted(composite)
    if call.name in ("reshape", "expand_dims", "squeeze", "flatten"):
        return Reshape(**types), (0,)
    if call.name == "permute_dims":
        ordered = _axes(call, len(composite.inputs[0].shape))
        direction = StreamDirection.read(composite.function).direction
        if direction:
            return Stream(**types, axes=ordered, direction=direction), (0,)
        return Permute(**types, axes=ordered), (0,)
    return NoMatch("moves no data")


def _part_of_permuted(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """Match a slice of contiguous indices of a permuted parameter, such as some columns of an input image."""
    permutes, slices = composite.calls
    if (permutes.name, slices.name) != ("permute_dims", "strided_slice") or slices.operands[0].var != permutes.var:
        return NoMatch("is more than one operator")
    places = slice_places(slices, permutes.type.shape) if permutes.type else None
    if places is None or any((np.diff(along) != 1).any() for along in places):
        return NoMatch("does not take contiguous elements")
    axes, first = _axes(permutes, len(places)), tuple(int(along[0]) for along in places)
    if StreamDirection.read(composite.function).direction:
        _, _, columns, _ = places
        return Stream(
            inputs=composite.inputs, outputs=composite.outputs, axes=axes, direction="read",
            columns=(int(columns[0]), int(columns[-1]) + 1),
        ), (0,)  # fmt: skip
    return Permute(inputs=composite.inputs, outputs=composite.outputs, axes=axes, first=first), (0,)


def _axes(permutes: Call, rank: int) -> tuple[int, ...]:
    axes = permutes.attrs.axes
    return tuple(int(axis) % rank for axis in axes) if axes is not None else tuple(reversed(range(rank)))


def _generic(
    composite: Composite, target: Target, passed: tuple[Alternative, ...], to_plain_c: LowerToPlainC
) -> Lowered | Refusal:
    """Return plain C from the composite's PrimFuncs. passed: kernels that refused the composite, with reasons."""
    function = composite.function
    module = tvm.IRModule(dict(PrimFuncs.read(function).functions or {}))
    plain = to_plain_c(function, module)
    if isinstance(plain, NoPlainC):
        return Refusal(kernel="generic", reason=plain.reason)

    operator = Generic(
        inputs=composite.inputs,
        outputs=composite.outputs,
        name="+".join(call.name for call in composite.calls),
        plain=plain,
        reference=reference_of(function, module),
        most_passes=_most_passes(composite, module),
    )
    chosen = select(operator, target)
    if not isinstance(chosen, Implementation):
        return chosen[0]
    chosen = replace(chosen, alternatives=passed)
    return Lowered(operator=operator, arguments=tuple(range(len(composite.inputs))), implementation=chosen)


def _most_passes(composite: Composite, module: tvm.IRModule) -> int:
    """Return the largest number of iterations of a composite that is a loop that data end; 0 for everything else."""
    loops = [RepeatedStep.read(function) for _, function in module.functions_items()]
    return loops[0].count if len(composite.calls) == len(loops) == 1 and loops[0].is_open else 0


Array = np.ndarray


def custom_operator_of(composite: Composite) -> tuple[Operator, tuple[int, ...]] | NoMatch:
    """Return the operator of a composite that is a single call of a custom operator."""
    call = composite.calls[0] if len(composite.calls) == 1 else None
    use = CustomUse.read(call) if call is not None and isinstance(call.attrs, DictAttrs) else CustomUse()
    if call is None or use.code is None:
        return NoMatch("is not a custom operator")
    split = len(call.operands) - use.num_tables
    tables = [operand.array for operand in call.operands[split:]]
    assert all(table is not None for table in tables), "tables are constants of the composite"
    code = CustomCode.from_json(use.code, [table for table in tables if table is not None])
    operands, names = call.operands[:split], (*code.inputs, *use.states)
    given = [(name, operand) for name, operand in zip(names, operands, strict=True) if operand.array is None]
    arguments = tuple(operand.parameter for _, operand in given if operand.parameter is not None)
    if len(arguments) != len(given):
        return NoMatch("an operand is a result of its own")
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
    """Run the user's reference. Constants are inserted among the inputs at their positions in the call."""
    given = iter(inputs)
    return run_reference(use.operator, use.call, [next(given) if array is None else array for array in operands])
