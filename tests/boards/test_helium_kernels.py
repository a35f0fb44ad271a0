"""Helium kernels on the M55: the bytes of the portable kernels' reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen_c.kernels.contract import StoredRows
from codegen_c.targets.registry import instruction_set_of, runtime_text
from tests.boards.on_board import assert_on_board
from tests.boards.toy import build_elf, write_texts, write_toy
from tests.kernels.helium import M55, implementation
from tests.kernels.helium_attention_samples import SAMPLES as ATTENTION_SAMPLES
from tests.kernels.helium_samples import SAMPLES as LAYER_SAMPLES
from tests.kernels.helium_side_samples import SAMPLES as SIDE_SAMPLES
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu

SAMPLES = LAYER_SAMPLES | ATTENTION_SAMPLES | SIDE_SAMPLES
pytestmark = pytest.mark.board


BATCHES = [sorted(SAMPLES)[first : first + 12] for first in range(0, len(SAMPLES), 12)]
"""Names of the samples that share a firmware. It takes longer to link and start a firmware than to run a sample."""


@pytest.mark.parametrize("names", BATCHES, ids=lambda names: f"{names[0]}_to_{names[-1]}")
def test_gives_the_reference_bytes_on_the_board(names: list[str]) -> None:
    assert_samples(names, Platform.load("cortex_m55"))


def test_a_frame_pointer_leaves_registers_enough() -> None:
    """GCC refused assembly whose operands took low registers, where r7 is the frame pointer."""
    platform = Platform.load("cortex_m55")
    flags = (*platform.toolchain.flags, "-fno-omit-frame-pointer")
    with_frames = replace(platform, toolchain=replace(platform.toolchain, flags=flags))
    assert_samples(["conv", "groups", "side_pixels_deep", "side_pixels_one", "squares", "taps_5x5"], with_frames)


def assert_samples(names: Sequence[str], platform: Platform) -> None:
    """Check that a firmware with these samples computes the bytes of their references."""
    samples = [SAMPLES[name] for name in names]
    calls = [implementation(kernel, operator, StoredRows(), M55) for kernel, operator in samples]
    assert_on_board(platform, calls, [operator for _, operator in samples], 7)


ONE_BY_ONE = """#include "toy.h"
#include "tvm_ext_f32x4.h"
static float input[8];
static float output[8];
float *toy_x(void) { return input; }
const float *toy_y(void) { return output; }

__attribute__((noipa)) static void rows(const float *x, const float *columns, float *y, int32_t count)
{
    for (int32_t m = 0; m < count; ++m) {
        tvm_ext_f32x4 sums = tvm_ext_f32x4_splat(0.0f);
        for (int32_t c = 0; c < 8; ++c) {
            sums = tvm_ext_f32x4_fma_n(x[8 * m + c], tvm_ext_f32x4_load(&columns[4 * c]), sums);
        }
        float sum[4] = {0.0f};
        tvm_ext_f32x4_store(&sum[0], sums);
        for (int32_t j = 0; j < 4; ++j) {
            y[4 * m + j] = sum[j] / 3.0f;
        }
    }
}

int32_t toy_run(void)
{
    static float twice[16];
    static float columns[32];
    for (int32_t i = 0; i < 32; ++i) {
        twice[i % 16] = input[i % 8];
        columns[i] = (float)i;
    }
    rows(twice, columns, output, 2);
    return 0;
}
"""


def test_floats_of_a_vector_are_read_behind_its_store(tmp_path: Path) -> None:
    """GCC 12 takes vst1q_f32 for a store of 4 bytes, and read the last lane before it was written."""
    x, found = run_vectors(tmp_path, ONE_BY_ONE)
    expected = x @ np.arange(32, dtype=np.float32).reshape(8, 4) / 3
    np.testing.assert_allclose(found.reshape(2, 4), [expected, expected], rtol=1e-5)


BOUNDS_OF_NAN = """#include "toy.h"
#include <math.h>
#include "tvm_ext_f32x4.h"
static float input[8];
static float output[8];
float *toy_x(void) { return input; }
const float *toy_y(void) { return output; }

