/* The functions of tvm_ext_i32x16.h with AVX2, and AVX-VNNI if the processor has it: two registers of 8 accumulators.
 */
#ifndef TVM_EXT_I32X16_AVX2_H
#define TVM_EXT_I32X16_AVX2_H

#include "tvm_ext_i32x16_avx512.h"

#if defined(__AVX2__) && !defined(TVM_EXT_I32X16_IS_AVX512)

#include <immintrin.h>

#define TVM_EXT_I32X16_ACCUMULATORS 4
#if defined(__AVXVNNI__)
#define TVM_EXT_I32X16_ADDS_QUADS /* in one instruction */
#define TVM_EXT_I32X16_UNITS 1
#define TVM_EXT_I32X16_TAKES_UNSIGNED true
#else
#define TVM_EXT_I32X16_UNITS 2 /* which share the absolute values of activations */
#define TVM_EXT_I32X16_TAKES_UNSIGNED false
#endif

typedef struct {
    __m256i low;
    __m256i high;
} tvm_ext_i32x16;

typedef tvm_ext_i32x16 tvm_ext_i8x64;

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_of(__m256i low, __m256i high)
{
    const tvm_ext_i32x16 both = {low, high};
    return both;
}

TVM_EXT_INLINE __m256i tvm_ext_i8x32_load(const void *source)
{
    return _mm256_loadu_si256((const __m256i_u *)source);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_load(const int32_t *source)
{
    return tvm_ext_i32x16_of(tvm_ext_i8x32_load(source), tvm_ext_i8x32_load(&source[8]));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return tvm_ext_i32x16_of(_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_subtract(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return tvm_ext_i32x16_of(_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_down(tvm_ext_i32x16 value, int32_t shift)
{
    return tvm_ext_i32x16_of(_mm256_srai_epi32(value.low, shift), _mm256_srai_epi32(value.high, shift));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_up(tvm_ext_i32x16 value, int32_t shift)
{
    return tvm_ext_i32x16_of(_mm256_slli_epi32(value.low, shift), _mm256_slli_epi32(value.high, shift));
}

TVM_EXT_INLINE __m256i tvm_ext_i32x8_weighted(__m256i a, __m256i b, int32_t factors, int32_t addend)
{
    const __m256i pairs = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
    return _mm256_add_epi32(_mm256_madd_epi16(pairs, _mm256_set1_epi32(factors)), _mm256_set1_epi32(addend));
}

/* Returns a * factors[0] + b * factors[1] + addend for numbers a and b that fit 16 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_weighted(tvm_ext_i32x16 a, tvm_ext_i32x16 b, const int16_t factors[2],
                                                      int32_t addend)
{
    int32_t both;
    (void)memcpy(&both, factors, sizeof both);
    return tvm_ext_i32x16_of(tvm_ext_i32x8_weighted(a.low, b.low, both, addend),
                             tvm_ext_i32x8_weighted(a.high, b.high, both, addend));
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_widen(const uint8_t *source, bool is_unsigned)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i_u *)source);
    const __m128i last = _mm_srli_si128(bytes, 8);
    return is_unsigned ? tvm_ext_i32x16_of(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(last))
                       : tvm_ext_i32x16_of(_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(last));
}

TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_load(const uint8_t *source)
{
    return tvm_ext_i32x16_of(tvm_ext_i8x32_load(source), tvm_ext_i8x32_load(&source[32]));
}

/* Returns the lower four bits of each byte as a number from -8 to 7. */
TVM_EXT_INLINE __m256i tvm_ext_i8x32_nibbles(__m256i bytes)
{
    const __m256i eight = _mm256_set1_epi8(8);
    return _mm256_sub_epi8(_mm256_xor_si256(_mm256_and_si256(bytes, _mm256_set1_epi8(15)), eight), eight);
}

/* Returns 64 numbers of 4 bits from 32 bytes, the lower four bits of all bytes first. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_nibbles(const uint8_t *source)
{
    const __m256i bytes = tvm_ext_i8x32_load(source);
    return tvm_ext_i32x16_of(tvm_ext_i8x32_nibbles(bytes), tvm_ext_i8x32_nibbles(_mm256_srli_epi16(bytes, 4)));
}

/* Returns four elements of 8 bits in all groups of four lanes. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_quad(const uint8_t *source)
{
    int32_t four;
    (void)memcpy(&four, source, sizeof four);
    return tvm_ext_i32x16_of(_mm256_set1_epi32(four), _mm256_set1_epi32(four));
}

#if defined(__AVXVNNI__)

TVM_EXT_INLINE __m256i tvm_ext_i32x8_add_quads(__m256i sums, __m256i activations, __m256i weights, bool is_symmetric)
{
    (void)is_symmetric; /* all products are exact */
    return _mm256_dpbusd_avx_epi32(sums, activations, weights);
}

#else

TVM_EXT_INLINE __m256i tvm_ext_i32x8_add_quads(__m256i sums, __m256i activations, __m256i weights, bool is_symmetric)
{
    if (is_symmetric) {
        /* _mm256_maddubs_epi16 takes one operand without a sign, so the weights take the signs of the activations. Sums
         * of two products are at most 2 * 128 * 127 in size, which fits 16 bits. A weight -128 would not. */
        const __m256i weighted =
            _mm256_maddubs_epi16(_mm256_abs_epi8(activations), _mm256_sign_epi8(weights, activations));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(weighted, _mm256_set1_epi16(1)));
    }
    /* Two instructions for the lanes of even and of odd number. */
    const __m256i even = _mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(activations, 8), 8),
                                           _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srai_epi16(activations, 8), _mm256_srai_epi16(weights, 8));
    __m256i result = _mm256_add_epi32(sums, even);
#if defined(__GNUC__)
    __asm__("" : "+x"(result)); /* without it compilers add long sums as trees and run out of registers */
#endif
    return _mm256_add_epi32(result, odd);
}

#endif

/* Adds the products of each four adjacent lanes to an accumulator. is_symmetric: no weight is -128. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add_quads(tvm_ext_i32x16 sums, tvm_ext_i8x64 activations,
                                                       tvm_ext_i8x64 weights, bool is_symmetric)
{
    return tvm_ext_i32x16_of(tvm_ext_i32x8_add_quads(sums.low, activations.low, weights.low, is_symmetric),
                             tvm_ext_i32x8_add_quads(sums.high, activations.high, weights.high, is_symmetric));
}

/* Copies `count` bytes and inverts the bits of `flip` in them. */
TVM_EXT_INLINE void tvm_ext_i8x64_copy(uint8_t *target, const uint8_t *source, int32_t count, uint8_t flip)
{
    const __m256i bits = _mm256_set1_epi8((char)flip);
    const int32_t whole = count - (count % 32);
    for (int32_t i = 0; i < whole; i += 32) {
        _mm256_storeu_si256((__m256i_u *)&target[i], _mm256_xor_si256(tvm_ext_i8x32_load(&source[i]), bits));
    }
    for (int32_t i = whole; i < count; ++i) {
        target[i] = (uint8_t)(source[i] ^ flip);
    }
}

/* Interleaves `count` bytes of four rows. It reads and writes whole groups of 64 bytes of each row. */
TVM_EXT_INLINE void tvm_ext_i8x64_weave(uint8_t *target, const uint8_t *const rows[4], int32_t count)
{
    /* Groups of four bytes in the order that the unpack instructions, which work in 16 bytes each, turn into 32. */
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for (int32_t i = 0; i < count; i += 32) {
        const __m256i a = _mm256_permutevar8x32_epi32(tvm_ext_i8x32_load(&rows[0][i]), order);
        const __m256i b = _mm256_permutevar8x32_epi32(tvm_ext_i8x32_load(&rows[1][i]), order);
        const __m256i c = _mm256_permutevar8x32_epi32(tvm_ext_i8x32_load(&rows[2][i]), order);
        const __m256i d = _mm256_permutevar8x32_epi32(tvm_ext_i8x32_load(&rows[3][i]), order);
        const __m256i ab[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
        const __m256i cd[2] = {_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d)};
        uint8_t *const woven = &target[4 * i];
        _mm256_storeu_si256((__m256i_u *)woven, _mm256_unpacklo_epi16(ab[0], cd[0]));
        _mm256_storeu_si256((__m256i_u *)&woven[32], _mm256_unpackhi_epi16(ab[0], cd[0]));
        _mm256_storeu_si256((__m256i_u *)&woven[64], _mm256_unpacklo_epi16(ab[1], cd[1]));
        _mm256_storeu_si256((__m256i_u *)&woven[96], _mm256_unpackhi_epi16(ab[1], cd[1]));
    }
}

/* Returns the even lanes of one vector and the odd lanes of the other: words of 64-bit products. */
TVM_EXT_INLINE __m256i tvm_ext_i32x8_blend(__m256i even, __m256i odd)
{
    return _mm256_blend_epi32(even, odd, 0xAA);
}

TVM_EXT_INLINE __m256i tvm_ext_i32x8_scaled(__m256i value, __m256i multiplier, __m256i half, __m256i shift,
                                            bool has_ties)
{
    const __m256i even = _mm256_mul_epi32(value, multiplier);
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(value, 32), _mm256_srli_epi64(multiplier, 32));
    const __m256i high = tvm_ext_i32x8_blend(_mm256_srli_epi64(even, 32), odd);
    const __m256i rounded = _mm256_srav_epi32(_mm256_add_epi32(high, half), shift);
    if (!has_ties) {
        return rounded;
    }
    const __m256i low = tvm_ext_i32x8_blend(even, _mm256_slli_epi64(odd, 32));
    const __m256i below = _mm256_sub_epi32(_mm256_add_epi32(half, half), _mm256_set1_epi32(1));
    const __m256i is_tie = _mm256_and_si256(_mm256_cmpeq_epi32(low, _mm256_setzero_si256()),
                                            _mm256_cmpeq_epi32(_mm256_and_si256(high, below), half));
    return _mm256_sub_epi32(rounded, _mm256_and_si256(_mm256_and_si256(is_tie, rounded), _mm256_set1_epi32(1)));
}

/* Returns round(value * multiplier / 2^(32 + shift)), halves up, or to even with has_ties. half: 2^(shift - 1). */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                    tvm_ext_i32x16 half, tvm_ext_i32x16 shift, bool has_ties)
{
    return tvm_ext_i32x16_of(tvm_ext_i32x8_scaled(value.low, multiplier.low, half.low, shift.low, has_ties),
                             tvm_ext_i32x8_scaled(value.high, multiplier.high, half.high, shift.high, has_ties));
}

