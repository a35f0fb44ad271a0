"""Generated C has no loops of one turn, and no macros in lower case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen_c.c_text.text import loop, structure
from codegen_c.kernels.shared.requantize import factor_members
from tests.kernels.test_q_cross_compile import implementations, source_text
from tests.support.runtime_headers import FOLDERS
from tests.support.single_turns import single_turns
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.frontends.load import load

EXPECTED = Path(__file__).parent / "expected"
KEYWORDS = {"restrict"}
"""Words of C11 that are macros where C++ reads a header, as C++ has no such keyword."""


def test_a_loop_of_one_turn_is_a_block() -> None:
    assert loop("i", 2, ["y[i] = x[i];"]) == ["for (int32_t i = 0; i < 2; ++i) {", "    y[i] = x[i];", "}"]
    assert loop("i", 1, ["y[i] = x[i];"]) == ["{", "    const int32_t i = 0;\n    y[i] = x[i];", "}"]
    assert loop("i", 4, ["*y++ = 0;"], step=4) == ["{", "    *y++ = 0;", "}"]
    assert loop("w", 5, ["f(w);"], begin=4) == ["{", "    const int32_t w = 4;\n    f(w);", "}"]
    assert loop("w", "end", ["f(w);"], begin=4) == ["for (int32_t w = 4; w < end; ++w) {", "    f(w);", "}"]
    assert single_turns("for (int32_t i = 0; i < 4; i += 4) {") and not single_turns("for (int i = 0; i < 2; ++i)")


@pytest.mark.parametrize("path", sorted(EXPECTED.glob("*/*.[ch]")), ids=lambda path: path.name)
def test_kept_files(path: Path) -> None:
    text = path.read_text()
    assert not single_turns(text) and not re.findall(r"# *define +[a-z]\w*", text)


def test_integer_kernels() -> None:
    assert single_turns(source_text(implementations())) == []


def test_headers_define_no_macros_in_lower_case() -> None:
    texts = [path.read_text() for folder in FOLDERS for path in folder.glob("*.[ch]")]
    assert {name for text in texts for name in re.findall(r"# *define +([a-z]\w*)", text)} <= KEYWORDS


def test_the_run_says_why_rows_go_backward(shared_models: Path) -> None:
    """On a Cortex-M0+ outputs of depthwise layers begin inside their inputs, at higher addresses."""
    module = load(shared_models / "kws_int8.tflite")
    compiled = compile_module(module, Platform.load("cortex_m0plus"), BuildOptions(optimize="size"))
    lines = compiled.sources()["kws_int8.c"].splitlines()
    heads = [
        place for place, line in enumerate(lines) if "24 - i" in "".join(lines[place : place + 4]) and "for (" in line
    ]
    assert heads and all("written before the rows" in " ".join(lines[place - 3 : place]) for place in heads)


def test_structures_say_the_factors_of_their_multipliers() -> None:
    members = factor_members(1241494606, 38)
    assert members == {"multiplier": 1241494606, "shift": "38 /* factor 0.00451653 */"}
    assert structure("layer", "one", members)[2] == "    .shift = 38 /* factor 0.00451653 */,"
