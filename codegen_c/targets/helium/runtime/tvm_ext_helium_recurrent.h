/* Gates and states of recurrent layers on integers with Helium, eight units at a time: the bytes of tvm_ext_qlstm.h.
 *
 * All gates stay in lanes of 16 bits. A place in a table and the rest of the way to the next entry are the two halves
 * of one product of 16 bits, and each line between two entries is rounded exactly as one with 32 bits is. */
#ifndef TVM_EXT_HELIUM_RECURRENT_H
#define TVM_EXT_HELIUM_RECURRENT_H

#include "tvm_ext_helium.h"
#include "tvm_ext_qlstm.h"

#define TVM_EXT_HELIUM_UNITS 8

#if defined(TVM_EXT_HAS_HELIUM)

/* Loads `count` elements, 1 to 8, with zeros after them. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_units_load(const int16_t *source, int32_t count)
{
    return count >= TVM_EXT_HELIUM_UNITS ? vldrhq_s16(source) : vldrhq_z_s16(source, vctp16q((uint32_t)count));
}

TVM_EXT_INLINE void tvm_ext_helium_units_store(int16_t *target, int16x8_t a, int32_t count)
{
    if (count >= TVM_EXT_HELIUM_UNITS) {
        vstrhq_s16(target, a);
    } else {
        TVM_EXT_HELIUM_KEEP(target, 16);
        vstrhq_p_s16(target, a, vctp16q((uint32_t)count));
    }
}

/* The same for elements that are saturated to int8_t. */
TVM_EXT_INLINE void tvm_ext_helium_units_store_i8(int8_t *target, int16x8_t a, int32_t count)
{
    const int16x8_t bytes = tvm_ext_i16x8_limited(a);
    if (count >= TVM_EXT_HELIUM_UNITS) {
        vstrbq_s16(target, bytes);
    } else {
        TVM_EXT_HELIUM_KEEP(target, 8);
        vstrbq_p_s16(target, bytes, vctp16q((uint32_t)count));
    }
}

/* value - 32768 * sign, for units between 0 and 1: sigmoid(-x) = 1 - sigmoid(x) where `sign` is -1, else sigmoid(x) */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_mirrored(int16x8_t value, int16x8_t sign)
{
    const int16x8_t flipped = veorq_s16(value, vandq_s16(sign, vdupq_n_s16(INT16_MAX)));
    return vsubq_s16(flipped, sign);
}

/* tvm_ext_lstm_scaled */
TVM_EXT_INLINE int32x4_t tvm_ext_helium_lstm_scaled(int32x4_t a, tvm_ext_lstm_factor factor)
{
    if (factor.shift <= 31) {
        return vqrdmulhq_n_s32(vshlq_r_s32(a, 31 - factor.shift), factor.multiplier);
    }
    const int32x4_t high = vqrdmulhq_n_s32(a, factor.multiplier);
    /* Halves are rounded away from zero. */
    return vrshlq_n_s32(vaddq_s32(high, vshrq_n_s32(high, 31)), 31 - factor.shift);
}

/* The product of two numbers of 16 bits times a factor, as int16. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_product(int16x8_t a, int16x8_t b, tvm_ext_lstm_factor factor)
{
    const int32x4_t even = tvm_ext_helium_lstm_scaled(vmullbq_int_s16(a, b), factor);
    const int32x4_t odd = tvm_ext_helium_lstm_scaled(vmulltq_int_s16(a, b), factor);
    return tvm_ext_i16x8_narrow(even, odd);
}

/* Eight sums times a factor, as int16. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_narrowed(const int32_t *sums, tvm_ext_lstm_factor factor)
{
    const int32x4x2_t pairs = vld2q_s32(sums);
    return tvm_ext_i16x8_narrow(tvm_ext_helium_lstm_scaled(pairs.val[0], factor),
                                tvm_ext_helium_lstm_scaled(pairs.val[1], factor));
}

/* Gate g of eight units from unit u on before its activation. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_gate(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                                  const int32_t *sums_of_hidden, int32_t g, int32_t u)
{
    const int32_t index = (g * layer->units) + u;
    return vqaddq_s16(tvm_ext_helium_lstm_narrowed(&sums_of_input[index], layer->input[g]),
                      tvm_ext_helium_lstm_narrowed(&sums_of_hidden[index], layer->hidden[g]));
}

/* tvm_ext_lstm_sigmoid. A line in units of 2^-9 of entries is halved, halves up, after its bits below 1 are cut off. */
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

/* 2^15 * tanh, from the place of |x| in the table, the rest of the way to the next entry in units of 2^-16, and a
 * vector with the sign of x. */
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

/* The same of 3 * size, with the sign of x. */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_tanh(uint16x8_t size, int16x8_t x, const uint16_t *table)
{
    const uint16x8_t scale = vdupq_n_u16(3 << 8);
    return tvm_ext_helium_lstm_tanh_at(vmulhq_u16(size, scale), vmulq_u16(size, scale), x, table);
}

/* tvm_ext_lstm_cell_tanh */
TVM_EXT_INLINE int16x8_t tvm_ext_helium_lstm_cell_tanh(const tvm_ext_lstm_layer *layer, int16x8_t cell,
                                                       const uint16_t *table)
{
    if (layer->cell_right == 0) {
        /* Sizes that saturate are far behind the end of the table. */
        const uint16x8_t size = vreinterpretq_u16_s16(vabsq_s16(cell));
        return tvm_ext_helium_lstm_tanh(vqshlq_r_u16(size, layer->cell_left), cell, table);
    }
    const int32x4_t even = vrshlq_n_s32(vmulq_n_s32(vmovlbq_s16(cell), 3), -layer->cell_right);
    const int32x4_t odd = vrshlq_n_s32(vmulq_n_s32(vmovltq_s16(cell), 3), -layer->cell_right);
    const uint16x8_t size = vmovntq_u32(vreinterpretq_u16_s32(vabsq_s32(even)), vreinterpretq_u32_s32(vabsq_s32(odd)));
    return tvm_ext_helium_lstm_tanh_at(vshrq_n_u16(size, 8), vshlq_n_u16(size, 8), cell, table);
}

/* `count` units of a step from unit u on, at most eight. */
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

/* tvm_ext_lstm_step. Up to 28 bytes after the sums are read and not used. */
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

#else

TVM_EXT_INLINE void tvm_ext_helium_lstm_step(const tvm_ext_lstm_layer *layer, const int32_t *sums_of_input,
                                             const int32_t *sums_of_hidden, int16_t *cell, int8_t *hidden,
                                             const uint16_t *table)
{
    tvm_ext_lstm_step(layer, sums_of_input, sums_of_hidden, cell, hidden, table);
}

#endif

#endif
