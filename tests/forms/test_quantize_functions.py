"""Functions of the header that turn real numbers into integers of a quantized input, against numpy, and their names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen_c.emit.banner import Origin
from codegen_c.emit.header import emit_header
from codegen_c.operators.kinds import Quantization, Rounding
from codegen_c.program.interface import Interface, Port
from tests.support.sweeps import some_of
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, WARNING_FLAGS
from tvm_ext.execution.batches import dequantized, quantized

_ORIGIN = Origin(generator="tvm_ext 0", model="m.onnx", sha256="0", platform="host")
_PORTS = {
    "int8": (0.0125, -77), "uint8": (1 / 255, 3), "int16": (2.0**-12, 0), "uint16": (1e-3, 40_000), "int32": (0.25, 0),
}  # fmt: skip
_ALSO = ("-Wfloat-equal", "-Wdouble-promotion", "-Werror")


def _interface(rounding: Rounding) -> Interface:
    ports = [
        Port(name=f"{dtype}_in", source=dtype, shape=(4,), dtype=dtype,
             quantization=Quantization(scale=scale, zero_point=zero_point))
        for dtype, (scale, zero_point) in _PORTS.items()
    ]  # fmt: skip
    plain = Port(name="plain", source="plain", shape=(4,), dtype="int8")
    return Interface(model="m", io="arena", inputs=(*ports, plain), outputs=(), rounding=rounding)


def _wanted(real: np.ndarray, dtype: str, rounding: Rounding) -> np.ndarray:
    """Integers by the format's own rule, in float64 where float32 would not hold the sum."""
    scale, zero_point = _PORTS[dtype]
    with np.errstate(over="ignore"):
        steps = (real / np.float32(scale)).astype(np.float64)
    nearest = np.rint(steps) if rounding == "onnx" else np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    limits = np.iinfo(dtype)
    shifted = np.clip(np.nan_to_num(nearest, nan=0.0) + zero_point, limits.min, limits.max)
    return shifted.astype(np.int64)


