"""emx-onnx-cgen, a compiler from ONNX to C on PyPI: its C in our firmware, under our counters.

It is compiled as our C is, but as gnu11 with strict aliasing, which lets the compiler fuse multiply-adds. Its
buffers lie on the stack (`--large-temp-threshold 0`): the high-water mark is all of its memory for tensors.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from benchmarks.measure.host import X86_64_V3, callgrind_ir
from benchmarks.measure.model import Model
from benchmarks.measure.ours import bound_call
from benchmarks.measure.records import Row, reason_of
from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.program.interface import Interface, Port
from tvm_ext.core.errors import TvmExtError
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf, section_sizes, shared_library
from tvm_ext.execution.board import run_qemu

_TIME_LIMIT_S = 300
_FLAGS = ("-w", "-std=gnu11", "-fstrict-aliasing", "-ffp-contract=fast")
_FREE_BYTES = 1 << 20  # of the board's ram, for inputs, outputs and variables


class Refused(Exception):
    """The compiler does not take the model; the message is its last line."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EmxProgram:
    """A model compiled by emx: its C in `folder`, behind `<model>_run(input..., output...)`."""

    system: str
    model: Model
    interface: Interface
    folder: Path

    @property
    def sources(self) -> list[Path]:
        return [self.folder / f"{self.model.name}.c", self.folder / f"{self.model.name}_wrapper.c"]

    def on_host(self, folder: Path) -> tuple[Row, Callable[[], object]]:
        """Row with callgrind's count, and the call to time."""
        counted = callgrind_ir(self.sources, self.interface, folder, flags=_FLAGS)
        objects = compile_objects(self.sources, folder / "emx_host", X86_64_V3, flags=[*_FLAGS, "-fPIC"])
        library = ctypes.CDLL(str(shared_library(objects, folder / f"{self.model.name}_emx.so", X86_64_V3)))
        row = Row(system=self.system, platform="host", callgrind_ir=counted)
        return row, bound_call(getattr(library, self.interface.run), self.model)

    def on_board(self, name: str, folder: Path) -> Row:
        """Instructions, bytes and error of one inference on a board in QEMU."""
        platform = _with_all_ram_as_stack(Platform.load(name))
        texts = {
            **emit_firmware(self.interface, platform),
            **emit_vectors(self.interface, [TestVector(inputs=self.model.sample, outputs=self.model.expected)]),
            **emit_selftest(self.interface),
        }
        for file, text in texts.items():
            (self.folder / file).parent.mkdir(exist_ok=True)
            (self.folder / file).write_text(text, encoding="utf-8")
        tests = [self.folder / f"{self.model.name}_{part}.c" for part in ("selftest", "vectors")]
        sources = [*self.sources, *tests, *sorted((self.folder / "board").glob("*.c"))]
        toolchain = platform.toolchain
        try:
            built = compile_objects(sources, folder / name, toolchain, flags=_FLAGS, include_dirs=[self.folder])
            script = self.folder / "board" / "link.ld"
            elf = link_elf(built, folder / f"{name}_emx.elf", toolchain, script=script)
            result = run_qemu(elf, platform, self.interface, [self.model.sample])
        except TvmExtError as error:
            return Row(system=self.system, platform=name, skipped=reason_of(error))
        size = section_sizes(built[:1], toolchain)[f"{self.model.name}.o"]
        return Row(
            system=self.system, platform=name, instructions=result.instructions, ram_bytes=result.stack_bytes,
            code_bytes=size.text, weights_bytes=size.rodata, max_error=self.model.error_of(dict(result.outputs[0])),
        )  # fmt: skip


def compile_emx(model: Model, folder: Path, version: str) -> EmxProgram:
    """The model compiled by emx-onnx-cgen. Raises Refused."""
    folder.mkdir(parents=True)
    command = [
        str(Path(sys.executable).parent / "emx-onnx-cgen"), "compile", "--color", "never",
        "--large-temp-threshold", "0", "--large-weight-threshold", "0",
        "--model-name", model.name, str(model.path.resolve()), f"{model.name}.c",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Refused(f"no end within {_TIME_LIMIT_S} s") from None
    if done.returncode:
        raise Refused((done.stderr or done.stdout).strip().splitlines()[-1])
    inputs = tuple(_port(value, model.sample[value.name].shape) for value in model.proto.graph.input)
    outputs = tuple(_port(value, model.expected[value.name].shape) for value in model.proto.graph.output)
    interface = Interface(model=model.name, io="caller", inputs=inputs, outputs=outputs)
    (folder / f"{model.name}.h").write_text(_header(interface), encoding="utf-8")
    (folder / f"{model.name}_wrapper.c").write_text(_wrapper(interface), encoding="utf-8")
    return EmxProgram(system=f"emx-onnx-cgen {version}", model=model, interface=interface, folder=folder)


def _port(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> Port:
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return Port(name=value.name, source=value.name, shape=shape, dtype=dtype)


def _parameters(interface: Interface) -> str:
    inputs = [f"const {port.c_type} *{port.name}" for port in interface.inputs]
    return ", ".join([*inputs, *(f"{port.c_type} *{port.name}" for port in interface.outputs)])


def _header(interface: Interface) -> str:
    ports = (*interface.inputs, *interface.outputs)
    sizes = "\n".join(f"#define {interface.size_macro(port)} {port.num_elements}" for port in ports)
    return f"#pragma once\n#include <stdint.h>\n{sizes}\nint32_t {interface.run}({_parameters(interface)});\n"


def _wrapper(interface: Interface) -> str:
    """Declared without a prototype, since its parameters are arrays of the tensors' shapes."""
    names = ", ".join(port.name for port in (*interface.inputs, *interface.outputs))
    return (
        f'#include "{interface.model}.h"\nvoid {interface.model}();\n'
        f"int32_t {interface.run}({_parameters(interface)})\n{{\n    {interface.model}({names});\n    return 0;\n}}\n"
    )


def _with_all_ram_as_stack(platform: Platform) -> Platform:
    assert platform.board is not None, "a board is asked for"
    data = platform.memory(platform.board.data_memory)
    return replace(platform, board=replace(platform.board, stack_bytes=data.capacity_bytes - _FREE_BYTES))
