/* Vectors of 8 floats for generated kernels: RISC-V's vectors with clang, or plain C.
 *
 * The type is a vector of the compiler's, which clang keeps in one or two registers of 128 bits or more. Each lane
 * computes exactly what a single float computes, TVM_EXT_FMA included, so both forms give the same results. */
#ifndef TVM_EXT_F32X8_H
#define TVM_EXT_F32X8_H

#include <stdint.h>
#include <string.h>

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X8_LANES 8

#if !defined(__riscv) /* The functions are inlined, so it does not matter how a processor would return a vector. */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

typedef float tvm_ext_f32x8 __attribute__((vector_size(32)));
typedef int32_t tvm_ext_f32x8_bits __attribute__((vector_size(32)));

static inline tvm_ext_f32x8 tvm_ext_f32x8_load(const float *source)
{
    tvm_ext_f32x8 result;
    (void)memcpy(&result, source, sizeof result);
    return result;
}

static inline void tvm_ext_f32x8_store(float *target, tvm_ext_f32x8 value)
{
    (void)memcpy(target, &value, sizeof value);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_splat(float value)
{
    const tvm_ext_f32x8 result = {value, value, value, value, value, value, value, value};
    return result;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_add(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return a + b;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_subtract(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return a - b;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_multiply(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return a * b;
}

/* Returns the lanes of a where a bit of the mask is set, else those of b. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_select(tvm_ext_f32x8_bits mask, tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return (tvm_ext_f32x8)((mask & (tvm_ext_f32x8_bits)a) | (~mask & (tvm_ext_f32x8_bits)b));
}

/* Returns a < b ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_maximum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_select(a < b, b, a);
}

/* Returns b < a ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_minimum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_select(b < a, b, a);
}

/* Returns a * b + c. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma(tvm_ext_f32x8 a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
#if defined(__clang__)
    return __builtin_elementwise_fma(a, b, c);
#else
    tvm_ext_f32x8 result = c;
    for (int32_t i = 0; i < 8; ++i) {
        result[i] = TVM_EXT_FMA(a[i], b[i], c[i]);
    }
    return result;
#endif
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma_n(float a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    return tvm_ext_f32x8_fma(tvm_ext_f32x8_splat(a), b, c);
}

/* Returns a * 2^n, where n is in the lowest bits of the float `power`: they are added to the exponent. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_times_power(tvm_ext_f32x8 a, tvm_ext_f32x8 power)
{
    return (tvm_ext_f32x8)((tvm_ext_f32x8_bits)a + ((tvm_ext_f32x8_bits)power << 23));
}

#endif
