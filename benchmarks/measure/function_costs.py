"""Instructions that a call of a function of math.h executes, on boards in QEMU.

Over 600 pairs of numbers between -1 and 1, less those of a function that hands back its first argument; what the
compiler makes instructions of costs those.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.measure.generic_steps import GenericStep, compiled_step
from benchmarks.measure.steps import measure_steps
from codegen_c.kernels.contract import CFunction, Parameter
from codegen_c.tir.intrinsics import library_function
from codegen_c.tir.plain_c import PlainC
from tvm_ext.core.platform import Platform

_COUNT = 600
_TWO_ARGUMENTS = ("atan2", "copysign", "fmod", "hypot", "nextafter", "pow")
_SAME = "static __attribute__((noinline, noclone, noipa)) float $_same(float a)\n{\n    return a;\n}\n"
_CALL_INSTRUCTIONS = 2
"""Those of a call of a function that does nothing: to it and back."""


def function_costs(names: Iterable[str], platform: Platform) -> dict[str, float]:
    """Name -> instructions of a call, to the function and back among them; one at least."""
    wanted = sorted(set(names))
    calls = ["$_same(input0[i])", *map(_call, wanted)]
    same, *executed = measure_steps([compiled_step(_step(call), platform) for call in calls])
    each = ((count - same) / _COUNT + _CALL_INSTRUCTIONS for count in executed)
    return {name: round(max(1.0, count), 1) for name, count in zip(wanted, each, strict=True)}


def _call(name: str) -> str:
    second = ", input1[i]" if name in _TWO_ARGUMENTS else ""
    return f"{library_function(name, 'float32')}(input0[i]{second})"


def _step(call: str) -> GenericStep:
    vector = ((_COUNT,), "float32")
    body = f"(void)input1;\nfor (int32_t i = 0; i < {_COUNT}; ++i) {{\n    output0[i] = {call};\n}}"
    parameters = (("input0", "input"), ("input1", "input"), ("output0", "output"))
    function = CFunction(
        parameters=tuple(Parameter(name=name, ctype="float", role=role) for name, role in parameters),
        body=body, helpers=_SAME if "$_same" in call else "", includes=("math.h", "stdint.h"),
    )  # fmt: skip
    return GenericStep(name=call, inputs=(vector, vector), output=vector, plain=PlainC(function=function))
