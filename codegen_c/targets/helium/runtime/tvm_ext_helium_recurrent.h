/* Gates and states of recurrent layers on integers with Helium, eight units at a time: the bytes of tvm_ext_qlstm.h
 * and of tvm_ext_recurrent.h. Both read up to 28 bytes after the sums, and do not use them.
 *
 * All gates stay in lanes of 16 bits. A place in a table and the rest of the way to the next entry are the two halves
 * of one product of 16 bits, and each line between two entries is rounded exactly as one with 32 bits is. */
#ifndef TVM_EXT_HELIUM_RECURRENT_H
#define TVM_EXT_HELIUM_RECURRENT_H

#include "tvm_ext_helium.h"
#include "tvm_ext_qlstm.h"
#include "tvm_ext_recurrent.h"

#define TVM_EXT_HELIUM_UNITS 8

#if defined(TVM_EXT_HAS_HELIUM)

/* Vectors contain units 0, 4, 1, 5, 2, 6, 3 and 7, as two vectors of four become one of eight. GCC 12 writes wrong
 * addresses for loads of pairs, which would keep their order. */

/* Loads `count` elements, 1 to 8, with zeros after them. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_units_load(const int16_t *source, int32_t count)
{
    const int32_t more = count > 4 ? count - 4 : 0;
    const int32x4_t even = count >= 4 ? vldrhq_s32(source) : vldrhq_z_s32(source, vctp32q((uint32_t)count));
    const int32x4_t odd = more == 4 ? vldrhq_s32(&source[4]) : vldrhq_z_s32(&source[4], vctp32q((uint32_t)more));
    return vmovntq_s32(vreinterpretq_s16_s32(even), odd);
}

/* Stores the low halves of the first `count` lanes. */
TVM_EXT_INLINE void tvm_ext_helium_units_store_four(int16_t *target, int32x4_t a, int32_t count)
{
    if (count >= 4) {
        vstrhq_s32(target, a);
    } else {
        TVM_EXT_HELIUM_KEEP(target, 8);
        vstrhq_p_s32(target, a, vctp32q((uint32_t)count));
    }
}

TVM_EXT_INLINE void tvm_ext_helium_units_store(int16_t *target, int16x8_t a, int32_t count)
{
    tvm_ext_helium_units_store_four(target, vreinterpretq_s32_s16(a), count);
    if (count > 4) {
        const uint32x4_t odd = vshrq_n_u32(vreinterpretq_u32_s16(a), 16);
        tvm_ext_helium_units_store_four(&target[4], vreinterpretq_s32_u32(odd), count - 4);
    }
}

/* Stores the first `count` lanes, 1 to 8, saturated to int8_t. */
TVM_EXT_INLINE void tvm_ext_helium_units_store_i8(int8_t *target, int16x8_t a, int32_t count)
{
    const int16x8_t bytes = tvm_ext_i16x8_limited(a);
    tvm_ext_i16x8_store_even(target, bytes, count);
    if (count > 4) {
        tvm_ext_i16x8_store_odd(&target[4], bytes, count - 4);
    }
}

/* Returns value where `sign` is 0, and 2^15 - value where it is -1, because sigmoid(-x) = 1 - sigmoid(x). */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_mirrored(int16x8_t value, int16x8_t sign)
{
    const int16x8_t flipped = veorq_s16(value, vandq_s16(sign, vdupq_n_s16(INT16_MAX)));
    return vsubq_s16(flipped, sign);
}

/* Returns what tvm_ext_lstm_scaled returns, for four numbers. */
TVM_EXT_INLINE int32x4_t tvm_ext_helium_lstm_scaled(int32x4_t a, tvm_ext_lstm_factor factor)
{
    if (factor.shift <= 31) {
        return vqrdmulhq_n_s32(vshlq_r_s32(a, 31 - factor.shift), factor.multiplier);
    }
    const int32x4_t high = vqrdmulhq_n_s32(a, factor.multiplier);
    /* Halves are rounded away from zero. */
    return vrshlq_n_s32(vaddq_s32(high, vshrq_n_s32(high, 31)), 31 - factor.shift);
}

