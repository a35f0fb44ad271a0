/* Vectors of 4 floats for generated kernels: Helium with floats, plain C everywhere else.
 * Each lane computes the same as a single float (TVM_EXT_FMA included), so both give the same results. */
#ifndef TVM_EXT_F32X4_H
#define TVM_EXT_F32X4_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X4_LANES 4

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include <arm_mve.h>

typedef float32x4_t tvm_ext_f32x4;

/* GCC 12 treats vld1q_f32 and vst1q_f32 as accesses of 4 bytes, and moves accesses of the other bytes past them; for
 * integers it knows all 16 bytes. Accesses by intrinsics of Helium may alias every object, in GCC and in clang, so
 * floats may be read and written as integers under strict aliasing, too. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_load(const float *source)
{
    const void *const place = source;
    return vreinterpretq_f32_s32(vld1q_s32((const int32_t *)place));
}

static inline void tvm_ext_f32x4_store(float *target, tvm_ext_f32x4 value)
{
    void *const place = target;
    vst1q_s32((int32_t *)place, vreinterpretq_s32_f32(value));
}

#define TVM_EXT_F32X4_HAS_PARTS

/* Loads the first `count` lanes, and 0 in the others. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_load_part(const float *source, int32_t count)
{
    const void *const place = source;
    return vreinterpretq_f32_s32(vldrwq_z_s32((const int32_t *)place, vctp32q((uint32_t)count)));
}

/* GCC 12 treats vstrwq_p_s32 as a store of all lanes, and drops earlier stores of the other lanes. */
static inline void tvm_ext_f32x4_store_part(float *target, int32_t count, tvm_ext_f32x4 value)
{
    void *const place = target;
    __asm__ volatile("" : : : "memory");
    vstrwq_p_s32((int32_t *)place, vreinterpretq_s32_f32(value), vctp32q((uint32_t)count));
    __asm__ volatile("" : : : "memory");
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

/* Returns a < b ? b : a, which keeps a NaN of a. It is written as b > a, because Helium's "less" is true for NaN,
 * too. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_maximum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vpselq_f32(b, a, vcmpgtq_f32(b, a));
}

/* Returns b < a ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_minimum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    return vpselq_f32(b, a, vcmpgtq_f32(a, b));
}

/* Returns a * b + c. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma(tvm_ext_f32x4 a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    return vfmaq_f32(c, a, b);
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma_n(float a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    return vfmaq_n_f32(c, b, a);
}

/* Returns a * 2^n, where n are the lowest bits of the number `power`: they are added to the exponent. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_times_power(tvm_ext_f32x4 a, tvm_ext_f32x4 power)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(power), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), n));
}

#define TVM_EXT_F32X4_ADDS_BY_4

/* Adds the products of an element of a pixel and 4 vectors of weights. Each vector is loaded one product ahead: v0
 * is loaded already, and the last load, at `next` in the assembly, is the first vector of the next element. */
#define TVM_EXT_F32X4_ELEMENT(a, f1, f2, f3, next)                                                                   \
    "vldrw.u32 %q[v1], [%[f], #" f1 "]\n\tvfma.f32 %q[s0], %q[v0], %[" a "]\n\t"                                     \
    "vldrw.u32 %q[v2], [%[f], #" f2 "]\n\tvfma.f32 %q[s1], %q[v1], %[" a "]\n\t"                                     \
    "vldrw.u32 %q[v3], [%[f], #" f3 "]\n\tvfma.f32 %q[s2], %q[v2], %[" a "]\n\t" next                              \
    "vfma.f32 %q[s3], %q[v3], %[" a "]\n\t"

/* Adds the products of four elements, whose weights are 256 bytes. */
#define TVM_EXT_F32X4_BLOCK                                                                                           \
    "vldrw.u32 %q[v0], [%[f]], #256\n\tldrd %[a], %[b], [%[x]], #16\n\t"                                              \
    TVM_EXT_F32X4_ELEMENT("a", "-240", "-224", "-208", "vldrw.u32 %q[v0], [%[f], #-192]\n\t")                         \
    TVM_EXT_F32X4_ELEMENT("b", "-176", "-160", "-144", "vldrw.u32 %q[v0], [%[f], #-128]\n\t")                         \
    "ldrd %[a], %[b], [%[x], #-8]\n\t"                                                                               \
    TVM_EXT_F32X4_ELEMENT("a", "-112", "-96", "-80", "vldrw.u32 %q[v0], [%[f], #-64]\n\t")                            \
    TVM_EXT_F32X4_ELEMENT("b", "-48", "-32", "-16", "")

/* Adds to 4 sums the products of `length` elements of a pixel, a multiple of 4, and of 4 vectors of weights for
   each. */
static inline void tvm_ext_f32x4_add_by_4(tvm_ext_f32x4 *sums, const float *x, const float *weights, int32_t length)
{
    tvm_ext_f32x4 v0, v1, v2, v3;
    uint32_t a, b;
    __asm__ volatile(
        "wls lr, %[blocks], 2f\n"
        "1:\n\t" TVM_EXT_F32X4_BLOCK "le lr, 1b\n"
        "2:\n\t"
        : [s0] "+w"(sums[0]), [s1] "+w"(sums[1]), [s2] "+w"(sums[2]), [s3] "+w"(sums[3]), [v0] "=&w"(v0),
          [v1] "=&w"(v1), [v2] "=&w"(v2), [v3] "=&w"(v3), [a] "=&r"(a), [b] "=&r"(b), [x] "+r"(x), [f] "+r"(weights)
        : [blocks] "r"(length / 4)
        : "lr", "cc", "memory");
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

static inline void tvm_ext_f32x4_store(tvm_ext_any_float *target, tvm_ext_f32x4 value)
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

/* Returns a < b ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_maximum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = a.lane[i] < b.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* Returns b < a ? b : a, which keeps a NaN of a. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_minimum(tvm_ext_f32x4 a, tvm_ext_f32x4 b)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = b.lane[i] < a.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* Returns a * b + c. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma(tvm_ext_f32x4 a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = TVM_EXT_FMA(a.lane[i], b.lane[i], c.lane[i]);
    }
    return result;
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x4 tvm_ext_f32x4_fma_n(float a, tvm_ext_f32x4 b, tvm_ext_f32x4 c)
{
    tvm_ext_f32x4 result;
    for (int32_t i = 0; i < 4; ++i) {
        result.lane[i] = TVM_EXT_FMA(a, b.lane[i], c.lane[i]);
    }
    return result;
}

/* Returns a * 2^n, where n are the lowest bits of the number `power`: they are added to the exponent. */
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
