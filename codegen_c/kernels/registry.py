"""The registry of kernels, found by their files. `select` picks the cheapest kernel that accepts an operator."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pkgutil import walk_packages
from types import ModuleType
from typing import Self

from codegen_c.kernels.beside_int8 import beside_int8, in_int8
from codegen_c.kernels.contract import Alternative, Constraint, Implementation, Kernel, Refusal, StoredRows, Target
from codegen_c.kernels.measurements import UNMEASURED, KernelMethod
from codegen_c.kernels.shared.sequences import WINDOWS, along_columns, as_one_row
from codegen_c.kernels.shared.vector_rows import as_dense, as_image, as_pointwise
from codegen_c.operators.kinds import Array, Operator, QDense
from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.registry import instruction_sets

COMMON = "codegen_c.kernels"


@cache
def kernels() -> tuple[Kernel, ...]:
    """Return every kernel of the modules here and in targets' `kernels/`, by name.

    A target's own kernels reject other targets. Two kernels of one name raise an error that names both files.
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
    return tuple(sorted((kernel for _, kernel in found), key=lambda kernel: kernel.name))


def _defined(package: str) -> Iterator[tuple[str, Kernel]]:
    """Yield the kernels that the modules of a package define; none if the package does not exist."""
    if find_spec(package) is None:
        return
    for info in walk_packages(import_module(package).__path__, f"{package}."):
        if not info.ispkg:
            yield from ((info.name, kernel) for kernel in kernels_of(import_module(info.name)))


def kernels_of(module: ModuleType) -> tuple[Kernel, ...]:
    """Return the kernels that a module defines: `KERNELS`, or its only `KERNEL`."""
    only = getattr(module, "KERNEL", None)
    return getattr(module, "KERNELS", ()) if only is None else (only,)


def _runs_on(own: InstructionSet) -> Constraint:
    """Return the constraint of a target's own kernels: the target's instruction set."""

    def holds(operator: Operator, target: Target) -> bool:
        return own.simd in (target.instruction_set.simd, target.instruction_set.extends)

    holds.__doc__ = f"the processor must have {own.title}"
    return holds


def select(
    operator: Operator, target: Target, stored: StoredRows | None = None
) -> Implementation | tuple[Refusal, ...]:
    """Return the implementation with the least measured cost, or every kernel's reason to refuse.

    Without measurements it is the one with the fewest modelled instructions. If the target asks for the least scratch,
    scratch decides first. For a layer with some weights out of int8's range, the best kernel may be one for int8
    weights with the other channels computed beside it.

    `_asked` offers the operator to all kernels, also in other forms: a dense layer as a pointwise convolution, a
    sequence as an image of one row. `_selected` takes the best candidate, and gives an implementation of another form
    the operator's own shapes and rows. stored: None when the kernel is chosen for the first time.
    """
    unchanged = _selected(operator, target, stored)
    in_bytes = None if target.is_offload else in_int8(operator)
    of_bytes = _selected(in_bytes, target, stored) if in_bytes else ()
    if not isinstance(unchanged, Implementation) or not isinstance(of_bytes, Implementation):
        return unchanged
    beside = _beside(operator, of_bytes, stored or StoredRows())

    def cost(made: Implementation) -> tuple[int, int]:
        return (made.scratch_bytes if target.least_scratch else 0, made.instructions)

    return min(unchanged, beside, key=cost)


def _beside(operator: Operator, part: Implementation, stored: StoredRows) -> Implementation:
    """Return the kernel for int8 weights with code for the other channels beside it; the same for stored rows."""
    keeping = part.keeping

    def kept(stored: StoredRows) -> Implementation:
        assert keeping is not None, "what was selected can be implemented again"
        return _beside(operator, keeping(stored), stored)

    return replace(beside_int8(operator, part, stored), keeping=kept if keeping else None)