/* Returns the products of 16-bit numbers times a factor, as int16. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_product(int16x8_t a, int16x8_t b, tvm_ext_lstm_factor factor)
{
    const int32x4_t even = tvm_ext_helium_lstm_scaled(vmullbq_int_s16(a, b), factor);
    const int32x4_t odd = tvm_ext_helium_lstm_scaled(vmulltq_int_s16(a, b), factor);
    return tvm_ext_i16x8_narrow(even, odd);
}

/* Returns eight sums times a factor, as int16. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_narrowed(const int32_t *sums, tvm_ext_lstm_factor factor)
{
    return tvm_ext_i16x8_narrow(tvm_ext_helium_lstm_scaled(vldrwq_s32(sums), factor),
                                tvm_ext_helium_lstm_scaled(vldrwq_s32(&sums[4]), factor));
}

/* Returns gate g of eight units from unit u on, before its activation. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_gate(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                                  const int32_t *sums_of_hidden, int32_t g, int32_t u)
{
    const int32_t index = (g * layer->units) + u;
    return vqaddq_s16(tvm_ext_helium_lstm_narrowed(&sums_of_input[index], layer->input[g]),
                      tvm_ext_helium_lstm_narrowed(&sums_of_hidden[index], layer->hidden[g]));
}

/* Returns what tvm_ext_lstm_sigmoid returns, for eight numbers. A line in units of 2^-9 of entries is halved, halves
 * up, after its bits below 1 are cut off. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_sigmoid(int16x8_t x, const uint16_t *table)
{
    const uint16x8_t size = vreinterpretq_u16_s16(vabsq_s16(x));
    const uint16x8_t scale = vdupq_n_u16(3 << 7);
    const uint16x8_t place = vmulhq_u16(size, scale);
    const uint16x8_t rest = vmulq_u16(size, scale);
    const uint16x8_t low = vldrhq_gather_shifted_offset_u16(table, place);
    const uint16x8_t high = vldrhq_gather_shifted_offset_u16(&table[1], place);
    const uint16x8_t value = vrhaddq_u16(low, vmulhq_u16(rest, vsubq_u16(high, low)));
    return tvm_ext_helium_mirrored(vreinterpretq_s16_u16(value), vshrq_n_s16(x, 15));
}

/* Returns 2^15 * tanh(x). place: index of the table's entry for |x|; rest: distance from there in units of 2^-16 of
 * an entry; x: only its sign is used. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_tanh_at(uint16x8_t place, uint16x8_t rest, int16x8_t x,
                                                     const uint16_t *table)
{
    const uint16x8_t last = vdupq_n_u16(255);
    const uint16x8_t low = vldrhq_gather_shifted_offset_u16(table, vminq_u16(place, last));
    const uint16x8_t high = vldrhq_gather_shifted_offset_u16(table, vminq_u16(vaddq_n_u16(place, 1), last));
    const uint16x8_t value = vaddq_u16(low, vrmulhq_u16(rest, vsubq_u16(high, low)));
    const int16x8_t size = vreinterpretq_s16_u16(vsubq_u16(value, vdupq_n_u16(1U << 15)));
    const int16x8_t sign = vshrq_n_s16(x, 15);
    return vsubq_s16(veorq_s16(size, sign), sign);
}

/* Returns 2^15 * tanh of 3 * size, with the sign of x. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_tanh(uint16x8_t size, int16x8_t x, const uint16_t *table)
{
    const uint16x8_t scale = vdupq_n_u16(3 << 8);
    return tvm_ext_helium_lstm_tanh_at(vmulhq_u16(size, scale), vmulq_u16(size, scale), x, table);
}

/* Returns what tvm_ext_lstm_cell_tanh returns, for eight units. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_cell_tanh(const tvm_ext_lstm_layer *layer, int16x8_t cell,
                                                       const uint16_t *table)
{
    if (layer->cell_right == 0) {
        /* Arguments for which the function saturates are far beyond the end of the table. */
        const uint16x8_t size = vreinterpretq_u16_s16(vabsq_s16(cell));
        return tvm_ext_helium_lstm_tanh(vqshlq_r_u16(size, layer->cell_left), cell, table);
    }
    const int32x4_t even = vrshlq_n_s32(vmulq_n_s32(vmovlbq_s16(cell), 3), -layer->cell_right);
    const int32x4_t odd = vrshlq_n_s32(vmulq_n_s32(vmovltq_s16(cell), 3), -layer->cell_right);
    const uint16x8_t size = vmovntq_u32(vreinterpretq_u16_s32(vabsq_s32(even)), vreinterpretq_u32_s32(vabsq_s32(odd)));
    return tvm_ext_helium_lstm_tanh_at(vshrq_n_u16(size, 8), vshlq_n_u16(size, 8), cell, table);
}

