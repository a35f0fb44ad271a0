"""Gates and states of recurrent layers by Helium on the M55: the numbers of the portable headers, in every lane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relay_passes.analysis.recurrent_int8 import TABLE as SIGMOIDS
from tests.boards.test_helium_kernels import run_vectors
from tvm_ext.frontends.tflite.lstm import TABLE

pytestmark = pytest.mark.board

HEADERS = ("copy", "helium", "helium_plain", "helium_recurrent", "kernels", "layer", "qlstm", "recurrent", "requantize",
           "requantize_tflite")  # fmt: skip
HEAD = """#include "toy.h"
#include "tvm_ext_helium_recurrent.h"
static float input[8];
static float output[8];
float *toy_x(void) { return input; }
const float *toy_y(void) { return output; }

#if !defined(TVM_EXT_HAS_HELIUM)
#error "plain C takes the place of the vectors"
#endif
"""

DRAWN = """static uint32_t seed = 1u;

/* A random number of at most `bits` bits and a sign. */
static int32_t drawn(int32_t bits)
{
    seed = seed * 1664525u + 1013904223u;
    return (int32_t)seed >> (31 - bits);
}
"""

FUNCTIONS = """
static uint16_t table[256];

/* Results of vectors that differ from those of single numbers, over all numbers of 16 bits. */
static int32_t wrong_functions(int32_t left, int32_t right)
{
    const tvm_ext_lstm_layer layer = {.cell_left = left, .cell_right = right};
    int32_t wrong = 0;
    for (int32_t x = INT16_MIN; x <= INT16_MAX; x += 8) {
        const int16x8_t values = vaddq_n_s16(vreinterpretq_s16_u16(vidupq_n_u16(0, 1)), (int16_t)x);
        int16_t sigmoid[8];
        int16_t tanh[8];
        int16_t of_cell[8];
        vstrhq_s16(sigmoid, tvm_ext_helium_lstm_sigmoid(values, table));
        vstrhq_s16(tanh, tvm_ext_helium_lstm_tanh(vreinterpretq_u16_s16(vabsq_s16(values)), values, table));
        vstrhq_s16(of_cell, tvm_ext_helium_lstm_cell_tanh(&layer, values, table));
        for (int32_t i = 0; i < 8; ++i) {
            wrong += sigmoid[i] != tvm_ext_lstm_sigmoid(x + i, table);
            wrong += tanh[i] != tvm_ext_lstm_tanh(3 * (x + i), table);
            wrong += of_cell[i] != tvm_ext_lstm_cell_tanh(&layer, x + i, table);
        }
    }
    return wrong;
}

int32_t toy_run(void)
{
    static const uint16_t entries[] = {TABLE};
    memcpy(table, entries, sizeof table);
    output[0] = (float)wrong_functions(0, 0);
    output[1] = (float)wrong_functions(3, 0);
    output[2] = (float)wrong_functions(14, 0);
    output[3] = (float)wrong_functions(0, 1);
    output[4] = (float)wrong_functions(0, 3);
    output[5] = (float)wrong_functions(0, 17);
    return 0;
}
"""

STEPS = """
#define UNITS 19

/* Units whose cell or hidden state differs from that of tvm_ext_lstm_step, or that come after the last unit and were
 * written. */
static int32_t wrong_units(tvm_ext_lstm_layer layer, int32_t bits)
{
    static const uint16_t table[] = {TABLE};
    int32_t of_input[4 * UNITS + 7];
    int32_t of_hidden[4 * UNITS + 7];
    int16_t cell[2][UNITS + 8] = {{0}};
    int8_t hidden[2][UNITS + 8] = {{0}};
    int32_t wrong = 0;
    for (int32_t turn = 0; turn < 400; ++turn) {
        for (int32_t i = 0; i < 4 * UNITS + 7; ++i) {
            of_input[i] = drawn(bits);
            of_hidden[i] = drawn(bits - turn % 4);
        }
        tvm_ext_lstm_step(&layer, of_input, of_hidden, cell[0], hidden[0], table);
        tvm_ext_helium_lstm_step(&layer, of_input, of_hidden, cell[1], hidden[1], table);
        for (int32_t u = 0; u < UNITS + 8; ++u) {
            wrong += cell[0][u] != cell[1][u] || hidden[0][u] != hidden[1][u];
        }
    }
    return wrong;
}

int32_t toy_run(void)
{
    tvm_ext_lstm_layer layer = {
        .units = UNITS,
        .input = {{1518500250, 39}, {1073741824, 36}, {1200000001, 44}, {2147483647, 40}},
        .hidden = {{1518500250, 37}, {1073741824, 38}, {1200000001, 42}, {2147483647, 41}},
        .forget = {1073741824, 45}, .update = {1073741824, 49}, .output = {1717986918, 54},
        .zero_point = -3, .cell_left = 1, .clip = 0,
    };
    output[0] = (float)wrong_units(layer, 24);
    output[1] = (float)wrong_units(layer, 20);
    layer.units = 16;
    layer.clip = 900;
    layer.cell_left = 0;
    layer.cell_right = 3;
    output[2] = (float)wrong_units(layer, 22);
    layer.units = 3;
    layer.clip = 0;
    for (int32_t g = 0; g < 4; ++g) {
        layer.input[g].shift = 28 + g;
        layer.hidden[g].shift = 32 - g;
    }
    output[3] = (float)wrong_units(layer, 13);
    return 0;
}
"""

CELLS = """
#define UNITS 19

