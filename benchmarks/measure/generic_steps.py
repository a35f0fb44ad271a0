"""A generic step by itself: plain C of a definition, as a program of one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.emit.banner import Origin
from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.generic import KERNEL as GENERIC
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant, Tensor
from codegen_c.targets.registry import target_of
from codegen_c.tir.plain_c import LoopForm, PlainC
from tvm_ext.core.platform import Platform

TensorOf = tuple[tuple[int, ...], str]
"""Shape and element type."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GenericStep:
    """Plain C, and the tensors that it is called with."""

    name: str
    inputs: tuple[TensorOf, ...]
    output: TensorOf
    plain: PlainC


def form_for(plain: PlainC, platform: Platform) -> LoopForm:
    """The function that packages for the platform get."""
    target = target_of(platform.processor, core=platform.core_of(platform.processor))
    return plain.form(has_vectors=target.instruction_set.floats.lanes > 1, is_small=False)


def compiled_step(step: GenericStep, platform: Platform) -> tuple[Compiled, KernelCall]:
    """A program of one generic step."""
    plain, form = step.plain, form_for(step.plain, platform)
    names = [*(f"x{index}" for index in range(len(step.inputs))), "y"]
    tensors = {
        name: Tensor(name=name, source=name, shape=shape, dtype=dtype, memory=platform.activations)
        for name, (shape, dtype) in zip(names, [*step.inputs, step.output], strict=True)
    }
    constants = {name: Constant(name=name, data=np.ascontiguousarray(array), memory=platform.weights)
                 for name, array in plain.constants}  # fmt: skip
    implementation = Implementation(
        kernel=GENERIC.name, function=form.function, reference=list, constants=tuple(plain.constants),
        scratch_bytes=plain.scratch_bytes,
    )  # fmt: skip
    call = KernelCall(name="step", implementation=implementation, inputs=tuple(names[:-1]), outputs=("y",),
                      constants=tuple(constants))  # fmt: skip
    program, plan = plan_memory(
        Program(name="layer", inputs=call.inputs, outputs=call.outputs, tensors=tensors, constants=constants,
                steps=(call,)), activations=platform.activations,
    )  # fmt: skip
    ports = [Port(name=name, source=name, shape=t.shape, dtype=t.dtype) for name, t in tensors.items()]
    interface = Interface(model="layer", io="arena", inputs=tuple(ports[:-1]), outputs=tuple(ports[-1:]))
    origin = Origin(generator="benchmarks", model=step.name, sha256="0", platform=platform.name)
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=platform), call
