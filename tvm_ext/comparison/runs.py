"""Runs of a package that hand over what each step wrote: as it comes, and with the reference's values put in its place.

By the second run each step is judged alone: it computes from what the reference gave the steps before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tvm_ext.comparison.compared_values import ComparedValue, StepLines
from tvm_ext.comparison.instrument import ValuesFile, instrumented_copy
from tvm_ext.core.options import Optimize, Target
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.core.toolchain import compile_objects, link_elf
from tvm_ext.execution.board import board_seconds, run_qemu
from tvm_ext.execution.host_model import HostModel, library_sources
from tvm_ext.execution.qemu_start import QemuExtras
from tvm_ext.execution.samples import Sample
from tvm_ext.package import Package
from tvm_ext.report.interface import modelled_instructions

Array = np.ndarray
Values = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoRuns:
    """Values and outputs of both runs, by the C's names and the model's: on its own, and fed by the reference."""

    own: Values
    fed: Values
    own_outputs: Values
    fed_outputs: Values


def two_runs(
    package: Package, values: Sequence[ComparedValue], lines: Sequence[StepLines], inputs: Sample, known: Values,
    on: Target,
) -> TwoRuns:  # fmt: skip
    """Both runs on the host or on the board in QEMU. known: the reference's values by the C's names, as it stores them.

    The C is compiled from the package's files. Raises BadPackage, BadInput, MissingTool, BuildFailed, RunFailed.
    """
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        copy = Path(name) / "package"
        there = instrumented_copy(package.folder, package.interface, values, lines, copy, on_board=on == "qemu")
        if on == "qemu":
            return _on_board(package, copy, there, inputs, known)
        return _on_host(package, copy, there, inputs, known)


def _on_host(package: Package, copy: Path, there: ValuesFile, inputs: Sample, known: Values) -> TwoRuns:
    limits = ChildLimits(seconds=300, file_bytes=1 << 30, open_files=64)
    written = [there.path]
    with HostModel(copy, package.interface, toolchain=QUICK_TOOLCHAIN, limits=limits, writes=written) as model:
        found: list[tuple[Values, Values]] = []
        for replacing in ({}, known):
            there.write(replacing)
            model.reset()
            outputs = model.run(inputs)
            found.append((there.read(), outputs))
    return _both(found)


def _on_board(package: Package, copy: Path, there: ValuesFile, inputs: Sample, known: Values) -> TwoRuns:
    platform, interface = package.platform, package.interface
    toolchain = platform.toolchain_of(platform.processor)
    optimize: Optimize = "size" if package.report["options"]["optimize"] == "size" else "speed"
    tests = [copy / f"{interface.model}_{part}.c" for part in ("selftest", "vectors")]
    sources = [*library_sources(copy, interface.model), *tests, *sorted((copy / "board").glob("*.c"))]
    objects = compile_objects(
        sources, copy / "objects", toolchain, optimize=optimize, include_dirs=[copy, copy / "board"]
    )
    values = QemuExtras(reads=(there.path,), writes=(there.path,))
    elf = link_elf(objects, copy / "compared.elf", toolchain, script=copy / "board" / "link.ld")
    found: list[tuple[Values, Values]] = []
    for replacing in ({}, known):
        there.write(replacing)
        limit = board_seconds(modelled_instructions(package.report), 1)
        result = run_qemu(elf, platform, interface, [inputs], time_limit_s=limit, extras=values)
        found.append((there.read(), result.outputs[0]))
    return _both(found)


def _both(found: Sequence[tuple[Values, Values]]) -> TwoRuns:
    (own, own_outputs), (fed, fed_outputs) = found
    return TwoRuns(own=own, fed=fed, own_outputs=own_outputs, fed_outputs=fed_outputs)