def _reals(dtype: str) -> np.ndarray:
    """Halves, their neighbours, both ends of the type, far values, infinities, NaN. 1.2 once wrapped to -77."""
    scale, zero_point = _PORTS[dtype]
    limits = np.iinfo(dtype)
    steps = np.concatenate([np.arange(-600, 600) / 4, np.array([limits.min, limits.max], float) - zero_point])
    steps = np.concatenate([steps, steps - 0.5, steps + 0.5, steps + 1])
    exact = (steps * np.float64(np.float32(scale))).astype(np.float32)
    special = np.array([1.2, -1.2, 0.0, -0.0, 1e9, -1e9, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([exact, np.nextafter(exact, np.float32(9e9)), np.nextafter(exact, np.float32(-9e9)), special])


def _program(path: Path) -> None:
    """A program that reads float32 and writes, for each, the integer of each port and the number it stands for."""
    calls = [
        f'if (!strcmp(name, "{dtype}")) {{ const {dtype}_t value = m_quantize_{dtype}_in(real); '
        f'printf("%lld %.9g\\n", (long long)value, (double)m_dequantize_{dtype}_in(value)); }}'
        for dtype in _PORTS
    ]
    path.write_text(
        '#include "m.h"\n#include <stdio.h>\n#include <string.h>\nint main(int argc, char **argv)\n{\n'
        'const char *const name = argc > 1 ? argv[1] : "";\nfloat real = 0.0f;\n'
        f"while (fread(&real, sizeof real, 1u, stdin) == 1u) {{\n{chr(10).join(calls)}\n}}\nreturn 0;\n}}\n"
    )


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize(
    "compiler",
    some_of(
        [("gcc", "c11", "-O2"), ("g++", "c++11", "-O2")],
        sweep=[("gcc", "c11", "-O0"), ("clang", "c11", "-O3"), ("clang++", "c++17", "-O2")],
    ),
    ids="-".join,
)
def test_they_round_and_saturate_as_the_model_does(
    compiler: tuple[str, str, str], rounding: Rounding, tmp_path: Path
) -> None:
    program, standard, level = compiler
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    (tmp_path / "m.h").write_text(emit_header(_interface(rounding), _ORIGIN))
    source = "main.cpp" if "++" in program else "main.c"
    _program(tmp_path / source)
    warnings = [flag for flag in WARNING_FLAGS if "++" not in program or flag in ("-Wall", "-Wextra", "-Wshadow")]
    flags = [f"-std={standard}", level, *warnings, *_ALSO]
    # No -lm: the functions of the header need no library.
    subprocess.run([program, *flags, source, "-o", "program"], cwd=tmp_path, check=True, timeout=60)
    for dtype, (scale, zero_point) in _PORTS.items():
        real = _reals(dtype)
        done = subprocess.run(
            [str(tmp_path / "program"), dtype], input=real.tobytes(), capture_output=True, check=True, timeout=60
        )
        lines = [line.split() for line in done.stdout.decode().splitlines()]
        found = np.array([int(integer) for integer, _ in lines])
        np.testing.assert_array_equal(found, _wanted(real, dtype, rounding), err_msg=dtype)
        back = np.array([float(number) for _, number in lines], np.float32)
        port = next(port for port in _interface(rounding).inputs if port.source == dtype)
        np.testing.assert_array_equal(quantized(port, real, rounding), found)
        np.testing.assert_array_equal(dequantized(port, found.astype(dtype)), back)
        np.testing.assert_array_equal(back, np.float32(scale) * (found - zero_point).astype(np.float32))


@pytest.mark.parametrize(
    ("prefix", "flags"),
    [
        ("arm-none-eabi-", ["-mcpu=cortex-m0plus", "-mthumb"]),
        ("arm-none-eabi-", ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"]),
        ("riscv64-unknown-elf-", ["-march=rv32imc", "-mabi=ilp32", "-ffreestanding"]),
    ],
)
def test_they_compile_for_boards_without_libm(prefix: str, flags: list[str], tmp_path: Path) -> None:
    if shutil.which(f"{prefix}gcc") is None:
        pytest.skip(f"no {prefix}gcc")
    (tmp_path / "m.h").write_text(emit_header(_interface("onnx"), _ORIGIN))
    (tmp_path / "use.c").write_text(
        '#include "m.h"\nint8_t use(float real);\nint8_t use(float real) { return m_quantize_int8_in(real); }\n'
    )
    command = [f"{prefix}gcc", *LANGUAGE_FLAGS, *WARNING_FLAGS, *_ALSO, "-O2", *flags, "-c", "use.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    undefined = subprocess.run(
        [f"{prefix}nm", "-u", "use.o"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    assert all(name == "U" or name.startswith("__") for name in undefined), undefined


def test_ports_of_plain_numbers_have_none() -> None:
    text = emit_header(_interface("onnx"), _ORIGIN)
    assert "m_quantize_plain" not in text
    plain = Interface(model="m", io="arena", inputs=_interface("onnx").inputs[-1:], outputs=())
    assert "_nearest_steps" not in emit_header(plain, _ORIGIN) and "_quantize_" not in emit_header(plain, _ORIGIN)


def test_a_port_whose_accessor_has_such_a_name_keeps_it(tmp_path: Path) -> None:
    """A model with inputs `x` and `quantize_x`."""
    quantization = Quantization(scale=0.5, zero_point=1)
    ports = tuple(
        Port(name=name, source=name, shape=(4,), dtype="int8", quantization=quantization)
        for name in ("x", "quantize_x", "nearest_steps")
    )
    interface = Interface(model="m", io="arena", inputs=ports, outputs=())
    (tmp_path / "m.h").write_text(emit_header(interface, _ORIGIN))
    (tmp_path / "use.c").write_text(
        '#include "m.h"\nint8_t f(void);\nint8_t f(void) { return m_quantize_x_(*m_quantize_x()); }\n'
    )
    subprocess.run(["gcc", "-Wall", "-Werror", "-fsyntax-only", "use.c"], cwd=tmp_path, check=True, timeout=60)
