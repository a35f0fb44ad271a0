/* Vectors of 8 integer accumulators for generated kernels: AVX2, with VNNI if the processor has it, or plain C.
 * Products of 16-bit numbers are exact, and sums are taken modulo 2^32, so all forms give the same results. */
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

/* Returns two numbers in all pairs of lanes. */
TVM_EXT_INLINE tvm_ext_i16x16 tvm_ext_i16x16_pair(const int16_t *source)
{
    int32_t both;
    (void)memcpy(&both, source, sizeof both);
    return _mm256_set1_epi32(both);
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

#endif

#endif
