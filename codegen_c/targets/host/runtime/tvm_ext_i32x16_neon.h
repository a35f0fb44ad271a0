/* The functions of tvm_ext_i32x16.h with NEON of AArch64: four registers of 4 accumulators. With dot products (Armv8.2)
 * one instruction adds the products of a register of 16 numbers. */
#ifndef TVM_EXT_I32X16_NEON_H
#define TVM_EXT_I32X16_NEON_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>

#define TVM_EXT_I32X16_IS_NEON
#define TVM_EXT_I32X16_UNITS 1
#define TVM_EXT_I32X16_TAKES_UNSIGNED false
#define TVM_EXT_I32X16_ADDS_QUADS /* faster than pairs of 16-bit numbers in plain C */
#if defined(__ARM_FEATURE_DOTPROD)
#define TVM_EXT_I32X16_ACCUMULATORS 6
#else
#define TVM_EXT_I32X16_ACCUMULATORS 4
#endif

typedef struct {
    int32x4_t part[4];
} tvm_ext_i32x16;

typedef struct {
    int8x16_t part[4];
} tvm_ext_i8x64;

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_of(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    const tvm_ext_i32x16 all = {{a, b, c, d}};
    return all;
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_load(const int32_t *source)
{
    return tvm_ext_i32x16_of(vld1q_s32(source), vld1q_s32(&source[4]), vld1q_s32(&source[8]), vld1q_s32(&source[12]));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return tvm_ext_i32x16_of(vaddq_s32(a.part[0], b.part[0]), vaddq_s32(a.part[1], b.part[1]),
                             vaddq_s32(a.part[2], b.part[2]), vaddq_s32(a.part[3], b.part[3]));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_subtract(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return tvm_ext_i32x16_of(vsubq_s32(a.part[0], b.part[0]), vsubq_s32(a.part[1], b.part[1]),
                             vsubq_s32(a.part[2], b.part[2]), vsubq_s32(a.part[3], b.part[3]));
}

/* Shifts each lane up by a number of its own, or down by a negative one. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted(tvm_ext_i32x16 value, tvm_ext_i32x16 shift)
{
    return tvm_ext_i32x16_of(vshlq_s32(value.part[0], shift.part[0]), vshlq_s32(value.part[1], shift.part[1]),
                             vshlq_s32(value.part[2], shift.part[2]), vshlq_s32(value.part[3], shift.part[3]));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_splat(int32_t value)
{
    const int32x4_t same = vdupq_n_s32(value);
    return tvm_ext_i32x16_of(same, same, same, same);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_down(tvm_ext_i32x16 value, int32_t shift)
{
    return tvm_ext_i32x16_shifted(value, tvm_ext_i32x16_splat(-shift));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_up(tvm_ext_i32x16 value, int32_t shift)
{
    return tvm_ext_i32x16_shifted(value, tvm_ext_i32x16_splat(shift));
}

/* Returns a * factors[0] + b * factors[1] + addend for numbers a and b that fit 16 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_weighted(tvm_ext_i32x16 a, tvm_ext_i32x16 b, const int16_t factors[2],
                                                      int32_t addend)
{
    const int32x4_t first = vdupq_n_s32(factors[0]);
    const int32x4_t second = vdupq_n_s32(factors[1]);
    tvm_ext_i32x16 sums = tvm_ext_i32x16_splat(addend);
    for (int32_t i = 0; i < 4; ++i) {
        sums.part[i] = vmlaq_s32(vmlaq_s32(sums.part[i], a.part[i], first), b.part[i], second);
    }
    return sums;
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_widen(const uint8_t *source, bool is_unsigned)
{
    const uint8x16_t bytes = vld1q_u8(source);
    const int8x16_t numbers = vreinterpretq_s8_u8(bytes);
    const int16x8_t low =
        is_unsigned ? vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))) : vmovl_s8(vget_low_s8(numbers));
    const int16x8_t high = is_unsigned ? vreinterpretq_s16_u16(vmovl_high_u8(bytes)) : vmovl_high_s8(numbers);
    return tvm_ext_i32x16_of(vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
                             vmovl_high_s16(high));
}

TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_load(const uint8_t *source)
{
    const int8_t *const numbers = (const int8_t *)source;
    const tvm_ext_i8x64 all = {
        {vld1q_s8(numbers), vld1q_s8(&numbers[16]), vld1q_s8(&numbers[32]), vld1q_s8(&numbers[48])}};
    return all;
}

/* Returns 64 numbers of 4 bits from 32 bytes, the lower four bits of all bytes first. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_nibbles(const uint8_t *source)
{
    const int8x16_t a = vreinterpretq_s8_u8(vld1q_u8(source));
    const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(&source[16]));
    const tvm_ext_i8x64 all = {
        {vshrq_n_s8(vshlq_n_s8(a, 4), 4), vshrq_n_s8(vshlq_n_s8(b, 4), 4), vshrq_n_s8(a, 4), vshrq_n_s8(b, 4)}};
    return all;
}

/* Returns four elements of 8 bits in all groups of four lanes. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_quad(const uint8_t *source)
{
    int32_t four;
    (void)memcpy(&four, source, sizeof four);
    const int8x16_t same = vreinterpretq_s8_s32(vdupq_n_s32(four));
    const tvm_ext_i8x64 all = {{same, same, same, same}};
    return all;
}

/* Adds the products of each four adjacent lanes to an accumulator. */
TVM_EXT_INLINE int32x4_t tvm_ext_i32x4_add_quads(int32x4_t sums, int8x16_t activations, int8x16_t weights)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sums, activations, weights);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(activations), vget_low_s8(weights));
    const int16x8_t high = vmull_high_s8(activations, weights);
    return vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add_quads(tvm_ext_i32x16 sums, tvm_ext_i8x64 activations,
                                                       tvm_ext_i8x64 weights, bool is_symmetric)
{
    (void)is_symmetric; /* all products are exact */
    return tvm_ext_i32x16_of(tvm_ext_i32x4_add_quads(sums.part[0], activations.part[0], weights.part[0]),
                             tvm_ext_i32x4_add_quads(sums.part[1], activations.part[1], weights.part[1]),
                             tvm_ext_i32x4_add_quads(sums.part[2], activations.part[2], weights.part[2]),
                             tvm_ext_i32x4_add_quads(sums.part[3], activations.part[3], weights.part[3]));
}

