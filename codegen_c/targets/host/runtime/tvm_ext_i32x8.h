/* Vectors of 8 integer accumulators for generated kernels: AVX2, with VNNI if the processor has it, or plain C.
 * Products of 16-bit numbers are exact, and sums are taken modulo 2^32, so all forms give the same results.
 *
 * 16 channels are two vectors: channels 0 to 3 and 8 to 11 in one, 4 to 7 and 12 to 15 in the other. This is the order
 * in which AVX2 unpacks vectors of 16-bit numbers and packs them again. */
#ifndef TVM_EXT_I32X8_H
#define TVM_EXT_I32X8_H

#include "tvm_ext_i32x8_plain.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

/* Unrolls the next loop, which has a small constant number of iterations. */
#if !defined(__AVX2__)
#define TVM_EXT_I32X8_UNROLLED /* unrolled plain C would be long */
#elif defined(__clang__)
#define TVM_EXT_I32X8_UNROLLED _Pragma("clang loop unroll_count(32)")
#elif defined(__GNUC__)
#define TVM_EXT_I32X8_UNROLLED _Pragma("GCC unroll 32")
#else
#define TVM_EXT_I32X8_UNROLLED
#endif

#if defined(__AVX2__)

#include <immintrin.h>

typedef __m256i tvm_ext_i32x8;
typedef __m256i tvm_ext_i16x16;

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_load(const int32_t *source)
{
    return _mm256_loadu_si256((const __m256i_u *)source);
}

TVM_EXT_INLINE void tvm_ext_i32x8_store(int32_t *target, tvm_ext_i32x8 value)
{
    _mm256_storeu_si256((__m256i_u *)target, value);
}

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_splat(int32_t value)
{
    return _mm256_set1_epi32(value);
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_load(const void *source)
{
    return _mm256_loadu_si256((const __m256i_u *)source);
}

TVM_EXT_INLINE void tvm_ext_i16x16_store(void *target, tvm_ext_i16x16 value)
{
    _mm256_storeu_si256((__m256i_u *)target, value);
}

/* Widens 16 elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_widen(const uint8_t *source, bool is_unsigned)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i_u *)source);
    return is_unsigned ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
}

/* Returns a number of 16 bits in all lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_splat(int32_t value)
{
    return _mm256_set1_epi16((int16_t)value);
}

/* Returns the lower or the upper four bits of 16 bytes as numbers from -8 to 7. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_nibbles(const uint8_t *source, bool is_upper)
{
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)source));
    return _mm256_srai_epi16(is_upper ? words : _mm256_slli_epi16(words, 12), is_upper ? 4 : 12);
}

/* Returns two numbers in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_pair(const int16_t *source)
{
    int32_t both;
    (void)memcpy(&both, source, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Returns two elements of 8 bits in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_pair_of_bytes(const uint8_t *source, bool is_unsigned)
{
    int16_t both;
    (void)memcpy(&both, source, sizeof both);
    const __m128i bytes = _mm_set1_epi16(both);
    return is_unsigned ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
}

/* Returns one number and 0 in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_single(int32_t value)
{
    return _mm256_set1_epi32(value & 0xFFFF);
}

/* Adds the products of each two adjacent lanes to the accumulators. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_add_pairs(tvm_ext_i32x8 sums, tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpwssd_epi32(sums, a, b);
#elif defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sums, a, b);
#else
    tvm_ext_i32x8 result = _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
#if defined(__GNUC__)
    __asm__("" : "+x"(result)); /* without it compilers add long sums as trees and run out of registers */
#endif
    return result;
#endif
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_add(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    return _mm256_add_epi16(a, b);
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_subtract(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    return _mm256_sub_epi16(a, b);
}

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_add(tvm_ext_i32x8 a, tvm_ext_i32x8 b)
{
    return _mm256_add_epi32(a, b);
}

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_subtract(tvm_ext_i32x8 a, tvm_ext_i32x8 b)
{
    return _mm256_sub_epi32(a, b);
}

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_shifted_down(tvm_ext_i32x8 value, int32_t shift)
{
    return _mm256_srai_epi32(value, shift);
}

/* Interleaves numbers of a and b for channels 0 to 3 and 8 to 11; the next function for 4 to 7, 12 to 15. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_low_turns(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    return _mm256_unpacklo_epi16(a, b);
}

TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_high_turns(tvm_ext_i16x16 a, tvm_ext_i16x16 b)
{
    return _mm256_unpackhi_epi16(a, b);
}

/* Returns the even lanes of one vector and the odd lanes of the other: words of 64-bit products. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_blend(tvm_ext_i32x8 even, tvm_ext_i32x8 odd)
{
    return _mm256_blend_epi32(even, odd, 0xAA);
}

/* Returns round(value * multiplier / 2^(32 + shift)), halves up, or to even with has_ties. half: 2^(shift - 1).
 * The eight multipliers are loaded twice, the second time one element further, for the odd lanes. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_scaled(tvm_ext_i32x8 value, const int32_t *multipliers, tvm_ext_i32x8 half,
                                                  tvm_ext_i32x8 shift, bool has_ties)
{
    const __m256i even = _mm256_mul_epi32(value, tvm_ext_i32x8_load(multipliers));
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(value, 32), tvm_ext_i32x8_load(&multipliers[1]));
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

/* Returns value * multiplier / 2^31, rounded, then / 2^shift, halves away from zero, like TensorFlow Lite; shift > 0.
 */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_scaled_twice(tvm_ext_i32x8 value, const int32_t *multipliers,
                                                        tvm_ext_i32x8 half, tvm_ext_i32x8 shift)
{
    const __m256i first_half = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i even = _mm256_mul_epi32(value, tvm_ext_i32x8_load(multipliers));
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(value, 32), tvm_ext_i32x8_load(&multipliers[1]));
    const __m256i high = tvm_ext_i32x8_blend(_mm256_srli_epi64(_mm256_add_epi64(even, first_half), 31),
                                             _mm256_slli_epi64(_mm256_add_epi64(odd, first_half), 1));
    const __m256i away = _mm256_add_epi32(_mm256_add_epi32(high, half), _mm256_srai_epi32(high, 31));
    return _mm256_srav_epi32(away, shift);
}

#if defined(__FMA__)

#define TVM_EXT_I32X8_HAS_FLOATS

/* Returns value * factor + offset, rounded once as floats, then halves to even. It expects the default rounding mode.
 * factors, offsets: the bits of eight floats. */
TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_scaled_by_floats(tvm_ext_i32x8 value, const int32_t *factors,
                                                            const int32_t *offsets)
{
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(_mm256_cvtepi32_ps(value),
                                              _mm256_castsi256_ps(tvm_ext_i32x8_load(factors)),
                                              _mm256_castsi256_ps(tvm_ext_i32x8_load(offsets))));
}

#endif

TVM_EXT_INLINE tvm_ext_i32x8 tvm_ext_i32x8_shifted_up(tvm_ext_i32x8 value, int32_t shift)
{
    return _mm256_slli_epi32(value, shift);
}

/* Adds the zero point to 16 channels, clamps them, and stores elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_i32x8_store_bytes(uint8_t *target, tvm_ext_i32x8 low_turns, tvm_ext_i32x8 high_turns,
                                              int32_t zero_point, int32_t low, int32_t high, bool is_unsigned)
{
    const __m256i packed = _mm256_packs_epi32(low_turns, high_turns);
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
    _mm_storeu_si128((__m128i_u *)target, bytes);
}

#endif

#endif
