"""Runs of an instrumented copy of a package that writes the result of each step to a file.

In the second run the reference's values replace the results of all steps, so that each step is judged alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.emit.inspection import HEADER, compare_line, emit_compare
from codegen_c.program.interface import Interface
from tvm_ext.comparison.compared_values import ComparedValue
from tvm_ext.core.options import CompileFor, Target
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.board import board_seconds, run_qemu
from tvm_ext.execution.host_model import HostModel, library_sources
from tvm_ext.execution.qemu_start import QemuExtras, link_firmware
from tvm_ext.execution.samples import Sample
from tvm_ext.packages.package import Package
from tvm_ext.packages.step_lines import StepLines, copy_with_lines
from tvm_ext.report.interface import modelled_instructions

Array = np.ndarray
Values = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoRuns:
    """Values by the C code's names, and outputs by the model's names, of two runs.

    own: run on the package's values. fed: run in which each step reads the reference's values.
    """

    own: Values
    fed: Values
    own_outputs: Values
    fed_outputs: Values


def two_runs(
    package: Package, values: Sequence[ComparedValue], lines: Sequence[StepLines], inputs: Sample, known: Values,
    on: Target,
) -> TwoRuns:  # fmt: skip
    """Run an instrumented copy of a package twice, on the host or on the board in QEMU.

    The C code is compiled from the package's files. known: the reference's values by the C code's names, in its
    layouts.
    Raises BadPackage, BadInput, MissingTool, BuildFailed, RunFailed.
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
    optimize: CompileFor = "size" if package.report["options"]["optimize"] == "size" else "speed"
    tests = [copy / f"{interface.model}_{part}.c" for part in ("selftest", "vectors")]
    sources = [*library_sources(copy, interface.model), *tests, *sorted((copy / "board").glob("*.c"))]
    objects = compile_objects(
        sources, copy / "objects", toolchain, optimize=optimize, include_dirs=[copy, copy / "board"]
    )
    values = QemuExtras(reads=(there.path,), writes=(there.path,))
    elf = link_firmware(objects, copy / "compared.elf", platform, copy / "board")
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


_FLAG_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ValuesFile:
    """File of values. Each has its bytes from the run, a flag of 4 bytes, and bytes that replace it if that is 1."""

    path: Path
    values: Sequence[ComparedValue]

    def place(self, index: int) -> int:
        """Return the offset of a value in the file."""
        return sum(2 * value.tensor.num_bytes + _FLAG_BYTES for value in self.values[:index])

    def write(self, replacing: Mapping[str, Array]) -> None:
        """Write a new file. replacing: values by the C code's names that later steps read instead of the run's own."""
        with self.path.open("wb") as file:
            for value in self.values:
                tensor = value.tensor
                given = replacing.get(tensor.name)
                file.write(bytes(tensor.num_bytes))
                file.write(np.uint32(given is not None).tobytes())
                file.write(bytes(tensor.num_bytes) if given is None else given.astype(tensor.dtype).tobytes())

    def read(self) -> dict[str, Array]:
        """Return the values of the run by the C code's names, as they were before they were replaced."""
        data = self.path.read_bytes()
        return {
            value.tensor.name: np.frombuffer(
                data, value.tensor.dtype, value.tensor.num_elements, self.place(index)
            ).reshape(value.tensor.shape)
            for index, value in enumerate(self.values)
        }


def instrumented_copy(
    folder: Path, interface: Interface, values: Sequence[ComparedValue], lines: Sequence[StepLines], copy: Path,
    *, on_board: bool,
) -> ValuesFile:  # fmt: skip
    """Write a copy of a package whose steps write their results to a file; return the file.

    Raises BadPackage if the lines of the C code are not the steps that the trace describes.
    """
    there = ValuesFile(path=copy / "values.bin", values=values)
    added: dict[int, list[str]] = {}
    for index, value in enumerate(values):
        line = compare_line(interface, value.tensor.memory, value.tensor.name, there.place(index))
        added.setdefault(value.step, []).append(line)
    copy_with_lines(folder, copy, lines, HEADER, after=added)
    there.path.touch()  # programs that run the copy may write the files that exist
    for name, text in emit_compare(str(there.path), on_board=on_board).items():
        (copy / name).write_text(text, encoding="utf-8")
    return there
