"""Judges a quantized model step by step, and so its outputs end to end.

(a) Each step of the C gives the very bytes of its kernel's reference, fed what the C gave that step, and the package's
    outputs are those of its last steps. (b) Each step's reference, fed what the witness computed, gives what the
    witness computed (`tvm_ext.verification.account`). By (a) the C is the chain of the references, by (b) every link
    of that chain is the witness's; what both differ by at the end is what the links allow, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.program import reference
from codegen_c.program.steps import KernelCall, Step, calls
from tvm_ext.execution.instrumented import InstrumentedModel
from tvm_ext.verification.account import account_for
from tvm_ext.verification.verify import BOARD_TOLERANCE, difference
from tvm_ext.verification.witnesses.testimony import Testimony

Array = np.ndarray
Sample = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class StepErrors:
    """Steps and outputs off the reference or the witness, as sentences; empty is good.

    outputs: by sample, outputs as the last steps made them, by the model's names. tensors_compared: tensors that both a
    step made and the witness has.
    """

    against_reference: tuple[str, ...]
    against_witness: tuple[str, ...]
    outputs: tuple[Sample, ...]
    tensors_compared: int

    @property
    def passed(self) -> bool:
        return not self.against_reference and not self.against_witness


def check_steps(compiled: Compiled, samples: Sequence[Sample], testimony: Testimony | None = None) -> StepErrors:
    """Rules (a) and (b) for every step of a quantized model; without a testimony only (a)."""
    with InstrumentedModel(compiled) as model:
        kernels, outputs = list[str](), list[Sample]()
        states = reference.first_states(compiled.program)
        for sample in samples:
            found, made, states = _against_reference(model, sample, states)
            kernels += found
            outputs.append(made)
        account = account_for(model.compiled, samples, testimony) if testimony else None
    return StepErrors(
        against_reference=tuple(dict.fromkeys(kernels)),
        against_witness=account.errors if account else (),
        outputs=tuple(outputs),
        tensors_compared=account.tensors_compared if account else 0,
    )


def _against_reference(
    model: InstrumentedModel, sample: Sample, states: Mapping[str, Array]
) -> tuple[list[str], Sample, dict[str, Array]]:
    """(a): each step of the C run against its reference, given what the C run gave that step; outputs, next states.

    New rows of a ring that turns are not looked at by themselves: what reads them is.
    """
    program, interface = model.compiled.program, model.compiled.interface
    values = {port.name: sample[port.source] for port in interface.inputs}
    values |= {**states, **model.trace(sample)}
    errors = []
    for step in program.steps:
        for name, wanted in reference.run_step(program, step, values).items():
            if name in program.kept or program.turns(name):
                values[name] = wanted
            if name not in values or values[name] is wanted:  # of a ring only the last rows are left
                continue
            absolute, relative = difference(values[name], wanted)
            limit = 0.0 if _is_exact(step) else 1.0 if wanted.dtype.kind in "iu" else BOARD_TOLERANCE
            if (relative if wanted.dtype.kind == "f" else absolute) > limit:
                errors.append(f"{step.name}: {name} differs from its kernel's reference by {absolute:g}")
    outputs = {port.source: values[port.name].reshape(port.shape) for port in interface.outputs}
    return errors, outputs, reference.next_states(program, values)


def against_steps(given: Sequence[Sample], steps: StepErrors) -> list[str]:
    """Sentences on outputs of the package, by sample and name, that are not those of its last steps."""
    return [
        f"output {name}: differs by {difference(outputs[name], wanted)[0]:g} from what its last step made"
        for outputs, made in zip(given, steps.outputs, strict=True)
        for name, wanted in made.items()
        if max(difference(outputs[name], wanted)) > 0
    ]


def _is_exact(step: Step) -> bool:
    return all(call.implementation.exact for call in calls(step) if isinstance(call, KernelCall))