/* Computes `count` units of a step from unit u on, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_lstm_units(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                              const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                              const uint16_t *table, int32_t u, int32_t count)
{
    const int16x8_t forget_gate = tvm_ext_helium_lstm_gate(layer, sums_of_input, sums_of_hidden, 1, u);
    const int16x8_t kept = tvm_ext_helium_lstm_product(tvm_ext_helium_lstm_sigmoid(forget_gate, table),
                                                       tvm_ext_helium_units_load(&cell[u], count), layer->forget);
    const int16x8_t input_gate = tvm_ext_helium_lstm_gate(layer, sums_of_input, sums_of_hidden, 0, u);
    const int16x8_t share = tvm_ext_helium_lstm_sigmoid(input_gate, table);
    const int16x8_t cell_gate = tvm_ext_helium_lstm_gate(layer, sums_of_input, sums_of_hidden, 2, u);
    const uint16x8_t cell_size = vreinterpretq_u16_s16(vabsq_s16(cell_gate));
    const int16x8_t candidate = tvm_ext_helium_lstm_tanh(cell_size, cell_gate, table);
    int16x8_t next = vqaddq_s16(kept, tvm_ext_helium_lstm_product(share, candidate, layer->update));
    if (layer->clip > 0) {
        next = tvm_ext_i16x8_clamp(next, (int16_t)-layer->clip, (int16_t)layer->clip);
    }
    tvm_ext_helium_units_store(&cell[u], next, count);
    const int16x8_t output_gate = tvm_ext_helium_lstm_gate(layer, sums_of_input, sums_of_hidden, 3, u);
    const int16x8_t let_out =
        tvm_ext_helium_lstm_product(tvm_ext_helium_lstm_cell_tanh(layer, next, table),
                                    tvm_ext_helium_lstm_sigmoid(output_gate, table), layer->output);
    tvm_ext_helium_units_store_i8(&hidden[u], tvm_ext_i16x8_add_n(let_out, (int16_t)layer->zero_point), count);
}

/* tvm_ext_lstm_step */
TVM_EXT_INLINE void tvm_ext_helium_lstm_step(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                             const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                             const uint16_t *table)
{
    const int32_t rest = layer->units % TVM_EXT_HELIUM_UNITS;
    const int32_t whole = layer->units - rest;
    for (int32_t u = 0; u < whole; u += TVM_EXT_HELIUM_UNITS) {
        tvm_ext_helium_lstm_units(layer, sums_of_input, sums_of_hidden, cell, hidden, table, u, TVM_EXT_HELIUM_UNITS);
    }
    if (rest > 0) {
        tvm_ext_helium_lstm_units(layer, sums_of_input, sums_of_hidden, cell, hidden, table, whole, rest);
    }
}

