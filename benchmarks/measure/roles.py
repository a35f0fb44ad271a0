"""Kernels run alone in QEMU with what they read and write in memories of their own: accesses to each are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import constants_read, input_read, modelled, scratch_accessed
from codegen_c.emit.banner import Origin
from codegen_c.kernels.contract import Implementation
from codegen_c.operators.kinds import Operator, TensorType
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant, Tensor
from tvm_ext.core.alignment import aligned
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Link, Memory, Platform
from tvm_ext.core.time_model import Traffic
from tvm_ext.execution.qemu_start import started
from tvm_ext.profiling.core_table import core_table
from tvm_ext.profiling.profile import LayerProfile
from tvm_ext.profiling.profile_package import counted_layers, profile_plugin
from tvm_ext.tuning.layers_program import linked

MODEL = "layers"
ROLES = ("input", "output", "scratch")
MOST_TOGETHER = 24
"""Kernels in one firmware."""
SECONDS = 600.0
_SHARE = 0.9
"""Part of a memory that may be taken: the stack, and what aligns tensors, needs some."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A kernel's run. modelled: instructions. cycles: estimated, without waits. modelled_bytes, traffic: by role."""

    kernel: str
    modelled: int
    executed: int
    cycles: float
    modelled_bytes: dict[str, int]
    traffic: dict[str, Traffic]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """An operator in the form that a kernel computes, and the kernel. is_best: no other kernel is modelled at less."""

    form: Operator
    made: Implementation
    is_best: bool = True


def by_roles(platform: Platform) -> Platform:
    """The platform with memories `input`, `output`, `scratch` and `constants`, carved out of those of its tensors and
    weights; memories of stack and code are called `stack` and `code`."""
    assert platform.board is not None, "kernels are run on it"
    ram, rom = platform.memory(platform.activations), platform.memory(platform.weights)
    data, code = platform.memory(platform.board.data_memory), platform.memory(platform.board.code_memory)
    memories = [
        *_carved(ram, ["stack"] * (ram == data) + list(ROLES)), *_carved(rom, ["code"] * (rom == code) + ["constants"]),
        *(replace(data, name="stack") for _ in range(ram != data)),
        *(replace(code, name="code") for _ in range(rom != code)),
    ]  # fmt: skip
    core = platform.processor.name
    links = tuple(Link(source=core, target=memory.name, bytes_per_cycle=8) for memory in memories)
    board = replace(platform.board, data_memory="stack", code_memory="code")
    return replace(
        platform, processors=platform.processors[:1], memories=tuple(memories), links=links, signals=(),
        activations="input", weights="constants", board=board,
    )  # fmt: skip


def _carved(memory: Memory, names: Sequence[str]) -> Iterator[Memory]:
    """Equal parts of a memory, the first of them with its own section."""
    size = memory.capacity_bytes // len(names) // 4096 * 4096
    for number, name in enumerate(names):
        kind = ".bss" if memory.kind == "ram" else ".rodata"
        section = None if name in ("stack", "code") else f"{kind}.{name}"
        address = (memory.address or 0) + number * size
        yield replace(memory, name=name, capacity_bytes=size, section=section, address=address)


def measured(subjects: Sequence[Subject], platform: Platform, optimize: CompileFor = "speed") -> Iterator[Measured]:
    """Runs of kernels, some in one firmware. platform: `by_roles`. Raises MissingTool, BuildFailed, RunFailed."""
    for together in _batches(subjects, platform):
        compiled = _compiled(together, platform)
        found = {layer.name: layer for layer in _run(compiled, optimize)}
        for number, subject in enumerate(together):
            yield _measured(subject, found[f"k{number}"])


def _batches(subjects: Sequence[Subject], platform: Platform) -> Iterator[list[Subject]]:
    run: list[Subject] = []
    for subject in subjects:
        if not _fits([subject], platform):
            continue
        if run and (len(run) == MOST_TOGETHER or not _fits([*run, subject], platform)):
            yield run
            run = []
        run.append(subject)
    if run:
        yield run


def _fits(subjects: Sequence[Subject], platform: Platform) -> bool:
    needs = {
        "input": sum(_bytes(kind) for one in subjects for kind in one.form.inputs),
        "output": sum(_bytes(kind) for one in subjects for kind in one.form.outputs),
        "scratch": max(one.made.scratch_bytes for one in subjects),
        "constants": sum(aligned(array.nbytes) for one in subjects for _, array in one.made.constants),
    }
    return all(size <= _SHARE * platform.memory(memory).capacity_bytes for memory, size in needs.items())


