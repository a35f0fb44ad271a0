"""Xtensa LX106: exceptions and the wrapping counter on the board; its floats and integers beside this machine's."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import codegen_c.targets.xtensa
import tvm_ext
from tests.boards.toy import build_elf, write_toy
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BuildFailed, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu

FOLDER = Path(codegen_c.targets.xtensa.__file__).parent
FLOATS = [f"{kind}{suffix}" for kind in ("add", "sub", "mul", "div") for suffix in ("sf3", "df3")]
FLOATS += ["extendsfdf2", "truncdfsf2", "floatsidf", "floatunsidf", "floatsisf", "floatunsisf"]
FLOATS += ["fixdfsi", "fixunsdfsi", "fixsfsi", "fixunssfsi"]
INTEGERS = ["umulsidi3", "muldi3", "udivsi3", "umodsi3", "divsi3", "udivdi3", "umoddi3", "divdi3"]
ROUNDINGS: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("rintf", np.rint), ("floorf", np.floor), ("ceilf", np.ceil), ("truncf", np.trunc), ("sqrtf", np.sqrt),
]  # fmt: skip
NUMBER = 4000


@pytest.mark.xtensa_board
def test_an_exception_is_reported(tmp_path: Path) -> None:
    platform = Platform.load("xtensa_lx106")
    toy = write_toy(tmp_path, platform, prologue='    __asm__ volatile("ill");')
    elf = build_elf(tmp_path, platform, tmp_path / "build")
    with pytest.raises(RunFailed, match=r"FAULT exccause=0x00000000 epc1=0x4020[0-9a-f]{4}"):
        run_qemu(elf, platform, toy.interface, [toy.sample])


@pytest.mark.xtensa_board
def test_a_counter_that_wraps_is_noticed(tmp_path: Path) -> None:
    """The model moves the counter to four ticks before its end, 400 instructions of the coarse clock."""
    platform = Platform.load("xtensa_lx106")
    prologue = '    __asm__ volatile("wsr.ccount %0\\nesync" : : "r"(0xFFFFFFFCu));'
    toy = write_toy(tmp_path, platform, prologue=prologue)
    elf = build_elf(tmp_path, platform, tmp_path / "build")
    with pytest.raises(RunFailed, match="the board's timer wraps"):
        run_qemu(elf, platform, toy.interface, [toy.sample])


@pytest.mark.xtensa_board
def test_functions_by_polynomials_are_linked(tmp_path: Path) -> None:
    nodes = [NODE("Softmax", ["x"], ["s"]), NODE("Log", ["s"], ["l"]), NODE("Erf", ["l"], ["e"])]
    nodes += [NODE("Tanh", ["x"], ["t"]), NODE("Exp", ["t"], ["g"]), NODE("Mul", ["e", "g"], ["y"])]
    model = saved(model_of(nodes, {"x": (4, 9)}, ["y"]), tmp_path)
    package = tvm_ext.build(model, "xtensa_lx106", tmp_path / "out", BuildOptions(verify=("host", "qemu")))
    assert package.report["verify"]["qemu"]["passed"]


@pytest.mark.xtensa_board
def test_functions_that_the_firmware_lacks_are_named(tmp_path: Path) -> None:
    nodes = [NODE("Sin", ["x"], ["s"]), NODE("Pow", ["s", "x"], ["p"]), NODE("Mod", ["p", "x"], ["y"], fmod=1)]
    model = saved(model_of(nodes, {"x": (4, 9)}, ["y"]), tmp_path)
    with pytest.raises(BuildFailed, match=r"calls fmodf, powf, sinf\. The toolchain of xtensa_lx106 has no C library"):
        tvm_ext.build(model, "xtensa_lx106", tmp_path / "out", BuildOptions(verify=()))
    assert not (tmp_path / "out").exists()
    without = replace(Platform.load("xtensa_lx106"), board=None)
    package = tvm_ext.build(model, without, tmp_path / "out", BuildOptions(verify=("host",)))
    assert package.report["verify"]["host"]["passed"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions in place of libgcc's, compiled for this machine under names of their own."""
    target = tmp_path_factory.mktemp("library") / "library.so"
    renamed = [f"-D__{name}=own_{name}" for name in (*FLOATS, *INTEGERS)]
    renamed += [f"-D{name}=own_{name}" for name in ("memcpy", "memmove", "memset", "memcmp", "strlen", "strchr",
                                                    "strcmp", "strncmp")]  # fmt: skip
    flags = ["-std=c11", "-O1", "-ffreestanding", "-fPIC", "-shared", *renamed, f"-I{FOLDER}"]
    sources = [str(FOLDER / name) for name in ("soft_float.c", "library.c")]
    subprocess.run(["gcc", *flags, *sources, "-o", str(target)], check=True, capture_output=True)
    return ctypes.CDLL(str(target))


def test_headers_give_way_to_those_of_a_c_library(tmp_path: Path) -> None:
    """Packages contain them, and an SDK compiles packages: only a C library declares these two functions."""
    (tmp_path / "more.c").write_text(
        "#include <math.h>\n#include <string.h>\n"
        "float f(const char *a) { return expm1f((float)(strrchr(a, 'b') != NULL)); }\n"
    )
    headers = FOLDER.parent / "firmware"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{headers}", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, str(tmp_path / "more.c")], check=True, capture_output=True)