/* Copies `count` bytes and inverts the bits of `flip` in them. */
TVM_EXT_INLINE void tvm_ext_i8x64_copy(uint8_t *target, const uint8_t *source, int32_t count, uint8_t flip)
{
    const int32_t whole = count - (count % 16);
    for (int32_t i = 0; i < whole; i += 16) {
        vst1q_u8(&target[i], veorq_u8(vld1q_u8(&source[i]), vdupq_n_u8(flip)));
    }
    for (int32_t i = whole; i < count; ++i) {
        target[i] = (uint8_t)(source[i] ^ flip);
    }
}

/* Interleaves `count` bytes of four rows. It reads and writes whole groups of 64 bytes of each row. */
TVM_EXT_INLINE void tvm_ext_i8x64_weave(uint8_t *target, const uint8_t *const rows[4], int32_t count)
{
    for (int32_t i = 0; i < count; i += 16) {
        const uint8x16x4_t four = {
            {vld1q_u8(&rows[0][i]), vld1q_u8(&rows[1][i]), vld1q_u8(&rows[2][i]), vld1q_u8(&rows[3][i])}};
        vst4q_u8(&target[4 * i], four);
    }
}

/* Returns round(value * multiplier / 2^(32 + shift)), halves up, or to even with has_ties. half: 2^(shift - 1). */
TVM_EXT_INLINE int32x4_t tvm_ext_i32x4_scaled(int32x4_t value, int32x4_t multiplier, int32x4_t half, int32x4_t shift,
                                              bool has_ties)
{
    const int32x4_t low = vreinterpretq_s32_s64(vmull_s32(vget_low_s32(value), vget_low_s32(multiplier)));
    const int32x4_t high = vreinterpretq_s32_s64(vmull_high_s32(value, multiplier));
    const int32x4_t words = vuzp2q_s32(low, high);
    const int32x4_t rounded = vshlq_s32(vaddq_s32(words, half), vnegq_s32(shift));
    if (!has_ties) {
        return rounded;
    }
    const int32x4_t below = vsubq_s32(vaddq_s32(half, half), vdupq_n_s32(1));
    const uint32x4_t is_tie = vandq_u32(vceqzq_s32(vuzp1q_s32(low, high)), vceqq_s32(vandq_s32(words, below), half));
    const int32x4_t odd = vandq_s32(vandq_s32(rounded, vreinterpretq_s32_u32(is_tie)), vdupq_n_s32(1));
    return vsubq_s32(rounded, odd);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                    tvm_ext_i32x16 half, tvm_ext_i32x16 shift, bool has_ties)
{
    for (int32_t i = 0; i < 4; ++i) {
        value.part[i] = tvm_ext_i32x4_scaled(value.part[i], multiplier.part[i], half.part[i], shift.part[i], has_ties);
    }
    return value;
}

