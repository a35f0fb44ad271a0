/* Vectors of 4 floats for generated kernels: Helium with floats, plain C everywhere else.
 * Each lane computes the same as a single float (TVM_EXT_FMA included), so both give the same results. */
#ifndef TVM_EXT_F32X4_H
#define TVM_EXT_F32X4_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X4_LANES 4

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include <arm_mve.h>

typedef float32x4_t tvm_ext_f32x4;

/* GCC 12 takes vld1q_f32 and vst1q_f32 for 4 bytes of memory, and moves what reads or writes the others past them; of
 * integers it knows all 16. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_load(const float *source)
{
    return vreinterpretq_f32_s32(vld1q_s32((const int32_t *)(const void *)source));
}

static inline void tvm_ext_f32x4_store(float *target, tvm_ext_f32x4 value)
{
    vst1q_s32((int32_t *)(void *)target, vreinterpretq_s32_f32(value));
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_splat(float value)
{
    return vdupq_n_f32(value);
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_add(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vaddq_f32(a, b);
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_subtract(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vsubq_f32(a, b);
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_multiply(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vmulq_f32(a, b);
}

/* a < b ? b : a, which keeps a NaN of a; as b > a, for Helium's "less" is true of a NaN, too. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_maximum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vpselq_f32(b, a, vcmpgtq_f32(b, a));
}

/* b < a ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_minimum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vpselq_f32(b, a, vcmpgtq_f32(a, b));
}

/* a * b + c. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma(tvm_ext_f32x4 a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    return vfmaq_f32(c, a, b);
}

/* a * b + c with one a for all lanes. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma_n(float a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    return vfmaq_n_f32(c, b, a);
}

/* a * 2^n, where n are the lowest bits of the number `power`: added to the exponent. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_times_power(tvm_ext_f32x4 a, tvm_ext_f32x4 power)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(power), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), n));
}

#else

typedef struct {
    float lane[4];
} tvm_ext_f32x4;

static inline tvm_ext_f32x4 tvm_ext_f32x4_load(const float *source)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = source[i];
    }
    return result;
}

static inline void tvm_ext_f32x4_store(float *target, tvm_ext_f32x4 value)
{
    for (int32_t i = 0; i < 4; ++i) {
        target[i] = value.lane[i];
    }
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_splat(float value)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = value;
    }
    return result;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_add(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = a.lane[i] + b.lane[i];
    }
    return result;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_subtract(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = a.lane[i] - b.lane[i];
    }
    return result;
}

static inline tvm_ext_f32x4 tvm_ext_f32x4_multiply(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = a.lane[i] * b.lane[i];
    }
    return result;
}

/* a < b ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_maximum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = a.lane[i] < b.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* b < a ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_minimum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = b.lane[i] < a.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* a * b + c. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma(tvm_ext_f32x4 a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = TVM_EXT_FMA(a.lane[i], b.lane[i], c.lane[i]);
    }
    return result;
}

/* a * b + c with one a for all lanes. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma_n(float a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = TVM_EXT_FMA(a, b.lane[i], c.lane[i]);
    }
    return result;
}

/* a * 2^n, where n are the lowest bits of the number `power`: added to the exponent. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_times_power(tvm_ext_f32x4 a, tvm_ext_f32x4 power)
{
    uint32_t bits[4];
    uint32_t n[4];
    (void)memcpy(bits, a.lane, sizeof bits);
    (void)memcpy(n, power.lane, sizeof n);
    for (int32_t i = 0; i < 4; ++i) {
        bits[i] += n[i] << 23;
    }
    (void)memcpy(a.lane, bits, sizeof bits);
    return a;
}

#endif

#endif
