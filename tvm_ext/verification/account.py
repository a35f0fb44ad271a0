"""Accounts for a quantized model's outputs by its steps: each step's reference, fed what a reference runtime computed.

A step whose inputs the reference runtime has is judged alone: integers of a scale within 1 of the reference runtime's,
and no more than a quarter off on average (a zero point that is wrong by 1 is, rounding is not; halves, which either
neighbor is right for, do not count, for they may be many and all go one way); floats within 1e-4 of the largest
magnitude; other integers equal. Where the reference runtime lacks a tensor (a part of an operator, a step of ours), the
reference goes on with its own value, and what comes next is judged together with the steps that made it: it may differ
by the worst-case error that a change of each of those values by 1 (floats by 1e-4) propagates. Every output is judged,
so every step is.
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
"""Least mean difference that is not rounding, for tensors with so many elements in all samples:"""
LEAST_ELEMENTS = 32


@dataclass(frozen=True, kw_only=True)
class Account:
    """Steps that the reference runtime does not bear out, as sentences, and how many tensors were compared in each
    sample."""

    errors: tuple[str, ...]
    tensors_compared: int


def account_for(compiled: Compiled, samples: Sequence[Sample], reference_result: ReferenceResult) -> Account:
    """Judge all steps and outputs of a program whose inputs and outputs lie in its arena."""
    errors: list[str] = []
    means: dict[str, list[float]] = {}
    judged: set[str] = set()
    states = reference.first_states(compiled.program)
    ties = reference_result.ties or [{}] * len(samples)
    for sample, outputs, inner, halves in zip(
        samples, reference_result.outputs, reference_result.inner, ties, strict=True
    ):
        chain = _Chain(
            compiled=compiled, known=_known(compiled, {**outputs, **inner}, outputs), who=reference_result.runtime
        )
        states = chain.run({port.name: sample[port.source] for port in compiled.interface.inputs}, states)
        errors += chain.errors
        judged |= chain.judged
        for name, signed in chain.signed.items():
            tensor = compiled.program.tensors[name]
            tied = laid_out(halves.get(source_of(tensor)), tensor)
            counted = signed if tied is None else signed[~tied.reshape(signed.shape)]
            total = means.setdefault(name, [0.0, 0.0])
            total[0] += float(counted.sum())
            total[1] += counted.size
    for name, (total_lsb, count) in means.items():
        if count >= LEAST_ELEMENTS and abs(total_lsb / count) > MEAN_LSB:
            source = compiled.program.tensors[name].source
            errors.append(f"{source} is off {reference_result.runtime}'s by {total_lsb / count:.2f} LSB on average")
    return Account(errors=tuple(dict.fromkeys(errors)), tensors_compared=len(judged))


def _known(compiled: Compiled, values: Sample, outputs: Sample) -> dict[str, Array]:
    """The reference runtime's tensors as the program stores them; outputs by the names under which the package gives
    them.

    values: by the module's names, among which another tensor may have the name of an output.
    """
    program = compiled.program
    found: dict[str, Array] = {}
    for tensor in program.tensors.values():
        stored = as_stored(values.get(source_of(tensor)), tensor)
        if stored is not None:
            found[tensor.name] = stored
    for port in compiled.interface.outputs:
        found.pop(port.name, None)
        stored = as_stored(outputs.get(port.source), program.tensors[port.name])
        if stored is not None:
            found[port.name] = stored
    return found


@dataclass(kw_only=True)
class _Chain:
    """Steps of one sample. debts: names of the tensors, made by steps since the reference runtime's, that a tensor
    rests on."""

    compiled: Compiled
    known: Mapping[str, Array]
    who: str
    errors: list[str] = field(default_factory=list[str])
    judged: set[str] = field(default_factory=set[str])
    signed: dict[str, Array] = field(default_factory=dict[str, "Array"])
    _values: dict[str, Array] = field(default_factory=dict[str, "Array"])
    _debts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    _made: list[KernelCall | Transfer] = field(default_factory=list["KernelCall | Transfer"])

    def run(self, inputs: Mapping[str, Array], states: Mapping[str, Array]) -> dict[str, Array]:
        """Judge all steps. states: as the sample before left them, where the reference runtime does not show its own.

        Returns what the next sample finds.
        """
        program = self.compiled.program
        self._values |= {**inputs, **{name: self.known.get(name, array) for name, array in states.items()}}
        self._debts |= dict.fromkeys([*inputs, *states], ())
        for call in (call for step in program.steps for call in calls(step)):
            if not isinstance(call, KernelCall | Transfer):
                continue
            self._made.append(call)
            debt = self._debt_of_inputs(call)
            for name, result in reference.run_step(program, call, self._values).items():
                if name in program.kept:
                    self._values[name] = result
                    self._debts[name] = tuple(dict.fromkeys((*self._debts[name], *debt)))
                else:
                    self._take(call.name, name, result, debt)
        for port in self.compiled.interface.outputs:
            if port.name not in self.known:
                self.errors.append(f"output {port.source}: {self.who} gives no such tensor")
            elif port.name not in self._values:  # it is its parts
                debt = self._debt_of(port.name)
                self._judge("its parts", port.name, reference.value_of(program, port.name, self._values), debt)
            elif port.name in inputs:
                self._judge("an input", port.name, inputs[port.name], ())
        return reference.next_states(program, self._values)

    def _take(self, step: str, name: str, result: Array, debt: tuple[str, ...]) -> None:
        if name in self.known:
            self._judge(step, name, result, debt)
            self._values[name], self._debts[name] = self.known[name], ()
        else:
            self._values[name], self._debts[name] = result, tuple(dict.fromkeys((*debt, name)))

    def _judge(self, step: str, name: str, result: Array, debt: tuple[str, ...]) -> None:
        tensor, wanted = self.compiled.program.tensors[name], self.known[name]
        result = result.reshape(wanted.shape)
        self.judged.add(name)
        absolute, relative = difference(result, wanted)
        is_float = wanted.dtype.kind == "f"
        found, limit = (relative, FLOAT_TOLERANCE) if is_float else (absolute, self._lsb(tensor))
        if found > limit and debt:
            explained = self._explained(name, result, debt)
            limit += explained / max(float(np.abs(wanted).max()), 1e-30) if is_float else explained
        if found > limit:
            unit = "" if is_float else " LSB"
            self.errors.append(f"{step}: {tensor.source} is {absolute:g}{unit} from {self.who}'s")
        elif not is_float and not debt and self._lsb(tensor):
            self.signed[name] = result.astype(np.int64) - wanted

    def _lsb(self, tensor: Tensor) -> int:
        """Tolerance for rounding: 1 for integers of a scale or those that a quantized model has instead, else 0."""
        is_scaled = tensor.quantization is not None or tensor.dtype in ("int8", "uint8", "int16", "uint16")
        return TOLERANCE_LSB if is_scaled else 0

    def _explained(self, name: str, result: Array, debt: Iterable[str]) -> float:
        """Worst-case error propagated from the inputs of `name`."""
        return sum(max(self._moved(name, result, other, way) for way in range(3)) for other in debt)

    def _moved(self, name: str, result: Array, moved: str, way: int) -> float:
        """Difference of a tensor where another one is moved: all up, all down, each at random."""
        program, values, begun = self.compiled.program, dict(self._values), False
        values[moved] = _shifted(values[moved], way, np.random.default_rng(0))
        for call in self._made:
            writes = call.outputs if isinstance(call, KernelCall) else (call.target,)
            begun |= moved in writes
            if not begun or moved in writes:
                continue
            made = reference.run_step(program, call, values)
            if name in made:
                return difference(made[name].reshape(result.shape), result)[0]
            values |= {other: array for other, array in made.items() if other not in self.known}
        return difference(reference.value_of(program, name, values).reshape(result.shape), result)[0]

    def _debt_of_inputs(self, call: KernelCall | Transfer) -> tuple[str, ...]:
        if isinstance(call, KernelCall):
            return tuple(dict.fromkeys(debt for name in call.inputs for debt in self._debt_of(name)))
        return () if call.source_is_constant else self._debt_of(call.source)

    def _debt_of(self, name: str) -> tuple[str, ...]:
        if name in self._debts:
            return self._debts[name]
        program = self.compiled.program
        part = program.tensors[name].part
        if part:
            return self._debt_of(part.tensor)
        parts = parts_of(program).get(name, [])
        return tuple(dict.fromkeys(debt for other in parts for debt in self._debts.get(other.name, ())))


def _shifted(array: Array, way: int, random: np.random.Generator) -> Array:
    """Every element one unit up, down, or either: 1 within the type's range, of floats 1e-4 of the largest."""
    signs = (1, -1, random.choice([-1, 1], array.shape))[way]
    if array.dtype.kind == "f":
        return (array + signs * FLOAT_TOLERANCE * np.abs(array).max(initial=0)).astype(array.dtype)
    if array.dtype.kind == "b":
        return array
    info = np.iinfo(array.dtype)
    return np.clip(array.astype(np.int64) + signs, info.min, info.max).astype(array.dtype)


def source_of(tensor: Tensor) -> str:
    """The model's own name of what a tensor holds, or holds columns of."""
    return tensor.strip.source if tensor.strip else tensor.source


def sources(program: Program) -> list[str]:
    """Names of the model's tensors that steps make or read: what a reference runtime is asked for."""
    return list(dict.fromkeys(source_of(tensor) for tensor in program.tensors.values()))


def as_stored(array: Array | None, tensor: Tensor) -> Array | None:
    """The model's array as the program stores it; None where the two are not the same tensor."""
    return None if array is None or str(array.dtype) != tensor.dtype else laid_out(array, tensor)


def laid_out(array: Array | None, tensor: Tensor) -> Array | None:
    """`as_stored` of an array of any type."""
    if array is None:
        return None
    if tensor.layout and array.ndim == len(tensor.layout):
        array = array.transpose(tensor.layout)
    if tensor.strip and array.ndim == 4:
        array = array[:, :, tensor.strip.begin : tensor.strip.end]
    if array.size != tensor.num_elements:
        return None
    return np.ascontiguousarray(array).reshape(tensor.shape)
