"""Layers of a model that several kernels, or several register blocks of a kernel, can compute: for `--tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.measurements import KernelMethod
from codegen_c.kernels.registry import KernelCandidate, candidates
from codegen_c.operators.kinds import Operator, TensorType
from codegen_c.operators.titles import operator_digest
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.targets.registry import target_of
from tvm_ext.core.alignment import aligned
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

FARTHEST = 4.0
"""Limit of a candidate's predicted instructions, as a multiple of the smallest prediction. No prediction is wrong by
this factor, so candidates beyond it are not measured."""
SHARE = 0.6
"""Fraction of a memory that the tensors, or constants, of measured firmware may take."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TunedLayer:
    """Calls of an operator with equal constants, and the candidates that compute it with the same bits.

    steps: names of the calls. modelled: the kernel chosen by predictions, the first of `methods`. methods: candidates
    to measure. passed: candidates that are not measured, each with the reason.
    """

    digest: str
    operator: Operator
    steps: tuple[str, ...]
    modelled: KernelMethod
    methods: tuple[KernelCandidate, ...]
    passed: tuple[tuple[KernelMethod, str], ...]


def method_of(call: KernelCall) -> KernelMethod:
    """Return the kernel and the register block of a call."""
    return call.implementation.kernel, call.implementation.block


def method_text(method: KernelMethod) -> str:
    """Return the text for a kernel and its register block in reports and errors: `conv2d_f32 4x3`."""
    kernel, block = method
    return f"{kernel} {'x'.join(map(str, block))}".strip()


def layer_calls(program: Program) -> list[KernelCall]:
    """Return a call for each layer; calls that compute several layers are replaced by those of the layers."""
    return [one for call in program.kernel_calls() for one in call.joined or (call,)]


def digests_of(compiled: Compiled) -> dict[str, list[KernelCall]]:
    """Return the kernel calls of the platform's first processor, by the digest of their operators."""
    own = compiled.platform.processor.name
    found: dict[str, list[KernelCall]] = {}
    for call in layer_calls(compiled.program):
        digest = operator_digest(call.operator) if call.operator and call.processor in ("", own) else None
        if digest:
            found.setdefault(digest, []).append(call)
    return found


def layers_of(compiled: Compiled, options: BuildOptions) -> list[TunedLayer]:
    """Return the layers with several candidates, in the order of their run. compiled: without measurements."""
    platform = compiled.platform
    target = target_of(
        platform.processor, core=platform.core_of(platform.processor), optimize=options.compile_for,
        least_flash=options.least_flash,
    )  # fmt: skip
    found: list[TunedLayer] = []
    for digest, calls in digests_of(compiled).items():
        operator = calls[0].operator
        assert operator is not None, "every call with a digest has an operator"
        known = candidates(operator, target)
        first = next((candidate for candidate in known if candidate.method == method_of(calls[0])), None)
        if first is not None and len(known) > 1:
            methods, passed = _sorted_out(operator, first, known, platform)
            steps = tuple(call.name for call in calls)
            layer = TunedLayer(
                digest=digest, operator=operator, steps=steps, modelled=first.method, methods=methods, passed=passed
            )
            found.append(layer)
    return found


def _sorted_out(
    operator: Operator, first: KernelCandidate, known: Sequence[KernelCandidate], platform: Platform
) -> tuple[tuple[KernelCandidate, ...], tuple[tuple[KernelMethod, str], ...]]:
    """Return the candidates to measure, with `first` at the begin, and the others with the reason against each."""
    least = min(candidate.made.instructions for candidate in known)
    methods, passed, too_large = [first], list[tuple[KernelMethod, str]](), _excess(first.made, operator, platform)
    for candidate in known:
        made = candidate.made
        if candidate is first or any(_same_code(made, other.made) for other in methods):
            continue
        if not (made.exact and first.made.exact) and made.accumulation != first.made.accumulation:
            if not made.block:
                passed.append((candidate.method, f"accumulates in another order: {made.accumulation}"))
        elif made.instructions > FARTHEST * least:
            passed.append((candidate.method, f"predicted at more than {FARTHEST:g} times the fewest instructions"))
        elif excess := too_large or _excess(made, operator, platform):
            passed.append((candidate.method, excess))
        else:
            methods.append(candidate)
    return tuple(methods), tuple(passed)


def _same_code(one: Implementation, other: Implementation) -> bool:
    """Return True if two implementations have the same C, scratch and constants."""
    if one.function != other.function or one.scratch_bytes != other.scratch_bytes:
        return False
    pairs = zip(one.constants, other.constants, strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for (_, a), (_, b) in pairs)


def _excess(made: Implementation, operator: Operator, platform: Platform) -> str | None:
    """Return the reason why the firmware of a single layer does not fit the board; None if it fits."""
    tensors, constants = memory_bytes([(operator, [made])])
    ram, rom = platform.memory(platform.activations), platform.memory(platform.weights)
    for num_bytes, memory in ((tensors, ram), (constants, rom)):
        if num_bytes > SHARE * memory.capacity_bytes:
            return f"{num_bytes} B are more than {SHARE:.0%} of {memory.name}; the rest is reserved for firmware"
    return None


def memory_bytes(layers: Sequence[tuple[Operator, Sequence[Implementation]]]) -> tuple[int, int]:
    """Return the bytes of tensors and of constants in firmware that measures candidates of some layers."""
    tensors = constants = scratch = 0
    for operator, methods in layers:
        tensors += sum(map(_bytes_of, operator.inputs)) + len(methods) * sum(map(_bytes_of, operator.outputs))
        constants += sum(made.constant_bytes for made in methods)
        scratch = max([scratch, *(made.scratch_bytes for made in methods)])
    return tensors + scratch, constants


def _bytes_of(kind: TensorType) -> int:
    return aligned(kind.num_elements * np.dtype(kind.dtype).itemsize)