/* Returns what tvm_ext_recurrent_gate returns, for eight units from `index` on: a gate before its activation. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_recurrent_gate(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                                       const int32_t *multiplier, int32_t index)
{
    const int32x4_t even = vshlq_r_s32(vldrwq_s32(&sums[index]), layer->left);
    const int32x4_t odd = vshlq_r_s32(vldrwq_s32(&sums[index + 4]), layer->left);
    return tvm_ext_i16x8_narrow(vrmulhq_s32(even, vldrwq_s32(&multiplier[index])),
                                vrmulhq_s32(odd, vldrwq_s32(&multiplier[index + 4])));
}

/* Returns what tvm_ext_recurrent_sigmoid returns, for eight numbers. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_recurrent_sigmoid(int16x8_t gate, const int16_t *table)
{
    const uint16x8_t bits = vreinterpretq_u16_s16(gate);
    const uint16x8_t place = vshrq_n_u16(veorq_u16(bits, vdupq_n_u16(1U << 15)), 8);
    const int16x8_t low = vldrhq_gather_shifted_offset_s16(table, place);
    const int16x8_t high = vldrhq_gather_shifted_offset_s16(&table[1], place);
    const uint16x8_t step = vreinterpretq_u16_s16(vsubq_s16(high, low));
    return vaddq_s16(low, vreinterpretq_s16_u16(vmulhq_u16(step, vshlq_n_u16(bits, 8))));
}

/* Returns what tvm_ext_recurrent_tanh returns, for eight numbers. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_recurrent_tanh(int16x8_t gate, const int16_t *table)
{
    const int16x8_t sigmoid = tvm_ext_helium_recurrent_sigmoid(gate, table);
    return veorq_s16(vshlq_n_s16(sigmoid, 1), vdupq_n_s16(INT16_MIN));
}

/* Writes hidden states from values of 16 bits, as tvm_ext_recurrent_hidden. */
TVM_EXT_INLINE void tvm_ext_helium_recurrent_hidden(const tvm_ext_recurrent_layer *layer, int16x8_t values,
                                                    int8_t *hidden, int32_t count)
{
    const int16x8_t multiplier = vdupq_n_s16((int16_t)layer->hidden_multiplier);
    const int32x4_t even = vrshlq_n_s32(vmullbq_int_s16(values, multiplier), -layer->hidden_shift);
    const int32x4_t odd = vrshlq_n_s32(vmulltq_int_s16(values, multiplier), -layer->hidden_shift);
    const int16x8_t steps = tvm_ext_i16x8_add_n(tvm_ext_i16x8_narrow(even, odd), (int16_t)layer->zero_point);
    tvm_ext_helium_units_store_i8(hidden, vmaxq_s16(steps, vdupq_n_s16((int16_t)layer->low)), count);
}

/* Computes `count` units of tvm_ext_recurrent_lstm, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_lstm_of(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                           const int32_t *multiplier, int16_t *cell, int8_t *hidden,
                                           const int16_t *table, int32_t count)
{
    const int32_t units = layer->units;
    const int32_t power = layer->state_power;
    const int16x8_t share =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 0), table);
    const int16x8_t candidate =
        tvm_ext_helium_recurrent_tanh(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 3 * units), table);
    const int16x8_t forget =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 2 * units), table);
    const int16x8_t before = tvm_ext_helium_units_load(cell, count);
    const int32x4_t even =
        vaddq_s32(vmullbq_int_s16(forget, before), vshlq_r_s32(vmullbq_int_s16(share, candidate), power - 15));
    const int32x4_t odd =
        vaddq_s32(vmulltq_int_s16(forget, before), vshlq_r_s32(vmulltq_int_s16(share, candidate), power - 15));
    int16x8_t next = tvm_ext_i16x8_narrow(vrshrq_n_s32(even, 15), vrshrq_n_s32(odd, 15));
    if (layer->limit > 0) {
        next = tvm_ext_i16x8_clamp(next, (int16_t)-layer->limit, (int16_t)layer->limit);
    }
    tvm_ext_helium_units_store(cell, next, count);
    const int16x8_t scaled = power > 13 ? vrshlq_n_s16(next, 13 - power) : vqshlq_r_s16(next, 13 - power);
    const int16x8_t output =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, units), table);
    const int16x8_t let_out = vqrdmulhq_s16(output, tvm_ext_helium_recurrent_tanh(scaled, table));
    tvm_ext_helium_recurrent_hidden(layer, let_out, hidden, count);
}

/* Computes `count` units of tvm_ext_recurrent_blend, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_recurrent_blend(const tvm_ext_recurrent_layer *layer, int16x8_t z,
                                                   int16x8_t candidate, int16_t *state, int8_t *hidden, int32_t count)
{
    const int16x8_t before = tvm_ext_helium_units_load(state, count);
    const int16x8_t other = vrshlq_n_s16(candidate, layer->state_power - 15);
    const int16x8_t rest = vsubq_s16(vdupq_n_s16(INT16_MIN), z); /* 2^15 - z, modulo 2^16 */
    const int32x4_t even = vaddq_s32(vmullbq_int_s16(z, before), vmullbq_int_s16(rest, other));
    const int32x4_t odd = vaddq_s32(vmulltq_int_s16(z, before), vmulltq_int_s16(rest, other));
    const int16x8_t next = tvm_ext_i16x8_narrow(vrshrq_n_s32(even, 15), vrshrq_n_s32(odd, 15));
    tvm_ext_helium_units_store(state, next, count);
    tvm_ext_helium_recurrent_hidden(layer, next, hidden, count);
}

