"""Judges float tensors by rounding errors: what a float64 evaluation of the same graph says that float32 may lose.

R is the reference runtime's value of an element, X that of the float64 evaluation, N the change that rounding errors of
float32 make there (`reference_runtimes/float64_runtime.py`), N' the same with the errors of functions that other
runtimes approximate, u the unit roundoff of its type, M the magnitude of its channel.

    |R - X| <= 8 N' + 4 u M                   makes X count: our reading of the file is the runtime's
    min(|C - X|, |C - R|) <= 8 N + 4 u M      is then asked for of the C, and of the board

Where R is not near X, that is worth nothing, and the C has to be within 1e-4 of the largest value of R instead. Samples
that are made to be hard (`Expected.stressed`) may overtax the runtime itself: there the second line alone is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_ext.verification.float64_module import UNIT_ROUNDOFF
from tvm_ext.verification.reference_runtimes.float64_runtime import shared_noise
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify import Array, Sample, float_tolerance, is_float, largest

NOISE_FACTOR = 8
"""Rounding errors of a runtime in noises of the evaluation: 1.9 at most in 19 networks and two runtimes."""
FLOOR_ROUNDINGS = 4
_NO_NOISE = 1e-30
SPREAD = 4
"""Tolerances of samples that were evaluated for one that was not: rounding grows with the values that are added up."""
WEAK_SHARE = 0.01
"""Part of an output's largest value from which a tolerance says little about it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Values of a model in float64, and the noise of rounding to its own types; arrays by name for each sample."""

    outputs: Sequence[Sample]
    inner: Sequence[Sample]
    noise_outputs: Sequence[Sample]
    noise_inner: Sequence[Sample]
    others_noise_outputs: Sequence[Sample]
    others_noise_inner: Sequence[Sample]


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownTensor:
    """One tensor in one sample: of the reference runtime, None where it shows none; in float64; tolerances of both.

    limits: of the C; said_limits: of the runtime. scale: largest magnitude of the runtime's tensor in all samples.
    is_stressed: of a sample that is made to be hard.
    """

    said: Array | None
    exact: Array
    limits: Array
    said_limits: Array
    scale: float
    is_stressed: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How far the C is from what it should be, at the element that is the furthest in tolerances.

    of_tolerance: more than 1 fails. error: from the runtime, or from float64 where it shows nothing. from_exact,
    reference_error: of the C and of the runtime, from float64. cause: `c` or `reading`, where it fails.
    """

    of_tolerance: float
    error: float
    limit: float
    at: tuple[int, ...]
    from_exact: float
    reference_error: float
    cause: str = ""

    @property
    def passed(self) -> bool:
        return self.of_tolerance <= 1

    def sentence(self, what: str, who: str) -> str:
        """The failure in words. what: the tensor; who: the reference runtime."""
        at = f" at [{', '.join(map(str, self.at))}]" if self.at else ""
        beside = f"of a float64 evaluation {who} is off by {self.reference_error:.3g}, the C by {self.from_exact:.3g}"
        return f"{what}{at}: differs from {who} by {self.error:.3g}, rounding explains {self.limit:.3g}; {beside}"


def tolerances(exact: Array, noise: Array, dtype: str) -> Array:
    """Tolerance of each element; dtype: the type that the C has it in."""
    unit = UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF["float32"])
    least = float(np.finfo(np.float32).tiny)
    return NOISE_FACTOR * noise + FLOOR_ROUNDINGS * unit * shared_noise(np.abs(exact)) + least


def judged(got: Array, known: KnownTensor) -> Verdict:
    """The verdict on a tensor of the C."""
    exact, limits, shape = known.exact, known.limits, known.exact.shape
    got = got.astype(np.float64).reshape(shape)
    from_exact = gaps(got, exact)
    if known.said is None:
        return _worst(from_exact, limits, from_exact, np.zeros(shape), "c")
    said = known.said.astype(np.float64).reshape(shape)
    from_said, reference = gaps(got, said), gaps(said, exact)
    if known.is_stressed or (reference <= known.said_limits).all():
        return _worst(np.minimum(from_said, from_exact), limits, from_exact, reference, "c")
    otherwise = np.full(shape, float_tolerance(str(known.said.dtype)) * known.scale)
    return _worst(from_said, otherwise, from_exact, reference, "reading" if (from_exact <= limits).all() else "c")


def judged_unevaluated(got: Array, said: Array, known: Sequence[KnownTensor], tolerance: float) -> Verdict:
    """The verdict on an output in a sample that was not evaluated.

    known: the same output in those that were. Their largest tolerances, `SPREAD` times, stand for its own, or
    `tolerance`, a share of the output's largest value, where that is more.
    """
    assert known, "the first samples are evaluated"
    shape = known[0].exact.shape
    of_others = np.max([one.limits + one.said_limits for one in known if not one.is_stressed], axis=0)
    # Results of 16-bit floats differ in whole steps of theirs, of which the evaluated samples may have shown none.
    least = tolerance if tolerance <= float_tolerance("float32") else SPREAD * tolerance
    limits = np.maximum(SPREAD * of_others, least * known[0].scale)
    errors = gaps(got.astype(np.float64).reshape(shape), said.astype(np.float64).reshape(shape))
    return _worst(errors, limits, errors, np.zeros(shape), "c")


def _worst(errors: Array, limits: Array, from_exact: Array, reference: Array, cause: str) -> Verdict:
    """The verdict at the element whose error is the most tolerances."""
    if not errors.size:
        return Verdict(of_tolerance=0, error=0, limit=0, at=(), from_exact=0, reference_error=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(errors == 0, 0.0, np.where(np.isinf(limits), 0.0, errors / limits))
    at = np.unravel_index(int(parts.argmax()), parts.shape)
    return Verdict(
        of_tolerance=float(parts[at]), error=float(errors[at]), limit=float(limits[at]),
        at=tuple(int(index) for index in at), from_exact=float(from_exact[at]), reference_error=float(reference[at]),
        cause=cause if parts[at] > 1 else "",
    )  # fmt: skip


def gaps(one: Array, other: Array) -> Array:
    """|one - other|; 0 for the same and for two NaN, infinite where only one is a number."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return np.where(np.isnan(found), np.inf, found)


