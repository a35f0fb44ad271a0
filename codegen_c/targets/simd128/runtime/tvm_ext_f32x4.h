/* Vectors of 4 floats for generated kernels, as vectors of the compiler: instructions of SIMD128, or of any processor.
 * Each lane computes exactly what a single float computes, TVM_EXT_FMA included, so all give the same results. */
#ifndef TVM_EXT_F32X4_H
#define TVM_EXT_F32X4_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X4_LANES 4

typedef float tvm_ext_f32x4 __attribute__((vector_size(16)));
typedef uint32_t tvm_ext_f32x4_bits __attribute__((vector_size(16)));

static inline tvm_ext_f32x4 tvm_ext_f32x4_load(const float *source)
{
    tvm_ext_f32x4 result;
    (void)memcpy(&result, source, sizeof result);
    return result;
}

static inline void tvm_ext_f32x4_store(float *target, tvm_ext_f32x4 value)
{
    (void)memcpy(target, &value, sizeof value);
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_splat(float value)
{
    const tvm_ext_f32x4 result = {value, value, value, value};
    return result;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_add(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return a + b;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_subtract(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return a - b;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_multiply(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return a * b;
}

/* Returns the lanes of a where the mask is set, and those of b elsewhere. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_select(tvm_ext_f32x4_bits mask, tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return (tvm_ext_f32x4)((mask & (tvm_ext_f32x4_bits)a) | (~mask & (tvm_ext_f32x4_bits)b));
}

/* Returns a < b ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_maximum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return tvm_ext_f32x4_select((tvm_ext_f32x4_bits)(a < b), b, a);
}

/* Returns b < a ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_minimum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return tvm_ext_f32x4_select((tvm_ext_f32x4_bits)(b < a), b, a);
}

/* Returns a * b + c. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma(tvm_ext_f32x4 a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
#if defined(__wasm_simd128__)
    return a * b + c;
#else
    for (int32_t i = 0; i < 4; ++i) {
        c[i] = TVM_EXT_FMA(a[i], b[i], c[i]);
    }
    return c;
#endif
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma_n(float a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    return tvm_ext_f32x4_fma(tvm_ext_f32x4_splat(a), b, c);
}

/* Returns a * 2^n, where n is in the lowest bits of the float `power`: they are added to the exponent. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_times_power(tvm_ext_f32x4 a, tvm_ext_f32x4 power)
{
    return (tvm_ext_f32x4)((tvm_ext_f32x4_bits)a + ((tvm_ext_f32x4_bits)power << 23));
}

#endif
