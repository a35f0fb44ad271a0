"""Stored vectors read back bit for bit, and comparison is as strict as it says."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.program.interface import Interface, Port
from tests.boards.toy import write_texts
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, STRICT_FLAGS

EXTREMES = {
    "float32": [0.1, -0.0, 3.4028235e38, 1e-45, np.inf, -np.inf, np.nan],
    "float64": [0.1, -0.0, 1.7976931348623157e308, 5e-324, np.inf, -np.inf, np.nan],
    "bool": [True, False],
    **{name: [np.iinfo(name).min, np.iinfo(name).max] for name in ("int8", "int16", "int32", "int64")},
    **{name: [np.iinfo(name).min, np.iinfo(name).max] for name in ("uint8", "uint16", "uint32", "uint64")},
}


def _interface(dtype: str, count: int) -> Interface:
    port = Port(name="value", source="value", shape=(count,), dtype=dtype)
    return Interface(model="copy", io="caller", inputs=(port,), outputs=(port,))


def _build(folder: Path, dtype: str, stored: np.ndarray, expected: np.ndarray) -> ctypes.CDLL:
    """The self-test of a model that copies its input."""
    interface = _interface(dtype, stored.size)
    kind = interface.inputs[0].c_type
    texts = {
        "copy.h": "#include <stdbool.h>\n#include <stdint.h>\n"
        f"#define COPY_VALUE_SIZE {stored.size}\nint32_t copy_run(const {kind} *x, {kind} *y);\n",
        "copy.c": '#include "copy.h"\n#include <string.h>\n'
        f"int32_t copy_run(const {kind} *x, {kind} *y) {{ memcpy(y, x, sizeof(*x) * COPY_VALUE_SIZE); return 0; }}\n",
        **emit_vectors(interface, [TestVector(inputs={"value": stored}, outputs={"value": expected})]),
        **emit_selftest(interface),
    }
    write_texts(folder, texts)
    sources = ["copy.c", "copy_selftest.c", "copy_vectors.c"]
    subprocess.run(
        ["gcc", *LANGUAGE_FLAGS, *STRICT_FLAGS, "-fPIC", "-shared", "-o", "copy.so", *sources], cwd=folder, check=True
    )
    return ctypes.CDLL(str(folder / "copy.so"))


@pytest.mark.parametrize("dtype", list(EXTREMES))
def test_values_read_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    stored = np.array(EXTREMES[dtype], dtype)
    library = _build(tmp_path, dtype, stored, stored)
    read = (ctypes.c_char * (2 * stored.nbytes)).in_dll(library, "copy_vectors").raw
    for half in (read[: stored.nbytes], read[stored.nbytes :]):
        back = np.frombuffer(half, dtype)
        np.testing.assert_array_equal(back, stored)
        assert np.signbit(back).tolist() == np.signbit(stored).tolist() if stored.dtype.kind == "f" else True
    assert library.copy_selftest(ctypes.create_string_buffer(64)) == 0


@pytest.mark.parametrize(
    ("dtype", "stored", "expected", "passes"),
    [
        ("float32", [0.0, 100.0], [0.0099, 100.0], True),
        ("float32", [0.0, 100.0], [0.0101, 100.0], False),
        ("float32", [0.0, 1.0], [np.nan, 1.0], False),
        ("float32", [np.nan, 1.0], [0.0, 1.0], False),
        ("float32", [np.inf, 1.0], [3e38, 1.0], False),
        ("float32", [3e38, 1.0], [np.inf, 1.0], False),
        ("float32", [-np.inf, 1.0], [np.inf, 1.0], False),
        ("float64", [0.0, -100.0], [0.0099, -100.0], True),
        ("int8", [5, 100], [6, 100], False),
        ("bool", [True, False], [True, True], False),
    ],
)
def test_comparison(tmp_path: Path, dtype: str, stored, expected, passes: bool) -> None:
    library = _build(tmp_path, dtype, np.array(stored, dtype), np.array(expected, dtype))
    assert (library.copy_selftest(ctypes.create_string_buffer(64)) == 0) is passes


def test_a_vector_that_does_not_match_its_port_is_refused() -> None:
    interface = _interface("int8", 2)
    good, bad = np.zeros(2, np.int8), np.zeros(3, np.int8)
    with pytest.raises(ValueError, match=r"value: int8\[3\] stored for int8\[2\]"):
        emit_vectors(interface, [TestVector(inputs={"value": good}, outputs={"value": bad})])
    with pytest.raises(ValueError, match="at least one"):
        emit_vectors(interface, [])