def _selected(
    operator: Operator, target: Target, stored: StoredRows | None = None
) -> Implementation | tuple[Refusal, ...]:
    """Return the best kernel that accepts the operator or another form of it, or every kernel's reason to refuse.

    The kernel accepts all channels; `select` also considers int8 weights with other channels beside them.
    """
    measurements = (target.measurements if stored is None else UNMEASURED).of(operator)
    accepted, refusals = _asked(operator, target, stored, {*measurements})
    if not accepted:
        return tuple(refusals)

    def cost(candidate: KernelCandidate) -> tuple[float, ...]:
        measured = measurements.get(candidate.method, inf)
        return (candidate.made.scratch_bytes if target.least_scratch else 0, measured, candidate.modelled)

    best = min(accepted, key=cost)
    dearer = [candidate.alternative for candidate in accepted if candidate is not best]
    unfit = [Alternative(kernel=refusal.kernel, reason=refusal.reason) for refusal in refusals]
    if target.is_offload:  # an accelerator computes whole layers
        return replace(best.made, alternatives=(*dearer, *unfit))
    made = replace(best.made, alternatives=(*dearer, *unfit), keeping=best.keeping)
    if best.form is operator:
        return replace(made, in_rows=made.in_rows or _elementwise_in_rows(best.kernel, operator, target, made))
    if isinstance(operator, QDense):  # as an image whose rows are vectors
        return _shaped_as(operator, made)
    is_sequence = isinstance(operator, WINDOWS) and isinstance(best.form, WINDOWS)
    by_rows = [
        candidate for candidate in accepted
        if candidate.form is operator and (not is_sequence or _sums_alike(candidate.made, made))
    ]  # fmt: skip
    cheapest = min(by_rows, key=cost, default=None)
    if is_sequence:
        return _of_sequence(operator, made, best, cheapest)
    return replace(made, accumulating=None, in_rows=cheapest.keeping if cheapest else None)


def _of_sequence(
    operator: Operator, made: Implementation, best: KernelCandidate, by_rows: KernelCandidate | None
) -> Implementation:
    """Return the implementation of a window over an image of one column by a kernel of images of one row.

    by_rows: the candidate that computes rows of the image; None if there is none.
    """

    def whole(row: Implementation) -> Implementation:
        return replace(along_columns(operator, row), reference=_reshaped(operator, best.form, row.reference))

    def kept(stored: StoredRows) -> Implementation:
        has_all_rows = not (any(stored.inputs) or stored.output or stored.at_once or stored.row_pitch)
        if has_all_rows or by_rows is None:
            return whole(best.keeping(stored))
        return by_rows.keeping(stored)

    in_rows = by_rows.keeping if by_rows else None
    return replace(whole(made), accumulating=None, keeping=kept if by_rows else None, in_rows=in_rows)


def _sums_alike(one: Implementation, other: Implementation) -> bool:
    """Return True if two kernels of an operator compute the same bits."""
    return (one.exact and other.exact) or one.accumulation == other.accumulation


def candidates(operator: Operator, target: Target) -> tuple[KernelCandidate, ...]:
    """Return all strategies to compute an operator: each kernel that accepts it, by its own and its other block sizes.

    The first one has the fewest modelled instructions.
    """
    accepted, _ = _asked(operator, target, None, None)
    return tuple(sorted(accepted, key=lambda candidate: (candidate.modelled, candidate.method)))


def _asked(
    operator: Operator, target: Target, stored: StoredRows | None, methods: Container[KernelMethod] | None
) -> tuple[list[KernelCandidate], list[Refusal]]:
    """Return the candidates that accept the operator, or another form of it, and the refusals.

    methods: the strategies whose blocks are requested; None for all.
    """
    dense = as_dense(operator) if stored is None else None
    image = as_pointwise(operator) if stored is None and not target.is_offload else None
    row = as_one_row(operator) if stored is None and not target.is_offload else None
    forms = [form for form in (operator, dense, image, row) if form]
    known = [kernel for kernel in kernels() if kernel.offload is target.is_offload]
    asked = [(kernel, form) for form in forms for kernel in known if kernel.operator is type(form)]
    refusals = [refusal for kernel, form in asked if (refusal := kernel.refuses(form, target))]
    refused = {refusal.kernel for refusal in refusals}
    accepted: list[KernelCandidate] = []
    for kernel, form in asked:
        if kernel.name not in refused:
            blocks = [
                block for block in kernel.blocks(form, target) if methods is None or (kernel.name, block) in methods
            ]
            accepted += [
                KernelCandidate.of(kernel, form, replace(target, block=block) if block else target, stored)
                for block in ((), *blocks)
            ]
    return accepted, refusals


