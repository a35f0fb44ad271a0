"""Lower power spectra: sums of the squares of real and imaginary parts that a product computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.composites.chains import chain_of
from codegen_c.composites.floats import float_operator
from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.composites.scalar_calls import ProgramBuilder
from codegen_c.operators.kinds import Conv2d, Dense, PowerSpectrum


def power_spectrum(composite: Composite) -> tuple[PowerSpectrum, tuple[int, ...]] | NoMatch:
    """Return the operator of a product, a view of its channels as pairs, the sums of their squares, and a chain.

    The chain is element-wise and reads no further input.
    """
    if len(composite.calls) < 4 or composite.calls[1].name != "reshape" or len(composite.outputs) != 1:
        return NoMatch("is not a power spectrum")
    product, view, square, total, *rest = composite.calls
    if view.operands[0].var != product.var or not _squares(square, view) or not _adds_pairs(total, square):
        return NoMatch("does not add the squares of pairs of channels")
    assert product.type is not None, "a product is a tensor"
    found = float_operator(replace(composite, calls=(product,), outputs=(product.type,)))
    if isinstance(found, NoMatch):
        return found
    operator, arguments = found
    if type(operator) not in (Conv2d, Dense):
        return NoMatch("its product has no constant matrix")
    builder = ProgramBuilder()
    builder.element(total.var)
    failed = chain_of(builder, tuple(rest), composite.outputs[0])
    if failed or builder.inputs:
        return failed or NoMatch("what follows its sums reads another input")
    return PowerSpectrum(
        inputs=operator.inputs, outputs=composite.outputs, product=operator, finish=builder.program()
    ), arguments  # type: ignore[arg-type]


def _squares(call: Call, view: Call) -> bool:
    """Return True if a call squares the elements of a view of pairs."""
    first, second = (*call.operands, *(None,) * 2)[:2]
    pairs = view.type is not None and view.type.shape[-1:] == (2,)
    if not pairs or first is None or second is None or first.var != view.var:
        return False
    if call.name == "power":
        return second.array is not None and second.array.size == 1 and bool(np.all(second.array == 2))
    return call.name == "multiply" and second.var == view.var


def _adds_pairs(call: Call, square: Call) -> bool:
    """Return True if a call adds the elements of each pair."""
    if call.name != "sum" or call.operands[0].var != square.var or square.type is None or call.attrs.axis is None:
        return False
    last = len(square.type.shape) - 1
    return [int(axis) % (last + 1) for axis in call.attrs.axis] == [last] and not call.attrs.keepdims
