"""Compare a quantized model with a reference runtime, step by step.

Each step's kernel reference computes from the tensors that the reference runtime computed, and its result is compared
with the runtime's. Tolerances are:
- 1 for integers with a scale, and 0.25 on average over a tensor. A zero point that is wrong by 1 exceeds the average,
  rounding does not. Elements whose real value is half way between two integers do not count for the average, because
  both neighbors are right, and a tensor may have many that are all rounded in the same direction.
- 1e-4 of the largest magnitude for floats, and 0 for other integers.

The runtime does not have every tensor of the program, such as a part of an operator. The kernel reference then goes on
with its own value, and the next tensor that the runtime has is compared with the tolerance of all steps in between: the
worst-case error that results if each of their values changes by 1, and floats by 1e-4. Every output is compared, so
every step is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.program import reference
from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import KernelCall, Transfer, calls
from codegen_c.program.tensors import Tensor
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify import FLOAT_TOLERANCE, difference

Array = np.ndarray
Sample = Mapping[str, Array]

TOLERANCE_LSB = 1
MEAN_LSB = 0.25
"""Smallest mean difference that is not due to rounding, for tensors of at least `LEAST_ELEMENTS` in all samples."""
LEAST_ELEMENTS = 32


@dataclass(frozen=True, kw_only=True)
class Account:
    """Result of the comparison with a reference runtime, step by step.

    errors: a sentence for each step whose result differs. tensors_compared: number of compared tensors of a sample.
    """

    errors: tuple[str, ...]
    tensors_compared: int


def account_for(compiled: Compiled, samples: Sequence[Sample], reference_result: ReferenceResult) -> Account:
    """Compare all steps and outputs of a program with a reference runtime's results for the same samples."""
    errors: list[str] = []
    means: dict[str, list[float]] = {}
    judged: set[str] = set()
    states = reference.first_states(compiled.program)
    ties = reference_result.ties or [{}] * len(samples)
    for sample, outputs, inner, halves in zip(
        samples, reference_result.outputs, reference_result.inner, ties, strict=True
    ):
        chain = _Chain(
            compiled=compiled, known=_known(compiled, {**outputs, **inner}, outputs), runtime=reference_result.runtime
        )
        states = chain.run({port.name: sample[port.source] for port in compiled.interface.inputs}, states)
        errors += chain.errors
        judged |= chain.judged
        for name, signed in chain.signed.items():
            tensor = compiled.program.tensors[name]
            # A half way case is right with either neighbor, so that the mean leaves it out.
            tied = laid_out(halves.get(source_of(tensor)), tensor)
            counted = signed if tied is None else signed[~tied.reshape(signed.shape)]
            total = means.setdefault(name, [0.0, 0.0])
            total[0] += float(counted.sum())
            total[1] += counted.size
    for name, (total_lsb, count) in means.items():
        if count >= LEAST_ELEMENTS and abs(total_lsb / count) > MEAN_LSB:
            source = compiled.program.tensors[name].source
            errors.append(
                f"{source} differs from {reference_result.runtime}'s by {total_lsb / count:.2f} LSB on average"
            )
    return Account(errors=tuple(dict.fromkeys(errors)), tensors_compared=len(judged))


def _known(compiled: Compiled, values: Sample, outputs: Sample) -> dict[str, Array]:
    """Return the reference runtime's tensors in the program's layouts, by the program's names.

    values: tensors by the module's names, in which an inner tensor may have the name of an output.
    outputs: outputs by the names of the package's ports.
    """
    program = compiled.program
    known: dict[str, Array] = {}
    for tensor in program.tensors.values():
        stored = as_stored(values.get(source_of(tensor)), tensor)
        if stored is not None:
            known[tensor.name] = stored
    for port in compiled.interface.outputs:
        known.pop(port.name, None)
        stored = as_stored(outputs.get(port.source), program.tensors[port.name])
        if stored is not None:
            known[port.name] = stored
    return known


