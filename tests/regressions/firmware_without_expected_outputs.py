"""Firmware of a package that is not verified: its C did not compile.

Nobody knows the outputs of its self-test then, and the firmware took the size of an output from them.
"""

from __future__ import annotations

from onnx.helper import make_node as NODE

from benchmarks.fuzzing.specimen import CommandSpecimen
from tests.support.onnx_models import model_of

EXPECTED = "compiled, no reference"
NEEDS = ("arm-none-eabi-gcc",)


def specimen() -> CommandSpecimen:
    model = model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"])
    arguments = ("compile", "model.onnx", "-p", "cortex_m4", "-o", "out", "--verify", "none")
    return CommandSpecimen(arguments=arguments, files={"model.onnx": model.SerializeToString()})
