"""Programs written by hand for the planner and its validator: steps without code, only reads, writes, scratch."""

from __future__ import annotations

from collections.abc import Mapping

from codegen_c.kernels.contract import CFunction, Implementation
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step
from codegen_c.program.tensors import Tensor


def call(name: str, inputs: str, outputs: str, scratch_bytes: int = 0) -> KernelCall:
    """A step that reads and writes tensors given as words."""
    implementation = Implementation(
        kernel="none", function=CFunction(parameters=(), body=""), reference=list, scratch_bytes=scratch_bytes
    )
    return KernelCall(
        name=name, implementation=implementation, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()),
    )  # fmt: skip


def program(
    sizes: Mapping[str, int],
    *steps: Step,
    inputs: str = "x",
    outputs: str = "y",
    memory: Mapping[str, str] | None = None,
) -> Program:
    """sizes: bytes of each tensor, in memory `ram` unless `memory` says otherwise."""
    places = memory or {}
    return Program(
        name="p",
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        tensors={
            name: Tensor(name=name, source=name, shape=(size,), dtype="uint8", memory=places.get(name, "ram"))
            for name, size in sizes.items()
        },
        steps=steps,
    )