def known_outputs(
    said: Sequence[Sample], evaluation: Evaluation, stressed: Sequence[bool]
) -> list[dict[str, KnownTensor]]:
    """What is known of each float output, for each sample that was evaluated: the first ones."""
    floats = [name for name, array in said[0].items() if is_float(array) and name in evaluation.outputs[0]]
    scales = {name: max(largest(sample[name]) for sample in said) for name in floats}
    found: list[dict[str, KnownTensor]] = []
    for index, sample in enumerate(said[: len(evaluation.outputs)]):
        exact, noise, others = (
            values[index] for values in (evaluation.outputs, evaluation.noise_outputs, evaluation.others_noise_outputs)
        )
        found.append(
            {
                name: KnownTensor(
                    said=sample[name], exact=exact[name], scale=scales[name], is_stressed=stressed[index],
                    limits=tolerances(exact[name], noise[name], str(sample[name].dtype)),
                    said_limits=tolerances(exact[name], others[name], str(sample[name].dtype)),
                )
                for name in floats
                if exact[name].size == sample[name].size
            }
        )  # fmt: skip
    return found


def known_inner(said: ReferenceResult, evaluation: Evaluation) -> dict[str, Verdict]:
    """Of each tensor inside that both the runtime and the evaluation have: the furthest that they are apart."""
    worst: dict[str, Verdict] = {}
    for index, sample in enumerate(said.inner[: len(evaluation.inner)]):
        exact, noise = evaluation.inner[index], evaluation.others_noise_inner[index]
        for name in sample.keys() & exact.keys() & noise.keys():
            if not is_float(sample[name]) or exact[name].size != sample[name].size:
                continue
            limits = tolerances(exact[name], noise[name], str(sample[name].dtype))
            known = KnownTensor(said=None, exact=exact[name], limits=limits, said_limits=limits, scale=0.0)
            verdict = judged(sample[name], known)
            if name not in worst or verdict.of_tolerance > worst[name].of_tolerance:
                worst[name] = verdict
    return worst


def weak_outputs(known: Sequence[Mapping[str, KnownTensor]]) -> dict[str, float]:
    """Outputs whose tolerance is a large part of their largest value in every sample, and the least such part, or 1."""
    shares: dict[str, list[float]] = {}
    for sample in known:
        for name, one in sample.items():
            value, limit = largest(one.exact), float(one.limits.max(initial=0.0, where=np.isfinite(one.limits)))
            if limit > _NO_NOISE:
                shares.setdefault(name, []).append(min(limit / value, 1.0) if value else 1.0)
    return {name: min(parts) for name, parts in shares.items() if min(parts) > WEAK_SHARE}


def best_outputs(said: Sequence[Sample], evaluation: Evaluation | None) -> list[dict[str, Array]]:
    """Outputs to compare with later: floats of the evaluation where the runtime is near it, else the runtime's."""
    if evaluation is None:
        return [dict(sample) for sample in said]
    known = known_outputs(said, evaluation, [False] * len(said))
    return [
        {
            name: known[index][name].exact.astype(array.dtype).reshape(array.shape)
            if index < len(known)
            and name in known[index]
            and judged(array, replace(known[index][name], said=None, limits=known[index][name].said_limits)).passed
            else array
            for name, array in sample.items()
        }
        for index, sample in enumerate(said)
    ]
