/* Single floats with the interface of float vectors. */
#ifndef TVM_EXT_F32X1_H
#define TVM_EXT_F32X1_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X1_LANES 1

typedef float tvm_ext_f32x1;

static inline tvm_ext_f32x1 tvm_ext_f32x1_load(const float *source)
{
    return *source;
}

static inline void tvm_ext_f32x1_store(float *target, tvm_ext_f32x1 value)
{
    *target = value;
}

static inline tvm_ext_f32x1 tvm_ext_f32x1_splat(float value)
{
    return value;
}

static inline tvm_ext_f32x1 tvm_ext_f32x1_add(tvm_ext_f32x1 a, tvm_ext_f32x1 b)
{
    return a + b;
}

static inline tvm_ext_f32x1 tvm_ext_f32x1_subtract(tvm_ext_f32x1 a, tvm_ext_f32x1 b)
{
    return a - b;
}

static inline tvm_ext_f32x1 tvm_ext_f32x1_multiply(tvm_ext_f32x1 a, tvm_ext_f32x1 b)
{
    return a * b;
}

/* Returns a < b ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x1 tvm_ext_f32x1_maximum(tvm_ext_f32x1 a, tvm_ext_f32x1 b)
{
    return (a < b) ? b : a;
}

/* a * b + c. */
static inline tvm_ext_f32x1 tvm_ext_f32x1_fma(tvm_ext_f32x1 a, tvm_ext_f32x1 b, tvm_ext_f32x1 c)
{
    return TVM_EXT_FMA(a, b, c);
}

/* a * b + c. */
static inline tvm_ext_f32x1 tvm_ext_f32x1_fma_n(float a, tvm_ext_f32x1 b, tvm_ext_f32x1 c)
{
    return TVM_EXT_FMA(a, b, c);
}

/* Returns a * 2^n, where n are the lowest bits of the number `power`: they are added to the exponent. */
static inline tvm_ext_f32x1 tvm_ext_f32x1_times_power(tvm_ext_f32x1 a, tvm_ext_f32x1 power)
{
    uint32_t bits;
    uint32_t n;
    (void)memcpy(&bits, &a, sizeof bits);
    (void)memcpy(&n, &power, sizeof n);
    bits += n << 23;
    (void)memcpy(&a, &bits, sizeof bits);
    return a;
}

#endif
