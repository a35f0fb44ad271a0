"""A slice of the fuzzer's cases, the same each time: none fails, and a case is the same each time."""

from __future__ import annotations

import pytest

from benchmarks.fuzzing.draw import KINDS, kind_of
from benchmarks.fuzzing.fuzzer import Fuzzer, warm_fuzzer
from tests.support.sweeps import some_of

SEED = 2026
NUM_DAMAGED, NUM_VALID = 120, 10


@pytest.fixture(scope="module")
def fuzzer() -> Fuzzer:
    return warm_fuzzer(SEED)


def _indices(count: int, half: int, *, valid: bool) -> list[int]:
    found = (index for index in range(100 * count) if kind_of(SEED, index).startswith("valid") == valid)
    return [next(found) for _ in range(count)][half::2]


def _assert_no_failure(fuzzer: Fuzzer, indices: list[int]) -> None:
    failed = [record for record in fuzzer.run(indices) if record.outcome.is_failure]
    lines = [f"{r.index} {r.kind}: {r.outcome.kind}: {r.outcome.error} {r.outcome.detail[:300]}" for r in failed]
    assert not failed, f"python benchmarks/fuzz.py --seed {SEED} --case INDEX shows each:\n" + "\n".join(lines)


@pytest.mark.parametrize("half", some_of([0], sweep=[1]))
def test_damaged_files(fuzzer: Fuzzer, half: int) -> None:
    _assert_no_failure(fuzzer, _indices(NUM_DAMAGED, half, valid=False))


@pytest.mark.parametrize("half", some_of([0], sweep=[1]))
def test_valid_models(fuzzer: Fuzzer, half: int) -> None:
    _assert_no_failure(fuzzer, _indices(NUM_VALID, half, valid=True))


def test_a_case_is_a_function_of_seed_and_index(fuzzer: Fuzzer) -> None:
    kinds = {kind_of(SEED, index): index for index in range(300)}
    assert set(kinds) == set(KINDS)
    for index in kinds.values():
        assert fuzzer.specimen(index) == fuzzer.specimen(index)
