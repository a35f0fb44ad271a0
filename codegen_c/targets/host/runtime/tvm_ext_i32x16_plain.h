/* The functions of tvm_ext_i32x16.h in plain C, for processors without AVX2 or NEON. */
#ifndef TVM_EXT_I32X16_PLAIN_H
#define TVM_EXT_I32X16_PLAIN_H

#include "tvm_ext_i32x16_avx2.h"
#include "tvm_ext_i32x16_neon.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

#if !defined(TVM_EXT_I32X16_ACCUMULATORS)

#define TVM_EXT_I32X16_ACCUMULATORS 1
#define TVM_EXT_I32X16_UNITS 1
#define TVM_EXT_I32X16_TAKES_UNSIGNED true

typedef struct {
    int32_t lane[16];
} tvm_ext_i32x16;

typedef struct {
    uint8_t lane[64];
} tvm_ext_i8x64;

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_load(const int32_t *source)
{
    tvm_ext_i32x16 result;
    (void)memcpy(result.lane, source, sizeof result.lane);
    return result;
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    for (int32_t i = 0; i < 16; ++i) {
        a.lane[i] = (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]);
    }
    return a;
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_subtract(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    for (int32_t i = 0; i < 16; ++i) {
        a.lane[i] = (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]);
    }
    return a;
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_down(tvm_ext_i32x16 value, int32_t shift)
{
    for (int32_t i = 0; i < 16; ++i) {
        value.lane[i] >>= shift;
    }
    return value;
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_up(tvm_ext_i32x16 value, int32_t shift)
{
    for (int32_t i = 0; i < 16; ++i) {
        value.lane[i] = (int32_t)((uint32_t)value.lane[i] << shift);
    }
    return value;
}

/* Returns a * factors[0] + b * factors[1] + addend for numbers a and b that fit 16 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_weighted(tvm_ext_i32x16 a, tvm_ext_i32x16 b, const int16_t factors[2],
                                                      int32_t addend)
{
    for (int32_t i = 0; i < 16; ++i) {
        a.lane[i] = (a.lane[i] * (int32_t)factors[0]) + (b.lane[i] * (int32_t)factors[1]) + addend;
    }
    return a;
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_widen(const uint8_t *source, bool is_unsigned)
{
    tvm_ext_i32x16 result;
    for (int32_t i = 0; i < 16; ++i) {
        result.lane[i] = is_unsigned ? (int32_t)source[i] : (int32_t)(int8_t)source[i];
    }
    return result;
}

TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_load(const uint8_t *source)
{
    tvm_ext_i8x64 result;
    (void)memcpy(result.lane, source, sizeof result.lane);
    return result;
}

/* Returns 64 numbers of 4 bits from 32 bytes, the lower four bits of all bytes first. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_nibbles(const uint8_t *source)
{
    tvm_ext_i8x64 result;
    for (int32_t i = 0; i < 32; ++i) {
        result.lane[i] = (uint8_t)(((source[i] & 15) ^ 8) - 8);
        result.lane[i + 32] = (uint8_t)(((source[i] >> 4) ^ 8) - 8);
    }
    return result;
}

/* Returns four elements of 8 bits in all groups of four lanes. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_quad(const uint8_t *source)
{
    tvm_ext_i8x64 result;
    for (int32_t i = 0; i < 64; ++i) {
        result.lane[i] = source[i % 4];
    }
    return result;
}

/* Adds the products of each four adjacent lanes to an accumulator. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add_quads(tvm_ext_i32x16 sums, tvm_ext_i8x64 activations,
                                                       tvm_ext_i8x64 weights, bool is_symmetric)
{
    (void)is_symmetric; /* all products are exact */
    for (int32_t i = 0; i < 16; ++i) {
        int32_t products = 0;
        for (int32_t j = 4 * i; j < (4 * i) + 4; ++j) {
            products += (int32_t)activations.lane[j] * (int32_t)(int8_t)weights.lane[j];
        }
        sums.lane[i] = (int32_t)((uint32_t)sums.lane[i] + (uint32_t)products);
    }
    return sums;
}

/* Copies `count` bytes and inverts the bits of `flip` in them. */
TVM_EXT_INLINE void tvm_ext_i8x64_copy(uint8_t *target, const uint8_t *source, int32_t count, uint8_t flip)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = (uint8_t)(source[i] ^ flip);
    }
}

/* Interleaves `count` bytes of four rows. */
TVM_EXT_INLINE void tvm_ext_i8x64_weave(uint8_t *target, const uint8_t *const rows[4], int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        for (int32_t r = 0; r < 4; ++r) {
            target[(4 * i) + r] = rows[r][i];
        }
    }
}

/* Returns round(value * multiplier / 2^(32 + shift)), halves to even. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                    tvm_ext_i32x16 half, tvm_ext_i32x16 shift, bool has_ties)
{
    (void)half;
    (void)has_ties;
    for (int32_t i = 0; i < 16; ++i) {
        value.lane[i] = tvm_ext_requantize(value.lane[i], multiplier.lane[i], shift.lane[i] + 32);
    }
    return value;
}

/* Returns value * multiplier / 2^31, rounded, then / 2^shift, halves away from zero, like TensorFlow Lite; shift > 0.
 */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_twice(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                          tvm_ext_i32x16 half, tvm_ext_i32x16 shift)
{
    (void)half;
    for (int32_t i = 0; i < 16; ++i) {
        value.lane[i] =
            tvm_ext_divide_by_power(tvm_ext_multiply_high(value.lane[i], multiplier.lane[i]), shift.lane[i]);
    }
    return value;
}

/* Adds the zero point to 16 numbers, clamps them, and stores the first `count` of them as elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x16_store_bytes(uint8_t *target, tvm_ext_i32x16 value, int32_t count, int32_t zero_point,
                                               int32_t low, int32_t high, bool is_unsigned)
{
    (void)is_unsigned;
    for (int32_t i = 0; i < 16 && i < count; ++i) {
        target[i] = (uint8_t)tvm_ext_clamp(value.lane[i] + zero_point, low, high);
    }
}

#endif

#endif
