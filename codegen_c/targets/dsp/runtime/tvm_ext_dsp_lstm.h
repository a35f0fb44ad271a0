/* Gates, cell and output of one step of an LSTM on integers by the DSP extension: the bytes of tvm_ext_lstm_step.
 *
 * An entry of the table, for i from -256 to 255, is the line between 2^16 * sigmoid(i / 24) - 2^15 and the next such
 * value, as a function of x in units of 2^-12: in the upper half the line at x = 0, in the lower half three times its
 * slope by i. One dual product gives a point of the line. */
#ifndef TVM_EXT_DSP_LSTM_H
#define TVM_EXT_DSP_LSTM_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_qlstm.h"

#define TVM_EXT_DSP_LSTM_ENTRIES 256 /* entries of each sign */

/* Returns the right shift after the high product of a value. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_shift(tvm_ext_lstm_factor factor)
{
    return factor.shift > 31 ? factor.shift - 31 : 0;
}

/* Returns value times a factor before the right shift, plus `offset`, rounded as tvm_ext_lstm_scaled does. Twice the
 * value, or 2^(32 - shift) times the value, must fit an int32. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_product(int32_t value, tvm_ext_lstm_factor factor, int32_t offset)
{
    if (factor.shift <= 31) {
        const int32_t scaled = value * (int32_t)(1U << (32 - factor.shift));
        return tvm_ext_dsp_high_product_rounded(scaled, factor.multiplier, offset);
    }
    /* Halves are rounded away from zero. */
    const int32_t half = ((2 * offset) + 1) * (1 << (factor.shift - 32));
    return tvm_ext_dsp_high_product_rounded(2 * value, factor.multiplier, half) + (value >> 31);
}

/* Returns value times a factor as an int16. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_narrowed(int32_t value, tvm_ext_lstm_factor factor)
{
    return tvm_ext_saturate_s16(tvm_ext_dsp_lstm_product(value, factor, 0) >> tvm_ext_dsp_lstm_shift(factor));
}

/* Returns 2^bits times the line of an entry at x = 0, plus x times its slope, plus `sum`. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_point(int32_t entry, int32_t x, int32_t bits, int32_t sum)
{
    return tvm_ext_dsp_smlad((uint32_t)entry, tvm_ext_dsp_lows((uint32_t)x, 1U << bits), sum);
}

/* Returns a number that compilers keep in a register during a loop, in place of building it up in each turn. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_kept(int32_t number)
{
#if TVM_EXT_DSP
    __asm__("" : "+r"(number));
#endif
    return number;
}

/* tvm_ext_lstm_sigmoid; halves are rounded up, those of negative numbers down. middle: entry 0 of the table. half: a
 * half in units of 2^-25, and a half of these times 2^10. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_sigmoid(int32_t x, const int32_t *middle, int32_t half)
{
    return tvm_ext_dsp_lstm_point(middle[(3 * x) >> 9], x, 9, half + (x >> 31)) >> 10;
}

/* Returns the nearest number from -256 to 255 to value / 2^8, rounded down. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_place(int32_t value)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("ssat %0, #9, %1, asr #8" : "=r"(result) : "r"(value));
    return result;
#else
    return tvm_ext_clamp(value >> 8, -TVM_EXT_DSP_LSTM_ENTRIES, TVM_EXT_DSP_LSTM_ENTRIES - 1);
#endif
}

/* Returns tanh of x, an int16 in units of 2^-12, as tvm_ext_lstm_tanh returns it for 3 x; halves are rounded as
 * those of the sigmoid. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_lstm_tanh(int32_t x, const int32_t *middle)
{
    return tvm_ext_dsp_lstm_point(middle[tvm_ext_dsp_lstm_place(3 * x)], x, 8, (1 << 7) + (x >> 31)) >> 8;
}

/* Replaces the sums of the input in gate g of all units by the gate after its function: tanh, or else the sigmoid. */
TVM_EXT_INLINE void tvm_ext_dsp_lstm_gate(const tvm_ext_lstm_layer *layer, int32_t *sums_of_input,
                                          const int32_t *sums_of_hidden, int32_t g, bool is_tanh, const int32_t *middle)
{
    int32_t *const gate = &sums_of_input[g * layer->units];
    const int32_t *const others = &sums_of_hidden[g * layer->units];
    const int32_t half = tvm_ext_dsp_lstm_kept((1 << 24) + (1 << 9));
    for (int32_t u = 0; u < layer->units; ++u) {
        const int32_t x = tvm_ext_saturate_s16(tvm_ext_dsp_lstm_narrowed(gate[u], layer->input[g]) +
                                               tvm_ext_dsp_lstm_narrowed(others[u], layer->hidden[g]));
        gate[u] = is_tanh ? tvm_ext_dsp_lstm_tanh(x, middle) : tvm_ext_dsp_lstm_sigmoid(x, middle, half);
    }
}

/* tvm_ext_lstm_step, with this table. The cell has units of 2^-(12 - cell_left). One loop for each gate keeps its
 * factors in registers. */
TVM_EXT_INLINE void tvm_ext_dsp_lstm_step(const tvm_ext_lstm_layer *layer, int32_t *sums_of_input,
                                          const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                          const int32_t *table)
{
    const int32_t *const middle = &table[TVM_EXT_DSP_LSTM_ENTRIES];
    const int32_t *const forget_gate = &sums_of_input[layer->units];
    const int32_t *const cell_gate = &sums_of_input[2 * layer->units];
    const int32_t *const output_gate = &sums_of_input[3 * layer->units];
    tvm_ext_dsp_lstm_gate(layer, sums_of_input, sums_of_hidden, 0, false, middle);
    tvm_ext_dsp_lstm_gate(layer, sums_of_input, sums_of_hidden, 1, false, middle);
    tvm_ext_dsp_lstm_gate(layer, sums_of_input, sums_of_hidden, 2, true, middle);
    tvm_ext_dsp_lstm_gate(layer, sums_of_input, sums_of_hidden, 3, false, middle);
    for (int32_t u = 0; u < layer->units; ++u) {
        const int32_t added = sums_of_input[u] * cell_gate[u];
        const int32_t kept = forget_gate[u] * cell[u];
        int32_t next = tvm_ext_saturate_s16(tvm_ext_dsp_lstm_narrowed(kept, layer->forget) +
                                            tvm_ext_dsp_lstm_narrowed(added, layer->update));
        if (layer->clip > 0) {
            next = tvm_ext_clamp(next, -layer->clip, layer->clip);
        }
        cell[u] = (int16_t)next;
        const int32_t x = tvm_ext_saturate_s16(next * (1 << layer->cell_left));
        const int32_t let_out = tvm_ext_dsp_lstm_tanh(x, middle) * output_gate[u];
        const int32_t result = tvm_ext_dsp_lstm_product(let_out, layer->output, layer->zero_point);
        hidden[u] = (int8_t)tvm_ext_saturate_s8(result >> tvm_ext_dsp_lstm_shift(layer->output));
    }
}

#endif
