"""Judge float tensors by rounding errors, which a float64 evaluation of the same graph estimates.

R is the reference runtime's value of an element, X its value in the float64 evaluation, N the change of the element by
rounding errors of float32 (`reference_runtimes/float64_runtime.py`), N' the same change with the errors of functions
that other runtimes approximate, u the unit roundoff of the element's type, M the magnitude of its channel.

    |R - X| <= 8 N' + 4 u M                   shows that our reading of the file is the runtime's, so X can be used
    min(|C - X|, |C - R|) <= 8 N + 4 u M      must then hold for the C code's value, on the host and on the board

If the first inequality fails, X proves nothing, and the C code has to be within 1e-4 of the largest value of R instead.
Stressed samples (`Expected.stressed`) may be too hard for the runtime itself: for these only the second inequality must
hold.
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
"""Tolerance as a multiple of the noise. The errors of two runtimes on 19 networks were at most 1.9 times the noise."""
FLOOR_ROUNDINGS = 4
_NO_NOISE = 1e-30
SPREAD = 4
"""Factor from the tolerances of evaluated samples to the tolerance of a sample that was not evaluated.

Rounding errors grow with the values that are added up, which may be larger in that sample."""
WEAK_SHARE = 0.01
"""Tolerance as a fraction of an output's largest value from which a comparison verifies the output only weakly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Values of a model in float64, and the noise of rounding to the model's types: arrays by name for each sample.

    outputs, inner: values. noise_outputs, noise_inner: noise of our C code.
    others_noise_outputs, others_noise_inner: noise of runtimes that approximate functions.
    """

    outputs: Sequence[Sample]
    inner: Sequence[Sample]
    noise_outputs: Sequence[Sample]
    noise_inner: Sequence[Sample]
    others_noise_outputs: Sequence[Sample]
    others_noise_inner: Sequence[Sample]


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownTensor:
    """Known values of one tensor in one sample, and the tolerances of its elements.

    reported: the reference runtime's values; None if it does not show the tensor.
    exact: values in float64.
    limits: tolerances of the C code. reported_limits: tolerances of the runtime.
    scale: largest magnitude of the runtime's tensor in all samples.
    is_stressed: True if the sample was drawn to be hard.
    """

    reported: Array | None
    exact: Array
    limits: Array
    reported_limits: Array
    scale: float
    is_stressed: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Error of the C code at the element with the largest error in units of its tolerance.

    of_tolerance: error divided by the tolerance; more than 1 fails.
    error: difference from the runtime, or from float64 if the runtime does not show the tensor.
    limit: tolerance of the element. at: index of the element.
    from_exact, reference_error: difference from float64 of the C code and of the runtime.
    is_evaluated: False for a sample without float64 values; from_exact is then the difference from the runtime.
    cause: `c` or `reading` for a failure, else empty.
    """

    of_tolerance: float
    error: float
    limit: float
    at: tuple[int, ...]
    from_exact: float
    reference_error: float
    is_evaluated: bool = True
    cause: str = ""

    @property
    def passed(self) -> bool:
        return self.of_tolerance <= 1

    def sentence(self, what: str, who: str) -> str:
        """Return the failure as a sentence. what: name of the tensor. who: name of the reference runtime."""
        at = f" at [{', '.join(map(str, self.at))}]" if self.at else ""
        against = (
            f"the error against float64 is {self.reference_error:.3g} in {who} and {self.from_exact:.3g} in the C code"
            if self.is_evaluated
            else "the tolerance is that of other samples, because this one was not evaluated in float64"
        )
        explained = f"of which rounding explains {self.limit:.3g}"
        return f"{what}{at}: differs from {who} by {self.error:.3g}, {explained}; {against}"


def tolerances(exact: Array, noise: Array, dtype: str) -> Array:
    """Return the tolerance of each element. dtype: type of the tensor in the C code."""
    unit = UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF["float32"])
    least = float(np.finfo(np.float32).tiny)  # processors may flush smaller numbers to zero
    return NOISE_FACTOR * noise + FLOOR_ROUNDINGS * unit * shared_noise(np.abs(exact)) + least


def judged(got: Array, known: KnownTensor) -> Verdict:
    """Judge a tensor of the C code."""
    exact, limits, shape = known.exact, known.limits, known.exact.shape
    got = got.astype(np.float64).reshape(shape)
    from_exact = gaps(got, exact)
    if known.reported is None:
        return _worst(from_exact, limits, from_exact, np.zeros(shape), "c")
    reported = known.reported.astype(np.float64).reshape(shape)
    from_reported, reference = gaps(got, reported), gaps(reported, exact)
    if known.is_stressed or (reference <= known.reported_limits).all():
        return _worst(np.minimum(from_reported, from_exact), limits, from_exact, reference, "c")
    otherwise = np.full(shape, float_tolerance(str(known.reported.dtype)) * known.scale)
    return _worst(from_reported, otherwise, from_exact, reference, "reading" if (from_exact <= limits).all() else "c")


