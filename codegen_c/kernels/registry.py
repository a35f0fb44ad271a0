"""The kernels there are, found by their files. `select` picks the cheapest of those that take an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

from codegen_c.kernels.contract import Alternative, Constraint, Implementation, Kernel, Refusal, StoredRows, Target
from codegen_c.kernels.shared.vector_rows import as_image
from codegen_c.operators.kinds import Operator
from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.registry import instruction_sets

COMMON = "codegen_c.kernels"


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every KERNEL of the modules here and in targets' `kernels/`, by file name; a target's own refuse other targets.

    Two of one name are an error that names both files.
    """
    found = [*_defined(COMMON)]
    for own in instruction_sets():
        needed = _runs_on(own)
        found += [
            (module, replace(kernel, constraints=(needed, *kernel.constraints)))
            for module, kernel in _defined(f"{own.package}.kernels")
        ]
    modules: dict[str, str] = {}
    for module, kernel in found:
        if kernel.name in modules:
            raise ImportError(f"kernel {kernel.name!r} is defined in {modules[kernel.name]} and {module}")
        modules[kernel.name] = module
    return tuple(kernel for _, kernel in sorted(found, key=lambda pair: pair[0].rpartition(".")[2]))


def _defined(package: str) -> Iterator[tuple[str, Kernel]]:
    """Modules of a package that define a KERNEL; none where there is no such package."""
    if find_spec(package) is None:
        return
    for info in walk_packages(import_module(package).__path__, f"{package}."):
        kernel = None if info.ispkg else getattr(import_module(info.name), "KERNEL", None)
        if kernel is not None:
            yield info.name, kernel


def _runs_on(own: InstructionSet) -> Constraint:
    """The constraint of a target's own kernels."""

    def holds(operator: Operator, target: Target) -> bool:
        return target.instruction_set.simd == own.simd

    holds.__doc__ = f"the processor must have {own.title}"
    return holds


def select(
    operator: Operator, target: Target, stored: StoredRows | None = None
) -> Implementation | tuple[Refusal, ...]:
    """The implementation with the fewest modelled instructions, or every kernel's reason to refuse.

    Where the target asks for the least scratch, that comes first.
    """
    candidates = [kernel for kernel in kernels() if kernel.operator is type(operator)]
    refusals = [refusal for kernel in candidates if (refusal := kernel.refuses(operator, target))]
    refused = {refusal.kernel for refusal in refusals}
    accepted = [(k, k.implement(operator, target, stored or StoredRows())) for k in candidates if k.name not in refused]
    if not accepted:
        return tuple(refusals)
    scratch = [pair[1].scratch_bytes if target.least_scratch else 0 for pair in accepted]
    _, (kernel, best) = min(zip(scratch, accepted, strict=True), key=lambda pair: (pair[0], pair[1][1].instructions))
    dearer = [Alternative(kernel=a.kernel, instructions=a.instructions) for _, a in accepted if a is not best]
    unfit = [Alternative(kernel=refusal.kernel, reason=refusal.reason) for refusal in refusals]
    by_rows = best.in_rows or _elementwise_in_rows(kernel, operator, target, best)
    return replace(
        best, alternatives=(*dearer, *unfit), keeping=partial(kernel.implement, operator, target), in_rows=by_rows
    )


def _elementwise_in_rows(
    kernel: Kernel, operator: Operator, target: Target, whole: Implementation
) -> Callable[[StoredRows], Implementation] | None:
    """An element-wise kernel on rows of tensors that are no images, as it computes images of them."""
    image = as_image(operator)
    if image is None or kernel.refuses(image, target):
        return None
    return lambda stored: replace(kernel.implement(image, target, stored), reference=whole.reference)