int32_t toy_run(void)
{
    const tvm_ext_f32x4 x = tvm_ext_f32x4_load(input);
    tvm_ext_f32x4_store(output, tvm_ext_f32x4_maximum(tvm_ext_f32x4_splat(NAN), x));
    tvm_ext_f32x4_store(&output[4], tvm_ext_f32x4_minimum(tvm_ext_f32x4_splat(NAN), x));
    return 0;
}
"""


def test_bounds_keep_a_nan(tmp_path: Path) -> None:
    """Less of Helium is true of a NaN, too: relu made 0 of it."""
    assert np.isnan(run_vectors(tmp_path, BOUNDS_OF_NAN)[1]).all()


PARTS = """#include "toy.h"
#include "tvm_ext_copy.h"
#include "tvm_ext_tile_f32x4.h"
static float input[8];
static float output[8];
float *toy_x(void) { return input; }
const float *toy_y(void) { return output; }

/* Copies of every length to 200 bytes, between all places in a word, that differ from their source or reach beyond. */
static int32_t wrong_copies(void)
{
    static uint8_t source[256];
    static uint8_t target[256];
    int32_t wrong = 0;
    for (uint32_t bytes = 0; bytes <= 200u; ++bytes) {
        const uint32_t from = bytes % 4u;
        const uint32_t to = bytes / 4u % 4u;
        for (uint32_t i = 0; i < sizeof source; ++i) {
            source[i] = (uint8_t)(i * 7u + bytes);
            target[i] = 255u;
        }
        tvm_ext_copy(&target[to], &source[from], bytes);
        for (uint32_t i = 0; i < 240u; ++i) {
            const int is_inside = i >= to && i < to + bytes;
            wrong += target[i] != (is_inside ? source[from + i - to] : 255u);
        }
    }
    return wrong;
}

/* Sums of one pixel by 4 vectors that differ from the loop over single products, by runs of 0 to 11 elements. */
static int32_t wrong_sums(void)
{
    static float weights[11 * 16];
    static float x[11];
    int32_t wrong = 0;
    for (int32_t i = 0; i < 11 * 16; ++i) {
        weights[i] = input[i % 8] * (float)(i + 1);
        x[i / 16] = input[i % 7];
    }
    for (int32_t length = 0; length <= 11; ++length) {
        tvm_ext_f32x4 sums[4];
        float found[16];
        tvm_ext_tile_f32x4_start(sums, weights, 1, 4);
        tvm_ext_tile_f32x4_add(sums, x, 0, weights, length, 1, 4);
        for (int32_t v = 0; v < 4; ++v) {
            tvm_ext_f32x4_store(&found[4 * v], sums[v]);
        }
        for (int32_t k = 0; k < 16; ++k) {
            float sum = weights[k];
            for (int32_t c = 0; c < length; ++c) {
                sum = TVM_EXT_FMA(x[c], weights[16 * c + k], sum);
            }
            wrong += memcmp(&sum, &found[k], sizeof sum) != 0;
        }
    }
    return wrong;
}

int32_t toy_run(void)
{
    for (int32_t i = 0; i < 8; ++i) {
        output[i] = -1.0f;
    }
    tvm_ext_f32x4_store_part(output, 3, tvm_ext_f32x4_load_part(input, 2));
    output[6] = (float)wrong_copies();
    output[7] = (float)wrong_sums();
    return 0;
}
"""


def test_parts_of_vectors_copies_and_runs_of_sums(tmp_path: Path) -> None:
    x, found = run_vectors(tmp_path, PARTS)
    np.testing.assert_array_equal(found, [x[0], x[1], 0, -1, -1, -1, 0, 0])


FLOAT_HEADERS = ("copy", "f32x4", "kernels", "layer", "tile_f32x4")


def run_vectors(folder: Path, source: str, headers: tuple[str, ...] = FLOAT_HEADERS) -> tuple[np.ndarray, np.ndarray]:
    """Input and output of a program with vectors, 8 floats of each. headers: of the runtime that it includes."""
    platform = Platform.load("cortex_m55")
    toy = write_toy(folder, platform)
    helium = instruction_set_of(platform.processor)
    texts = {f"tvm_ext_{name}.h": runtime_text(f"tvm_ext_{name}.h", helium) for name in headers}
    write_texts(folder, {"toy.c": source, **texts})
    result = run_qemu(build_elf(folder, platform, folder / "build"), platform, toy.interface, [toy.sample])
    (x,) = toy.sample.values()
    return x.reshape(8), result.outputs[0]["out"]