TVM_EXT_INLINE __m256i tvm_ext_i32x8_scaled_twice(__m256i value, __m256i multiplier, __m256i half, __m256i shift)
{
    const __m256i first_half = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i even = _mm256_mul_epi32(value, multiplier);
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(value, 32), _mm256_srli_epi64(multiplier, 32));
    const __m256i high = tvm_ext_i32x8_blend(_mm256_srli_epi64(_mm256_add_epi64(even, first_half), 31),
                                             _mm256_slli_epi64(_mm256_add_epi64(odd, first_half), 1));
    const __m256i away = _mm256_add_epi32(_mm256_add_epi32(high, half), _mm256_srai_epi32(high, 31));
    return _mm256_srav_epi32(away, shift);
}

/* Returns value * multiplier / 2^31, rounded, then / 2^shift, halves away from zero, like TensorFlow Lite; shift > 0.
 * half: 2^(shift - 1). */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_twice(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                          tvm_ext_i32x16 half, tvm_ext_i32x16 shift)
{
    return tvm_ext_i32x16_of(tvm_ext_i32x8_scaled_twice(value.low, multiplier.low, half.low, shift.low),
                             tvm_ext_i32x8_scaled_twice(value.high, multiplier.high, half.high, shift.high));
}

#if defined(__FMA__)

