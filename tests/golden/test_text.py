"""C text: literals that read back as the same bits, comments that end where they should."""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.c_text import narrow_floats
from codegen_c.c_text.narrow_floats import NARROW_FLOATS
from codegen_c.c_text.text import (
    C_TYPES,
    Compound,
    block,
    comment,
    double_literal,
    filled,
    float_literal,
    literal,
    plus,
    string_literal,
    times,
)
from tests.kernels.harness import WARNINGS

MANY = settings(max_examples=400, deadline=None, derandomize=True)
EDGES = np.array([0.0, -0.0, 1, -1, 0.1, 1e7, 9999999, 1e-5, 1e-4, 16777216, np.inf, -np.inf], np.float32)


def bits_of(text: str) -> int:
    """Bits of the float32 nearest to a literal, from its exact decimal value."""
    assert text.strip("()").endswith("f")
    return int(np.float32(text.strip("()").removesuffix("f")).view(np.uint32))


@MANY
@given(st.integers(0, 2**32 - 1))
def test_floats_read_back(bits: int) -> None:
    value = np.uint32(bits).view(np.float32)
    text = float_literal(value)
    if math.isnan(value):
        assert text == "NAN"
    elif math.isinf(value):
        assert text == ("INFINITY" if value > 0 else "(-INFINITY)")
    else:
        assert bits_of(text) == bits
        assert text.startswith("(-") == bool(bits >> 31), "a minus sign needs parentheses"
        assert "." in text, "a literal without a point is an integer with a wrong suffix"


@MANY
@given(st.integers(1, 2**23 - 1))
def test_denormals_read_back(bits: int) -> None:
    assert bits_of(float_literal(np.uint32(bits).view(np.float32))) == bits


@MANY
@given(st.integers(0, 2**64 - 1))
def test_doubles_read_back(bits: int) -> None:
    value = struct.unpack("d", struct.pack("Q", bits))[0]
    text = double_literal(value)
    if math.isfinite(value):
        assert struct.pack("d", float(text.strip("()"))) == struct.pack("d", value)
        assert "." in text or "e" in text
    else:
        assert ("NAN" if math.isnan(value) else "INFINITY") in text


@pytest.mark.parametrize("dtype", C_TYPES)
def test_a_c_compiler_reads_back_every_type(dtype: str, tmp_path: Path) -> None:
    """Without a warning, extremes included."""
    random = np.random.default_rng(0)
    kind = np.dtype(dtype)
    values = random.integers(0, 256, 200 * kind.itemsize, dtype=np.uint8).view(kind)
    if dtype == "bool":
        values = random.integers(0, 2, 200).astype(bool)
    elif dtype in NARROW_FLOATS:
        pass  # bits, of numbers or not
    elif kind.kind == "f":
        values = np.concatenate([values[~np.isnan(values)], EDGES.astype(kind), [np.finfo(kind).smallest_subnormal]])
    else:
        values = np.concatenate([values, np.array([np.iinfo(kind).min, np.iinfo(kind).max, 0], kind)])
    head = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
    array = f"extern const {C_TYPES[dtype]} x[];\nconst {C_TYPES[dtype]} x[] = {{{', '.join(literal(values))}}};\n"
    source, library = tmp_path / "x.c", tmp_path / "x.so"
    source.write_text(head + array)
    command = ["gcc", "-std=c11", *WARNINGS, "-shared", "-fPIC", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = (ctypes.c_uint8 * values.nbytes).in_dll(ctypes.CDLL(str(library)), "x")
    assert bytes(found) == values.tobytes()


@MANY
@given(st.floats(width=32), st.sampled_from(NARROW_FLOATS))
def test_bits_of_the_nearest_float_of_16_bits(value: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        nearest = np.float32(value).astype(np.dtype(dtype))
    found = np.uint16(narrow_floats.bits_of(value, dtype)).view(np.dtype(dtype))
    assert found.tobytes() == nearest.tobytes() or (np.isnan(found) and math.isnan(value))


@MANY
@given(st.text(st.sampled_from("*/\\?abc \n\r\tä\x00"), max_size=12))
def test_comments_end_where_they_should(text: str) -> None:
    harmless = comment(text)
    assert "*/" not in harmless and "/*" not in harmless, "the comment would end, or another seem to begin"
    assert "\\" not in harmless and "??" not in harmless, "a line splice, or the trigraph of one"
    assert harmless.isascii() and harmless.isprintable()
    assert not f"/* {harmless}".endswith("*/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a */ b", "a * / b"),
        ("/* b", "/ * b"),
        ("what??/", "what? ?/"),
        ("C:\\net", "C:/net"),
        ("line\nbreak", "line?break"),
    ],
)
def test_comments_stay_readable(text: str, expected: str) -> None:
    assert comment(text) == expected


def test_sums_and_products() -> None:
    assert [plus("k", 0), plus("k", 3)] == ["k", "k + 3"]
    assert [times("h", 1), times("h", 4), times(plus("h", 1), 4), times(times("h", 2), 4)] == [
        "h", "h * 4", "(h + 1) * 4", "(h * 2) * 4",
    ]  # fmt: skip


def test_parentheses_follow_from_the_value_not_from_its_text() -> None:
    """Names of one operand may hold spaces; a sum is one whatever its ends look like."""
    assert times("places[n - 1]", 3) == "places[n - 1] * 3"
    assert times(Compound("(a + b) * 2 + (c)"), 3) == "((a + b) * 2 + (c)) * 3"
    assert times(plus(Compound("a + b"), 0), 3) == "(a + b) * 3"


def test_blocks_leave_empty_lines_empty() -> None:
    assert block(["a", "", "b"], 2) == "        a\n\n        b"


def test_arrays_are_written_as_their_elements_are() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    usual = (10 ** random.uniform(-6, 9, 20_000) * random.choice([-1, 1], 20_000)).astype(np.float32)
    near = [np.nextafter(np.float32(edge), np.float32(to)) for edge in (1e-4, 1e5, 1e7) for to in (0, edge, np.inf)]
    values = np.concatenate([bits, usual, EDGES, np.array(near, np.float32)])
    assert literal(values) == [float_literal(value) for value in values]


@pytest.mark.parametrize("width", [3, 20, 108])
@pytest.mark.parametrize("number", [1, 2, 5, 300])
def test_lines_are_filled_and_no_longer_than_they_may_be(number: int, width: int) -> None:
    words = [str(value) for value in np.random.default_rng(0).integers(0, 10_000, number)]
    expected = wrap(f"{', '.join(words)},", width, break_long_words=False, break_on_hyphens=False)
    assert filled(words, width) == expected


def test_a_string_reads_back_as_its_bytes(tmp_path: Path) -> None:
    """Quotes, backslashes, trigraphs, letters of other scripts, and a digit behind an escape."""
    texts = ["plain", 'a"b\\c', "??=", "späti7", "日本", "%s"]
    lines = "\n".join(f"puts({string_literal(text)});" for text in texts)
    (tmp_path / "main.c").write_text(f"#include <stdio.h>\nint main(void)\n{{\n{lines}\nreturn 0;\n}}\n")
    command = ["gcc", "-std=c11", "-trigraphs", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().splitlines() == texts
