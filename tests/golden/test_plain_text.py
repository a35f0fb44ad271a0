"""Generated C has no loops of one turn, and no macros in lower case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen_c.c_text.text import loop
from tests.kernels.test_q_cross_compile import implementations, source_text
from tests.support.runtime_headers import FOLDERS

EXPECTED = Path(__file__).parent / "expected"
ONE_TURN = re.compile(r"for \(\w+ (\w+) = (\d+)u?; \1 < (\d+)u?; (?:\+\+\1|\1\+\+|\1 \+= (\d+))\)")
KEYWORDS = {"restrict"}
"""Words of C11 that are macros where C++ reads a header, as C++ has no such keyword."""


def single_turns(text: str) -> list[str]:
    """Heads of loops that run once."""
    return [m[0] for m in ONE_TURN.finditer(text) if int(m[2]) < int(m[3]) <= int(m[2]) + int(m[4] or 1)]


def test_a_loop_of_one_turn_is_a_block() -> None:
    assert loop("i", 2, ["y[i] = x[i];"]) == ["for (int32_t i = 0; i < 2; ++i) {", "    y[i] = x[i];", "}"]
    assert loop("i", 1, ["y[i] = x[i];"]) == ["{", "    const int32_t i = 0;\n    y[i] = x[i];", "}"]
    assert loop("i", 4, ["*y++ = 0;"], step=4) == ["{", "    *y++ = 0;", "}"]
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