def _bytes(kind: TensorType) -> int:
    return aligned(kind.num_elements * np.dtype(kind.dtype).itemsize)


def _compiled(subjects: Sequence[Subject], platform: Platform) -> Compiled:
    """A program of all kernels, each with tensors of its own."""
    tensors: dict[str, Tensor] = {}
    constants: dict[str, Constant] = {}
    steps: list[KernelCall] = []
    for number, one in enumerate(subjects):
        names: dict[str, list[str]] = {"input": [], "output": []}
        for role, kinds in (("input", one.form.inputs), ("output", one.form.outputs)):
            for kind in kinds:
                name = f"k{number}_{role}{len(names[role])}"
                tensors[name] = Tensor(
                    name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory=role,
                    role="input" if role == "input" else "output",
                )  # fmt: skip
                names[role].append(name)
        own = {
            f"k{number}_c{place}": np.ascontiguousarray(array) for place, (_, array) in enumerate(one.made.constants)
        }
        constants |= {name: Constant(name=name, data=data, memory="constants") for name, data in own.items()}
        step = KernelCall(
            name=f"k{number}", implementation=one.made, inputs=tuple(names["input"]), outputs=tuple(names["output"]),
            input_shapes=tuple(kind.shape for kind in one.form.inputs), constants=tuple(own),
            source_nodes=(f"k{number}",), scratch_memory="scratch",
        )  # fmt: skip
        steps.append(step)
    inputs = tuple(name for step in steps for name in step.inputs)
    outputs = tuple(name for step in steps for name in step.outputs)
    program = Program(
        name=MODEL, inputs=inputs, outputs=outputs, tensors=tensors, constants=constants, steps=tuple(steps)
    )
    program, plan = plan_memory(program, activations=platform.activations, kept=program.tensors)
    interface = Interface(model=MODEL, io="arena", inputs=_ports(program, inputs), outputs=_ports(program, outputs))
    origin = Origin(generator="benchmarks", model=MODEL, sha256="0", platform=platform.name)
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=platform)


def _ports(program: Program, names: Sequence[str]) -> tuple[Port, ...]:
    tensors = [program.tensors[name] for name in names]
    return tuple(Port(name=t.name, source=t.name, shape=t.shape, dtype=t.dtype) for t in tensors)


def _run(compiled: Compiled, optimize: CompileFor) -> list[LayerProfile]:
    platform, table = compiled.platform, core_table(compiled.platform)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        elf, steps = linked(compiled, platform, optimize, folder)
        (folder / "in.bin").write_bytes(b"".join(map(_noise, compiled.interface.inputs)))
        counting = profile_plugin(elf, platform, table, compiled.interface.run, folder, skip=0)
        started(elf, platform, None, folder, SECONDS, (), (), counting)
        return counted_layers(elf, platform, table, folder, steps)


def _noise(port: Port) -> bytes:
    generator, dtype = np.random.default_rng(0), np.dtype(port.dtype)
    if dtype.kind == "f":
        return generator.standard_normal(port.shape).astype(dtype).tobytes()
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, port.shape, dtype, endpoint=True).tobytes()


def _measured(subject: Subject, layer: LayerProfile) -> Measured:
    made, form = subject.made, subject.form
    traffic = {
        memory.name: Traffic(
            transactions=memory.loads + memory.stores, bursts=memory.load_bursts + memory.store_bursts,
            num_bytes=memory.loaded_bytes + memory.stored_bytes,
        )
        for memory in layer.memories
    }  # fmt: skip
    sizes = [kind.num_elements * np.dtype(kind.dtype).itemsize for kind in form.inputs]
    return Measured(
        kernel=made.kernel, modelled=modelled(made, form.inputs, form.outputs), executed=layer.num_instructions,
        cycles=sum(cycles for kind, cycles in layer.cycles_by_kind().items() if kind != "waits"),
        modelled_bytes={
            "input": sum(input_read(made, place, size) for place, size in enumerate(sizes)),
            "output": sum(kind.num_elements * np.dtype(kind.dtype).itemsize for kind in form.outputs),
            "constants": constants_read(made) if made.constants else 0, "scratch": scratch_accessed(made),
        },
        traffic=traffic,
    )  # fmt: skip
