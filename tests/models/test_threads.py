"""Builds by several threads of one process at once: each package as it is from a thread alone, byte for byte."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.frontends.quiet import quiet
from tvm_ext.frontends.shapes import ModelNotice

IMAGE = {"x": np.random.default_rng(0).normal(size=(3, 1, 3, 12, 10)).astype(np.float32)}
JOBS = {
    "image": ("image_in_and_out", "cortex_m4", BuildOptions(verify=()), None),
    "int8": ("image_in_and_out", "cortex_m4", BuildOptions(verify=(), quantize="int8"), IMAGE),
    "moves": ("moves_data", "cortex_m0plus", BuildOptions(verify=()), None),
    "budget": ("branches", "cortex_m4", BuildOptions(verify=(), ram=3100), None),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("rounds", some_of([1], sweep=[4]))
def test_threads_build_what_one_builds(rounds: int, tmp_path: Path) -> None:
    files = {name: saved(SMALL_MODELS[model](), tmp_path, name) for name, (model, *_) in JOBS.items()}

    def built(name: str, folder: str) -> dict[str, bytes]:
        _, platform, options, calibration = JOBS[name]
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        return contents(tvm_ext.build(files[name], platform, path, options, calibration=calibration, jobs=1).folder)

    alone = {name: built(name, "alone") for name in JOBS}
    for number in range(rounds):
        barrier = Barrier(len(JOBS))

        def at_once(name: str, barrier: Barrier = barrier, number: int = number) -> dict[str, bytes]:
            barrier.wait(60)
            return built(name, f"together{number}")

        with ThreadPoolExecutor(len(JOBS)) as threads:
            together = dict(zip(JOBS, threads.map(at_once, JOBS), strict=True))
        for name, wanted in alone.items():
            assert together[name].keys() == wanted.keys(), name
            assert [file for file in wanted if together[name][file] != wanted[file]] == [], name


def test_an_error_of_one_thread_leaves_the_others_alone(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    wanted = tvm_ext.estimate(path, "cortex_m4")
    barrier = Barrier(3)

    def asked(number: int) -> object:
        barrier.wait(60)
        options = BuildOptions(ram=100) if number == 1 else BuildOptions()
        try:
            return tvm_ext.estimate(path, "cortex_m4", options)
        except DoesNotFit as error:
            return error

    with ThreadPoolExecutor(3) as threads:
        first, failed, last = threads.map(asked, range(3))
    assert first == wanted == last and isinstance(failed, DoesNotFit)


def test_silence_of_one_thread_ends_before_anothers_begins_and_hides_no_notice() -> None:
    before, barrier, seen = list(warnings.filters), Barrier(2), list[int]()

    def silent(number: int) -> None:
        barrier.wait(60)
        for _ in range(50):
            with quiet():
                seen.append(number)
                warnings.warn("of a library", UserWarning, stacklevel=1)
                seen.append(number)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(silent, range(2)))
    assert list(warnings.filters) == before
    assert all(seen[at] == seen[at + 1] for at in range(0, len(seen), 2)), "never two at once"
    with quiet(), warnings.catch_warnings(record=True) as caught:
        warnings.warn("of a library", UserWarning, stacklevel=1)
        warnings.warn("of ours", ModelNotice, stacklevel=1)
    assert [str(one.message) for one in caught] == ["of ours"]
