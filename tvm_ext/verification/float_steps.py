"""Judges the tensors inside a float model: what steps of the C write, beside the runtime's and a float64 evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.program.steps import writes
from codegen_c.program.tensors import Tensor
from tvm_ext.execution.instrumented import InstrumentedModel
from tvm_ext.verification.account import laid_out, source_of
from tvm_ext.verification.judge_floats import Evaluation, KnownTensor, Verdict, judged, tolerances
from tvm_ext.verification.verify import is_float, largest
from tvm_ext.verification.witnesses.testimony import Array, Sample, Testimony

NUM_JUDGED_STEPS = 5
"""Samples, from the first on, of which the tensors inside are judged."""


@dataclass(frozen=True, kw_only=True)
class FloatSteps:
    """Tensors that steps of the C got wrong, as sentences, with the causes of each; and how many were compared."""

    errors: tuple[str, ...]
    causes: tuple[str, ...]
    tensors_compared: int


def check_float_steps(
    compiled: Compiled, samples: Sequence[Sample], said: Testimony, evaluation: Evaluation, stressed: Sequence[bool]
) -> FloatSteps:
    """Compare every float tensor of the program that the runtime or the evaluation has, sample by sample."""
    worst: dict[str, tuple[Verdict, str]] = {}
    if not _has_known_tensors_inside(compiled, evaluation):
        return FloatSteps(errors=(), causes=(), tensors_compared=0)
    with InstrumentedModel(compiled) as model:
        program = model.compiled.program
        outputs = {port.name for port in model.compiled.interface.outputs}
        for index, sample in enumerate(samples[:NUM_JUDGED_STEPS]):
            for name, array in model.trace(sample).items():
                tensor = program.tensors.get(name)
                if tensor is None or name in outputs or not is_float(array):
                    continue
                known = _known(tensor, index, said, evaluation, is_stressed=stressed[index])
                if known is None:
                    continue
                verdict = judged(array, known)
                if name not in worst or verdict.of_tolerance > worst[name][0].of_tolerance:
                    who = said.witness if known.said is not None else "a float64 evaluation"
                    what = f"{source_of(tensor)}, which the model has inside, sample {index},"
                    worst[name] = verdict, verdict.sentence(what, who)
    failed = [(text, verdict.cause) for verdict, text in worst.values() if not verdict.passed]
    return FloatSteps(
        errors=tuple(text for text, _ in failed), causes=tuple(cause for _, cause in failed),
        tensors_compared=len(worst),
    )  # fmt: skip


def _has_known_tensors_inside(compiled: Compiled, evaluation: Evaluation) -> bool:
    """True where a step writes a tensor that the evaluation has, and that is no output."""
    tensors, outputs = compiled.program.tensors, {port.source for port in compiled.interface.outputs}
    written = {source_of(tensors[name]) for step in compiled.program.steps for name in writes(step)}
    return any(name not in outputs for name in written & evaluation.inner[0].keys())


def _known(
    tensor: Tensor, index: int, said: Testimony, evaluation: Evaluation, *, is_stressed: bool
) -> KnownTensor | None:
    """What is known of a tensor of the program, as it is stored; None where nothing is."""
    source = source_of(tensor)
    exact = laid_out(_of(evaluation.outputs, evaluation.inner, index, source), tensor)
    noise = laid_out(_of(evaluation.noise_outputs, evaluation.noise_inner, index, source), tensor)
    others = laid_out(_of(evaluation.others_noise_outputs, evaluation.others_noise_inner, index, source), tensor)
    if exact is None or noise is None or others is None:
        return None
    found = laid_out(_of(said.outputs, said.inner, index, source), tensor)
    if found is not None and str(found.dtype) != tensor.dtype:
        found = None
    return KnownTensor(
        said=found, exact=exact, limits=tolerances(exact, noise, tensor.dtype),
        said_limits=tolerances(exact, others, tensor.dtype),
        scale=largest(found) if found is not None else 0.0, is_stressed=is_stressed,
    )  # fmt: skip


def _of(
    outputs: Sequence[Mapping[str, Array]], inner: Sequence[Mapping[str, Array]], index: int, name: str
) -> np.ndarray | None:
    return inner[index].get(name, outputs[index].get(name))
