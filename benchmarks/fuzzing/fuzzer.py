"""The fuzzer as one value: seeds, warmed up once; cases by index; a child for each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from benchmarks.fuzzing import outcome as ends
from benchmarks.fuzzing.batches import read_in_batches
from benchmarks.fuzzing.canary import Policy, watch
from benchmarks.fuzzing.draw import draw, kind_of
from benchmarks.fuzzing.examine import examine
from benchmarks.fuzzing.forked import Limits, Stages
from benchmarks.fuzzing.outcome import REFUSAL_BYTES, REFUSAL_S, Outcome
from benchmarks.fuzzing.pool import run_in_order
from benchmarks.fuzzing.seeds import Seeds, make_seeds
from benchmarks.fuzzing.specimen import Specimen
from benchmarks.fuzzing.tables import Record
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load


@dataclass(frozen=True, kw_only=True)
class Fuzzer:
    """Cases of one seed."""

    seed: int
    seeds: Seeds
    limits: Limits | None = None

    def specimen(self, index: int) -> Specimen | None:
        return draw(self.seed, index, self.seeds)

    def run(self, indices: Iterable[int], *, num_workers: int = 1, seconds: float | None = None) -> Iterator[Record]:
        """Records in the order of the indices. A canary watches each case."""
        with TemporaryDirectory(prefix="fuzz_") as name:

            def work(index: int, stages: Stages) -> Outcome:
                stages.begin("draw")
                specimen = self.specimen(index)
                return Outcome(kind=ends.SKIPPED) if specimen is None else _watched(specimen, stages, Path(name))

            for index, outcome in run_in_order(
                work, indices, num_workers=num_workers, seconds=seconds, limits=self.limits
            ):
                yield Record(index=index, kind=kind_of(self.seed, index), outcome=late_refusal(outcome))

    def read(self, indices: Iterable[int], *, seconds: float | None = None) -> Iterator[Record]:
        """Records of cases of damaged files that are only read, in order."""
        for index, outcome in read_in_batches(self.specimen, indices, seconds=seconds):
            yield Record(index=index, kind=kind_of(self.seed, index), outcome=late_refusal(outcome))


def _watched(specimen: Specimen, stages: Stages, parent: Path) -> Outcome:
    """The outcome of a specimen in a folder of its own, outside of which nothing may be written.

    Compilers may run: packages are built, and the compiler's own searches where they are first used.
    """
    folder = parent / str(os.getpid())
    folder.mkdir()
    watch(Policy(folder=folder, may_build=True))
    try:
        return examine(specimen, stages)
    finally:
        rmtree(folder, ignore_errors=True)


def run_apart(specimen: Specimen, limits: Limits | None = None) -> Outcome:
    """The outcome of a specimen, in a child of its own."""
    with TemporaryDirectory(prefix="fuzz_") as name:
        ((_, outcome),) = run_in_order(
            lambda _, stages: _watched(specimen, stages, Path(name)), [0], num_workers=1, limits=limits
        )
    return late_refusal(outcome)


def late_refusal(outcome: Outcome) -> Outcome:
    """A refusal that took too long or too much is a warning of its own."""
    is_large = outcome.cpu_s > REFUSAL_S or outcome.peak_bytes > REFUSAL_BYTES
    if outcome.kind == ends.REFUSED and is_large and outcome.stage in ("platform", "load"):
        return replace(outcome, kind=ends.SLOW)
    return outcome


def warm_fuzzer(seed: int) -> Fuzzer:
    """Imports and runs everything once, so that children begin warm; threads would not survive forking."""
    for name in ("OMP_NUM_THREADS", "TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    seeds = make_seeds()
    with TemporaryDirectory(prefix="fuzz_") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in seeds.onnx_models[:3]:
            path = Path(name) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            compile_module(load(path), Platform.load("host"), BuildOptions())
    return Fuzzer(seed=seed, seeds=seeds)
