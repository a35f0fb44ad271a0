"""`tvm-ext doctor`: the programs and libraries that tvm-ext uses, which of them are here, and how to get the others."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from tvm_ext.command_line.option_types import AsJson, Debug
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.core.tools import install_hint, installed, run_tool
from tvm_ext.report.folding_table import FoldingTable


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A program or library. found: its version, empty where it is missing. how: a command that installs it."""

    name: str
    purpose: str
    found: str
    how: str
    needed: bool = False


_PROGRAMS = (
    ("gcc", "C for this machine", True),
    ("clang", "C for this machine, in place of gcc", False),
    ("arm-none-eabi-gcc", "firmware for Arm", False),
    ("qemu-system-arm", "runs firmware for Arm", False),
    ("riscv64-unknown-elf-gcc", "firmware for RISC-V", False),
    ("qemu-system-riscv32", "runs firmware for RISC-V", False),
)
_LIBRARIES = (
    ("apache-tvm", "reads and compiles models", True, "pip install apache-tvm"),
    ("onnx", "reads .onnx files", True, "pip install onnx"),
    ("onnxruntime", "says what an .onnx file means", True, "pip install onnxruntime"),
    ("tflite", "reads .tflite files", True, "pip install tflite"),
    ("tflite-micro", "says what a .tflite file means", False, 'pip install "tvm-ext[witness]"'),
    ("ai-edge-litert", "says what a .tflite file means", False, 'pip install "tvm-ext[witness]"'),
    ("torch", "reads .pt2 files", False, 'pip install "tvm-ext[torch]"'),
    ("ortools", "exact plans of recomputation", False, 'pip install "tvm-ext[exact]"'),
    ("distributed", "work on a cluster", False, 'pip install "tvm-ext[distributed]"'),
    ("pyarrow", "tables of a sweep as Parquet", False, 'pip install "tvm-ext[parquet]"'),
)


def doctor_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show which tools are here, and how to install others. Tools: compilers, emulators, reference runtimes.

    Exit status 1 where something is missing that every build needs.
    """
    with errors_shown(as_json, debug):
        found = [*_programs(), *_libraries()]
        if as_json:
            print_json([asdict(one) for one in found])
        else:
            stdout.print(_table(found))
            own, python, machine = version("tvm-ext"), platform.python_version(), platform.machine()
            stdout.print(f"tvm-ext {own}, Python {python}, {platform.system()} {machine}", highlight=False)
    if any(one.needed and not one.found for one in found):
        raise typer.Exit(1)


def _programs() -> Iterator[Finding]:
    for name, purpose, needed in _PROGRAMS:
        path = installed(name)
        said = run_tool([path, "--version"], Path.cwd(), reads=()) if path else ""
        yield Finding(name=name, purpose=purpose, found=_version_in(said), how=install_hint(name), needed=needed)


def _version_in(said: str) -> str:
    """The version that a program prints: the first number outside of parentheses, which hold the distributor's."""
    numbers = re.findall(r"\b[0-9]+(?:\.[0-9]+)+", re.sub(r"\([^()]*\)", "", said))
    return numbers[0] if numbers else said[:40].strip()


def _libraries() -> Iterator[Finding]:
    for name, purpose, needed, how in _LIBRARIES:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = ""
        yield Finding(name=name, purpose=purpose, found=found, how=how, needed=needed)


def _table(found: list[Finding]) -> FoldingTable:
    table = FoldingTable("", "for", "found")
    for one in found:
        missing = f"[{'red' if one.needed else 'yellow'}]missing:[/] {one.how}".replace("tvm-ext[", "tvm-ext\\[")
        table.add_row(one.name, one.purpose, one.found or missing)
    return table