def _reshaped(
    operator: Operator, form: Operator, reference: Callable[[list[Array]], list[Array]]
) -> Callable[[list[Array]], list[Array]]:
    """Return the reference of another form of the operator, on arrays of the operator's own shapes."""

    def reshaped(inputs: list[Array]) -> list[Array]:
        shaped = [array.reshape(kind.shape) for array, kind in zip(inputs, form.inputs, strict=True)]
        results = zip(reference(shaped), operator.outputs, strict=True)
        return [result.reshape(kind.shape) for result, kind in results]

    return reshaped


def _shaped_as(operator: Operator, made: Implementation) -> Implementation:
    """Return the implementation of another form of an operator, with a reference of the operator's own shapes."""
    keeping, shape = made.keeping, operator.output.shape
    assert keeping is not None, "what was selected can be implemented again"

    def reference(inputs: list[Array]) -> list[Array]:
        (source,) = inputs
        (result,) = made.reference([source.reshape(1, shape[1], 1, -1)])
        return [result.reshape(shape)]

    def kept(stored: StoredRows) -> Implementation:
        return replace(keeping(stored), reference=reference)

    return replace(made, reference=reference, keeping=kept)


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCandidate:
    """A kernel that accepts the operator, or another form of it, and its implementation.

    form: the operator that the kernel accepted. It is the operator itself, or for example a `QDense` layer as a
    `QConv2d`. target: with the block size.
    """

    kernel: Kernel
    form: Operator
    target: Target
    made: Implementation

    @classmethod
    def of(cls, kernel: Kernel, form: Operator, target: Target, stored: StoredRows | None) -> Self:
        made = _implemented(kernel, form, target, stored or StoredRows())
        return cls(kernel=kernel, form=form, target=target, made=replace(made, block=target.block))

    @property
    def method(self) -> KernelMethod:
        return self.kernel.name, self.target.block

    @property
    def modelled(self) -> float:
        """Modelled instructions, calibrated if the target asks for it, by the factor with which it ranks the kernel."""
        own = self.target.instruction_set
        factor = own.calibration.get(self.made.kernel, 1.0) if own.ranks_calibrated else 1.0
        return self.made.instructions * factor * own.ranking.get(self.made.kernel, 1.0)

    @property
    def alternative(self) -> Alternative:
        """The entry for the report if another candidate is chosen."""
        made = self.made
        return Alternative(
            kernel=self.kernel.name,
            instructions=made.instructions,
            constant_bytes=made.constant_bytes,
            grows_weights=made.grows_weights,
        )

    def keeping(self, stored: StoredRows) -> Implementation:
        """Return the same implementation for operands of which only some rows are stored."""
        return replace(_implemented(self.kernel, self.form, self.target, stored), block=self.target.block)


def _elementwise_in_rows(
    kernel: Kernel, operator: Operator, target: Target, whole: Implementation
) -> Callable[[StoredRows], Implementation] | None:
    """Return an element-wise kernel on rows of tensors that are no images, by its code for images."""
    image = as_image(operator)
    if image is None or kernel.refuses(image, target):
        return None
    return lambda stored: replace(_implemented(kernel, image, target, stored), reference=whole.reference)


def _implemented(kernel: Kernel, operator: Operator, target: Target, stored: StoredRows) -> Implementation:
    """Return a kernel's implementation with the instructions that the target's core executes, where they were measured.

    A kernel's own model counts one code for all compilers' flags.
    """
    made = kernel.implement(operator, target, stored)
    factor = target.instruction_set.executed_instructions(made.kernel, target.core, target.optimize)
    if factor == 1.0:
        return made
    made, parts = _executed(made, factor), made.accumulating
    if parts is None:
        return made

    def in_parts(row_count: int, stored: StoredRows) -> Implementation:
        return _executed(parts.implement(row_count, stored), factor)

    return replace(made, accumulating=replace(parts, implement=in_parts))


def _executed(made: Implementation, factor: float) -> Implementation:
    return replace(made, instructions=round(made.instructions * factor))
