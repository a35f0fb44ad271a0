"""The self-test of a package: which vectors it stores, which ones the device draws, and what they ought to give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.emit.drawn_vectors import DrawnVectors, stored_bytes
from codegen_c.emit.selftest import TestVector
from codegen_c.program import reference
from codegen_c.program.interface import Interface
from tvm_ext.building.subject import NUM_STEPS_STORED, Subject
from tvm_ext.execution.host_model import HostModel
from tvm_ext.verification.drawn_samples import drawn_problems, drawn_vectors, is_exact
from tvm_ext.verification.judge_floats import best_outputs
from tvm_ext.verification.verify import BOARD_TOLERANCE, tolerance_of

Sample = Mapping[str, np.ndarray]
RACING_RUNS = 4
"""Runs on the host of each drawn sample of a model that several processors share."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SelfTest:
    """Vectors of a self-test: those that are stored, and those that the device draws, None where there are none."""

    stored: list[TestVector]
    drawn: DrawnVectors | None = None

    def to_json(self, interface: Interface) -> dict[str, int]:
        """Numbers of vectors, each of which is a run, and the bytes of flash that they take."""
        ports = [*interface.inputs, *(interface.outputs if self.stored[0].outputs is not None else ())]
        return {
            "stored_vectors": len(self.stored),
            "drawn_vectors": len(self.drawn.vectors) if self.drawn else 0,
            "vector_bytes": len(self.stored) * sum(port.num_bytes for port in ports)
            + stored_bytes(interface, self.drawn),
        }


def selftest_of(subject: Subject) -> SelfTest:
    """A sample with what the self-test expects, and drawn ones: the kernels' own bytes where the model is quantized.

    Of a model with states, the first samples in order; of a pipeline, more than are under way. No outputs where nothing
    is verified: then nothing is run to know them.
    """
    compiled, expected, drawn = subject.compiled, subject.expected, subject.drawn
    warm_up = compiled.interface.warm_up_runs
    in_turn = compiled.interface.in_flight + 1 if compiled.interface.is_pipeline else 1
    stored = subject.samples[: warm_up + NUM_STEPS_STORED if compiled.program.states else in_turn]
    if expected is None:
        return SelfTest(stored=[TestVector(inputs=sample, outputs=None) for sample in stored])
    if compiled.is_quantized:
        outputs = _reference_outputs(compiled, [*stored, *(drawn.samples if drawn else ())])
        of_drawn = outputs[len(stored) :]
    else:
        nothing = {port.source: np.zeros(port.shape, port.dtype) for port in compiled.interface.outputs}
        outputs = [nothing] * warm_up + best_outputs(expected.reference_result.outputs, expected.evaluation)
        begin = len(subject.chosen.plain) + len(subject.chosen.stressed)
        of_drawn = outputs[begin : begin + len(subject.chosen.asked)]
    outputs = outputs[: len(stored)]
    vectors = [TestVector(inputs=sample, outputs=one) for sample, one in zip(stored, outputs, strict=True)]
    exact = compiled.is_quantized or is_exact(compiled.program)
    every = [*outputs, *of_drawn]
    return SelfTest(stored=vectors, drawn=drawn_vectors(drawn, of_drawn, every, exact=exact) if drawn else None)


def _reference_outputs(compiled: Compiled, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    """Outputs of samples in order by the kernels' references, from the first states on."""
    interface, program = compiled.interface, compiled.program
    found, states = list[dict[str, np.ndarray]](), reference.first_states(program)
    for sample in samples:
        values = reference.run(program, {port.name: sample[port.source] for port in interface.inputs}, states)
        found.append({port.source: values[port.name].reshape(port.shape) for port in interface.outputs})
        states = reference.next_states(program, values)
    return found


def drawn_faults(subject: Subject, model: HostModel, selftest: SelfTest) -> list[str]:
    """Sentences on what a package computes on the host from drawn inputs that nothing else here compares."""
    compiled = subject.compiled
    if subject.drawn is None or selftest.drawn is None or not compiled.is_quantized or compiled.program.states:
        return []
    # Where processors share a run, what one of them overwrites too early shows in some runs alone.
    times = RACING_RUNS if compiled.parallel else 1
    given = [model.run(sample) for _ in range(times) for sample in subject.drawn.samples]
    expected = [vector.outputs for vector in selftest.drawn.vectors] * times
    return drawn_problems(given, expected, tolerance_of(compiled.program, BOARD_TOLERANCE))
