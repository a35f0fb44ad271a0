"""Layers, each computed in several ways, as one program: steps that share inputs, and have results of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Literal

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.emit.banner import Origin
from codegen_c.kernels.registry import KernelCandidate
from codegen_c.operators.kinds import TensorType
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant, Tensor
from tvm_ext.core.platform import Platform
from tvm_ext.tuning.layers import TunedLayer

MODEL = "layers"
Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredWay:
    """A way to compute a layer, to be measured: `name` is its step's."""

    name: str
    layer: TunedLayer
    candidate: KernelCandidate


def renamed(way: MeasuredWay) -> MeasuredWay:
    """The way under a name that says nothing: equal ways have equal C."""
    return replace(way, name="way")


def samples_of(layer: TunedLayer) -> list[Array]:
    """Inputs of a layer, the same each time: normal floats, integers of the whole range."""
    generator = np.random.default_rng(0)
    found: list[Array] = []
    for kind in layer.operator.inputs:
        dtype = np.dtype(kind.dtype)
        if dtype.kind == "f":
            found.append(generator.standard_normal(kind.shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            found.append(generator.integers(limits.min, limits.max, kind.shape, dtype, endpoint=True))
    return found


def results_of(layer: TunedLayer, samples: Sequence[Array]) -> tuple[Array, ...]:
    """Results of the operator's reference, by the way that was chosen without figures."""
    first = layer.ways[0]
    seen = [array.reshape(kind.shape) for array, kind in zip(samples, first.form.inputs, strict=True)]
    results = zip(first.made.reference(seen), first.form.outputs, strict=True)
    return tuple(np.ascontiguousarray(array).astype(kind.dtype, copy=False) for array, kind in results)


def compiled_ways(ways: Sequence[MeasuredWay], platform: Platform) -> Compiled:
    """A program of all ways, planned so that no tensor's bytes are another one's: none depends on the others."""
    program = program_of(ways, platform)
    program, plan = plan_memory(program, activations=platform.activations, kept=program.tensors)
    interface = Interface(
        model=MODEL, io="arena", inputs=_ports(program, program.inputs), outputs=_ports(program, program.outputs)
    )
    origin = Origin(
        generator=f"tvm_ext {version('tvm-ext')}", model="layers that are measured", sha256="", platform=platform.name
    )
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=platform)


def program_of(ways: Sequence[MeasuredWay], platform: Platform) -> Program:
    """A step for each way, in order."""
    layers = list(dict.fromkeys(way.layer for way in ways))
    tensors: dict[str, Tensor] = {}
    inputs: dict[str, list[str]] = {}

    def tensor(name: str, kind: TensorType, role: Literal["input", "output"]) -> str:
        tensors[name] = Tensor(
            name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory=platform.activations, role=role
        )
        return name

    for number, layer in enumerate(layers):
        kinds = enumerate(layer.operator.inputs)
        inputs[layer.digest] = [tensor(f"x{number}_{place}", kind, "input") for place, kind in kinds]
    constants: dict[str, Constant] = {}
    steps: list[KernelCall] = []
    for way in ways:
        form, made = way.candidate.form, way.candidate.made
        own = {f"{way.name}_c{place}": np.ascontiguousarray(array) for place, (_, array) in enumerate(made.constants)}
        constants |= {name: Constant(name=name, data=data, memory=platform.weights) for name, data in own.items()}
        kinds = enumerate(form.outputs)
        steps.append(
            KernelCall(
                name=way.name, implementation=made, inputs=tuple(inputs[way.layer.digest]),
                outputs=tuple(tensor(f"{way.name}_y{place}", kind, "output") for place, kind in kinds),
                input_shapes=tuple(kind.shape for kind in form.inputs), constants=tuple(own),
                source_nodes=(way.name,), processor=platform.processor.name,
            )
        )  # fmt: skip
    return Program(
        name=MODEL, inputs=tuple(name for names in inputs.values() for name in names),
        outputs=tuple(name for step in steps for name in step.outputs), tensors=tensors, constants=constants,
        steps=tuple(steps), state_home=platform.states,
    )  # fmt: skip


def _ports(program: Program, names: Sequence[str]) -> tuple[Port, ...]:
    tensors = [program.tensors[name] for name in names]
    return tuple(Port(name=t.name, source=t.name, shape=t.shape, dtype=t.dtype) for t in tensors)
