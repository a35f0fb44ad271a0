/* Plain C instead of Helium, for compilers without it; tvm_ext_helium.h includes and describes these functions. */
#ifndef TVM_EXT_HELIUM_PLAIN_H
#define TVM_EXT_HELIUM_PLAIN_H

#ifndef TVM_EXT_HAS_HELIUM

#include "tvm_ext_requantize.h"

#include <stdint.h>
#include <string.h>

typedef struct {
    int8_t lane[16];
} tvm_ext_i8x16;

typedef struct {
    int16_t lane[8];
} tvm_ext_i16x8;

typedef struct {
    int32_t lane[4];
} tvm_ext_i32x4;

#define TVM_EXT_EACH(type, count, value)                                                                             \
    type result;                                                                                                     \
    for (int32_t i = 0; i < (count); ++i) {                                                                          \
        result.lane[i] = (value);                                                                                    \
    }                                                                                                                \
    return result

/* Sums and products of int32_t as in the hardware: modulo 2^32. */
static inline int32_t tvm_ext_wrap(int64_t value)
{
    const uint32_t word = (uint32_t)((uint64_t)value & UINT32_MAX);
    int32_t result;
    memcpy(&result, &word, sizeof(result));
    return result;
}

static inline int16_t tvm_ext_limit_i16(int32_t value)
{
    return (int16_t)tvm_ext_clamp(value, INT16_MIN, INT16_MAX);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_load_first(const void *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, i < count ? ((const int8_t *)source)[i] : 0);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_load(const void *source)
{
    return tvm_ext_i8x16_load_first(source, 16);
}

static inline void tvm_ext_i8x16_store(void *target, tvm_ext_i8x16 a)
{
    memcpy(target, a.lane, sizeof(a.lane));
}

static inline void tvm_ext_i8x16_store_first(void *target, tvm_ext_i8x16 a, int32_t count)
{
    memcpy(target, a.lane, (size_t)(count < 16 ? count : 16));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_splat(int8_t value)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, value);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_xor(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)(a.lane[i] ^ b.lane[i]));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_max(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_min(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_of(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)(uint8_t)((i % 2 ? odd : even).lane[i / 2] & 255));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_limited(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)tvm_ext_clamp((i % 2 ? odd : even).lane[i / 2], INT8_MIN, INT8_MAX));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_splat(int16_t value)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, value);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_even(tvm_ext_i8x16 a)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, a.lane[2 * i]);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_odd(tvm_ext_i8x16 a)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, a.lane[2 * i + 1]);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, (int16_t)(uint16_t)((a.lane[i] + b.lane[i]) & 0xFFFF));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_add_n(tvm_ext_i16x8 a, int16_t b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, tvm_ext_limit_i16(a.lane[i] + b));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_clamp(tvm_ext_i16x8 a, int16_t low, int16_t high)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, (int16_t)tvm_ext_clamp(a.lane[i], low, high));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_narrow(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, tvm_ext_limit_i16((i % 2 ? b : a).lane[i / 2]));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_limited(tvm_ext_i16x8 a)
{
    return tvm_ext_i16x8_clamp(a, INT8_MIN, INT8_MAX);
}

static inline void tvm_ext_i16x8_store_even(void *target, tvm_ext_i16x8 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        ((uint8_t *)target)[i] = (uint8_t)(a.lane[2 * i] & 255);
    }
}

static inline void tvm_ext_i16x8_store_odd(void *target, tvm_ext_i16x8 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        ((uint8_t *)target)[i] = (uint8_t)(a.lane[2 * i + 1] & 255);
    }
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, source[i]);
}

static inline void tvm_ext_i32x4_store(int32_t *target, tvm_ext_i32x4 a)
{
    for (int32_t i = 0; i < 4; ++i) {
        target[i] = a.lane[i];
    }
}

static inline void tvm_ext_i32x4_store_some(int32_t *target, tvm_ext_i32x4 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        target[i] = a.lane[i];
    }
}

static inline void tvm_ext_i32x4_store_in_turn(int32_t *target, tvm_ext_i32x4 a, tvm_ext_i32x4 b, tvm_ext_i32x4 c,
                                               tvm_ext_i32x4 d)
{
    for (int32_t i = 0; i < 4; ++i) {
        target[4 * i] = a.lane[i];
        target[(4 * i) + 1] = b.lane[i];
        target[(4 * i) + 2] = c.lane[i];
        target[(4 * i) + 3] = d.lane[i];
    }
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_i8(const int8_t *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, i < count ? source[i] : 0);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_u8(const uint8_t *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, i < count ? source[i] : 0);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, value);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_even(tvm_ext_i16x8 a)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, a.lane[2 * i]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_odd(tvm_ext_i16x8 a)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, a.lane[2 * i + 1]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((int64_t)a.lane[i] + b.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((int64_t)a.lane[i] * b.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_add_n(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap(((int64_t)a.lane[i] * b.lane[i]) + c));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_gather(const int32_t *table, tvm_ext_i32x4 places)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, table[places.lane[i]]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_mla(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap(a.lane[i] + (int64_t)b.lane[i] * c));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_shift(tvm_ext_i32x4 a, int32_t shift)
{
    const int64_t factor = (int64_t)1 << (shift > 0 ? shift : 0);
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((a.lane[i] >> (shift < 0 ? -shift : 0)) * factor));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, (int32_t)((a.lane[i] + ((int64_t)1 << (-shift.lane[i] - 1))) >> -shift.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_even(tvm_ext_i32x4 a, tvm_ext_i32x4 low, tvm_ext_i32x4 shift)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t is_even = 1 & ~(a.lane[i] >> -shift.lane[i]);
        a.lane[i] = tvm_ext_wrap((int64_t)a.lane[i] - (low.lane[i] == 0 ? is_even : 0));
    }
    return tvm_ext_i32x4_round_shift(a, shift);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, (int32_t)(((int64_t)a.lane[i] * b.lane[i] + ((int64_t)1 << 30)) >> 31));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_shift_away(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int64_t half = shift.lane[i] < 0 ? (int64_t)1 << (-shift.lane[i] - 1) : 0;
        const int64_t down = shift.lane[i] < 0 && a.lane[i] < 0 ? 1 : 0;
        a.lane[i] = (int32_t)((a.lane[i] - down + half) >> -shift.lane[i]);
    }
    return a;
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_high(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, (int32_t)(((int64_t)a.lane[i] * b.lane[i]) >> 32));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add_n(tvm_ext_i32x4 a, int32_t b)
{
    return tvm_ext_i32x4_add(a, tvm_ext_i32x4_splat(b));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_n(tvm_ext_i32x4 a, int32_t shift)
{
    return tvm_ext_i32x4_round_shift(a, tvm_ext_i32x4_splat(shift));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled_n(tvm_ext_i32x4 a, int32_t b)
{
    return tvm_ext_i32x4_multiply_doubled(a, tvm_ext_i32x4_splat(b));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_doubled_down_n(tvm_ext_i32x4 a, int32_t b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, (int32_t)(((int64_t)a.lane[i] * b) >> 31));
}

#endif

#endif
