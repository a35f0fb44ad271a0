"""One specimen through the compiler, and its outcome."""

from __future__ import annotations

import math
import os
import traceback
import warnings
from contextlib import chdir
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm
from typer.testing import CliRunner

from benchmarks.fuzzing import outcome as ends
from benchmarks.fuzzing.cross_checks import CHECKS, Built, Disagreement, Refused, against_runtime
from benchmarks.fuzzing.forked import Stages
from benchmarks.fuzzing.outcome import Outcome
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen
from codegen_c.backend.build import Compiled
from tvm_ext.command_line.main import app
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core import errors
from tvm_ext.core.bundle_file import BundleFile
from tvm_ext.core.files.arrays import read_arrays
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.sweeps.candidates import candidates_of
from tvm_ext.sweeps.sweep_file import SweepFile

ROOT = Path(__file__).resolve().parent.parent.parent
_DEFECTS = {"BuildFailed": ends.UNBUILT, "RunFailed": ends.UNBUILT, "ChildFailed": ends.UNBUILT,
            "PlanRejected": ends.REJECTED, "DefectNotice": ends.REJECTED}  # fmt: skip
"""Errors of ours, and notices, that no input should lead to."""


def examine(specimen: Specimen, stages: Stages) -> Outcome:
    """Compiles, asks the reference runtimes, and sorts whatever is raised. A crash ends the process."""
    with TemporaryDirectory(prefix="fuzz_") as name, warnings.catch_warnings(), chdir(name):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", errors.DefectNotice)
        try:
            if isinstance(specimen, CommandSpecimen):
                return _run_command(specimen, Path(name), stages)
            return _compile_and_judge(specimen, Path(name), stages)
        except Disagreement as found:
            return Outcome(
                kind=ends.WRONG if found.is_finite else ends.NOT_FINITE, error=found.runtime, detail=str(found)
            )
        except Exception as error:
            return sorted_error(error, is_valid=isinstance(specimen, ModelSpecimen) and specimen.is_valid)


def sorted_error(error: BaseException, *, is_valid: bool) -> Outcome:
    """The outcome that an exception stands for."""
    name, trace = type(error).__name__, traceback.format_exception(error)
    detail = f"{error}\n{''.join(trace)[-3000:]}"[:6000]
    if isinstance(error, MemoryError | errors.OutOfMemory):
        return Outcome(kind=ends.OVER_MEMORY, error=name, where=_where(error), detail=detail)
    if name in _DEFECTS and isinstance(error, errors.TvmExtError | errors.DefectNotice):
        return Outcome(kind=_DEFECTS[name], error=name, where=_gist(str(error)), detail=detail)
    if isinstance(error, errors.VerificationFailed):
        kind = ends.VERIFICATION if is_valid else ends.UNVERIFIED
        return Outcome(kind=kind, error=name, where="", detail=detail)
    if isinstance(error, errors.TvmExtError):
        return Outcome(kind=ends.REFUSED, error=name, detail=str(error)[:1000])
    return Outcome(kind=ends.FOREIGN, error=name, where=_where(error), detail=detail)


def _where(error: BaseException) -> str:
    """The innermost line of the project that an exception passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(ROOT))]
    inside = [frame for frame in frames if ".venv" not in frame.filename and "/benchmarks/" not in frame.filename]
    if not inside:
        return ""
    return f"{Path(inside[-1].filename).relative_to(ROOT)}:{inside[-1].name}"


def _gist(message: str) -> str:
    """First complaint of a C compiler, up to its first quoted name."""
    said = [line.split("error:")[1] for line in message.splitlines() if "error:" in line]
    return (said or [""])[0].split("\u2018")[0].split("'")[0].strip()[:60]


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A specimen whose model was read."""

    specimen: ModelSpecimen
    path: Path
    module: tvm.IRModule
    platform: Platform
    calibration: Path | None

    def compiled(self, options: BuildOptions) -> tuple[tvm.IRModule, Compiled]:
        return compile_model(self.module, self.platform, options, self.calibration)


