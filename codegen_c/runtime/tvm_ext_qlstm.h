/* Gates, cell and output of one step of an LSTM on integers, from the sums of its products, as TensorFlow Lite Micro
 * computes them. The four gates are those of the input, of forgetting, of the cell and of the output. */
#ifndef TVM_EXT_QLSTM_H
#define TVM_EXT_QLSTM_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize_tflite.h"

#define TVM_EXT_LSTM_GATES 4

/* multiplier / 2^shift, for tvm_ext_requantize_tflite */
typedef struct {
    int32_t multiplier;
    int32_t shift;
} tvm_ext_lstm_factor;

typedef struct {
    int32_t units;
    tvm_ext_lstm_factor input[TVM_EXT_LSTM_GATES];  /* from sums of the input to 2^-12 */
    tvm_ext_lstm_factor hidden[TVM_EXT_LSTM_GATES]; /* from sums of the hidden state to 2^-12 */
    tvm_ext_lstm_factor forget;                     /* from forget gate times cell to units of the cell */
    tvm_ext_lstm_factor update;                     /* from input gate times cell gate to units of the cell */
    tvm_ext_lstm_factor output;                     /* from output gate times tanh(cell) to units of the output */
    int32_t zero_point;                             /* of the output */
    int32_t cell_left;  /* units of the cell times 3 * 2^cell_left, */
    int32_t cell_right; /* divided by 2^cell_right and rounded, are steps of 2^-12 / 3 */
    int32_t clip;       /* bound of the cell; 0 for none */
} tvm_ext_lstm_layer;

/* Upper half of 2 * a * b, halves rounded up, as tvm_ext_multiply_high. |a| is below 2^30. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_high(int32_t a, int32_t b)
{
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    int32_t result;
    __asm__("smmulr %0, %1, %2" : "=r"(result) : "r"(2 * a), "r"(b));
    return result;
#else
    return (int32_t)(((int64_t)(2 * a) * b + ((int64_t)1 << 31)) >> 32);
#endif
}

/* value times a factor, as tvm_ext_requantize_tflite. |value| is below 2^30, which leaves room for fewer
 * instructions: for the upper word of a product, and for the half that is added before the last shift. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_scaled(int32_t value, tvm_ext_lstm_factor factor)
{
    if (factor.shift <= 31) {
        return tvm_ext_requantize_tflite(value, factor.multiplier, factor.shift);
    }
    const int32_t high = tvm_ext_lstm_high(value, factor.multiplier);
    /* Halves are rounded away from zero. */
    return (high + (1 << (factor.shift - 32)) + (high >> 31)) >> (factor.shift - 31);
}

/* Returns value times a factor as an int16. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_narrowed(int32_t value, tvm_ext_lstm_factor factor)
{
    return tvm_ext_saturate_s16(tvm_ext_lstm_scaled(value, factor));
}

/* Value between two entries of the table, times 2^bits. size: the place between them, in units of 2^-bits entries. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_line(int32_t size, int32_t bits, const uint16_t *table)
{
    const uint16_t *const entry = &table[size >> bits];
    return (entry[0] << bits) + ((size & ((1 << bits) - 1)) * (entry[1] - entry[0]));
}

/* 2^15 * sigmoid(x); sigmoid(-x) = 1 - sigmoid(x). x: in units of 2^-12, an int16, whose size is within the table. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_sigmoid(int32_t x, const uint16_t *table)
{
    const int32_t value = (tvm_ext_lstm_line(3 * (x < 0 ? -x : x), 9, table) + (1 << 9)) >> 10;
    return x < 0 ? 32768 - value : value;
}

/* 2^15 * tanh(x) = 2^15 * (2 * sigmoid(2 * x) - 1). scaled: x in units of 2^-12 / 3. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_tanh(int32_t scaled, const uint16_t *table)
{
    const int32_t size = scaled < 0 ? -scaled : scaled;
    const int32_t value = size < (255 << 8) ? ((tvm_ext_lstm_line(size, 8, table) + (1 << 7)) >> 8) - 32768 : INT16_MAX;
    return scaled < 0 ? -value : value;
}

/* tanh of the cell */
TVM_EXT_INLINE int32_t tvm_ext_lstm_cell_tanh(const tvm_ext_lstm_layer *layer, int32_t cell, const uint16_t *table)
{
    const int32_t half = layer->cell_right > 0 ? 1 << (layer->cell_right - 1) : 0;
    return tvm_ext_lstm_tanh(((cell * (3 << layer->cell_left)) + half) >> layer->cell_right, table);
}

/* Sum of gate g of unit u before its activation, in units of 2^-12. */
TVM_EXT_INLINE int32_t tvm_ext_lstm_gate(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                         const int32_t *sums_of_hidden, int32_t g, int32_t u)
{
    const int32_t index = (g * layer->units) + u;
    return tvm_ext_saturate_s16(tvm_ext_lstm_narrowed(sums_of_input[index], layer->input[g]) +
                                tvm_ext_lstm_narrowed(sums_of_hidden[index], layer->hidden[g]));
}

/* A step. sums_of_input, sums_of_hidden: int32[4, units]. cell: int16[units] and hidden: int8[units], before and after
 * the step. table: 2^16 * sigmoid(i / 24), 256 entries. */
TVM_EXT_INLINE void tvm_ext_lstm_step(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                      const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                      const uint16_t *table)
{
    /* Each gate is written out, so that its factors are constants of the code. */
    for (int32_t u = 0; u < layer->units; ++u) {
        const int32_t input_gate = tvm_ext_lstm_gate(layer, sums_of_input, sums_of_hidden, 0, u);
        const int32_t forget_gate = tvm_ext_lstm_gate(layer, sums_of_input, sums_of_hidden, 1, u);
        const int32_t cell_gate = tvm_ext_lstm_gate(layer, sums_of_input, sums_of_hidden, 2, u);
        const int32_t output_gate = tvm_ext_lstm_gate(layer, sums_of_input, sums_of_hidden, 3, u);
        const int32_t kept = tvm_ext_lstm_sigmoid(forget_gate, table) * cell[u];
        const int32_t added = tvm_ext_lstm_sigmoid(input_gate, table) * tvm_ext_lstm_tanh(3 * cell_gate, table);
        int32_t next = tvm_ext_saturate_s16(tvm_ext_lstm_narrowed(kept, layer->forget) +
                                            tvm_ext_lstm_narrowed(added, layer->update));
        if (layer->clip > 0) {
            next = next > layer->clip ? layer->clip : next < -layer->clip ? -layer->clip : next;
        }
        cell[u] = (int16_t)next;
        const int32_t let_out = tvm_ext_lstm_cell_tanh(layer, next, table) * tvm_ext_lstm_sigmoid(output_gate, table);
        const int32_t result = tvm_ext_lstm_scaled(let_out, layer->output) + layer->zero_point;
        hidden[u] = (int8_t)(result > INT8_MAX ? INT8_MAX : result < INT8_MIN ? INT8_MIN : result);
    }
}

#endif
