"""The kernels there are, found by their files. `select` picks the cheapest of those that take an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages

from codegen_c.kernels.contract import Alternative, Implementation, Kernel, Refusal, StoredRows, Target
from codegen_c.kernels.shared.vector_rows import as_image
from codegen_c.operators.kinds import Operator

PACKAGES = ("codegen_c.kernels", "codegen_c.targets")
"""Packages whose modules may define a KERNEL."""


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every module's KERNEL in `PACKAGES`, by file name. Two of one name are an error that names both files."""
    modules = [name for package in PACKAGES for name in _modules(package)]
    found: dict[str, tuple[str, Kernel]] = {}
    for name in sorted(modules, key=lambda name: name.rpartition(".")[2]):
        kernel = getattr(import_module(name), "KERNEL", None)
        if kernel is None:
            continue
        if kernel.name in found:
            raise ImportError(f"kernel {kernel.name!r} is defined in {found[kernel.name][0]} and {name}")
        found[kernel.name] = (name, kernel)
    return tuple(kernel for _, kernel in found.values())


def _modules(package: str) -> Iterator[str]:
    return (info.name for info in walk_packages(import_module(package).__path__, f"{package}.") if not info.ispkg)


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
