/* The functions of tvm_ext_i32x16.h with AVX-512 and VNNI: one register of 16 accumulators. */
#ifndef TVM_EXT_I32X16_AVX512_H
#define TVM_EXT_I32X16_AVX512_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)

#include <immintrin.h>

#define TVM_EXT_I32X16_IS_AVX512
#define TVM_EXT_I32X16_ADDS_QUADS /* in one instruction */
/* Accumulators that are computed together, and those of them that belong to one pixel if there are several pixels. */
#define TVM_EXT_I32X16_ACCUMULATORS 24
#define TVM_EXT_I32X16_UNITS 4
#define TVM_EXT_I32X16_TAKES_UNSIGNED true

typedef __m512i tvm_ext_i32x16;
typedef __m512i tvm_ext_i8x64;

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_load(const int32_t *source)
{
    return _mm512_loadu_si512(source);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return _mm512_add_epi32(a, b);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_subtract(tvm_ext_i32x16 a, tvm_ext_i32x16 b)
{
    return _mm512_sub_epi32(a, b);
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_down(tvm_ext_i32x16 value, int32_t shift)
{
    return _mm512_sra_epi32(value, _mm_cvtsi32_si128(shift));
}

TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_shifted_up(tvm_ext_i32x16 value, int32_t shift)
{
    return _mm512_sll_epi32(value, _mm_cvtsi32_si128(shift));
}

/* Returns a * factors[0] + b * factors[1] + addend for numbers a and b that fit 16 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_weighted(tvm_ext_i32x16 a, tvm_ext_i32x16 b, const int16_t factors[2],
                                                      int32_t addend)
{
    int32_t both;
    (void)memcpy(&both, factors, sizeof both);
    const __m512i pairs = _mm512_mask_blend_epi16(0xAAAAAAAA, a, _mm512_slli_epi32(b, 16));
    return _mm512_dpwssd_epi32(_mm512_set1_epi32(addend), pairs, _mm512_set1_epi32(both));
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_widen(const uint8_t *source, bool is_unsigned)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i_u *)source);
    return is_unsigned ? _mm512_cvtepu8_epi32(bytes) : _mm512_cvtepi8_epi32(bytes);
}

TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_load(const uint8_t *source)
{
    return _mm512_loadu_si512(source);
}

/* Returns 64 numbers of 4 bits from 32 bytes, the lower four bits of all bytes first. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_nibbles(const uint8_t *source)
{
    const __m256i bytes = _mm256_loadu_si256((const __m256i_u *)source);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(bytes), _mm256_srli_epi16(bytes, 4), 1);
    const __m512i eight = _mm512_set1_epi8(8);
    return _mm512_sub_epi8(_mm512_xor_si512(_mm512_and_si512(both, _mm512_set1_epi8(15)), eight), eight);
}

/* Returns four elements of 8 bits in all groups of four lanes. */
TVM_EXT_INLINE tvm_ext_i8x64 tvm_ext_i8x64_quad(const uint8_t *source)
{
    int32_t four;
    (void)memcpy(&four, source, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Adds the products of each four adjacent lanes to an accumulator. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_add_quads(tvm_ext_i32x16 sums, tvm_ext_i8x64 activations,
                                                       tvm_ext_i8x64 weights, bool is_symmetric)
{
    (void)is_symmetric; /* all products are exact */
    return _mm512_dpbusd_epi32(sums, activations, weights);
}

/* Copies `count` bytes and inverts the bits of `flip` in them. */
TVM_EXT_INLINE void tvm_ext_i8x64_copy(uint8_t *target, const uint8_t *source, int32_t count, uint8_t flip)
{
    const __m512i bits = _mm512_set1_epi8((char)flip);
    const int32_t whole = count - (count % 64);
    for (int32_t i = 0; i < whole; i += 64) {
        _mm512_storeu_si512(&target[i], _mm512_xor_si512(_mm512_loadu_si512(&source[i]), bits));
    }
    if (whole < count) {
        const __mmask64 rest = ((__mmask64)1 << (count - whole)) - 1;
        const __m512i bytes = _mm512_maskz_loadu_epi8(rest, &source[whole]);
        _mm512_mask_storeu_epi8(&target[whole], rest, _mm512_xor_si512(bytes, bits));
    }
}

/* Interleaves `count` bytes of four rows. It reads and writes whole groups of 64 bytes of each row. */
TVM_EXT_INLINE void tvm_ext_i8x64_weave(uint8_t *target, const uint8_t *const rows[4], int32_t count)
{
    /* Groups of four bytes in the order that the unpack instructions, which work in 16 bytes each, turn into 64. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int32_t i = 0; i < count; i += 64) {
        const __m512i a = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(&rows[0][i]));
        const __m512i b = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(&rows[1][i]));
        const __m512i c = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(&rows[2][i]));
        const __m512i d = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(&rows[3][i]));
        const __m512i ab[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)};
        const __m512i cd[2] = {_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)};
        uint8_t *const woven = &target[4 * i];
        _mm512_storeu_si512(woven, _mm512_unpacklo_epi16(ab[0], cd[0]));
        _mm512_storeu_si512(&woven[64], _mm512_unpackhi_epi16(ab[0], cd[0]));
        _mm512_storeu_si512(&woven[128], _mm512_unpacklo_epi16(ab[1], cd[1]));
        _mm512_storeu_si512(&woven[192], _mm512_unpackhi_epi16(ab[1], cd[1]));
    }
}

/* Returns the even lanes of one vector and the odd lanes of the other: words of 64-bit products. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_blend(tvm_ext_i32x16 even, tvm_ext_i32x16 odd)
{
    return _mm512_mask_blend_epi32(0xAAAA, even, odd);
}

/* Returns round(value * multiplier / 2^(32 + shift)), halves up, or to even with has_ties. half: 2^(shift - 1). */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                    tvm_ext_i32x16 half, tvm_ext_i32x16 shift, bool has_ties)
{
    const __m512i even = _mm512_mul_epi32(value, multiplier);
    const __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(value, 32), _mm512_srli_epi64(multiplier, 32));
    const __m512i high = tvm_ext_i32x16_blend(_mm512_srli_epi64(even, 32), odd);
    const __m512i rounded = _mm512_srav_epi32(_mm512_add_epi32(high, half), shift);
    if (!has_ties) {
        return rounded;
    }
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i low = tvm_ext_i32x16_blend(even, _mm512_slli_epi64(odd, 32));
    const __m512i below = _mm512_sub_epi32(_mm512_add_epi32(half, half), one);
    const __mmask16 is_tie =
        (__mmask16)(_mm512_testn_epi32_mask(low, low) & _mm512_cmpeq_epi32_mask(_mm512_and_si512(high, below), half));
    return _mm512_mask_sub_epi32(rounded, is_tie, rounded, _mm512_and_si512(rounded, one));
}

/* Returns value * multiplier / 2^31, rounded, then / 2^shift, halves away from zero, like TensorFlow Lite; shift > 0.
 * half: 2^(shift - 1). */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_twice(tvm_ext_i32x16 value, tvm_ext_i32x16 multiplier,
                                                          tvm_ext_i32x16 half, tvm_ext_i32x16 shift)
{
    const __m512i first_half = _mm512_set1_epi64(INT64_C(1) << 30);
    const __m512i even = _mm512_mul_epi32(value, multiplier);
    const __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(value, 32), _mm512_srli_epi64(multiplier, 32));
    const __m512i high = tvm_ext_i32x16_blend(_mm512_srli_epi64(_mm512_add_epi64(even, first_half), 31),
                                              _mm512_slli_epi64(_mm512_add_epi64(odd, first_half), 1));
    const __m512i away = _mm512_add_epi32(_mm512_add_epi32(high, half), _mm512_srai_epi32(high, 31));
    return _mm512_srav_epi32(away, shift);
}

#define TVM_EXT_I32X16_HAS_FLOATS

/* Returns value * factor + offset, rounded once as floats, then halves to even. It expects the default rounding mode.
 * negative_offset: of values below zero. All three hold the bits of floats. */
TVM_EXT_INLINE tvm_ext_i32x16 tvm_ext_i32x16_scaled_by_floats(tvm_ext_i32x16 value, tvm_ext_i32x16 factor,
                                                              tvm_ext_i32x16 offset, tvm_ext_i32x16 negative_offset,
                                                              bool has_signs)
{
    const __m512i added =
        has_signs ? _mm512_mask_blend_epi32(_mm512_movepi32_mask(value), offset, negative_offset) : offset;
    return _mm512_cvtps_epi32(
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(value), _mm512_castsi512_ps(factor), _mm512_castsi512_ps(added)));
}

/* Adds the zero point to 16 numbers, clamps them, and stores the first `count` of them as elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x16_store_bytes(uint8_t *target, tvm_ext_i32x16 value, int32_t count, int32_t zero_point,
                                               int32_t low, int32_t high, bool is_unsigned)
{
    const __m512i moved = zero_point == 0 ? value : _mm512_add_epi32(value, _mm512_set1_epi32(zero_point));
    const __m512i least = low > INT8_MIN || is_unsigned ? _mm512_max_epi32(moved, _mm512_set1_epi32(low)) : moved;
    const __m512i most =
        high < (is_unsigned ? UINT8_MAX : INT8_MAX) ? _mm512_min_epi32(least, _mm512_set1_epi32(high)) : least;
    const __m128i bytes = is_unsigned ? _mm512_cvtusepi32_epi8(most) : _mm512_cvtsepi32_epi8(most);
    if (count >= 16) {
        _mm_storeu_si128((__m128i_u *)target, bytes);
    } else {
        _mm_mask_storeu_epi8(target, (__mmask16)((1U << (uint32_t)count) - 1U), bytes);
    }
}

#endif

#endif
