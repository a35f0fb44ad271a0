"""A package as a WebAssembly module: its C, its self-test, and functions that a page calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codegen_c.emit.browser import STEPS_HEADER, begin_lines, emit_browser, end_line
from codegen_c.emit.firmware import firmware_libraries
from codegen_c.emit.module import module_link_flags
from tvm_ext.core.errors import BadPackage, MissingTool, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, installed, link_program, linker_name
from tvm_ext.execution.host_model import library_sources
from tvm_ext.packages.package import TRACE_FILE, Package
from tvm_ext.packages.step_lines import copy_with_lines, step_lines
from tvm_ext.report.interface import bundle_names

PLATFORM = "wasm"
"""Platform whose toolchain and flags compile the module."""
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BrowserModule:
    """A WebAssembly module. memories: names of the memories with an arena, in the order of their numbers."""

    code: bytes
    memories: tuple[str, ...]


def webassembly(package: Package) -> BrowserModule:
    """Compile a package of any platform to WebAssembly. The C is the package's own, plus calls between its steps.

    Raises RunFailed for a package that one processor cannot run alone, BadPackage, MissingTool, BuildFailed.
    """
    folder, interface, report = package.folder, package.interface, package.report
    check_runs_in_page(package)
    steps = step_lines(folder / TRACE_FILE, len(report["steps"]))
    memories = _memories(report)
    platform = _browser_platform()
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        copy = Path(name) / "package"
        copy_with_lines(
            folder, copy, steps, STEPS_HEADER,
            before={index: begin_lines(interface, index, memories) for index in range(len(steps))},
            after={index: [end_line(index)] for index in range(len(steps))},
        )  # fmt: skip
        for file, text in emit_browser(interface, compares=_compares(report)).items():
            (copy / file).write_text(text, encoding="utf-8")
        tests = [copy / f"{interface.model}_{part}.c" for part in ("selftest", "vectors")]
        objects = compile_objects(
            [*library_sources(copy, interface.model), *tests], copy / "objects", platform.toolchain, include_dirs=[copy]
        )
        linked = link_program(
            objects, Path(name) / "page.wasm", platform.toolchain, flags=module_link_flags(platform),
            libraries=firmware_libraries(platform),
        )  # fmt: skip
        code = linked.read_bytes()
    return BrowserModule(code=code, memories=memories)


def check_runs_in_page(package: Package) -> None:
    """Raise RunFailed for a package that a page cannot run; the message says what to compile instead."""
    folder, interface = package.folder, package.interface
    if bundle_names(package.report):
        raise RunFailed(f"{folder}: is a model of a bundle. Compile it as a single package to run it in a browser.")
    if interface.servers or interface.is_pipeline:
        raise RunFailed(
            f"{folder}: several processors share a run. Compile it with the option processors for one processor to "
            "run it in a browser."
        )
    if any(runner.get("driver") for runner in package.report.get("processors") or ()):
        raise RunFailed(
            f"{folder}: an accelerator computes some of its layers. Compile it for a platform without the accelerator "
            "to run it in a browser."
        )


def _memories(report: dict[str, Any]) -> tuple[str, ...]:
    """Return the memories with an arena. Raises BadPackage for names that are not C identifiers."""
    try:
        names = tuple(arena["memory"] for arena in report.get("arenas", ()) if arena["num_bytes"])
        if not all(_IDENTIFIER.fullmatch(name) for name in names):
            raise ValueError(names)
    except (KeyError, TypeError, ValueError):
        raise BadPackage("report.json: is damaged: arenas have no names. Compile the model again.") from None
    return names


def _compares(report: dict[str, Any]) -> bool:
    """Return True if the test vectors have expected outputs: the build compared the C with a reference runtime."""
    return any(report["verify"].values())


def _browser_platform() -> Platform:
    """Return the platform of browsers. Raises MissingTool without its compiler and linker."""
    platform = Platform.load(PLATFORM)
    programs = (platform.toolchain.compiler_name, linker_name(platform.toolchain))
    missing = [name for name in programs if not installed(name)]
    if missing:
        raise MissingTool(
            f"{' and '.join(missing)}: not on PATH, and a page needs WebAssembly. To get it: apt install "
            "clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32."
        )
    return platform
