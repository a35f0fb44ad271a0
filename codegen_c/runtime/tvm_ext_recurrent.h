/* Gates and states of one step of an LSTM, GRU or RNN layer on integers, from the int32 sums of its products.
 *
 * A gate is an int16 in units of 2^-12 ahead of its sigmoid, and of 2^-13 ahead of its tanh. Results of both functions
 * have units of 2^-15. The state is an int16 in units of 2^-state_power: the cell of an LSTM, or the hidden state of a
 * GRU. The hidden state that a step multiplies is an int8 with a scale and a zero point. Results are rounded to the
 * nearest number, halves up, where nothing else is said. */
#ifndef TVM_EXT_RECURRENT_H
#define TVM_EXT_RECURRENT_H

#include <string.h>

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

typedef struct {
    int32_t units;
    int32_t left; /* sums are multiplied by 2^left before their multipliers */
    int32_t state_power;
    int32_t hidden_multiplier; /* from the result, in units of 2^-15 or of the state, to the int8 hidden state: */
    int32_t hidden_shift;      /* multiplier / 2^shift */
    int32_t zero_point;        /* of the hidden state */
    int32_t low;               /* least hidden state */
    int32_t limit;             /* bound of an LSTM's cell; 0 for none */
} tvm_ext_recurrent_layer;

/* sum * 2^left * multiplier / 2^32. |sum * 2^left| and the multiplier are below 2^31. */
TVM_EXT_INLINE int32_t tvm_ext_recurrent_scaled(int32_t sum, int32_t left, int32_t multiplier)
{
    const int32_t value = sum * (1 << left);
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    int32_t result;
    __asm__("smmulr %0, %1, %2" : "=r"(result) : "r"(value), "r"(multiplier));
    return result;
#else
    return (int32_t)((((int64_t)value * multiplier) + ((int64_t)1 << 31)) >> 32);
#endif
}

/* Gate k ahead of its function, from the sum of its products. */
TVM_EXT_INLINE int32_t tvm_ext_recurrent_gate(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                              const int32_t *multiplier, int32_t k)
{
    return tvm_ext_saturate_s16(tvm_ext_recurrent_scaled(sums[k], layer->left, multiplier[k]));
}

/* 2^15 * sigmoid(gate / 2^12), on the line between two entries of the table, rounded down.
 * table: 2^15 * sigmoid(i / 16 - 8), 257 entries. */
TVM_EXT_INLINE int32_t tvm_ext_recurrent_sigmoid(int32_t gate, const int16_t *table)
{
    const int16_t *const entry = &table[128 + (gate >> 8)];
    const int32_t rest = gate & 255;
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
    uint32_t entries;
    memcpy(&entries, entry, sizeof entries);
    const uint32_t shares = (uint32_t)((rest * 65536) + (256 - rest)); /* of the second entry and of the first */
    int32_t sum;
    __asm__("smuad %0, %1, %2" : "=r"(sum) : "r"(entries), "r"(shares));
    return sum >> 8;
#else
    return ((entry[0] * (256 - rest)) + (entry[1] * rest)) >> 8;
#endif
}

/* 2^15 * tanh(gate / 2^13) = 2^15 * (2 * sigmoid(gate / 2^12) - 1) */
TVM_EXT_INLINE int32_t tvm_ext_recurrent_tanh(int32_t gate, const int16_t *table)
{
    return (2 * tvm_ext_recurrent_sigmoid(gate, table)) - 32768;
}

/* value / 2^shift, also for a shift of 0 */
TVM_EXT_INLINE int32_t tvm_ext_recurrent_shifted(int32_t value, int32_t shift)
{
    return (value + ((1 << shift) >> 1)) >> shift;
}

/* value as an int8 of at least `low` */
TVM_EXT_INLINE int8_t tvm_ext_recurrent_byte(int32_t value, int32_t low)
{
    const int32_t result = tvm_ext_saturate_s8(value);
    return (int8_t)(low > INT8_MIN && result < low ? low : result);
}

/* The hidden state as int8, from a value of 16 bits. */
TVM_EXT_INLINE int8_t tvm_ext_recurrent_hidden(const tvm_ext_recurrent_layer *layer, int32_t value)
{
    const int32_t steps = tvm_ext_recurrent_shifted(value * layer->hidden_multiplier, layer->hidden_shift);
    return tvm_ext_recurrent_byte(steps + layer->zero_point, layer->low);
}

/* The hidden state of a GRU as int8. */
TVM_EXT_INLINE void tvm_ext_recurrent_narrow(const tvm_ext_recurrent_layer *layer, const int16_t *state, int8_t *hidden)
{
    for (int32_t u = 0; u < layer->units; ++u) {
        hidden[u] = tvm_ext_recurrent_hidden(layer, state[u]);
    }
}

/* The functions below take sums and multipliers [gates, units] in the order of the cell's products. */

