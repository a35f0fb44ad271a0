"""Small functions of printed bodies, on the numbers at which they differ from what is near at hand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codegen_c.tir import helpers
from codegen_c.tir.edges import divide_helper, narrow_helper, truncate_helper
from codegen_c.tir.plain_c import Helper
from tests.kernels.tir_library import PRELUDE, compile_c

NUMBERS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1.0, -1.0, 3e38, -3e38], np.float32)
WIDE = np.array([np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2147483520.0, -1.5, 0.7, -0.0])
INT_MIN = -(2**31)


def compiled(helper: Helper, c_type: str, result: str, arguments: int, folder: Path) -> Callable[..., np.ndarray]:
    """The helper over arrays of its arguments."""
    source, library = folder / "helper.c", folder / "helper.so"
    names = ["a", "b"][:arguments]
    parameters = ", ".join(f"const {c_type} *{name}" for name in names)
    head = f"void run(int32_t count, {parameters}, {result} *out)"
    called = f"{helper.name}({', '.join(f'{name}[i]' for name in names)})".replace("$", "h")
    loop = f"    for (int32_t i = 0; i < count; ++i) {{\n        out[i] = {called};\n    }}\n"
    source.write_text(f"{PRELUDE}{helper.text.replace('$', 'h')}{head};\n{head}\n{{\n{loop}}}\n")
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    run = ctypes.CDLL(str(library)).run

    def over(*arrays: np.ndarray) -> np.ndarray:
        out = np.empty(arrays[0].shape, {"float": np.float32, "int32_t": np.int32, "int64_t": np.int64}[result])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
        run(ctypes.c_int32(out.size), *pointers)
        return out

    return over


def pairs() -> tuple[np.ndarray, np.ndarray]:
    one, other = np.meshgrid(NUMBERS, NUMBERS)
    return np.ascontiguousarray(one.ravel()), np.ascontiguousarray(other.ravel())


@pytest.mark.parametrize("is_max", [True, False])
def test_of_two_floats_the_second_stands_where_they_are_equal_and_nan_where_either_is(
    is_max: bool, tmp_path: Path
) -> None:
    a, b = pairs()
    make = helpers.maximum_helper if is_max else helpers.minimum_helper
    beyond = a > b if is_max else a < b
    found = compiled(make("float32"), "float", "float", 2, tmp_path)(a, b)
    assert found.tobytes() == np.where(beyond | np.isnan(a), a, b).tobytes()
    assert np.isnan(found[np.isnan(a) | np.isnan(b)]).all()


@pytest.mark.parametrize("is_max", [True, False])
def test_a_limit_is_as_the_second_of_two(is_max: bool, tmp_path: Path) -> None:
    a, b = pairs()
    a, b = np.ascontiguousarray(a[~np.isnan(b)]), np.ascontiguousarray(b[~np.isnan(b)])
    beyond = a > b if is_max else a < b
    found = compiled(helpers.limit_helper("float32", is_max=is_max), "float", "float", 2, tmp_path)(a, b)
    assert found.tobytes() == np.where(beyond | np.isnan(a), a, b).tobytes()


@pytest.mark.parametrize(("dtype", "least"), [("int32", -(2**31)), ("int64", -(2**63))])
def test_places_are_kept_inside(dtype: str, least: int, tmp_path: Path) -> None:
    places = np.array([least, -1, 0, 1, 6, 7, 8, -least - 1], dtype)
    last = np.full_like(places, 7)
    found = compiled(helpers.inside_helper(dtype), f"{dtype}_t", f"{dtype}_t", 2, tmp_path)(places, last)
    assert found.tolist() == [0, 0, 0, 1, 6, 7, 7, 7]


@pytest.mark.parametrize("target", ["int32", "int64"])
def test_a_float_that_does_not_fit_is_the_least_integer(target: str, tmp_path: Path) -> None:
    values = WIDE.astype(np.float32) * np.float32(1 if target == "int32" else 2.0**32)
    least = INT_MIN if target == "int32" else -(2**63)
    inside = np.abs(values) < -float(least)
    expected = np.where(inside, np.trunc(np.where(inside, values, 0)), 0).astype(target)
    expected[~inside] = least
    found = compiled(truncate_helper("float32", target), "float", f"{target}_t", 1, tmp_path)(values)
    assert found.tolist() == expected.tolist()
    assert found[[0, 1, 2, 3, 4, 5]].tolist() == [least] * 6


@pytest.mark.parametrize("flags", [(), ("-D__ARM_FP=4",), ("-D__arm__",)])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16"])
def test_four_floats_become_what_each_of_them_does(target: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """The same integers where all of four fit into 32 bits, and where some do not, at any place."""
    generator = np.random.default_rng(7)
    near = generator.uniform(-70000, 70000, (64, 4)).astype(np.float32)
    mixed = generator.choice(
        np.concatenate([NUMBERS, WIDE.astype(np.float32), np.float32([127.9, -129, 256])]), (512, 4)
    )
    values = np.concatenate([near, mixed])
    one, four = truncate_helper("float32", "int32"), narrow_helper(target)
    run = f"void run(int32_t count, const float *x, {target}_t *y)"
    source, library = tmp_path / "four.c", tmp_path / "four.so"
    source.write_text(
        f"{PRELUDE}{one.text}{four.text}{run};\n{run}\n{{\n    for (int32_t i = 0; i < count; i += 4) {{\n"
        f"        {four.name}(x[i], x[i + 1], x[i + 2], x[i + 3], &y[i]);\n    }}\n}}\n"
    )
    source.write_text(source.read_text().replace("$", "h"))
    compile_c("gcc", ["-O2", *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    found = np.empty(values.shape, target)
    ctypes.CDLL(str(library)).run(
        ctypes.c_int32(values.size), ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(found.ctypes.data)
    )
    fits = np.abs(values) < 2.0**31
    expected = np.where(fits, np.trunc(np.where(fits, values, 0)), INT_MIN).astype(np.int64)
    assert found.tolist() == expected.astype(target).tolist()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_quotients_are_rounded_down(dtype: str, tmp_path: Path) -> None:
    least = int(np.iinfo(dtype).min)
    numbers = [least, least + 1, -8, -7, -2, -1, 0, 1, 2, 7, 8, -least - 2, -least - 1]
    a, b = (
        np.ascontiguousarray(side.ravel()) for side in np.meshgrid(np.array(numbers, dtype), np.array(numbers, dtype))
    )
    helper = divide_helper(dtype, floor=True, remainder=False)
    found = compiled(helper, f"{dtype}_t", f"{dtype}_t", 2, tmp_path)(a, b)
    expected = [int(x) // int(y) if y else 0 for x, y in zip(a, b, strict=True)]
    assert found.tolist() == [least if quotient == -least else quotient for quotient in expected]
