"""Operators timed alone on this machine, each by the back end that would run it, with TVM's own `time_evaluator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.processor_costs import NANOSECONDS
from relay_passes.composites import attributes, call_new
from relay_passes.dataflow import bindings, build, infer, operands
from relay_passes.processors.tvm_costs import OperatorCosts
from tvm_ext.core.decisions.composites import CompositeKind, PrimFuncs, Symbol
from tvm_ext.core.decisions.processors import OperatorProcessor
from tvm_ext.core.platform import Processor

REPEATS = 15
LEAST_MILLISECONDS = 1
"""Time of each repeat; the shortest counts, for what else a machine does only adds."""

Compile = Callable[[tvm.IRModule], object]
"""A module of placed composites -> what TVM's virtual machine runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stopwatch:
    """Seconds of operators, each measured once, and those that differ in their constants' values alone together.

    compile: as `tvm.compile` would, for a module of one operator. devices: of the virtual machine. With a memory of its
    own, a back end's copies are timed with the operator.
    """

    compile: Compile
    devices: Sequence[tvm.runtime.Device]
    known: dict[tuple[str, str], float] = field(default_factory=dict)

    def seconds(self, composite: relax.Function, processor: str) -> float:
        """The time of one call of an operator alone. processor: its name, empty for our C."""
        key = processor, operator_key(composite)
        if key not in self.known:
            self.known[key] = self._timed(composite, processor)
        return self.known[key]

    def _timed(self, composite: relax.Function, processor: str) -> float:
        machine = relax.VirtualMachine(self.compile(alone(composite, processor)), list(self.devices))
        arrays = [tvm.runtime.tensor(_array(param.ty)) for param in composite.params]
        machine.save_function("main", "timed", *arrays)
        timer = machine.time_evaluator("timed", tvm.cpu(), repeat=REPEATS, min_repeat_ms=LEAST_MILLISECONDS)
        return float(timer().min)

    @cached_property
    def call_seconds(self) -> float:
        """The time of a call of our C that does next to nothing."""
        x = relax.Var("x", relax.TensorType((1,), "float32"))
        y = relax.VarBinding(relax.Var("y", x.ty), infer(relax.op.nn.relu(x)))
        return self.seconds(build([x], [y], [y.var], attrs=attributes("nn_relu", []), as_tuple=False), "")


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """Times as measured. costs: say whether the processor runs an operator at all. runs: the operators' decision.

    Of our C the call is left out: a run of operators has one together, and TVM's own operators one each.
    """

    costs: OperatorCosts
    stopwatch: Stopwatch

    @property
    def processor(self) -> Processor:
        return self.costs.processor

    def nanoseconds(self, composite: relax.Function) -> int | None:
        if self.costs.nanoseconds(composite) is None:
            return None
        is_ours = self.processor.kind == "core"
        seconds = self.stopwatch.seconds(composite, "" if is_ours else self.processor.name)
        call = self.stopwatch.call_seconds if is_ours else 0.0
        return max(1, ceil((seconds - call) * NANOSECONDS))


def alone(composite: relax.Function, processor: str) -> tvm.IRModule:
    """A module whose main runs one composite on a processor."""
    params = [relax.Var(f"input_{index}", param.ty) for index, param in enumerate(composite.params)]
    mod = tvm.IRModule(dict(PrimFuncs.read(composite).functions or {}))
    call = call_new(mod, "operator", OperatorProcessor(processor=processor).write(composite), params)
    result = relax.Var("result", call.ty)
    main = build(params, [relax.VarBinding(result, call)], [result], as_tuple=False)
    mod["main"] = Symbol(name="main").write(main)
    return mod


def operator_key(composite: relax.Function) -> str:
    """Text that is the same for composites of equal operators, types and attributes, whatever their constants hold."""
    numbers: dict[relax.Expr, int] = {param: index for index, param in enumerate(composite.params)}
    lines = [CompositeKind.read(composite).kind, *(str(param.ty) for param in composite.params)]
    functions = PrimFuncs.read(composite).functions or {}
    for binding in bindings(composite):
        call, shown = binding.value, []
        for leaf in operands(call):
            if isinstance(leaf, tvm.ir.GenericConst):
                shown.append(f"constant {leaf.ty}")
            elif leaf in numbers:
                shown.append(str(numbers[leaf]))
            else:
                shown.append(functions[leaf].script() if leaf in functions else str(leaf))
        said = [str(call.op), str(call.attrs)] if isinstance(call, relax.Call) else [str(call.index)]
        lines.append(" ".join([*said, *shown, str(binding.var.ty)]))
        numbers[binding.var] = len(numbers)
    return "\n".join(lines)


def _array(kind: relax.TensorType) -> np.ndarray:
    """Numbers between 0 and 1; zeros of integers, which may be indices."""
    shape, dtype = [int(extent) for extent in kind.shape.values], np.dtype(str(kind.dtype))
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).random(shape).astype(dtype)