def numbers(dtype: type[np.floating], seed: int) -> np.ndarray:
    """Floats of random bits, of a few sizes, halves of small integers, and extremes."""
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    any_bits = rng.integers(0, np.iinfo(unsigned).max, NUMBER, dtype=unsigned).view(dtype)
    alike = (rng.standard_normal(NUMBER) * np.exp2(rng.integers(-6, 6, NUMBER))).astype(dtype)
    limits = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, limits.tiny, limits.smallest_subnormal, limits.max, 2.5]
    found = [any_bits, alike, rng.integers(-50, 50, NUMBER) / 2, rng.choice(np.array(special, dtype), NUMBER)]
    return rng.permutation(np.concatenate([part.astype(dtype) for part in found]))


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Same bits, whatever NaN it is."""
    unsigned = np.uint32 if expected.dtype == np.float32 else np.uint64
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(unsigned), expected[~nan].view(unsigned))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operation", [np.add, np.subtract, np.multiply, np.divide])
def test_float_arithmetic_is_rounded_correctly(
    library: ctypes.CDLL, operation: np.ufunc, dtype: type[np.floating]
) -> None:
    kind = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}[operation.__name__]
    function = library[f"own_{kind}{'sf3' if dtype is np.float32 else 'df3'}"]
    number = ctypes.c_float if dtype is np.float32 else ctypes.c_double
    function.restype, function.argtypes = number, [number, number]
    a, b = numbers(dtype, 0), numbers(dtype, 1)
    with np.errstate(all="ignore"):
        expected = operation(a, b)
    assert_same(np.array([function(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype), expected)


@pytest.mark.parametrize(("name", "reference"), ROUNDINGS, ids=[name for name, _ in ROUNDINGS])
def test_whole_numbers_and_roots(
    library: ctypes.CDLL, name: str, reference: Callable[[np.ndarray], np.ndarray]
) -> None:
    function = library[name]
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    x = numbers(np.float32, 2)
    with np.errstate(all="ignore"):
        expected = reference(x)
    assert_same(np.array([function(value) for value in x.tolist()], np.float32), expected)


def test_conversions(library: ctypes.CDLL) -> None:
    narrow, widen = library["own_truncdfsf2"], library["own_extendsfdf2"]
    narrow.restype, narrow.argtypes = ctypes.c_float, [ctypes.c_double]
    widen.restype, widen.argtypes = ctypes.c_double, [ctypes.c_float]
    with np.errstate(all="ignore"):
        halfway = numbers(np.float32, 3).astype(np.float64) * (1 + 2.0**-25)
        doubles = np.concatenate([numbers(np.float64, 4), halfway])
        assert_same(np.array([narrow(x) for x in doubles.tolist()], np.float32), doubles.astype(np.float32))
        floats = numbers(np.float32, 5)
        assert_same(np.array([widen(x) for x in floats.tolist()], np.float64), floats.astype(np.float64))
    whole = np.random.default_rng(6).integers(-(2**31), 2**31, NUMBER)
    for name, number, dtype in (("sidf", ctypes.c_double, np.float64), ("sisf", ctypes.c_float, np.float32)):
        for prefix, given, values in (("float", ctypes.c_int32, whole), ("floatun", ctypes.c_uint32, whole % 2**32)):
            function = library[f"own_{prefix}{name}"]
            function.restype, function.argtypes = number, [given]
            assert_same(np.array([function(int(x)) for x in values], dtype), values.astype(dtype))
    for suffix, number in (("df", ctypes.c_double), ("sf", ctypes.c_float)):
        for prefix, taken, low in (("fix", ctypes.c_int32, -(2**31)), ("fixuns", ctypes.c_uint32, 0)):
            function = library[f"own_{prefix}{suffix}si"]
            function.restype, function.argtypes = taken, [number]
            values = np.random.default_rng(7).uniform(low, low + 2**32 - 512, NUMBER).astype(np.float32)
            np.testing.assert_array_equal([function(x) for x in values.tolist()], np.trunc(values).astype(np.int64))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_the_compiler_calls(library: ctypes.CDLL, name: str) -> None:
    is_wide, is_signed = "di3" in name, name in ("muldi3", "divsi3", "divdi3")
    width = 64 if is_wide and name != "umulsidi3" else 32
    types = {(32, True): ctypes.c_int32, (32, False): ctypes.c_uint32,
             (64, True): ctypes.c_int64, (64, False): ctypes.c_uint64}  # fmt: skip
    function = library[f"own_{name}"]
    function.argtypes = [types[width, is_signed]] * 2
    function.restype = types[64 if is_wide else 32, is_signed]
    rng = np.random.default_rng(8)
    shifts = rng.integers(0, width - 1, (2, NUMBER))
    low = -(2 ** (width - 1)) if is_signed else 0
    for left, right in shifts.T:
        a, b = (int(rng.integers(low, low + 2**width - 1, dtype=np.int64 if is_signed else np.uint64, endpoint=False))
                >> int(shift) for shift in (left, right))  # fmt: skip
        b = b or 1
        product, sign = a * b, -1 if (a < 0) != (b < 0) else 1
        expected = product if "mul" in name else abs(a) % abs(b) if "mod" in name else sign * (abs(a) // abs(b))
        found = function(a, b)
        assert (found - expected) % 2 ** (64 if is_wide else 32) == 0, (a, b)
