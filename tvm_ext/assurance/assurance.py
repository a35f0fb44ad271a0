"""Assurance of the generated C: an upper bound of its stack, and the coverage of its self-test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codegen_c.backend.build import Compiled
from codegen_c.emit.stream import streamed
from codegen_c.targets.registry import startup_of
from tvm_ext.assurance.coverage import selftest_coverage
from tvm_ext.assurance.stack_bound import StackBound, firmware_bound
from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.progress import Progress, stage
from tvm_ext.core.toolchain import find_compiler, run_tool


def measured_assurance(
    folder: Path,
    compiled: Compiled,
    elf: Path | None,
    targets: Sequence[str],
    progress: Progress | None,
    *,
    in_bundle: bool = False,
) -> dict[str, Any]:
    """Return the entries `stack_bound` and `selftest_coverage` of the report.

    The coverage is None if the package is not run on the host. If several processors share a run, the entry
    `stack_bound_of` holds the bounds of the other processors' functions.

    in_bundle: the model belongs to a bundle, whose common self-test is measured separately. elf: the linked firmware,
    None without a board; the library is then linked alone, so that its disassembly can be read.
    """
    interface = compiled.interface
    callbacks = [f"{direction}_{port.name}" for direction, port in streamed(interface)]
    readable = elf is None or startup_of(compiled.platform).bounds_stack
    bound = (
        _bound(elf or folder / f"lib{interface.model}.a", compiled.platform.toolchain, interface.run, callbacks)
        if readable
        else StackBound(
            num_bytes=None, reason=f"machine code of {compiled.platform.processor.isa} is not supported by the analysis"
        )
    )
    others = {
        name: firmware_bound(elf, compiled.platform.toolchain, interface.serve(name), ()).to_json()
        for name in (interface.servers if readable else ())
    }
    coverage = None
    if "host" in targets and not in_bundle:
        macs = sum(call.implementation.macs for call in compiled.program.kernel_calls())
        with stage(progress, "measuring the coverage of the self-test"):
            coverage = selftest_coverage(folder, interface.model, macs=macs).to_json()
    found = {"stack_bound": bound.to_json(), "selftest_coverage": coverage}
    return found | ({"stack_bound_of": others} if others else {})


def _bound(file: Path, toolchain: Toolchain, run: str, callbacks: Sequence[str]) -> StackBound:
    """Return the stack bound of a run in firmware, or in a library, which is first linked with libm and libc."""
    if file.suffix != ".a" or not toolchain.prefix or not file.is_file():
        return firmware_bound(None if file.suffix == ".a" else file, toolchain, run, callbacks)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        try:
            elf = bare_elf(file, Path(name) / "bare.elf", toolchain, run)
        except (MissingTool, BuildFailed) as error:
            return StackBound(num_bytes=None, reason=f"the library cannot be linked: {str(error).splitlines()[0]}")
        return firmware_bound(elf, toolchain, run, callbacks)


def bare_elf(library: Path, elf: Path, toolchain: Toolchain, run: str) -> Path:
    """Link the function `run` and everything that it reaches, without start-up code: the ELF is read, never executed.

    Raises MissingTool, BuildFailed.
    """
    fixed = ["-nostartfiles", "-Wl,--gc-sections", f"-Wl,-e,{run}", f"-Wl,-u,{run}"]
    files = ["-o", str(elf.resolve()), str(library.resolve()), "-lm"]
    run_tool([*find_compiler(toolchain), *toolchain.flags, *fixed, *files], library.parent, reads=[library])
    return elf
