"""Kernels on a board in QEMU: one firmware of several operators, and its outputs against the numpy references."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from codegen_c.arena.plan import plan_memory
from codegen_c.emit import firmware
from codegen_c.emit.banner import Origin
from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.emit.sources import emit_sources
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.operators.kinds import Operator, TensorType
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant, Tensor
from codegen_c.targets.registry import startup_of
from tests.boards.toy import write_texts
from tests.kernels.quantized import elements, seeds, varied
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.board import run_qemu
from tvm_ext.execution.qemu_start import link_firmware


def set_vector_bits(monkeypatch: pytest.MonkeyPatch, platform: Platform, vector_bits: int) -> None:
    """Emulate vectors of RISC-V of another length; the firmware stays the same."""
    startup = startup_of(platform)
    flags = [re.sub(r"vlen=\d+", f"vlen={vector_bits}", flag) for flag in startup.emulator_flags]
    monkeypatch.setattr(firmware, "startup_of", lambda platform: replace(startup, emulator_flags=tuple(flags)))
    assert f"vlen={vector_bits}" in " ".join(firmware.emulator_arguments(platform, "layers.elf", (), shift=None))


def check_random_operators(
    platform: Platform,
    target: Target,
    kernel: Kernel,
    operators: st.SearchStrategy[Any],
    *,
    count: int = 16,
    firmwares: int = 1,
) -> None:
    """Firmwares of `count` random operators each, of several shapes, which the kernel takes."""

    @settings(
        max_examples=firmwares, deadline=None, derandomize=True, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(varied(operators, least=count, most=count), seeds)
    def check(drawn: list[Operator], seed: int) -> None:
        assert_on_board(platform, [kernel.implement(one, target, StoredRows()) for one in drawn], drawn, seed)

    check()


def assert_on_board(
    platform: Platform, calls: list[Implementation], operators: Sequence[Operator], seed: int = 0
) -> None:
    """Outputs of one firmware are those of the references."""
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    outputs = run_on_board(platform, list(operators), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0], implementation.kernel)


def run_on_board(
    platform: Platform, operators: list[Operator], calls: list[Implementation], inputs: list[list[np.ndarray]]
) -> list[np.ndarray]:
    """The first output of each operator; one firmware with a step for each."""
    tensors: dict[str, Tensor] = {}
    constants: dict[str, Constant] = {}
    steps: list[KernelCall] = []

    def tensor(name: str, kind: TensorType) -> str:
        tensors[name] = Tensor(name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory=platform.activations)
        return name

    for index, (operator, implementation) in enumerate(zip(operators, calls, strict=True)):
        own = {f"c{index}_{role}": array for role, array in implementation.constants}
        constants |= {name: Constant(name=name, data=a, memory=platform.weights) for name, a in own.items()}
        steps.append(
            KernelCall(
                name=f"step{index}", implementation=implementation,
                inputs=tuple(tensor(f"x{index}_{i}", t) for i, t in enumerate(operator.inputs)),
                outputs=(tensor(f"y{index}", operator.output),),
                input_shapes=tuple(t.shape for t in operator.inputs), constants=tuple(own),
            )
        )  # fmt: skip
    names = [name for step in steps for name in step.inputs]
    program = Program(
        name="layers", inputs=tuple(names), outputs=tuple(step.outputs[0] for step in steps), tensors=tensors,
        constants=constants, steps=tuple(steps),
    )  # fmt: skip
    sample = dict(zip(names, (array for arrays in inputs for array in arrays), strict=True))
    results = _run(platform, program, sample)
    return [results[name] for name in program.outputs]


def _run(platform: Platform, program: Program, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    program, plan = plan_memory(program, activations=platform.activations)
    ports = {
        name: Port(name=name, source=name, shape=tensor.shape, dtype=tensor.dtype)
        for name, tensor in program.tensors.items()
    }
    interface = Interface(
        model="layers", io="arena", inputs=tuple(ports[name] for name in program.inputs),
        outputs=tuple(ports[name] for name in program.outputs),
    )  # fmt: skip
    origin = Origin(generator="tests", model="layers", sha256="0", platform=platform.name)
    zeros = {name: np.zeros(ports[name].shape, ports[name].dtype) for name in program.outputs}
    texts = {
        **emit_sources(program, plan, interface, origin, platform),
        **emit_vectors(interface, [TestVector(inputs=sample, outputs=zeros)]),
        **emit_selftest(interface),
        **emit_firmware(interface, platform),
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder, texts)
        files = [path for path in sorted(folder.rglob("*.c")) if not path.name.endswith("_main.c")]
        objects = compile_objects(files, folder / "build", platform.toolchain, include_dirs=[folder])
        elf = link_firmware(objects, folder / "layers.elf", platform, folder / "board")
        return run_qemu(elf, platform, interface, [sample]).outputs[0]
