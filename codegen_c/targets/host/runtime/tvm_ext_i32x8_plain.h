/* The functions of tvm_ext_i32x8.h in plain C, for processors without AVX2. */
#ifndef TVM_EXT_I32X8_PLAIN_H
#define TVM_EXT_I32X8_PLAIN_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#if !defined(__AVX2__)

typedef struct {
    int32_t lane[8];
} tvm_ext_i32x8;

typedef struct {
    int16_t lane[16];
} tvm_ext_i16x16;

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_load(const int32_t *source)
{
    tvm_ext_i32x8 result;
    (void)memcpy(result.lane, source, sizeof result.lane);
    return result;
}

TVM_EXT_INLINE void tvm_ext_i32x8_store(int32_t *target, tvm_ext_i32x8 value)
{
    (void)memcpy(target, value.lane, sizeof value.lane);
}

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_splat(int32_t value)
{
    tvm_ext_i32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = value;
    }
    return result;
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_load(const void *source)
{
    tvm_ext_i16x16 result;
    (void)memcpy(result.lane, source, sizeof result.lane);
    return result;
}

TVM_EXT_INLINE void tvm_ext_i16x16_store(void *target, tvm_ext_i16x16 value)
{
    (void)memcpy(target, value.lane, sizeof value.lane);
}

/* Returns an element of 8 bits. */
TVM_EXT_INLINE int16_t tvm_ext_i16_of_byte(uint8_t byte, bool is_unsigned)
{
    return is_unsigned ? (int16_t)byte : (int16_t)(int8_t)byte;
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_widen(const uint8_t *source, bool is_unsigned)
{
    tvm_ext_i16x16 result;
    for (int32_t i = 0; i < 16; ++i) {
        result.lane[i] = tvm_ext_i16_of_byte(source[i], is_unsigned);
    }
    return result;
}

/* Returns two numbers in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_pair(const int16_t *source)
{
    tvm_ext_i16x16 result;
    for (int32_t i = 0; i < 16; ++i) {
        result.lane[i] = source[i % 2];
    }
    return result;
}

/* Returns a number of 16 bits in all lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_splat(int32_t value)
{
    const int16_t both[2] = {(int16_t)value, (int16_t)value};
    return tvm_ext_i16x16_pair(both);
}

/* Returns one number and 0 in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_single(int32_t value)
{
    const int16_t both[2] = {(int16_t)value, 0};
    return tvm_ext_i16x16_pair(both);
}

/* Adds the products of each two adjacent lanes to the accumulators. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_add_pairs(tvm_ext_i32x8 sums, tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    for (int32_t i = 0; i < 8; ++i) {
        const int32_t products = (a.lane[2 * i] * b.lane[2 * i]) + (a.lane[(2 * i) + 1] * b.lane[(2 * i) + 1]);
        sums.lane[i] = (int32_t)((uint32_t)sums.lane[i] + (uint32_t)products);
    }
    return sums;
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_add(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    for (int32_t i = 0; i < 16; ++i) {
        a.lane[i] = (int16_t)(a.lane[i] + b.lane[i]);
    }
    return a;
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_subtract(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    for (int32_t i = 0; i < 16; ++i) {
        a.lane[i] = (int16_t)(a.lane[i] - b.lane[i]);
    }
    return a;
}

#endif

#endif