/* Computes `count` units of tvm_ext_recurrent_gru, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_gru_of(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                          const int32_t *multiplier, int16_t *state, int8_t *hidden,
                                          const int16_t *table, int32_t count)
{
    const int32_t units = layer->units;
    const int16x8_t reset =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, units), table);
    const int16x8_t product = tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 3 * units);
    const int16x8_t of_input = tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 2 * units);
    /* Where the total saturates, twice the total saturates, too. */
    const int16x8_t total = vqaddq_s16(of_input, vqrdmulhq_s16(reset, product));
    const int16x8_t candidate = tvm_ext_helium_recurrent_tanh(vqaddq_s16(total, total), table);
    const int16x8_t z =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 0), table);
    tvm_ext_helium_recurrent_blend(layer, z, candidate, state, hidden, count);
}

/* Computes `count` units of tvm_ext_recurrent_reset, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_reset_of(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                            const int32_t *multiplier, int16_t *state, int8_t *hidden,
                                            const int16_t *table, int32_t count)
{
    const int16x8_t reset =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, layer->units), table);
    const int16x8_t kept = vqrdmulhq_s16(reset, tvm_ext_helium_units_load(state, count));
    tvm_ext_helium_recurrent_hidden(layer, kept, hidden, count);
}

/* Computes `count` units of tvm_ext_recurrent_gru_candidate, at most eight. */
TVM_EXT_INLINE void tvm_ext_helium_gru_candidate_of(const tvm_ext_recurrent_layer *layer, const int32_t *sums,
                                                    const int32_t *multiplier, int16_t *state, int8_t *hidden,
                                                    const int16_t *table, int32_t count)
{
    const int16x8_t gate = tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 2 * layer->units);
    const int16x8_t z =
        tvm_ext_helium_recurrent_sigmoid(tvm_ext_helium_recurrent_gate(layer, sums, multiplier, 0), table);
    tvm_ext_helium_recurrent_blend(layer, z, tvm_ext_helium_recurrent_tanh(gate, table), state, hidden, count);
}

/* Defines a function of tvm_ext_recurrent.h of this name, which computes whole vectors of units, then the rest of
 * them. */
#define TVM_EXT_HELIUM_RECURRENT(NAME)                                                                              \
    TVM_EXT_INLINE void tvm_ext_helium_recurrent_##NAME(const tvm_ext_recurrent_layer *layer, const int32_t *sums,  \
                                                        const int32_t *multiplier, int16_t *state, int8_t *hidden,  \
                                                        const int16_t *table)                                       \
    {                                                                                                               \
        const int32_t rest = layer->units % TVM_EXT_HELIUM_UNITS;                                                   \
        const int32_t whole = layer->units - rest;                                                                  \
        for (int32_t u = 0; u < whole; u += TVM_EXT_HELIUM_UNITS) {                                                 \
            tvm_ext_helium_##NAME##_of(layer, &sums[u], &multiplier[u], &state[u], &hidden[u], table,               \
                                       TVM_EXT_HELIUM_UNITS);                                                       \
        }                                                                                                           \
        if (rest > 0) {                                                                                             \
            tvm_ext_helium_##NAME##_of(layer, &sums[whole], &multiplier[whole], &state[whole], &hidden[whole],      \
                                       table, rest);                                                                \
        }                                                                                                           \
    }

#else

TVM_EXT_INLINE void tvm_ext_helium_lstm_step(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                             const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                             const uint16_t *table)
{
    tvm_ext_lstm_step(layer, sums_of_input, sums_of_hidden, cell, hidden, table);
}

#define TVM_EXT_HELIUM_RECURRENT(NAME)                                                                              \
    TVM_EXT_INLINE void tvm_ext_helium_recurrent_##NAME(const tvm_ext_recurrent_layer *layer, const int32_t *sums,  \
                                                        const int32_t *multiplier, int16_t *state, int8_t *hidden,  \
                                                        const int16_t *table)                                       \
    {                                                                                                               \
        tvm_ext_recurrent_##NAME(layer, sums, multiplier, state, hidden, table);                                    \
    }

#endif

TVM_EXT_HELIUM_RECURRENT(lstm)
TVM_EXT_HELIUM_RECURRENT(gru)
TVM_EXT_HELIUM_RECURRENT(reset)
TVM_EXT_HELIUM_RECURRENT(gru_candidate)

#endif