/* Returns value * multiplier / 2^31, rounded, then / 2^shift, halves away from zero, like TensorFlow Lite; shift > 0.
 */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_twice(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                          tvm_ext_i32x16 half, tvm_ext_i32x16 shift)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32x4_t high = vqrdmulhq_s32(value.part[i], multiplier.part[i]);
        const int32x4_t away = vaddq_s32(vaddq_s32(high, half.part[i]), vshrq_n_s32(high, 31));
        value.part[i] = vshlq_s32(away, vnegq_s32(shift.part[i]));
    }
    return value;
}

#define TVM_EXT_I32X16_HAS_FLOATS

/* Returns value * factor + offset, rounded once as floats, then halves to even. negative_offset: of values below zero.
 * All three hold the bits of floats. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_by_floats(tvm_ext_i32x16 value, tvm_ext_i32x16 factor,
                                                              tvm_ext_i32x16 offset, tvm_ext_i32x16 negative_offset,
                                                              bool has_signs)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32x4_t sums = value.part[i];
        const int32x4_t added =
            has_signs ? vbslq_s32(vcltzq_s32(sums), negative_offset.part[i], offset.part[i]) : offset.part[i];
        value.part[i] = vcvtnq_s32_f32(
            vfmaq_f32(vreinterpretq_f32_s32(added), vcvtq_f32_s32(sums), vreinterpretq_f32_s32(factor.part[i])));
    }
    return value;
}

/* Adds the zero point to 16 numbers, clamps them, and stores the first `count` of them as elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x16_store_bytes(uint8_t *target, tvm_ext_i32x16 value, int32_t count, int32_t zero_point,
                                               int32_t low, int32_t high, bool is_unsigned)
{
    const int16x8_t moved = vdupq_n_s16((int16_t)zero_point);
    const int16x8_t first = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(value.part[0]), value.part[1]), moved);
    const int16x8_t second = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(value.part[2]), value.part[3]), moved);
    const int16x8_t least = vdupq_n_s16((int16_t)low);
    const int16x8_t most = vdupq_n_s16((int16_t)high);
    const int16x8_t clamped = vminq_s16(vmaxq_s16(first, least), most);
    const int16x8_t others = vminq_s16(vmaxq_s16(second, least), most);
    /* After clamping, the lower halves are the elements of either type. */
    const uint8x16_t bytes = vreinterpretq_u8_s8(vmovn_high_s16(vmovn_s16(clamped), others));
    (void)is_unsigned;
    if (count >= 16) {
        vst1q_u8(target, bytes);
    } else {
        uint8_t elements[16];
        vst1q_u8(elements, bytes);
        (void)memcpy(target, elements, (size_t)count);
    }
}

#endif

#endif
