"""Loops cut at comparisons of their counter: which are, and that no bit of a result changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import relax
from tvm.relax import op

from codegen_c.tir import lower
from codegen_c.tir.plain_c import PlainC
from tests.kernels.tir_cases import Case
from tests.kernels.tir_library import assert_same_bits, lowered

ROWS = ((13, 11), "float32")
CUT = {
    "concat": (lambda x: op.concat([x, op.negative(x)], axis=1), 2),
    "pad": (lambda x: op.nn.pad(x, [1, 2, 3, 4]), 3),
    "pad_behind": (lambda x: op.nn.pad(x, [0, 0, 0, 4]), 2),
    "slice": (lambda x: op.strided_slice(x, [1], [0], [2]), 0),
}
CASES = [Case(name=name, build=build, inputs=(ROWS,)) for name, (build, _) in CUT.items()]


def small_body(plain: PlainC) -> str:
    """The C that is not blocked."""
    return plain.form(has_vectors=False, is_small=True).function.body


def test_no_bit_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = {case.name: lowered(case.function()) for case in CASES}
    monkeypatch.setattr(lower, "cut_loops", lambda function: function)
    whole = {case.name: lowered(case.function()) for case in CASES}
    for name, (_, parts) in CUT.items():
        more = small_body(cut[name]).count("for (") - small_body(whole[name]).count("for (")
        assert more == max(0, parts - 1), name
    assert_same_bits(CASES, cut, whole, tmp_path)


@pytest.mark.parametrize(("name", "choices"), [("concat", 0), ("pad", 1), ("pad_behind", 0)])
def test_comparisons_of_the_counter_are_gone(name: str, choices: int) -> None:
    """A comparison of an outer loop's counter stays, once."""
    assert small_body(lowered(next(case for case in CASES if case.name == name).function())).count("?") == choices


def test_many_parts_stay_one_loop() -> None:
    def build(x: relax.Expr) -> relax.Expr:
        return op.concat([x, x, x, x], axis=1)

    body = small_body(lowered(Case(name="four", build=build, inputs=(ROWS,)).function()))
    assert body.count("for (") == 2 and "?" in body
