/* Arithmetic of samples: 16 and 32 bits after the point's own sign bit, and floats. */
#ifndef TVM_EXT_AUDIO_SAMPLES_H
#define TVM_EXT_AUDIO_SAMPLES_H

#include <stdint.h>

/* a + b, which wraps. */
static inline int16_t tvm_ext_audio_plus_s16(int16_t a, int16_t b)
{
    return (int16_t)(a + b);
}

/* a - b, which wraps. */
static inline int16_t tvm_ext_audio_minus_s16(int16_t a, int16_t b)
{
    return (int16_t)(a - b);
}

/* a + b, clamped. */
static inline int16_t tvm_ext_audio_sum_s16(int16_t a, int16_t b)
{
    const int32_t sum = (int32_t)a + b;
    const int32_t raised = sum < INT16_MIN ? INT16_MIN : sum;
    return (int16_t)(raised > INT16_MAX ? INT16_MAX : raised);
}

/* (a + b) / 2, rounded down. */
static inline int16_t tvm_ext_audio_mean_s16(int16_t a, int16_t b)
{
    return (int16_t)((a + b) >> 1);
}

/* (a - b) / 2, rounded down. */
static inline int16_t tvm_ext_audio_half_s16(int16_t a, int16_t b)
{
    return (int16_t)((a - b) >> 1);
}

/* About x / count: products of that many fit. */
static inline int16_t tvm_ext_audio_part_s16(int16_t x, int32_t count)
{
    return (int16_t)(((int32_t)x * (INT16_MAX / count) + (1 << 14)) >> 15);
}

/* A sample of a transform back: integers are divided by its length on the way. */
static inline int16_t tvm_ext_audio_restored_s16(int16_t x, int32_t length)
{
    (void)length;
    return x;
}

/* a * b + c * d, rounded. */
static inline int16_t tvm_ext_audio_products_s16(int16_t a, int16_t b, int16_t c, int16_t d)
{
    return (int16_t)(((int32_t)a * b + (int32_t)c * d + (1 << 14)) >> 15);
}

/* a * b - c * d, rounded. */
static inline int16_t tvm_ext_audio_crossed_s16(int16_t a, int16_t b, int16_t c, int16_t d)
{
    return (int16_t)(((int32_t)a * b - (int32_t)c * d + (1 << 14)) >> 15);
}

/* a + b, which wraps. */
static inline int32_t tvm_ext_audio_plus_s32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* a - b, which wraps. */
static inline int32_t tvm_ext_audio_minus_s32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

/* (a + b) / 2, rounded down; the sum wraps. */
static inline int32_t tvm_ext_audio_mean_s32(int32_t a, int32_t b)
{
    return tvm_ext_audio_plus_s32(a, b) >> 1;
}

/* (a - b) / 2, rounded down; the difference wraps. */
static inline int32_t tvm_ext_audio_half_s32(int32_t a, int32_t b)
{
    return tvm_ext_audio_minus_s32(a, b) >> 1;
}

/* About x / count: products of that many fit. */
static inline int32_t tvm_ext_audio_part_s32(int32_t x, int32_t count)
{
    return (int32_t)(((int64_t)x * (INT32_MAX / count) + (INT64_C(1) << 30)) >> 31);
}

/* A sample of a transform back: integers are divided by its length on the way. */
static inline int32_t tvm_ext_audio_restored_s32(int32_t x, int32_t length)
{
    (void)length;
    return x;
}

/* a * b + c * d, rounded. */
static inline int32_t tvm_ext_audio_products_s32(int32_t a, int32_t b, int32_t c, int32_t d)
{
    return (int32_t)(((int64_t)a * b + (int64_t)c * d + (INT64_C(1) << 30)) >> 31);
}

/* a * b - c * d, rounded. */
static inline int32_t tvm_ext_audio_crossed_s32(int32_t a, int32_t b, int32_t c, int32_t d)
{
    return (int32_t)(((int64_t)a * b - (int64_t)c * d + (INT64_C(1) << 30)) >> 31);
}

/* a + b. */
static inline float tvm_ext_audio_plus_f32(float a, float b)
{
    return a + b;
}

/* a - b. */
static inline float tvm_ext_audio_minus_f32(float a, float b)
{
    return a - b;
}

/* a + b, as of samples that are clamped. */
static inline float tvm_ext_audio_sum_f32(float a, float b)
{
    return a + b;
}

/* (a + b) / 2. */
static inline float tvm_ext_audio_mean_f32(float a, float b)
{
    return (a + b) * 0.5f;
}

/* (a - b) / 2. */
static inline float tvm_ext_audio_half_f32(float a, float b)
{
    return (a - b) * 0.5f;
}

/* x itself: floats have room for products. */
static inline float tvm_ext_audio_part_f32(float x, int32_t count)
{
    (void)count;
    return x;
}

/* A sample of a transform back: the sum divided by its length. */
static inline float tvm_ext_audio_restored_f32(float x, int32_t length)
{
    return x / (float)length;
}

/* a * b + c * d. */
static inline float tvm_ext_audio_products_f32(float a, float b, float c, float d)
{
    return a * b + c * d;
}

/* a * b - c * d. */
static inline float tvm_ext_audio_crossed_f32(float a, float b, float c, float d)
{
    return a * b - c * d;
}

#endif
