"""The lines of C of each step of a package, and copies of a package with further lines between its steps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPackage


@dataclass(frozen=True, kw_only=True)
class StepLines:
    """Lines [begin, end) of a step in a C file, counted from 1. functions: names of the functions that it calls."""

    file: str
    begin: int
    end: int
    functions: tuple[str, ...]


def step_lines(trace: Path, num_steps: int) -> list[StepLines]:
    """Return the lines of each step, in order. num_steps: number of steps in the report.

    Raises BadPackage for a damaged trace, or for the trace of another build.
    """
    try:
        code = cast("list[dict[str, Any]]", json.loads(trace.read_text(encoding="utf-8"))["code"])
        functions = [(str(entry["name"]), {*entry["steps"]}) for entry in code if entry["is"] == "function"]
        lines = [
            StepLines(
                file=str(entry["file"]), begin=int(entry["lines"][0]), end=int(entry["lines"][1]),
                functions=tuple(name for name, steps in functions if steps & {*entry["steps"]}),
            )
            for entry in code
            if entry["is"] == "step"
        ]  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, IndexError, RecursionError):
        raise BadPackage(f"{trace}: does not describe the lines of steps. Compile the model again.") from None
    if len(lines) != num_steps:
        raise BadPackage(
            f"{trace.parent}: report.json and trace.json are from different builds. Compile the model again."
        )
    return lines


def copy_with_lines(
    folder: Path, copy: Path, steps: Sequence[StepLines], header: str, *, after: Mapping[int, Sequence[str]],
    before: Mapping[int, Sequence[str]] | None = None,
) -> None:  # fmt: skip
    """Copy a package's files, and add lines of C before and after steps, by their index.

    header: name of the header that declares what the lines use; each file with steps includes it first.
    Raises BadPackage if the lines of the C code are not the steps that the trace describes.
    """
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.elf", "*.a", "build"))
    for file in dict.fromkeys(step.file for step in steps):
        if Path(file).name != file or not (copy / file).is_file():
            raise BadPackage(f"{folder}: has no file {file!r}, which trace.json names. Compile the model again.")
        text = _lines_of(copy / file)
        added: dict[int, list[str]] = {}
        for index, step in enumerate(steps):
            if step.file == file:
                _check_step(folder / file, text, step)
                added.setdefault(step.begin, []).extend((before or {}).get(index, ()))
                added.setdefault(step.end, []).extend(after.get(index, ()))
        marked = [line for number, line in enumerate(text, 1) for line in (*added.get(number, ()), line)]
        (copy / file).write_text("\n".join([f'#include "{header}"', *marked, ""]), encoding="utf-8")


def _lines_of(file: Path) -> list[str]:
    """Return the lines of a C file. Raises BadPackage for a file that is not text."""
    try:
        return file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadPackage(f"{file}: cannot be read ({error}); compile the model again.") from None


def _check_step(file: Path, text: Sequence[str], step: StepLines) -> None:
    """Raise BadPackage if the lines do not call the step's function, or end in the middle of a statement."""
    inside = text[step.begin - 1 : step.end - 1]
    calls = not step.functions or any(f"{name}(" in line for name in step.functions for line in inside)
    if not inside or not calls or not inside[-1].rstrip().endswith((";", "}", "*/")):
        raise BadPackage(
            f"{file}, lines {step.begin} to {step.end - 1}: are not the step that trace.json describes. Lines "
            "were added or removed in the C code. Change lines in place, or compile the model again."
        )