def judged_unevaluated(got: Array, reported: Array, known: Sequence[KnownTensor], tolerance: float) -> Verdict:
    """Judge an output in a sample that was not evaluated in float64.

    known: the same output in the evaluated samples. The tolerance is `SPREAD` times the largest of their tolerances, or
    `tolerance` times the output's largest value if that is more.
    """
    assert known, "the first samples are evaluated"
    shape = known[0].exact.shape
    of_others = np.max([one.limits + one.reported_limits for one in known if not one.is_stressed], axis=0)
    # Results in 16-bit floats differ by whole units in the last place; the evaluated samples may show no difference.
    least = tolerance if tolerance <= float_tolerance("float32") else SPREAD * tolerance
    limits = np.maximum(SPREAD * of_others, least * known[0].scale)
    errors = gaps(got.astype(np.float64).reshape(shape), reported.astype(np.float64).reshape(shape))
    return replace(_worst(errors, limits, errors, np.zeros(shape), "c"), is_evaluated=False)


def _worst(errors: Array, limits: Array, from_exact: Array, reference: Array, cause: str) -> Verdict:
    """Return the verdict at the element whose error is the largest in units of its tolerance."""
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
    """Return |one - other| by element: 0 for two NaN or equal infinities, infinity if only one value is a number."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return np.where(np.isnan(found), np.inf, found)


def known_outputs(
    reported: Sequence[Sample], evaluation: Evaluation, stressed: Sequence[bool]
) -> list[dict[str, KnownTensor]]:
    """Return the known values of each float output by name, for each evaluated sample. These are the first samples."""
    floats = [name for name, array in reported[0].items() if is_float(array) and name in evaluation.outputs[0]]
    scales = {name: max(largest(sample[name]) for sample in reported) for name in floats}
    found: list[dict[str, KnownTensor]] = []
    for index, sample in enumerate(reported[: len(evaluation.outputs)]):
        exact, noise, others = (
            values[index] for values in (evaluation.outputs, evaluation.noise_outputs, evaluation.others_noise_outputs)
        )
        found.append(
            {
                name: KnownTensor(
                    reported=sample[name], exact=exact[name], scale=scales[name], is_stressed=stressed[index],
                    limits=tolerances(exact[name], noise[name], str(sample[name].dtype)),
                    reported_limits=tolerances(exact[name], others[name], str(sample[name].dtype)),
                )
                for name in floats
                if exact[name].size == sample[name].size
            }
        )  # fmt: skip
    return found


def known_inner(reported: ReferenceResult, evaluation: Evaluation) -> dict[str, Verdict]:
    """Return the worst verdict on the runtime against float64 for each inner tensor that both have, by name."""
    worst: dict[str, Verdict] = {}
    for index, sample in enumerate(reported.inner[: len(evaluation.inner)]):
        exact, noise = evaluation.inner[index], evaluation.others_noise_inner[index]
        for name in sample.keys() & exact.keys() & noise.keys():
            if not is_float(sample[name]) or exact[name].size != sample[name].size:
                continue
            limits = tolerances(exact[name], noise[name], str(sample[name].dtype))
            known = KnownTensor(reported=None, exact=exact[name], limits=limits, reported_limits=limits, scale=0.0)
            verdict = judged(sample[name], known)
            if name not in worst or verdict.of_tolerance > worst[name].of_tolerance:
                worst[name] = verdict
    return worst


def weak_outputs(known: Sequence[Mapping[str, KnownTensor]]) -> dict[str, float]:
    """Return the outputs whose tolerance is a large fraction of their largest value in every sample.

    The values are the smallest such fraction of each output over the samples, 1 at most.
    """
    shares: dict[str, list[float]] = {}
    for sample in known:
        for name, one in sample.items():
            value, limit = largest(one.exact), float(one.limits.max(initial=0.0, where=np.isfinite(one.exact)))
            if limit > _NO_NOISE:
                shares.setdefault(name, []).append(min(limit / value, 1.0) if value else 1.0)
    return {name: min(parts) for name, parts in shares.items() if min(parts) > WEAK_SHARE}


def best_outputs(reported: Sequence[Sample], evaluation: Evaluation | None) -> list[dict[str, Array]]:
    """Return the expected outputs of the self-test.

    They are the float64 evaluation's floats if the runtime agrees with the evaluation, otherwise the runtime's outputs.
    """
    if evaluation is None:
        return [dict(sample) for sample in reported]
    known = known_outputs(reported, evaluation, [False] * len(reported))
    return [
        {
            name: known[index][name].exact.astype(array.dtype).reshape(array.shape)
            if index < len(known)
            and name in known[index]
            and judged(
                array, replace(known[index][name], reported=None, limits=known[index][name].reported_limits)
            ).passed
            else array
            for name, array in sample.items()
        }
        for index, sample in enumerate(reported)
    ]


def _agrees(reported: Array, known: KnownTensor) -> bool:
    """Return True if the runtime's output is within rounding of float64."""
    return judged(reported, replace(known, reported=None, limits=known.reported_limits)).passed
