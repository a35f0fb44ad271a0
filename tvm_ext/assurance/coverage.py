"""Statements of a package's C that its self-test executes, counted by gcov in a build for the host.

Lines stand for statements: generated code has one on a line. What a processor's own instructions replace (assembly and
intrinsics behind the compiler's macros) is compiled here as the plain C beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.core.processes.confine import Rights, confined_command
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_objects, find_compiler, host_program, installed
from tvm_ext.execution.host_model import library_sources

MOST_MACS = 500_000_000
"""Multiply-accumulates of a run up to which an unoptimised build of the self-test takes seconds."""

_TIME_LIMIT_S = 120
_FEW_DRAWN = "-DTVM_EXT_SELFTEST_DRAWN=4u"
"""Flag by which a self-test runs few of the vectors that it draws: without optimisation each takes long, and more of
them execute no other statements."""
_COUNTED = ("-O0", "--coverage", "-DTVM_EXT_INLINE=static inline")
"""Flags for what is counted. Loops of layers are functions there: without optimisation, copies of them in each layer
take the compiler seven times as long, and lines are the same."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Statements of the files generated for the model, how many of them ran, and the lines of those that did not.

    missed, missed_shared: lines by file, of the model's own C, and of files that are the same in every package. None
    with the reason why not.
    """

    statements: int | None
    covered: int | None
    missed: Mapping[str, tuple[int, ...]]
    missed_shared: Mapping[str, tuple[int, ...]]
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def selftest_coverage(folder: Path, model: str, *, macs: int, tested: Sequence[str] = ()) -> Coverage:
    """Coverage of a package's C by its self-test; macs: of one run. tested: of a bundle, its models."""
    if macs > MOST_MACS:
        return _unknown(
            f"one run takes {macs:,} multiply-accumulates; up to {MOST_MACS:,} are run without optimisation"
        )
    try:
        gcov = _gcov()
    except MissingTool as error:
        return _unknown(str(error))
    if gcov is None:
        return _unknown("gcov is measured with gcc, and it or the host's C compiler is another or absent")
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        built = Path(name).resolve()
        try:
            return _counted(_run(folder, model, tested, built), gcov, built)
        except (BuildFailed, MissingTool) as error:
            return _unknown(str(error).splitlines()[0])


def covered_lines(records: list[dict[str, Any]]) -> Coverage:
    """Coverage that gcov's JSON records for files without a folder: the package's own."""
    counts: dict[str, dict[int, int]] = {}
    for record in records:
        for file in record["files"]:
            if "/" in file["file"].removeprefix("./"):
                continue
            lines = counts.setdefault(file["file"].removeprefix("./"), {})
            for line in file["lines"]:
                lines[line["line_number"]] = max(lines.get(line["line_number"], 0), line["count"])
    missed = {file: tuple(sorted(n for n, count in lines.items() if not count)) for file, lines in counts.items()}
    own, shared = (
        {file: lines for file, lines in sorted(missed.items()) if _is_shared(file) == is_shared and lines}
        for is_shared in (False, True)
    )
    statements = sum(len(lines) for file, lines in counts.items() if not _is_shared(file))
    covered = statements - sum(map(len, own.values()))
    return Coverage(statements=statements, covered=covered, missed=own, missed_shared=shared)


def _is_shared(file: str) -> bool:
    return file.startswith("tvm_ext_")


def _unknown(reason: str) -> Coverage:
    return Coverage(statements=None, covered=None, missed={}, missed_shared={}, reason=reason)


def _gcov() -> str | None:
    """The gcov that belongs to the host's compiler; None where that is no gcc."""
    compiler = re.fullmatch(r"(?:.*-)?(?:gcc|cc)((?:-\d+)?)", Path(find_compiler(HOST_TOOLCHAIN)[0]).name)
    return installed(f"gcov{compiler[1]}") if compiler else None


def _run(folder: Path, model: str, tested: Sequence[str], built: Path) -> list[Path]:
    """Build the self-test in `built`, run it, and name the files where gcov looks."""
    names = list(dict.fromkeys([model, *tested]))
    every = library_sources(folder, *names)
    data = [path for path in every if path.name in {f"{name}_weights.c" for name in names}]
    library = [path for path in every if path not in data]
    data += [folder / f"{name}_selftest.c" for name in names] + [folder / f"{model}_selftest_main.c"]
    data += [folder / f"{name}_vectors.c" for name in tested or names]
    counted = compile_objects(library, built / "counted", HOST_TOOLCHAIN, flags=_COUNTED)
    plain = compile_objects(data, built / "plain", HOST_TOOLCHAIN, flags=["-O0", _FEW_DRAWN])
    program = host_program([*counted, *plain], built / "selftest", HOST_TOOLCHAIN, flags=["--coverage"])
    command = confined_command(Rights(writes=(str(built.resolve()),), executes=True), [str(program.resolve())])
    done = run_program(command, built, seconds=allowed_seconds(_TIME_LIMIT_S))
    if done.problem or done.status:
        raise BuildFailed(f"the self-test, without optimisation on the host, {done.left}")
    return [path.with_suffix(".gcno") for path in counted]


def _counted(notes: list[Path], gcov: str, built: Path) -> Coverage:
    command = [gcov, "--json-format", "--stdout", *map(str, notes)]
    done = run_program(command, built, seconds=allowed_seconds(_TIME_LIMIT_S))
    try:
        return covered_lines([json.loads(line) for line in done.stdout.splitlines()])
    except (ValueError, KeyError, TypeError):
        return _unknown(f"gcov failed: {done.stderr.strip()[:200]}")
