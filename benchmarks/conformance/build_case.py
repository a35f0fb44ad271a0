"""One case as a user has it compiled: load -> build, verified as by default -> its library run on the suite's data."""

from __future__ import annotations

import re
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import tvm_ext
from benchmarks.conformance.cases import Case
from benchmarks.conformance.run_case import Outcome, judge, open_shapes, outcome_of, refusal
from tvm_ext.assurance import assurance
from tvm_ext.assurance.coverage import Coverage
from tvm_ext.core.errors import RunFailed, TvmExtError, VerificationFailed
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.toolchain import find_program
from tvm_ext.execution.host_model import HostModel
from tvm_ext.packages.package import Package

# Sentences of an error that is not this project's own, but handed on.
_FOREIGN = re.compile(r"TVM's importer fails|InternalError|TVMError|ended with signal|Traceback")


def build_case(case: Case) -> Outcome:
    """Outcome of a case, whatever it raises. `rejected`: verification refuses a package that is right.

    What the self-test covers is not counted: a figure of the report, which fails no build and takes half the time.
    """
    with patch.object(assurance, "selftest_coverage", _not_counted):
        return outcome_of(case, _built, _refused)


def _not_counted(*_: object, **__: object) -> Coverage:
    return Coverage(statements=None, covered=None, missed={}, missed_shared={}, reason="not counted")


def _built(case: Case, folder: Path) -> Outcome:
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = tvm_ext.load(path, shapes=open_shapes(case), states={})
        try:
            return _judged(case, tvm_ext.build(mod, "host", folder / "package"))
        except (VerificationFailed, RunFailed) as error:
            unverified = tvm_ext.build(mod, "host", folder / "package", BuildOptions(verify=()))
            outcome = _judged(case, unverified)
            if outcome.verdict != "pass":
                return outcome
            return Outcome(verdict="rejected", reason=str(error)[:300], detail=str(error)[:3000])


def _judged(case: Case, package: Package) -> Outcome:
    """Outcome of the suite's data by the package's own library; inputs without elements are none of a package."""
    with (
        TemporaryDirectory(prefix="library_") as name,
        HostModel(package.folder, package.interface, objects=_library_objects(package, Path(name))) as model,
    ):
        return judge(case, lambda given: model.run({name: given[name] for name in package.inputs}))


def _library_objects(package: Package, folder: Path) -> list[Path]:
    """Object files of the library that the build left."""
    library = package.folder / package.report["artifacts"]["library"]
    subprocess.run([find_program("ar"), "x", str(library.resolve())], cwd=folder, check=True)
    return sorted(folder.glob("*.o"))


def _refused(error: TvmExtError) -> Outcome:
    """A refusal, or a crash where its text is that of another program's error."""
    outcome = refusal(error)
    if isinstance(error, RunFailed) or _FOREIGN.search(str(error)):
        return replace(outcome, verdict="crash")
    return outcome