/* Units whose state or hidden state differs from that of tvm_ext_recurrent.h, or that come after the last unit and were
 * written. */
#define WRONG_UNITS(NAME)                                                                                         \\
    static int32_t wrong_##NAME(tvm_ext_recurrent_layer layer, int32_t bits)                                      \\
    {                                                                                                             \\
        static const int16_t table[] = {TABLE};                                                                   \\
        int32_t sums[4 * UNITS + 7];                                                                              \\
        int32_t multiplier[4 * UNITS + 7];                                                                        \\
        int16_t state[2][UNITS + 8] = {{0}};                                                                      \\
        int8_t hidden[2][UNITS + 8] = {{0}};                                                                      \\
        int32_t wrong = 0;                                                                                        \\
        for (int32_t turn = 0; turn < 400; ++turn) {                                                              \\
            for (int32_t i = 0; i < 4 * UNITS + 7; ++i) {                                                         \\
                sums[i] = drawn(bits - turn % 4);                                                                 \\
                multiplier[i] = drawn(31) & INT32_MAX;                                                            \\
            }                                                                                                     \\
            tvm_ext_recurrent_##NAME(&layer, sums, multiplier, state[0], hidden[0], table);                       \\
            tvm_ext_helium_recurrent_##NAME(&layer, sums, multiplier, state[1], hidden[1], table);                \\
            for (int32_t u = 0; u < UNITS + 8; ++u) {                                                             \\
                wrong += state[0][u] != state[1][u] || hidden[0][u] != hidden[1][u];                              \\
            }                                                                                                     \\
        }                                                                                                         \\
        return wrong;                                                                                             \\
    }
WRONG_UNITS(lstm)
WRONG_UNITS(gru)
WRONG_UNITS(reset)
WRONG_UNITS(gru_candidate)

/* Sigmoids of all numbers of 16 bits that differ. */
static int32_t wrong_sigmoids(void)
{
    static const int16_t table[] = {TABLE};
    int32_t wrong = 0;
    for (int32_t x = INT16_MIN; x <= INT16_MAX; x += 8) {
        const int16x8_t gates = vaddq_n_s16(vreinterpretq_s16_u16(vidupq_n_u16(0, 1)), (int16_t)x);
        int16_t sigmoid[8];
        int16_t tanh[8];
        vstrhq_s16(sigmoid, tvm_ext_helium_recurrent_sigmoid(gates, table));
        vstrhq_s16(tanh, tvm_ext_helium_recurrent_tanh(gates, table));
        for (int32_t i = 0; i < 8; ++i) {
            wrong += sigmoid[i] != tvm_ext_recurrent_sigmoid(x + i, table);
            wrong += tanh[i] != tvm_ext_recurrent_tanh(x + i, table);
        }
    }
    return wrong;
}

int32_t toy_run(void)
{
    tvm_ext_recurrent_layer layer = {
        .units = UNITS, .left = 6, .state_power = 15, .hidden_multiplier = 31001, .hidden_shift = 22, .zero_point = -3,
        .low = INT8_MIN, .limit = 0,
    };
    output[0] = (float)wrong_gru(layer, 18);
    output[1] = (float)wrong_reset(layer, 18);
    output[2] = (float)wrong_gru_candidate(layer, 18);
    output[3] = (float)wrong_lstm(layer, 18);
    layer.units = 5;
    layer.left = 0;
    layer.state_power = 12;
    output[4] = (float)wrong_gru(layer, 24);
    layer.units = 16;
    layer.limit = 9000;
    output[5] = (float)wrong_lstm(layer, 24);
    layer.state_power = 9;
    layer.low = -3;
    output[6] = (float)wrong_lstm(layer, 22);
    output[7] = (float)wrong_sigmoids();
    return 0;
}
"""


def test_layers_quantized_here_give_the_numbers_of_plain_c(tmp_path: Path) -> None:
    """Steps of an LSTM and of both GRUs, whole and partial vectors, and functions over all numbers of 16 bits."""
    source = CELLS.replace("TABLE", ", ".join(map(str, SIGMOIDS)))
    _, wrong = run_vectors(tmp_path, HEAD + DRAWN + source, HEADERS)
    np.testing.assert_array_equal(wrong, 0)


@pytest.mark.parametrize("source", [FUNCTIONS, DRAWN + STEPS], ids=["functions", "steps"])
def test_an_lstm_of_tflite_gives_the_numbers_of_plain_c(source: str, tmp_path: Path) -> None:
    """Functions over all numbers of 16 bits, steps with factors above and below 1, whole and partial vectors."""
    _, wrong = run_vectors(tmp_path, HEAD + source.replace("TABLE", ", ".join(map(str, TABLE))), HEADERS)
    np.testing.assert_array_equal(wrong, 0)
