/* Vectors of 4 sums and of 8 numbers of 16 bits for generated kernels: WebAssembly's SIMD128, or plain C without it.
 * Products of 16-bit numbers are exact, and sums are taken modulo 2^32, so both forms give the same results. */
#ifndef TVM_EXT_SIMD128_H
#define TVM_EXT_SIMD128_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

/* The float in which one unit of the last place is 1: adding it rounds a float to an integer, halves to even. */
#define TVM_EXT_SIMD128_MAGIC 12582912.0f
#define TVM_EXT_SIMD128_MAGIC_BITS 0x4B400000

#if defined(__wasm_simd128__)

#include <wasm_simd128.h>

typedef v128_t tvm_ext_i32x4;
typedef v128_t tvm_ext_i16x8;

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    return wasm_v128_load(source);
}

TVM_EXT_INLINE void tvm_ext_i16x8_store(int16_t *target, tvm_ext_i16x8 value)
{
    wasm_v128_store(target, value);
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_splat(int32_t value)
{
    return wasm_i16x8_splat((int16_t)value);
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return wasm_i16x8_add(a, b);
}

/* Widens 8 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_widen(const uint8_t *source, bool is_unsigned)
{
    return is_unsigned ? wasm_u16x8_load8x8(source) : wasm_i16x8_load8x8(source);
}

/* Returns two numbers in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_pair(const int16_t *source)
{
    return wasm_v128_load32_splat(source);
}

/* Interleaves the first and the last four lanes of a and b. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_low_turns(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_high_turns(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Adds the products of each two adjacent lanes to the sums. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_add_pairs(tvm_ext_i32x4 sums, tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(a, b));
}

/* Returns value * factor + offset, each operation rounded to float, then to an integer, halves to even, plus the zero
 * point. shift: added to the offset of negative values. factors, offsets, shifts: the bits of four floats. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_scaled_by_floats(tvm_ext_i32x4 value, const int32_t *factors,
                                                            const int32_t *offsets, const int32_t *shifts,
                                                            bool has_signs, int32_t zero_point)
{
    const v128_t product = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(value), wasm_v128_load(factors));
    v128_t offset = wasm_v128_load(offsets);
    if (has_signs) {
        const v128_t is_negative = wasm_i32x4_shr(value, 31);
        offset = wasm_v128_bitselect(wasm_v128_load(shifts), offset, is_negative);
    }
    const v128_t rounded = wasm_f32x4_add(wasm_f32x4_add(product, offset), wasm_f32x4_const_splat(12582912.0f));
    return wasm_i32x4_sub(rounded, wasm_i32x4_splat(TVM_EXT_SIMD128_MAGIC_BITS - zero_point));
}

/* Returns the high product of TensorFlow Lite, value * multiplier / 2^31, rounded; or, if rounded once, its high word
 * value * multiplier / 2^32, rounded down. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_high_product(tvm_ext_i32x4 value, const int32_t *multipliers, bool is_twice)
{
    const v128_t factor = wasm_v128_load(multipliers);
    const v128_t first = wasm_i64x2_extmul_low_i32x4(value, factor);
    const v128_t second = wasm_i64x2_extmul_high_i32x4(value, factor);
    if (!is_twice) {
        return wasm_i32x4_shuffle(first, second, 1, 3, 5, 7);
    }
    const v128_t half = wasm_i64x2_const_splat(INT64_C(1) << 30);
    /* The low words of the shifted numbers do not depend on the sign, and few processors shift 64 bits with it. */
    return wasm_i32x4_shuffle(wasm_u64x2_shr(wasm_i64x2_add(first, half), 31),
                              wasm_u64x2_shr(wasm_i64x2_add(second, half), 31), 0, 2, 4, 6);
}

/* Returns high / 2^s, rounded: halves up, or away from zero if rounded twice. Each lane has its own s of at most
 * `shift`: halves holds 2^(s - 1), powers 2^(shift - s). */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_divided(tvm_ext_i32x4 high, const int32_t *halves, const int32_t *powers,
                                                   int32_t shift, bool is_twice)
{
    v128_t sum = wasm_i32x4_add(high, wasm_v128_load(halves));
    if (is_twice) {
        sum = wasm_i32x4_add(sum, wasm_i32x4_shr(high, 31));
    }
    return wasm_i32x4_shr(wasm_i32x4_mul(sum, wasm_v128_load(powers)), (uint32_t)shift);
}

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    return wasm_i32x4_splat(value);
}

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return wasm_i32x4_add(a, b);
}

