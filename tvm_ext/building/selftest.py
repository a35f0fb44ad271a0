"""Self-test of a package: the vectors that it stores, the vectors that the device draws, and their expected outputs."""

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
"""Runs of each drawn sample on the host if several processors share the model. A data race shows in some runs only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SelfTest:
    """Vectors of a self-test. stored: vectors in flash. drawn: vectors that the device draws; None without any."""

    stored: list[TestVector]
    drawn: DrawnVectors | None = None

    def to_json(self, interface: Interface) -> dict[str, int]:
        """Return the numbers of stored and drawn vectors, each of which is one run, and their bytes of flash."""
        ports = [*interface.inputs, *(interface.outputs if self.stored[0].outputs is not None else ())]
        return {
            "stored_vectors": len(self.stored),
            "drawn_vectors": len(self.drawn.vectors) if self.drawn else 0,
            "vector_bytes": len(self.stored) * sum(port.num_bytes for port in ports)
            + stored_bytes(interface, self.drawn),
        }


def selftest_of(subject: Subject) -> SelfTest:
    """Choose the self-test's vectors and their expected outputs.

    A model stores one sample; a model with states the first samples in order; a pipeline one sample more than are in
    flight. Expected outputs of a quantized model are the bytes of the kernels' references, those of a float model the
    reference runtime's or float64's. If nothing is verified, the vectors have no outputs.
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
    """Return the outputs of the kernels' references for samples in order, beginning with the first states."""
    interface, program = compiled.interface, compiled.program
    results, states = list[dict[str, np.ndarray]](), reference.first_states(program)
    for sample in samples:
        values = reference.run(program, {port.name: sample[port.source] for port in interface.inputs}, states)
        results.append({port.source: values[port.name].reshape(port.shape) for port in interface.outputs})
        states = reference.next_states(program, values)
    return results


def drawn_faults(subject: Subject, model: HostModel, selftest: SelfTest) -> list[str]:
    """Return a sentence for each wrong output of a quantized model on the host from drawn inputs.

    The reference runtime is asked for a few drawn samples only; the kernels' references give the others.
    """
    compiled = subject.compiled
    if subject.drawn is None or selftest.drawn is None or not compiled.is_quantized or compiled.program.states:
        return []
    # If processors share a run, a value that one of them overwrites too early shows in some of the runs only.
    times = RACING_RUNS if compiled.parallel else 1
    given = [model.run(sample) for _ in range(times) for sample in subject.drawn.samples]
    expected = [vector.outputs for vector in selftest.drawn.vectors] * times
    return drawn_problems(given, expected, tolerance_of(compiled.program, BOARD_TOLERANCE))
