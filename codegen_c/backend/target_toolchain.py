"""The C compiler for regions inside `tvm.compile`: that of this machine, or a cross compiler for TVM's target."""

from __future__ import annotations

import platform as machine
import tempfile
from pathlib import Path

import tvm

from tvm_ext.core.errors import BadOptions, BuildFailed, MissingTool
from tvm_ext.core.platform import HOST_TOOLCHAIN, Toolchain
from tvm_ext.core.toolchain import compile_objects, install_hint, installed

_SAME = {"amd64": "x86_64", "arm64": "aarch64", "armv8": "aarch64"}
"""Other names of an architecture, as operating systems and LLVM write them."""


def toolchain_of(target: tvm.target.Target | None) -> Toolchain:
    """Return the C compiler for the host code of a target; None stands for this machine.

    A triple of another architecture asks for a GCC of that triple. Raises MissingTool if there is none on PATH, and
    BadOptions for an impossible name of a processor (`mcpu`).
    """
    host = target if target is None or target.host is None else target.host
    attributes = {} if host is None else dict(host.attrs)
    triple, processor = str(attributes.get("mtriple", "")), str(attributes.get("mcpu", ""))
    own = _architecture(machine.machine())
    wanted = _architecture(triple.partition("-")[0]) or own
    if wanted == own:
        return _toolchain("", own, processor)
    prefixes = dict.fromkeys(f"{name}-" for name in (triple, f"{wanted}-linux-gnu") if name.count("-"))
    found = next((prefix for prefix in prefixes if installed(f"{prefix}gcc")), None)
    if found is None:
        looked_for = " or ".join(f"{prefix}gcc" for prefix in prefixes)
        hint = install_hint(f"{wanted}-linux-gnu-gcc")
        raise MissingTool(
            f"target mtriple = {triple!r}: this machine is {own}, and no {looked_for} is on PATH to compile our C for "
            f"{wanted}; install one{f' (Debian, Ubuntu: {hint})' if hint else ''}, or compile for this machine."
        )
    return _toolchain(found, wanted, processor)


def _architecture(name: str) -> str:
    return _SAME.get(name.lower(), name.lower())


def _toolchain(prefix: str, architecture: str, processor: str) -> Toolchain:
    """Return a compiler that may use the instructions of a processor. Raises BadOptions for a name it does not know.

    `generic` is LLVM's name for any processor of an architecture.
    """
    if not processor:
        return Toolchain(prefix=prefix) if prefix else HOST_TOOLCHAIN
    if not processor.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise BadOptions(f"target mcpu = {processor!r}: is no name of a processor.")
    if processor == "generic":
        return Toolchain(prefix=prefix)
    chosen = Toolchain(prefix=prefix, flags=(f"-m{'arch' if architecture == 'x86_64' else 'cpu'}={processor}",))
    try:
        with tempfile.TemporaryDirectory(prefix="tvm_ext_") as name:
            (source := Path(name) / "probe.c").write_text("typedef int tvm_ext_probe;\n")
            compile_objects([source], Path(name) / "objects", chosen)
    except BuildFailed:
        raise BadOptions(
            f"target mcpu = {processor!r}: {prefix}gcc knows no such processor of {architecture}. Give the name of an "
            "older processor that both LLVM and GCC know, or leave mcpu out."
        ) from None
    return chosen