/* An LSTM: the input gate, the output gate, the forget gate and the cell. */
TVM_EXT_INLINE void tvm_ext_recurrent_lstm(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                           const int32_t *multiplier, int16_t *cell, int8_t *hidden,
                                           const int16_t *table)
{
    const int32_t units = layer->units;
    const int32_t power = layer->state_power;
    for (int32_t u = 0; u < units; ++u) {
        const int32_t input = tvm_ext_recurrent_gate(layer, sums, multiplier, u);
        const int32_t output = tvm_ext_recurrent_gate(layer, sums, multiplier, units + u);
        const int32_t forget = tvm_ext_recurrent_gate(layer, sums, multiplier, (2 * units) + u);
        const int32_t candidate = tvm_ext_recurrent_gate(layer, sums, multiplier, (3 * units) + u);
        const int32_t added = tvm_ext_recurrent_sigmoid(input, table) * tvm_ext_recurrent_tanh(candidate, table);
        const int32_t kept = tvm_ext_recurrent_sigmoid(forget, table) * cell[u];
        int32_t next = tvm_ext_saturate_s16(tvm_ext_recurrent_shifted(kept + (added >> (15 - power)), 15));
        if (layer->limit > 0) {
            next = next > layer->limit ? layer->limit : next < -layer->limit ? -layer->limit : next;
        }
        cell[u] = (int16_t)next;
        const int32_t scaled =
            power > 13 ? tvm_ext_recurrent_shifted(next, power - 13) : tvm_ext_saturate_s16(next * (1 << (13 - power)));
        const int32_t let_out = tvm_ext_recurrent_sigmoid(output, table) * tvm_ext_recurrent_tanh(scaled, table);
        hidden[u] = tvm_ext_recurrent_hidden(layer, tvm_ext_recurrent_shifted(let_out, 15));
    }
}

/* The next state of a unit of a GRU, z * state + (1 - z) * candidate, and its hidden state. */
TVM_EXT_INLINE void tvm_ext_recurrent_blend(const tvm_ext_recurrent_layer *layer, int32_t z, int32_t candidate,
                                            int16_t *state, int8_t *hidden)
{
    const int32_t other = tvm_ext_recurrent_shifted(candidate, 15 - layer->state_power);
    const int32_t next = tvm_ext_recurrent_shifted((z * *state) + ((32768 - z) * other), 15);
    *state = (int16_t)next;
    *hidden = tvm_ext_recurrent_hidden(layer, next);
}

/* A GRU that resets the product of its hidden state: the update gate, the reset gate, and the candidate from the input
 * and from the hidden state. */
TVM_EXT_INLINE void tvm_ext_recurrent_gru(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                          const int32_t *multiplier, int16_t *state, int8_t *hidden,
                                          const int16_t *table)
{
    const int32_t units = layer->units;
    for (int32_t u = 0; u < units; ++u) {
        const int32_t z = tvm_ext_recurrent_gate(layer, sums, multiplier, u);
        const int32_t r = tvm_ext_recurrent_gate(layer, sums, multiplier, units + u);
        const int32_t input = tvm_ext_recurrent_gate(layer, sums, multiplier, (2 * units) + u);
        const int32_t product = tvm_ext_recurrent_gate(layer, sums, multiplier, (3 * units) + u);
        const int32_t total = input + tvm_ext_recurrent_shifted(tvm_ext_recurrent_sigmoid(r, table) * product, 15);
        const int32_t candidate = tvm_ext_recurrent_tanh(tvm_ext_saturate_s16(2 * total), table);
        tvm_ext_recurrent_blend(layer, tvm_ext_recurrent_sigmoid(z, table), candidate, &state[u], &hidden[u]);
    }
}

/* A GRU's hidden state that is reset ahead of its product: the update gate, which is not read yet, and the reset gate.
 */
TVM_EXT_INLINE void tvm_ext_recurrent_reset(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                            const int32_t *multiplier, const int16_t *state, int8_t *hidden,
                                            const int16_t *table)
{
    const int32_t units = layer->units;
    for (int32_t u = 0; u < units; ++u) {
        const int32_t r = tvm_ext_recurrent_gate(layer, sums, multiplier, units + u);
        const int32_t kept = tvm_ext_recurrent_shifted(tvm_ext_recurrent_sigmoid(r, table) * state[u], 15);
        hidden[u] = tvm_ext_recurrent_hidden(layer, kept);
    }
}

/* A GRU after its reset: the update gate, the reset gate, which is not read any more, and the candidate. */
TVM_EXT_INLINE void tvm_ext_recurrent_gru_candidate(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                                    const int32_t *multiplier, int16_t *state, int8_t *hidden,
                                                    const int16_t *table)
{
    const int32_t units = layer->units;
    for (int32_t u = 0; u < units; ++u) {
        const int32_t z = tvm_ext_recurrent_gate(layer, sums, multiplier, u);
        const int32_t gate = tvm_ext_recurrent_gate(layer, sums, multiplier, (2 * units) + u);
        const int32_t candidate = tvm_ext_recurrent_tanh(gate, table);
        tvm_ext_recurrent_blend(layer, tvm_ext_recurrent_sigmoid(z, table), candidate, &state[u], &hidden[u]);
    }
}

/* An RNN with tanh. */
TVM_EXT_INLINE void tvm_ext_recurrent_rnn_tanh(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                               const int32_t *multiplier, int8_t *hidden, const int16_t *table)
{
    for (int32_t u = 0; u < layer->units; ++u) {
        const int32_t gate = tvm_ext_recurrent_gate(layer, sums, multiplier, u);
        hidden[u] = tvm_ext_recurrent_hidden(layer, tvm_ext_recurrent_tanh(gate, table));
    }
}

/* An RNN with relu. The multipliers lead to steps of the hidden state. */
TVM_EXT_INLINE void tvm_ext_recurrent_rnn_relu(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                               const int32_t *multiplier, int8_t *hidden)
{
    for (int32_t u = 0; u < layer->units; ++u) {
        const int32_t steps = tvm_ext_recurrent_gate(layer, sums, multiplier, u);
        hidden[u] = tvm_ext_recurrent_byte(steps + layer->zero_point, layer->low);
    }
}

#endif
