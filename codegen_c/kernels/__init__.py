"""Kernels, one a file. `select` picks the cheapest of those that take an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules

from codegen_c.kernels.contract import Alternative, Implementation, Kernel, Refusal, StoredRows, Target
from codegen_c.kernels.vector_rows import as_image
from codegen_c.operators import Operator


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every module's KERNEL in this package, by name. Two of one name are an error that names both files."""
    found: dict[str, tuple[str, Kernel]] = {}
    for info in sorted(iter_modules(__path__), key=lambda info: info.name):
        kernel = getattr(import_module(f"{__name__}.{info.name}"), "KERNEL", None)
        if kernel is None:
            continue
        if kernel.name in found:
            raise ImportError(f"kernel {kernel.name!r} is defined in {found[kernel.name][0]}.py and {info.name}.py")
        found[kernel.name] = (info.name, kernel)
    return tuple(kernel for _, kernel in found.values())


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