@dataclass(kw_only=True)
class _Chain:
    """Steps of one sample.

    known: the reference runtime's tensors by name. runtime: its name.
    _unjudged: for each tensor, the names of the tensors it depends on that the runtime does not have.
    """

    compiled: Compiled
    known: Mapping[str, Array]
    runtime: str
    errors: list[str] = field(default_factory=list[str])
    judged: set[str] = field(default_factory=set[str])
    signed: dict[str, Array] = field(default_factory=dict[str, "Array"])
    _values: dict[str, Array] = field(default_factory=dict[str, "Array"])
    _unjudged: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    _calls: list[KernelCall | Transfer] = field(default_factory=list["KernelCall | Transfer"])

    def run(self, inputs: Mapping[str, Array], states: Mapping[str, Array]) -> dict[str, Array]:
        """Judge all steps of the sample, and return the states that the next sample begins with.

        states: states after the previous sample, for those that the reference runtime does not show.
        """
        program = self.compiled.program
        self._values |= {**inputs, **{name: self.known.get(name, array) for name, array in states.items()}}
        self._unjudged |= dict.fromkeys([*inputs, *states], ())
        for call in (call for step in program.steps for call in calls(step)):
            if not isinstance(call, KernelCall | Transfer):
                continue
            self._calls.append(call)
            unjudged = self._unjudged_inputs(call)
            for name, result in reference.run_step(program, call, self._values).items():
                if name in program.kept:
                    self._values[name] = result
                    self._unjudged[name] = tuple(dict.fromkeys((*self._unjudged[name], *unjudged)))
                else:
                    self._record(call.name, name, result, unjudged)
        for port in self.compiled.interface.outputs:
            if port.name not in self.known:
                self.errors.append(f"output {port.source}: {self.runtime} gives no such tensor")
            elif port.name not in self._values:  # steps write the output in parts, which are tensors of their own
                unjudged = self._unjudged_of(port.name)
                self._judge("its parts", port.name, reference.value_of(program, port.name, self._values), unjudged)
            elif port.name in inputs:
                self._judge("an input", port.name, inputs[port.name], ())
        return reference.next_states(program, self._values)

    def _record(self, step: str, name: str, result: Array, unjudged: tuple[str, ...]) -> None:
        if name in self.known:
            self._judge(step, name, result, unjudged)
            self._values[name], self._unjudged[name] = self.known[name], ()
        else:
            self._values[name], self._unjudged[name] = result, tuple(dict.fromkeys((*unjudged, name)))

    def _judge(self, step: str, name: str, result: Array, unjudged: tuple[str, ...]) -> None:
        tensor, wanted = self.compiled.program.tensors[name], self.known[name]
        result = result.reshape(wanted.shape)
        self.judged.add(name)
        absolute, relative = difference(result, wanted)
        is_float = wanted.dtype.kind == "f"
        found, limit = (relative, FLOAT_TOLERANCE) if is_float else (absolute, self._lsb(tensor))
        if found > limit and unjudged:
            explained = self._explained(name, result, unjudged)
            limit += explained / max(float(np.abs(wanted).max()), 1e-30) if is_float else explained
        if found > limit:
            unit = "" if is_float else " LSB"
            self.errors.append(f"{step}: {tensor.source} is {absolute:g}{unit} from {self.runtime}'s")
        elif not is_float and not unjudged and self._lsb(tensor):
            self.signed[name] = result.astype(np.int64) - wanted

    def _lsb(self, tensor: Tensor) -> int:
        """Return the tolerance for rounding: 1 for quantized integers and for integers of 8 or 16 bits, else 0."""
        is_scaled = tensor.quantization is not None or tensor.dtype in ("int8", "uint8", "int16", "uint16")
        return TOLERANCE_LSB if is_scaled else 0

    def _explained(self, name: str, result: Array, unjudged: Iterable[str]) -> float:
        """Worst-case error propagated from the inputs of `name`."""
        return sum(max(self._change(name, result, other, direction) for direction in range(3)) for other in unjudged)

    def _change(self, name: str, result: Array, changed: str, direction: int) -> float:
        """Return how much a tensor changes if each element of the tensor `changed` is changed as `_shifted` says."""
        program, values, reached = self.compiled.program, dict(self._values), False
        values[changed] = _shifted(values[changed], direction, np.random.default_rng(0))
        for call in self._calls:
            writes = call.outputs if isinstance(call, KernelCall) else (call.target,)
            reached |= changed in writes
            if not reached or changed in writes:
                continue
            results = reference.run_step(program, call, values)
            if name in results:
                return difference(results[name].reshape(result.shape), result)[0]
            values |= {other: array for other, array in results.items() if other not in self.known}
        return difference(reference.value_of(program, name, values).reshape(result.shape), result)[0]

    def _unjudged_inputs(self, call: KernelCall | Transfer) -> tuple[str, ...]:
        if isinstance(call, KernelCall):
            return tuple(dict.fromkeys(unjudged for name in call.inputs for unjudged in self._unjudged_of(name)))
        return () if call.source_is_constant else self._unjudged_of(call.source)

    def _unjudged_of(self, name: str) -> tuple[str, ...]:
        if name in self._unjudged:
            return self._unjudged[name]
        program = self.compiled.program
        part = program.tensors[name].part
        if part:
            return self._unjudged_of(part.tensor)
        parts = parts_of(program).get(name, [])
        return tuple(dict.fromkeys(unjudged for other in parts for unjudged in self._unjudged.get(other.name, ())))


def _shifted(array: Array, direction: int, random: np.random.Generator) -> Array:
    """Return an array with every element changed by one unit: up, down, or at random, for direction 0, 1 and 2.

    The unit is 1 for integers, which stay within the range of their type, and 1e-4 of the largest magnitude for floats.
    """
    signs = (1, -1, random.choice([-1, 1], array.shape))[direction]
    if array.dtype.kind == "f":
        return (array + signs * FLOAT_TOLERANCE * np.abs(array).max(initial=0)).astype(array.dtype)
    if array.dtype.kind == "b":
        return array
    info = np.iinfo(array.dtype)
    return np.clip(array.astype(np.int64) + signs, info.min, info.max).astype(array.dtype)


def source_of(tensor: Tensor) -> str:
    """Return the model's name of the tensor that a tensor of the program stores, whole or some of its columns."""
    return tensor.strip.source if tensor.strip else tensor.source


def sources(program: Program) -> list[str]:
    """Return the names of the model's tensors that steps read or write. A reference runtime is asked for these."""
    return list(dict.fromkeys(source_of(tensor) for tensor in program.tensors.values()))


def as_stored(array: Array | None, tensor: Tensor) -> Array | None:
    """Return the model's array in the program's layout; None if type or number of elements differ from the tensor's."""
    return None if array is None or str(array.dtype) != tensor.dtype else laid_out(array, tensor)


def laid_out(array: Array | None, tensor: Tensor) -> Array | None:
    """Return an array of any type in the program's layout of a tensor; None if the number of elements differs."""
    if array is None:
        return None
    if tensor.layout and array.ndim == len(tensor.layout):
        array = array.transpose(tensor.layout)
    if tensor.strip and array.ndim == 4:
        array = array[:, :, tensor.strip.begin : tensor.strip.end]
    if array.size != tensor.num_elements:
        return None
    return np.ascontiguousarray(array).reshape(tensor.shape)
