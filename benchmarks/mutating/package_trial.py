"""A finished package, its C changed in one thing at a time: does a result change, and who notices?

Everything that a change does not touch is compiled once. A changed package runs 100 random inputs, its own self-test,
and what a build does to verify it: outputs of all samples, and each step beside its kernel's reference.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Literal, Self

import numpy as np

from benchmarks.mutating.c_changes import CChange
from codegen_c.backend.build import Compiled
from codegen_c.emit.drawn_vectors import stored_bytes
from codegen_c.program.drawn_inputs import Domain, drawn, recipe_number
from tvm_ext.building.artifacts import write_texts
from tvm_ext.building.selftest import SelfTest, drawn_faults, selftest_of
from tvm_ext.building.subject import Subject, host_outputs, make_subject
from tvm_ext.core.errors import TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import compile_objects, host_program
from tvm_ext.execution.host_model import HostModel, library_sources
from tvm_ext.frontends.load import load
from tvm_ext.verification.input_ranges import input_ranges, random_inputs
from tvm_ext.verification.judgement import judged_runs, steps_of
from tvm_ext.verification.verify import tolerance_of

Sample = Mapping[str, np.ndarray]
Outcome = Literal["does not compile", "changes nothing", "changes a result"]

NUM_INPUTS = 100
_FIRST_SEED = 20_000
"""Seeds from here on are no seeds of a build's own samples."""
_LIMITS = ChildLimits(seconds=20, file_bytes=1 << 20, open_files=64)
_SELFTEST_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one change does.

    crashed: it ends the program in place of giving other results. selftest, verified: whether these notice it; None
    where no result changes. inputs: of 100, those with another result. by_steps: only the look at steps notices.
    """

    outcome: Outcome
    crashed: bool = False
    inputs: int = 0
    selftest: bool | None = None
    verified: bool | None = None
    by_steps: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Changed(Compiled):
    """A compiled model whose sources have a change; where the text about it is found in them."""

    change: CChange
    source: str

    def sources(self, *, after_step: bool = False) -> dict[str, str]:
        texts, change = super().sources(after_step=after_step), self.change
        if change.file in texts:
            at = _place(texts[change.file], self.source, change)
            if at is not None:
                moved = replace(change, begin=at, end=at + change.end - change.begin)
                texts[change.file] = moved.applied(texts[change.file])
        return texts


def _place(text: str, source: str, change: CChange) -> int | None:
    """Where a change of one text belongs in another one that is nearly the same."""
    before, after = source[max(0, change.begin - 80) : change.begin], source[change.begin : change.end + 40]
    context, number = before + after, 0
    at = source.find(context)
    while at >= 0 and at + len(before) != change.begin:
        number, at = number + 1, source.find(context, at + 1)
    at = text.find(context)
    for _ in range(number):
        at = text.find(context, at + 1)
    return None if at < 0 else at + len(before)


class PackageTrials:
    """A package built once, for many changes; use it as a context manager."""

    def __init__(self, model: Path, platform: str, options: BuildOptions | None = None) -> None:
        options = options or BuildOptions()
        with ExitStack() as held:
            self._root = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_bench_")))
            self.subject: Subject = make_subject(
                load(model), Platform.load(platform), options, calibration=None, verify_inputs=None, verifies=True,
                progress=None,
            )  # fmt: skip
            self.selftest: SelfTest = selftest_of(self.subject)
            self.folder = self._root / "package"
            self.folder.mkdir()
            write_texts(self.folder, self.subject.compiled, options, self.selftest.stored, self.selftest.drawn)
            self.files = {path.name: path.read_text() for path in sorted(self.folder.glob("*.[ch]"))}
            self._library = library_sources(self.folder, self.name)
            tests = [self.folder / f"{self.name}_{part}.c" for part in ("selftest", "vectors", "selftest_main")]
            self._tests = self._compiled(self.folder, tests, "tests")
            self._objects = dict(zip(self._library, self._compiled(self.folder, self._library, "plain"), strict=True))
            self.inputs = self._random_inputs()
            with self._model(self.folder, [*self._objects.values()]) as good:
                self._expected = self._outputs(good, self.inputs)
            if not self._passes([*self._objects.values()]):
                raise ValueError(f"{self.name}: the self-test fails as it stands")
            self._held = held.pop_all()

    @property
    def name(self) -> str:
        return self.subject.model

    @property
    def runs(self) -> int:
        """Runs of a self-test."""
        return len(self.selftest.stored) + (len(self.selftest.drawn.vectors) if self.selftest.drawn else 0)

    @property
    def drawn_bytes(self) -> int:
        """Bytes of flash of the vectors that the self-test draws."""
        return stored_bytes(self.subject.compiled.interface, self.selftest.drawn)

    def trial(self, change: CChange) -> Trial:
        """Make a change and run the package."""
        with TemporaryDirectory(dir=self._root) as name:
            folder = Path(name) / "package"
            folder.mkdir()
            for path in self.folder.glob("*.[ch]"):
                shutil.copy(path, folder / path.name)
            (folder / change.file).write_text(change.applied(self.files[change.file]))
            try:
                objects = self._objects_of(folder, change)
            except TvmExtError:
                return Trial(outcome="does not compile")
            crashed, differing = False, 0
            try:
                with self._model(folder, objects) as model:
                    differing = self._num_differing(self._outputs(model, self.inputs))
            except TvmExtError:
                crashed = True
            if not crashed and not differing:
                return Trial(outcome="changes nothing")
            noticed, by_steps = self._noticed(folder, objects, change)
            return Trial(
                outcome="changes a result", crashed=crashed, inputs=differing, selftest=not self._passes(objects),
                verified=noticed, by_steps=by_steps,
            )  # fmt: skip

    def _objects_of(self, folder: Path, change: CChange) -> list[Path]:
        """Objects of a changed package; the ones that it cannot change are those that there are."""
        is_unit = change.file.endswith(".c")
        again = [
            path
            for path in self._library
            if (path.name == change.file if is_unit else not re.search(r"_weights(_\d+)?\.c$", path.name))
        ]
        new = self._compiled(folder, [folder / path.name for path in again], folder.parent.name)
        objects = {**self._objects, **dict(zip(again, new, strict=True))}
        return [*objects.values()]

    def _compiled(self, folder: Path, sources: Sequence[Path], name: str) -> list[Path]:
        return compile_objects(
            sources, self._root / f"objects_{name}", QUICK_TOOLCHAIN, flags=["-fPIC"], include_dirs=[folder]
        )

    def _model(self, folder: Path, objects: Sequence[Path]) -> HostModel:
        interface = self.subject.compiled.interface
        return HostModel(folder, interface, toolchain=QUICK_TOOLCHAIN, objects=objects, limits=_LIMITS)

    def _outputs(self, model: HostModel, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
        return host_outputs(model, samples)

    def _random_inputs(self) -> list[dict[str, np.ndarray]]:
        """Half of them evenly random, half of the forms of recipes, all of other seeds than a build's own."""
        interface, ranges = self.subject.compiled.interface, input_ranges(self.subject.mod)
        specs = {port.source: (port.shape, port.dtype) for port in interface.inputs}
        domains = [Domain.of(port, ranges.get(port.source)) for port in interface.inputs]
        found: list[dict[str, np.ndarray]] = []
        for number in range(_FIRST_SEED, _FIRST_SEED + NUM_INPUTS):
            if number % 2:
                found.append(random_inputs(specs, number, ranges))
            else:
                recipe = recipe_number(number // 2)
                found.append(
                    {
                        port.source: drawn(port, position, domain, recipe)
                        for position, (port, domain) in enumerate(zip(interface.inputs, domains, strict=True))
                    }
                )
        return found

    def _num_differing(self, given: Sequence[Sample]) -> int:
        """Inputs with another result: other integers, floats that are further off than the package's tolerance."""
        program = self.subject.compiled.program
        scales = {name: max(np.abs(one[name]).max(initial=0) for one in self._expected) for name in self._expected[0]}
        limit = tolerance_of(program)
        return sum(
            any(_differs(one[name], good[name], limit * scales[name]) for name in good)
            for one, good in zip(given, self._expected, strict=True)
        )

    def _passes(self, objects: Sequence[Path]) -> bool:
        """Run the self-test."""
        with TemporaryDirectory(dir=self._root) as name:
            program = host_program([*objects, *self._tests], Path(name) / "selftest", QUICK_TOOLCHAIN)
            done = run_program([str(program)], Path(name), seconds=_SELFTEST_SECONDS)
        return not done.problem and done.status == 0

    def _noticed(self, folder: Path, objects: Sequence[Path], change: CChange) -> tuple[bool, bool]:
        """Whether verification refuses a changed package, and whether only its look at steps does."""
        subject, expected = self.subject, self.subject.expected
        assert expected is not None, "the subject is verified"
        try:
            with self._model(folder, objects) as model:
                given = host_outputs(model, subject.samples)
                faults = drawn_faults(subject, model, self.selftest)
        except TvmExtError:
            return True, False
        if faults or judged_runs(subject, expected, None, given, None)[1]:
            return True, False
        compiled = subject.compiled
        known = {field.name: getattr(compiled, field.name) for field in fields(Compiled)}
        changed = _Changed(**known, change=change, source=self.files[change.file])
        try:
            steps = steps_of(replace(subject, compiled=changed), expected)
        except TvmExtError:
            return True, True
        return bool(steps and judged_runs(subject, expected, steps, given, None)[1]), True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()


def _differs(one: np.ndarray, good: np.ndarray, limit: float) -> bool:
    if good.dtype.kind != "f" and good.dtype.name != "bfloat16":
        return not np.array_equal(one, good)
    apart = np.abs(one.astype(np.float64) - good.astype(np.float64))
    return bool((~(apart <= limit) & ~(np.isnan(one) & np.isnan(good)) & (one != good)).any())
