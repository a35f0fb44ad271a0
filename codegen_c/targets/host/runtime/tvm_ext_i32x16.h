/* Vectors of 16 integer accumulators for generated kernels: AVX-512 with VNNI, AVX2, NEON of AArch64, or plain C.
 *
 * An accumulator takes four products of 8-bit numbers at a time: activations, with a sign on AArch64 and with AVX2
 * alone, otherwise without one, times weights with a sign. Products are exact, and sums are taken modulo 2^32, so all
 * forms give the same results. Quantized activations of the other sign are stored with their highest bit inverted, as
 * numbers that differ by 128. */
#ifndef TVM_EXT_I32X16_H
#define TVM_EXT_I32X16_H

#include "tvm_ext_i32x16_avx2.h"
#include "tvm_ext_i32x16_avx512.h"
#include "tvm_ext_i32x16_neon.h"
#include "tvm_ext_i32x16_plain.h"

/* Unrolls the next loop, which has a small constant number of iterations. */
#if TVM_EXT_I32X16_ACCUMULATORS == 1
#define TVM_EXT_I32X16_UNROLLED /* unrolled plain C would be long */
#elif defined(__clang__)
#define TVM_EXT_I32X16_UNROLLED _Pragma("clang loop unroll_count(8)")
#elif defined(__GNUC__)
#define TVM_EXT_I32X16_UNROLLED _Pragma("GCC unroll 8")
#else
#define TVM_EXT_I32X16_UNROLLED
#endif

/* Returns the bits to invert in a quantized element of 8 bits, so that it has the sign that products take. */
TVM_EXT_INLINE uint8_t tvm_ext_i32x16_flip(bool is_unsigned)
{
    return is_unsigned == TVM_EXT_I32X16_TAKES_UNSIGNED ? 0 : 128;
}

#endif
