/* Vectors of 8 floats for generated kernels: AVX2 with FMA, two registers of NEON on AArch64, or plain C without them.
 * Each lane computes exactly what a single float computes, TVM_EXT_FMA included, so all forms give the same results.
 */
#ifndef TVM_EXT_F32X8_H
#define TVM_EXT_F32X8_H

#include "tvm_ext_kernels.h"

#define TVM_EXT_F32X8_LANES 8

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

typedef __m256 tvm_ext_f32x8;

static inline tvm_ext_f32x8 tvm_ext_f32x8_load(const float *source)
{
    return _mm256_loadu_ps(source);
}

static inline void tvm_ext_f32x8_store(float *target, tvm_ext_f32x8 value)
{
    _mm256_storeu_ps(target, value);
}

#define TVM_EXT_F32X8_HAS_PARTS

/* Returns a mask of the first `count` lanes. */
static inline __m256i tvm_ext_f32x8_first(int32_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Loads the first `count` lanes; the others become 0. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_load_part(const float *source, int32_t count)
{
    return _mm256_maskload_ps(source, tvm_ext_f32x8_first(count));
}

static inline void tvm_ext_f32x8_store_part(float *target, int32_t count, tvm_ext_f32x8 value)
{
    _mm256_maskstore_ps(target, tvm_ext_f32x8_first(count), value);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_splat(float value)
{
    return _mm256_set1_ps(value);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_add(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return _mm256_add_ps(a, b);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_subtract(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return _mm256_sub_ps(a, b);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_multiply(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return _mm256_mul_ps(a, b);
}

/* Returns a < b ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_maximum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return _mm256_max_ps(b, a);
}

/* Returns b < a ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_minimum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return _mm256_min_ps(b, a);
}

/* Returns a * b + c. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma(tvm_ext_f32x8 a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma_n(float a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}

/* Returns a * 2^n, where n is in the lowest bits of the float `power`: they are added to the exponent. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_times_power(tvm_ext_f32x8 a, tvm_ext_f32x8 power)
{
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(power), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>

typedef struct {
    float32x4_t low;
    float32x4_t high;
} tvm_ext_f32x8;

static inline tvm_ext_f32x8 tvm_ext_f32x8_of(float32x4_t low, float32x4_t high)
{
    const tvm_ext_f32x8 both = {low, high};
    return both;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_load(const float *source)
{
    return tvm_ext_f32x8_of(vld1q_f32(source), vld1q_f32(&source[4]));
}

static inline void tvm_ext_f32x8_store(float *target, tvm_ext_f32x8 value)
{
    vst1q_f32(target, value.low);
    vst1q_f32(&target[4], value.high);
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_splat(float value)
{
    return tvm_ext_f32x8_of(vdupq_n_f32(value), vdupq_n_f32(value));
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_add(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_of(vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high));
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_subtract(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_of(vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high));
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_multiply(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_of(vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high));
}

/* Returns a < b ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_maximum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_of(vbslq_f32(vcltq_f32(a.low, b.low), b.low, a.low),
                            vbslq_f32(vcltq_f32(a.high, b.high), b.high, a.high));
}

/* Returns b < a ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_minimum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    return tvm_ext_f32x8_of(vbslq_f32(vcltq_f32(b.low, a.low), b.low, a.low),
                            vbslq_f32(vcltq_f32(b.high, a.high), b.high, a.high));
}

/* Returns a * b + c. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma(tvm_ext_f32x8 a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    return tvm_ext_f32x8_of(vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high));
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma_n(float a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    return tvm_ext_f32x8_of(vfmaq_n_f32(c.low, b.low, a), vfmaq_n_f32(c.high, b.high, a));
}

static inline float32x4_t tvm_ext_f32x8_half_times_power(float32x4_t a, float32x4_t power)
{
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(power), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), n));
}

/* Returns a * 2^n, where n is in the lowest bits of the float `power`: they are added to the exponent. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_times_power(tvm_ext_f32x8 a, tvm_ext_f32x8 power)
{
    return tvm_ext_f32x8_of(tvm_ext_f32x8_half_times_power(a.low, power.low),
                            tvm_ext_f32x8_half_times_power(a.high, power.high));
}

#else

typedef struct {
    float lane[8];
} tvm_ext_f32x8;

static inline tvm_ext_f32x8 tvm_ext_f32x8_load(const float *source)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = source[i];
    }
    return result;
}

static inline void tvm_ext_f32x8_store(float *target, tvm_ext_f32x8 value)
{
    for (int32_t i = 0; i < 8; ++i) {
        target[i] = value.lane[i];
    }
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_splat(float value)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = value;
    }
    return result;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_add(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = a.lane[i] + b.lane[i];
    }
    return result;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_subtract(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = a.lane[i] - b.lane[i];
    }
    return result;
}

static inline tvm_ext_f32x8 tvm_ext_f32x8_multiply(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = a.lane[i] * b.lane[i];
    }
    return result;
}

/* Returns a < b ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_maximum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = a.lane[i] < b.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* Returns b < a ? b : a in each lane, which keeps a NaN in a. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_minimum(tvm_ext_f32x8 a, tvm_ext_f32x8 b)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = b.lane[i] < a.lane[i] ? b.lane[i] : a.lane[i];
    }
    return result;
}

/* Returns a * b + c. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma(tvm_ext_f32x8 a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = TVM_EXT_FMA(a.lane[i], b.lane[i], c.lane[i]);
    }
    return result;
}

/* Returns a * b + c with the same a in all lanes. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_fma_n(float a, tvm_ext_f32x8 b, tvm_ext_f32x8 c)
{
    tvm_ext_f32x8 result;
    for (int32_t i = 0; i < 8; ++i) {
        result.lane[i] = TVM_EXT_FMA(a, b.lane[i], c.lane[i]);
    }
    return result;
}

/* Returns a * 2^n, where n is in the lowest bits of the float `power`: they are added to the exponent. */
static inline tvm_ext_f32x8 tvm_ext_f32x8_times_power(tvm_ext_f32x8 a, tvm_ext_f32x8 power)
{
    uint32_t bits[8];
    uint32_t n[8];
    (void)memcpy(bits, a.lane, sizeof bits);
    (void)memcpy(n, power.lane, sizeof n);
    for (int32_t i = 0; i < 8; ++i) {
        bits[i] += n[i] << 23;
    }
    (void)memcpy(a.lane, bits, sizeof bits);
    return a;
}

#endif

#endif
