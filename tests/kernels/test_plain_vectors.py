"""The plain C of the DSP headers gives the same numbers where GCC makes vectors of it as where nothing is optimized."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.runtime_headers import FOLDERS, INCLUDE_FLAGS

PRODUCTS = ("3x2", "3x2_joined", "3x2_s4", "1x4", "1x4_joined", "1x4_s4", "1x4_s8", "1x4_u8_joined")
BLOCKS = ("blocks_s8_4", "blocks_joined_u8_8")
QUADS = ("quads_s8_4", "quads_u8_8")
SINGLES = ("single_1x2_s8_4", "single_1x4_u8_8")
STRIPS = ("5_1", "5_2", "7_1", "7_2")
STRIPS_OF_3 = ("strip3", "strip3_in_twos", "strip3_whole_row", "strip3_by_twos", "strip3_by_twos_in_ones")

HEAD = r"""
#include <stdio.h>
#include "tvm_ext_dsp_blocks.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_quads.h"
#include "tvm_ext_dsp_single.h"
#include "tvm_ext_dsp_strip.h"
#include "tvm_ext_dsp_strip3.h"
#include "tvm_ext_dsp_strip3_by_twos.h"
#include "tvm_ext_dsp_winograd_fours.h"
#include "tvm_ext_dsp_winograd_product.h"

TVM_EXT_DSP_DEFINE_STRIP3(strip3, 8, 2, 26, 6, 3, 1, s8, 4)
TVM_EXT_DSP_DEFINE_STRIP3(strip3_in_twos, 8, 2, 26, 4, 2, 0, u8, 8)
TVM_EXT_DSP_DEFINE_STRIP3(strip3_whole_row, 8, 2, 26, 2, 2, 1, s8, 4)
TVM_EXT_DSP_DEFINE_STRIP3_BY_TWOS(strip3_by_twos, 8, 2, 26, 3, 3, 1, s8, 4)
TVM_EXT_DSP_DEFINE_STRIP3_BY_TWOS(strip3_by_twos_in_ones, 8, 2, 26, 3, 1, 0, u8, 4)

#define APART __attribute__((noinline)) static void

static uint32_t state, words[1024];
static int8_t bytes[4096];
static int32_t bias[4], sums[256];
static uint8_t output[512];

static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void fill(uint32_t seed)
{
    state = seed;
    for (int i = 0; i < 1024; ++i) {
        words[i] = ((next() % 256 - 128) & 0xffffu) | (next() % 256 - 128) << 16;
    }
    for (int i = 0; i < 4096; ++i) {
        bytes[i] = (int8_t)(next() % 256);
    }
    for (int i = 0; i < 4; ++i) {
        bias[i] = (int32_t)next();
    }
    memset(sums, 0, sizeof sums);
    memset(output, 0, sizeof output);
}

static void show(const char *name)
{
    uint32_t hash = 0;
    for (int i = 0; i < 256; ++i) {
        hash = hash * 31 + (uint32_t)sums[i] + 7 * words[i] + output[2 * i] + 3u * output[2 * i + 1];
    }
    printf("%s %08x\n", name, (unsigned)hash);
}
"""


def source() -> str:
    """C that calls each function with the same drawn operands, and prints a hash of what it wrote."""
    calls = {f"p_{name}": f"tvm_ext_dsp_product_{name}(sums, words, bytes, bias, units)" for name in PRODUCTS}
    calls |= {f"offsets_{pixels}": f"tvm_ext_dsp_offsets_{pixels}(words, units)" for pixels in (1, 3)}
    rows = "uint8_t *const rows[3] = {output, output + 128, output + 256}; "
    calls |= {name: f"{rows}tvm_ext_dsp_{name}(rows, bytes, words, units, 3, 1 << 20)" for name in BLOCKS}
    apart = rows.replace("128", "129")  # one word of a pixel is not aligned
    sizes = "const tvm_ext_dsp_quads_sizes sizes = TVM_EXT_DSP_QUADS_SIZES(units, 3, 12, 0); "
    calls |= {name: f"{apart}{sizes}tvm_ext_dsp_{name}(rows, bytes, words, &sizes)" for name in QUADS}
    calls |= {name: f"tvm_ext_dsp_{name}(output, bytes, words, units, 3, 1 << 20)" for name in SINGLES}
    strip = (
        "const tvm_ext_dsp_strip strip = {.output = output, .pitch = 2, .last = 2, .multiplier = 1 << 20, "
        ".rounding = 9, .plane_bytes = 64, .plane = words, .weights = &words[512], .start = 77, "
        ".end = &words[8], .output_step = 3, .plane_step = 32, .row_bytes = 64, .rows = 2 + units % 4}; "
    )
    calls |= {f"strip_{name}": f"{strip}tvm_ext_dsp_strip_{name}_s8_4(&strip)" for name in STRIPS}
    calls |= {f"strip_of_{name}": f"{strip}{name}(&strip)" for name in STRIPS_OF_3}
    end = "&words[512 + 8 * (units + 1)]"
    calls["winograd"] = f"tvm_ext_dsp_winograd_3x2((uint32_t *)sums, words, &words[512], units + 1, {end})"
    calls["outputs"] = "tvm_ext_dsp_winograd_outputs((uint32_t *)sums, words, 5u + (uint32_t)units)"
    end = "&words[512 + 16 * (units + 1)]"
    calls["fours"] = f"tvm_ext_dsp_winograd_2x4((uint32_t *)sums, words, &words[512], units + 1, {end})"
    calls["outputs_of_fours"] = "tvm_ext_dsp_winograd_outputs_of_fours((uint32_t *)sums, words, 5u + (uint32_t)units)"
    functions = [f"APART {name}(int32_t units)\n{{\n    {call};\n}}\n" for name, call in calls.items()]
    shown = [f'        fill(units);\n        {name}(units);\n        show("{name}");\n' for name in calls]
    main = f"int main(void)\n{{\n    for (int32_t units = 1; units < 20; ++units) {{\n{''.join(shown)}    }}\n}}\n"
    return "\n".join([HEAD, *functions, main])


def printed(folder: Path, *flags: str) -> list[str]:
    """Output of the program, compiled for this machine with these flags."""
    text, program = folder / "sums.c", folder / "sums"
    text.write_text(source())
    command = ["gcc", "-std=c11", "-w", *flags, *INCLUDE_FLAGS, str(text), "-o", str(program)]
    subprocess.run(command, check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("flags", [("-O3",), ("-O3", "-march=native"), ("-O2", "-ftree-vectorize", "-march=native")])
def test_vectors_give_the_same_sums(flags: tuple[str, ...], tmp_path: Path) -> None:
    found, expected = printed(tmp_path, *flags), printed(tmp_path, "-O0")
    assert len(expected) == 19 * 29 and len(set(expected)) > 19 * 15
    assert [(one, other) for one, other in zip(found, expected, strict=True) if one != other] == []


def test_no_function_asks_for_its_own_optimization() -> None:
    """Attributes of GCC that choose optimizations are for debugging: what they leave out is not documented."""
    assert [path.name for folder in FOLDERS for path in folder.glob("*.[ch]") if "optimize(" in path.read_text()] == []
