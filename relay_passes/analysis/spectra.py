"""Spectra: the part of a model that turns samples of a signal into bands, which 8 bits cannot hold.

A transform computes spectra whose powers differ by 60 dB and more, and 8 bits hold 48 dB. A logarithm makes the
differences small. So what a transform reads from the inputs, its results, their powers and the sums of powers in bands
compute in float, up to and including the logarithm. Where no logarithm follows, they end ahead of the first layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from relay_passes.analysis.quantization_units import Unit
from relay_passes.dataflow import array_of, op_name

IsTransform = Callable[[np.ndarray], bool]
"""Returns True if a matrix float32[rows, samples] is one that a Fourier transform multiplies by."""

_LAYERS = frozenset(
    f"relax.{name}"
    for name in "matmul nn.softmax nn.layer_norm nn.rms_norm nn.max_pool2d nn.avg_pool2d image.resize2d".split()
)
"""Operators of units that compute without weights, but belong to the network."""


def spectra(units: Sequence[Unit], params: Sequence[relax.Var], is_transform: IsTransform) -> frozenset[int]:
    """Return the units that compute spectra from samples, by their indices; moves among them are left out.

    params: the parameters of the function, which are its samples.
    """
    transforms = {index for index, unit in enumerate(units) if _is_transform(unit, is_transform)}
    if not transforms:
        return frozenset()
    samples, spectral, found = set(params), set[relax.Var](), set[int]()
    for index, unit in enumerate(units):
        if index in transforms:
            found.add(index)
            spectral.add(unit.result)
        elif not _may_belong(unit) or not samples.union(spectral).issuperset(unit.inputs):
            continue
        elif spectral.isdisjoint(unit.inputs):
            samples.add(unit.result)
        else:
            found.add(index)
            if not _takes_logarithm(unit):
                spectral.add(unit.result)
    found |= _ahead(units, transforms, samples)
    return frozenset(index for index in found if units[index].computes)


def _ahead(units: Sequence[Unit], transforms: set[int], samples: set[relax.Var]) -> set[int]:
    """Return the units between the inputs and the transforms. samples: what is computed from inputs without layers."""
    wanted, found = {var for index in transforms for var in units[index].inputs if var in samples}, set[int]()
    for index in reversed(range(len(units))):
        if units[index].result in wanted:
            found.add(index)
            wanted.update(units[index].inputs)
    return found


def _is_transform(unit: Unit, is_transform: IsTransform) -> bool:
    matrix = _matrix(unit)
    return matrix is not None and is_transform(matrix)


def _may_belong(unit: Unit) -> bool:
    """Return True if a unit is no layer of the network. Of matrices, only those of bands have no negative entry."""
    matrix = _matrix(unit)
    if matrix is not None:
        return bool(np.all(matrix >= 0))
    return unit.kind in ("move", "float") or (unit.kind == "compute" and unit.operator not in _LAYERS)


def _takes_logarithm(unit: Unit) -> bool:
    return any(op_name(member.value) == "relax.log" for member in unit.members)


def _matrix(unit: Unit) -> np.ndarray | None:
    """Return the constant of a product as float32[rows, samples], on whichever side it is, or None."""
    if unit.kind == "linear" and unit.weight is not None:
        return np.moveaxis(unit.weight, unit.axis, 0).reshape(unit.weight.shape[unit.axis], -1)
    first = array_of(unit.members[0].value.args[0]) if unit.operator == "relax.matmul" else None
    return None if first is None or first.ndim < 2 else first.reshape(-1, first.shape[-1])
