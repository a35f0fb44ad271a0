"""Stores of some lanes by Helium as GCC compiles them for the M55: bytes that were stored before them stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.boards.test_helium_kernels import run_vectors

pytestmark = pytest.mark.board

KEPT = """#include "toy.h"
#include "tvm_ext_helium.h"
static float input[8];
static float output[8];
float *toy_x(void) { return input; }
const float *toy_y(void) { return output; }

__attribute__((noipa)) static void bytes(int8_t *target, int32_t count)
{
    tvm_ext_i8x16_store(target, tvm_ext_i8x16_splat(5));
    tvm_ext_i8x16_store_first(target, tvm_ext_i8x16_splat(3), count);
}

__attribute__((noipa)) static void lanes(int8_t *target, tvm_ext_i16x8 results, int32_t count)
{
    for (int32_t i = 0; i < 4; ++i) {
        target[i] = 5;
    }
    tvm_ext_i16x8_store_even(target, results, count);
}

__attribute__((noipa)) static void sums(int32_t *target, int32_t count)
{
    tvm_ext_i32x4_store(target, tvm_ext_i32x4_splat(5));
    tvm_ext_i32x4_store_some(target, tvm_ext_i32x4_splat(3), count);
}

int32_t toy_run(void)
{
    int8_t row[16] = {0};
    int8_t four[4] = {0};
    int32_t words[4] = {0};
    bytes(row, 9);
    lanes(four, tvm_ext_i16x8_narrow(tvm_ext_i32x4_splat(3), tvm_ext_i32x4_splat(3)), 2);
    sums(words, 3);
    for (int32_t i = 0; i < 2; ++i) {
        output[i] = (float)row[8 + i];
        output[2 + i] = (float)four[1 + i];
        output[4 + i] = (float)words[2 + i];
        output[6 + i] = 0.0f;
    }
    return 0;
}
"""


def test_stores_of_some_lanes_keep_what_was_stored_behind_them(tmp_path: Path) -> None:
    """GCC 12 left out the stores of all lanes before them."""
    _, found = run_vectors(tmp_path, KEPT, headers=("helium", "kernels", "layer", "requantize"))
    np.testing.assert_array_equal(found, [3, 5, 3, 5, 3, 5, 0, 0])
