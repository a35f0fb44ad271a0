"""Statement coverage of a package's C by its self-test, counted by gcov in a build for the host.

Lines are counted as statements, because generated code has one statement on a line. Assembly and intrinsics, which the
compiler's macros select on the target, are replaced by their plain C here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codegen_c.emit.weights import is_weights_file
from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import HOST_TOOLCHAIN, QUICK_TOOLCHAIN
from tvm_ext.core.processes.confine import Rights, confined_command
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_objects, find_compiler, host_program, installed
from tvm_ext.execution.host_model import library_sources

MOST_MACS = 500_000_000
"""Limit of the multiply-accumulates of a run: up to it, an unoptimised self-test takes seconds rather than minutes."""

_TIME_LIMIT_S = 120
_FEW_DRAWN = "-DTVM_EXT_SELFTEST_DRAWN=4u"
"""Flag that limits a self-test to a few random vectors. Each takes long without optimisation, and further vectors
execute no further statements."""
_ONE_DRAWN = "-DTVM_EXT_SELFTEST_DRAWN=1u"
_MANY_MACS = 100_000_000
"""From this number of multiply-accumulates on, a run takes seconds, and the self-test draws one vector only."""
LOOPS_APART = "-DTVM_EXT_INLINE=static inline"
"""Flag that leaves loops of kernels functions, where packages have a copy in every layer, which takes GCC longer."""
_COUNTED = ("-O0", "--coverage", LOOPS_APART)
"""Compiler flags of the measured files. They keep the loops of layers as functions instead of inlining them: inlined
copies in each layer take the compiler seven times as long at -O0, for the same lines."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Statement coverage of the files that were generated for a model.

    statements, covered: numbers of all and of executed statements; None if they were not measured, with the `reason`.
    missed, missed_shared: lines that were not executed by file, of the model's own C, and of the files that are the
    same in every package.
    """

    statements: int | None
    covered: int | None
    missed: Mapping[str, tuple[int, ...]]
    missed_shared: Mapping[str, tuple[int, ...]]
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def selftest_coverage(folder: Path, model: str, *, macs: int, tested: Sequence[str] = ()) -> Coverage:
    """Measure the coverage of a package's C by its self-test.

    macs: multiply-accumulates of a run. tested: the models of a bundle.
    """
    if macs > MOST_MACS:
        return _unknown(
            f"a run takes {macs:,} multiply-accumulates; coverage is only measured up to {MOST_MACS:,}, because the "
            "self-test runs without optimisation"
        )
    try:
        gcov = _gcov()
    except MissingTool as error:
        return _unknown(str(error))
    if gcov is None:
        return _unknown("coverage needs gcc as the host's C compiler, and its gcov; install both, or set CC=gcc")
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        built = Path(name).resolve()
        try:
            drawn = _ONE_DRAWN if macs >= _MANY_MACS else _FEW_DRAWN
            return _counted(_run(folder, model, tested, built, drawn), gcov, built)
        except (BuildFailed, MissingTool) as error:
            return _unknown(str(error).splitlines()[0])


def covered_lines(records: list[dict[str, Any]]) -> Coverage:
    """Return the coverage of the package's own files from gcov's JSON records.

    The package's files are recorded without a folder; records of system headers have one and are left out.
    """
    counts: dict[str, dict[int, int]] = {}
    for record in records:
        for file in record["files"]:
            if "/" in file["file"].removeprefix("./"):
                continue
            lines = counts.setdefault(file["file"].removeprefix("./"), {})
            for line in file["lines"]:
                # A header is recorded once per source file that includes it: a line ran if it ran in any of them.
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
    """Return the gcov of the host's compiler version; None if the compiler is not gcc or gcov is not installed."""
    compiler = re.fullmatch(r"(?:.*-)?(?:gcc|cc)((?:-\d+)?)", Path(find_compiler(HOST_TOOLCHAIN)[0]).name)
    return installed(f"gcov{compiler[1]}") if compiler else None


def _run(folder: Path, model: str, tested: Sequence[str], built: Path, drawn: str) -> list[Path]:
    """Build the self-test in the folder `built`, run it, and return gcov's note files.

    drawn: flag that limits the random vectors.
    """
    names = list(dict.fromkeys([model, *tested]))
    every = library_sources(folder, *names)
    weights = [path for path in every if any(is_weights_file(path.name, name) for name in names)]
    library = [path for path in every if path not in weights]
    tests = [folder / f"{name}_selftest.c" for name in names] + [folder / f"{model}_selftest_main.c"]
    tests += [folder / f"{name}_vectors.c" for name in tested or names]
    # Weights and test vectors are data: counting them would only slow down the build. The objects of the weights are
    # those of the library for this machine, so they are compiled once.
    counted = compile_objects(library, built / "counted", HOST_TOOLCHAIN, flags=_COUNTED)
    plain = compile_objects(tests, built / "plain", HOST_TOOLCHAIN, flags=["-O0", drawn])
    plain += compile_objects(weights, built / "plain", QUICK_TOOLCHAIN, flags=["-fPIC"], include_dirs=[folder])
    program = host_program([*counted, *plain], built / "selftest", HOST_TOOLCHAIN, flags=["--coverage"])
    command = confined_command(Rights(writes=(str(built.resolve()),), executes=True), [str(program.resolve())])
    done = run_program(command, built, seconds=allowed_seconds(_TIME_LIMIT_S))
    if done.problem or done.status:
        raise BuildFailed(f"the unoptimised self-test on the host {done.left}")
    return [path.with_suffix(".gcno") for path in counted]


def _counted(notes: list[Path], gcov: str, built: Path) -> Coverage:
    """Run gcov on the note files and return the coverage."""
    command = [gcov, "--json-format", "--stdout", *map(str, notes)]
    done = run_program(command, built, seconds=allowed_seconds(_TIME_LIMIT_S))
    try:
        return covered_lines([json.loads(line) for line in done.stdout.splitlines()])
    except (ValueError, KeyError, TypeError):
        return _unknown(f"gcov failed: {done.stderr.strip()[:200]}")
