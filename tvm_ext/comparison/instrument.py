"""A copy of a package whose run hands over what each step wrote, through a file: the package's own C, its own flags.

Lines are added behind those that the trace says are a step; nothing else is changed, so a package that was changed by
hand is compared as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codegen_c.emit.compare import HEADER, compare_line, emit_compare
from codegen_c.program.interface import Interface
from tvm_ext.comparison.compared_values import ComparedValue, StepLines
from tvm_ext.core.errors import BadPackage

Array = np.ndarray
_FLAG_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ValuesFile:
    """A file of values: of each its bytes as the run gave them, a flag, and bytes that replace them where it is 1."""

    path: Path
    values: Sequence[ComparedValue]

    def place(self, index: int) -> int:
        """Bytes before a value."""
        return sum(2 * value.tensor.num_bytes + _FLAG_BYTES for value in self.values[:index])

    def write(self, replacing: Mapping[str, Array]) -> None:
        """Begin anew. replacing: values by the C's names, which later steps find in place of the run's own."""
        with self.path.open("wb") as file:
            for value in self.values:
                tensor = value.tensor
                given = replacing.get(tensor.name)
                file.write(bytes(tensor.num_bytes))
                file.write(np.uint32(given is not None).tobytes())
                file.write(bytes(tensor.num_bytes) if given is None else given.astype(tensor.dtype).tobytes())

    def read(self) -> dict[str, Array]:
        """Values of the run, by the C's names, before any was replaced."""
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
    """Write the copy. Raises BadPackage where lines of the C are not the steps that the trace says they are."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.elf", "*.a", "build"))
    there = ValuesFile(path=copy / "values.bin", values=values)
    there.path.touch()  # programs that run the copy may write the files that exist
    added: dict[str, dict[int, list[str]]] = {}
    for step, written in enumerate(lines):
        for index, value in enumerate(values):
            if value.step == step:
                line = compare_line(interface, value.tensor.memory, value.tensor.name, there.place(index))
                added.setdefault(written.file, {}).setdefault(written.end, []).append(line)
    for file in dict.fromkeys(written.file for written in lines):
        if Path(file).name != file or not (copy / file).is_file():
            raise BadPackage(f"{folder}: has no file {file!r}, which trace.json names; compile the model again.")
        text = _lines_of(copy / file)
        for written in lines:
            if written.file == file:
                _check_step(folder / file, text, written)
        marked = [line for number, line in enumerate(text, 1) for line in (*added.get(file, {}).get(number, ()), line)]
        (copy / file).write_text("\n".join([f'#include "{HEADER}"', *marked, ""]), encoding="utf-8")
    for name, text in emit_compare(str(there.path), on_board=on_board).items():
        (copy / name).write_text(text, encoding="utf-8")
    return there


def _lines_of(file: Path) -> list[str]:
    """Lines of a C file. Raises BadPackage for what is no text."""
    try:
        return file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadPackage(f"{file}: cannot be read ({error}); compile the model again.") from None


def _check_step(file: Path, text: Sequence[str], written: StepLines) -> None:
    """Raises BadPackage where the lines do not call the step's function, or end amid a statement."""
    inside = text[written.begin - 1 : written.end - 1]
    calls = not written.functions or any(f"{name}(" in line for name in written.functions for line in inside)
    if not inside or not calls or not inside[-1].rstrip().endswith((";", "}", "*/")):
        raise BadPackage(
            f"{file}, lines {written.begin} to {written.end - 1}: are not the step that trace.json says they are. "
            "Lines were added to or taken from the C; change lines in place, or compile the model again."
        )