/* Returns value / 2^shift, rounded down. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_right(tvm_ext_i32x4 value, int32_t shift)
{
    return wasm_i32x4_shr(value, (uint32_t)shift);
}

/* Clamps 8 results and stores elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x4_store_bytes(uint8_t *target, tvm_ext_i32x4 first, tvm_ext_i32x4 second, int32_t low,
                                              int32_t high, bool is_unsigned)
{
    const v128_t words = wasm_i16x8_narrow_i32x4(first, second);
    v128_t bytes = is_unsigned ? wasm_u8x16_narrow_i16x8(words, words) : wasm_i8x16_narrow_i16x8(words, words);
    if (low > (is_unsigned ? 0 : INT8_MIN)) {
        const v128_t least = wasm_i8x16_splat((int8_t)low);
        bytes = is_unsigned ? wasm_u8x16_max(bytes, least) : wasm_i8x16_max(bytes, least);
    }
    if (high < (is_unsigned ? UINT8_MAX : INT8_MAX)) {
        const v128_t most = wasm_i8x16_splat((int8_t)high);
        bytes = is_unsigned ? wasm_u8x16_min(bytes, most) : wasm_i8x16_min(bytes, most);
    }
    wasm_v128_store64_lane(target, bytes, 0);
}

#else

typedef struct {
    int32_t lane[4];
} tvm_ext_i32x4;

typedef struct {
    int16_t lane[8];
} tvm_ext_i16x8;

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    tvm_ext_i32x4 result;
    (void)memcpy(result.lane, source, sizeof result.lane);
    return result;
}

TVM_EXT_INLINE void tvm_ext_i16x8_store(int16_t *target, tvm_ext_i16x8 value)
{
    (void)memcpy(target, value.lane, sizeof value.lane);
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_splat(int32_t value)
{
    tvm_ext_i16x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = (int16_t)value;
    }
    return result;
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    for (int32_t i = 0; i < 8; ++i) {
        a.lane[i] = (int16_t)(a.lane[i] + b.lane[i]);
    }
    return a;
}

/* Widens 8 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_widen(const uint8_t *source, bool is_unsigned)
{
    tvm_ext_i16x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = is_unsigned ? (int16_t)source[i] : (int16_t)(int8_t)source[i];
    }
    return result;
}

/* Returns two numbers in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_pair(const int16_t *source)
{
    tvm_ext_i16x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = source[i % 2];
    }
    return result;
}

/* Interleaves four lanes of a and b, from `first` on. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_turns(tvm_ext_i16x8 a, tvm_ext_i16x8 b, int32_t first)
{
    tvm_ext_i16x8 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[2 * i] = a.lane[first + i];
        result.lane[(2 * i) + 1] = b.lane[first + i];
    }
    return result;
}

/* Interleaves the first and the last four lanes of a and b. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_low_turns(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return tvm_ext_i16x8_turns(a, b, 0);
}

TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_i16x8_high_turns(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return tvm_ext_i16x8_turns(a, b, 4);
}

/* Adds the products of each two adjacent lanes to the sums. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_add_pairs(tvm_ext_i32x4 sums, tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t products = (a.lane[2 * i] * b.lane[2 * i]) + (a.lane[(2 * i) + 1] * b.lane[(2 * i) + 1]);
        sums.lane[i] = (int32_t)((uint32_t)sums.lane[i] + (uint32_t)products);
    }
    return sums;
}

/* Returns value * factor + offset, each operation rounded to float, then to an integer, halves to even, plus the zero
 * point. shifts: offsets of negative values. factors, offsets, shifts: the bits of four floats. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_scaled_by_floats(tvm_ext_i32x4 value, const int32_t *factors,
                                                            const int32_t *offsets, const int32_t *shifts,
                                                            bool has_signs, int32_t zero_point)
{
    for (int32_t i = 0; i < 4; ++i) {
        float factor;
        float offset;
        (void)memcpy(&factor, &factors[i], sizeof factor);
        (void)memcpy(&offset, has_signs && value.lane[i] < 0 ? &shifts[i] : &offsets[i], sizeof offset);
        const float product = (float)value.lane[i] * factor;
        value.lane[i] = (int32_t)lrintf(product + offset) + zero_point;
    }
    return value;
}

/* Returns the high product of TensorFlow Lite, value * multiplier / 2^31, rounded; or, if rounded once, its high word
 * value * multiplier / 2^32, rounded down. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_high_product(tvm_ext_i32x4 value, const int32_t *multipliers, bool is_twice)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int64_t product = (int64_t)value.lane[i] * multipliers[i];
        value.lane[i] = (int32_t)(is_twice ? (product + (INT64_C(1) << 30)) >> 31 : product >> 32);
    }
    return value;
}

/* Returns high / 2^s, rounded: halves up, or away from zero if rounded twice. Each lane has its own s of at most
 * `shift`: halves holds 2^(s - 1), powers 2^(shift - s). */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_divided(tvm_ext_i32x4 high, const int32_t *halves, const int32_t *powers,
                                                   int32_t shift, bool is_twice)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t sum = high.lane[i] + halves[i] - (is_twice && high.lane[i] < 0 ? 1 : 0);
        high.lane[i] = (sum * powers[i]) >> shift;
    }
    return high;
}

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    const tvm_ext_i32x4 result = {{value, value, value, value}};
    return result;
}

TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    for (int32_t i = 0; i < 4; ++i) {
        a.lane[i] = (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]);
    }
    return a;
}

/* Returns value / 2^shift, rounded down. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_i32x4_right(tvm_ext_i32x4 value, int32_t shift)
{
    for (int32_t i = 0; i < 4; ++i) {
        value.lane[i] >>= shift;
    }
    return value;
}

/* Clamps 8 results and stores elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x4_store_bytes(uint8_t *target, tvm_ext_i32x4 first, tvm_ext_i32x4 second, int32_t low,
                                              int32_t high, bool is_unsigned)
{
    (void)is_unsigned;
    for (int32_t i = 0; i < 4; ++i) {
        target[i] = (uint8_t)tvm_ext_clamp(first.lane[i], low, high);
        target[i + 4] = (uint8_t)tvm_ext_clamp(second.lane[i], low, high);
    }
}

#endif

#endif