def _compile_and_judge(specimen: ModelSpecimen, folder: Path, stages: Stages) -> Outcome:
    job, options = _read(specimen, folder, stages)
    if specimen.checks == ("load",):
        if job.calibration is not None:
            read_arrays(job.calibration)
        return Outcome(kind=ends.READ)
    stages.begin("compile")
    if specimen.ram_part is None:
        whole, (module, compiled) = None, job.compiled(options)
    else:
        whole = job.compiled(options)[1]
        most = math.ceil(whole.plan.bytes_in(job.platform.activations) * specimen.ram_part)
        module, compiled, options = _within(job, options, max(1, most))
    sources = compiled.sources()
    stages.begin("run")
    built = Built(
        path=job.path, module=module, compiled=compiled, sources=sources, options=options, folder=folder, whole=whole,
        again=lambda other: job.compiled(other)[1],
    )  # fmt: skip
    if "package" in specimen.checks:
        CHECKS["package"](built, stages)
    if "none" in specimen.checks:
        return Outcome(kind=ends.WITHOUT_REFERENCE)
    verdict = against_runtime(built, stages)
    if isinstance(verdict, Refused):
        return Outcome(kind=ends.ACCEPTED, error=verdict.runtime, detail=verdict.reason)
    for check in specimen.checks:
        if check != "package":
            stages.begin(check)
            CHECKS[check](built, stages)
    return Outcome(kind=ends.AGREES if verdict else ends.WITHOUT_REFERENCE)


def _within(job: _Job, options: BuildOptions, limit: int) -> tuple[tvm.IRModule, Compiled, BuildOptions]:
    """Compiled within a limit of the default memory, or within the least that was reached where that is more."""
    memory = job.platform.activations
    limited = replace(options, ram={memory: limit})
    try:
        module, compiled = job.compiled(limited)
    except errors.DoesNotFit as error:
        if not error.least_bytes:
            raise
        limited = replace(options, ram={memory: min(error.least_bytes.values())})
        module, compiled = job.compiled(limited)
    return module, compiled, limited


def _read(specimen: ModelSpecimen, folder: Path, stages: Stages) -> tuple[_Job, BuildOptions]:
    path = folder / f"model{specimen.suffix}"
    path.write_bytes(specimen.model)
    platform_name = specimen.platform
    if isinstance(platform_name, bytes):
        (folder / "platform.toml").write_bytes(platform_name)
        platform_name = str(folder / "platform.toml")
    calibration = folder / "calibration.npz" if specimen.calibration is not None else None
    if calibration and specimen.calibration is not None:
        calibration.write_bytes(specimen.calibration)
    stages.begin("platform")
    platform = Platform.load(platform_name)
    options = BuildOptions(**specimen.options)
    stages.begin("load")
    module = load(path)
    return _Job(specimen=specimen, path=path, module=module, platform=platform, calibration=calibration), options


def _read_sweep(path: Path) -> Outcome:
    """A sweep's file up to the jobs of its candidates; the services that run them would start TVM for each case."""
    file = SweepFile.load(path)
    platforms = [Platform.load(name) for name in file.platform_names(path.parent)]
    models, options = file.sweep_models(path.parent), file.build_options()
    rows = list(islice(candidates_of(models, platforms, options, file.tier), 100))
    refused = [row.job for row in rows if isinstance(row.job, errors.TvmExtError)]
    return Outcome(kind=ends.REFUSED, error=type(refused[0]).__name__) if refused else Outcome(kind=ends.READ)


def _run_command(specimen: CommandSpecimen, folder: Path, stages: Stages) -> Outcome:
    """The command line, in its own process already; exit status 0, 1 and 2 are ends that it names."""
    for name, content in specimen.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    stages.begin(specimen.arguments[0] if specimen.arguments else "no command")
    if specimen.is_read_only and specimen.arguments[0] == "bundle":
        BundleFile.load(folder / specimen.arguments[1])
        return Outcome(kind=ends.READ)
    if specimen.arguments[:1] == ("sweep",):
        return _read_sweep(folder / specimen.arguments[1])
    os.environ["COLUMNS"] = "200"
    result = CliRunner().invoke(app, list(specimen.arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return sorted_error(result.exception, is_valid=False)
    said = result.output
    if "InternalError" in said:
        line = next(line for line in said.splitlines() if "InternalError" in line)
        return Outcome(kind=ends.FOREIGN, error=":".join(line.split(":")[:2])[:80], detail=said[-3000:])
    for name, kind in _DEFECTS.items():
        if f"{name}:" in said:
            return Outcome(kind=kind, error=name, where=_gist(said), detail=said[-3000:])
    if result.exit_code not in (0, 1, 2):
        return Outcome(kind=ends.FOREIGN, error=f"exit status {result.exit_code}", detail=said[-3000:])
    if result.exit_code == 0:
        return Outcome(kind=ends.WITHOUT_REFERENCE)
    return Outcome(kind=ends.REFUSED, error="usage" if result.exit_code == 2 else "command", detail=said[-1000:])