#define TVM_EXT_I32X16_HAS_FLOATS

TVM_EXT_INLINE __m256i tvm_ext_i32x8_scaled_by_floats(__m256i value, __m256i factor, __m256i offset,
                                                      __m256i negative_offset, bool has_signs)
{
    const __m256 sum = _mm256_castsi256_ps(value);
    const __m256 plus = _mm256_castsi256_ps(offset);
    const __m256 added = has_signs ? _mm256_blendv_ps(plus, _mm256_castsi256_ps(negative_offset), sum) : plus;
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(_mm256_cvtepi32_ps(value), _mm256_castsi256_ps(factor), added));
}

/* Returns value * factor + offset, rounded once as floats, then halves to even. It expects the default rounding mode.
 * negative_offset: of values below zero. All three hold the bits of floats. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_by_floats(tvm_ext_i32x16 value, tvm_ext_i32x16 factor,
                                                              tvm_ext_i32x16 offset, tvm_ext_i32x16 negative_offset,
                                                              bool has_signs)
{
    return tvm_ext_i32x16_of(
        tvm_ext_i32x8_scaled_by_floats(value.low, factor.low, offset.low, negative_offset.low, has_signs),
        tvm_ext_i32x8_scaled_by_floats(value.high, factor.high, offset.high, negative_offset.high, has_signs));
}

#endif

/* Adds the zero point to 16 numbers, clamps them, and stores the first `count` of them as elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x16_store_bytes(uint8_t *target, tvm_ext_i32x16 value, int32_t count, int32_t zero_point,
                                               int32_t low, int32_t high, bool is_unsigned)
{
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(value.low, value.high), 0xD8);
    const __m256i words = zero_point == 0 ? packed : _mm256_adds_epi16(packed, _mm256_set1_epi16((int16_t)zero_point));
    const __m128i first = _mm256_castsi256_si128(words);
    const __m128i second = _mm256_extracti128_si256(words, 1);
    __m128i bytes = is_unsigned ? _mm_packus_epi16(first, second) : _mm_packs_epi16(first, second);
    const __m128i least = _mm_set1_epi8((char)low);
    const __m128i most = _mm_set1_epi8((char)high);
    if (low > (is_unsigned ? 0 : INT8_MIN)) {
        bytes = is_unsigned ? _mm_max_epu8(bytes, least) : _mm_max_epi8(bytes, least);
    }
    if (high < (is_unsigned ? UINT8_MAX : INT8_MAX)) {
        bytes = is_unsigned ? _mm_min_epu8(bytes, most) : _mm_min_epi8(bytes, most);
    }
    if (count >= 16) {
        _mm_storeu_si128((__m128i_u *)target, bytes);
    } else {
        uint8_t elements[16];
        _mm_storeu_si128((__m128i_u *)elements, bytes);
        (void)memcpy(target, elements, (size_t)count);
    }
}

#endif

#endif
