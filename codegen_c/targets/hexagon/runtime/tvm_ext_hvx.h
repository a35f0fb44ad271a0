/* Vectors of 128 bytes: Hexagon's HVX, and the same in plain C for other processors.
 *
 * A vector holds 128 elements of 8 bits or 32 words. Memory accesses may have any address. A load of the first elements
 * reads no aligned block of 128 bytes that holds none of them, so it never leaves the pages of its operand. */
#ifndef TVM_EXT_HVX_H
#define TVM_EXT_HVX_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tvm_ext_layer.h"

#if !defined(TVM_EXT_HVX)
#if defined(__HVX__) && defined(__HVX_LENGTH__) && defined(__HVX_ARCH__) && __HVX_LENGTH__ == 128 && __HVX_ARCH__ >= 65
#define TVM_EXT_HVX 1
#else
#define TVM_EXT_HVX 0
#endif
#endif

#define TVM_EXT_HVX_BYTES 128
#define TVM_EXT_HVX_WORDS 32 /* accumulators in a vector */

#if TVM_EXT_HVX

#include <hexagon_protos.h>
#include <hexagon_types.h>
#include <hvx_hexagon_protos.h>

/* Functions that exist once for all layers, and loops whose turns are written out. */
#define TVM_EXT_HVX_SHARED static __attribute__((noinline, unused))
#define TVM_EXT_HVX_UNROLL _Pragma("unroll")

typedef HVX_Vector tvm_ext_hvx;
typedef struct {
    tvm_ext_hvx part[4];
} tvm_ext_hvx_four;

/* Sums of up to 255 vectors of 8-bit elements. */
typedef HVX_VectorPair tvm_ext_hvx_halves;

typedef long tvm_ext_hvx_memory __attribute__((__vector_size__(128), __aligned__(1), __may_alias__));

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_load(const void *address)
{
    return *(const tvm_ext_hvx_memory *)address;
}

TVM_EXT_INLINE void tvm_ext_hvx_store(void *address, tvm_ext_hvx value)
{
    *(tvm_ext_hvx_memory *)address = value;
}

/* Loads the first `count` bytes, from 1 to 128; the others have any value. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_load_first(const void *address, int32_t count)
{
    const uintptr_t begin = (uintptr_t)address;
    const uintptr_t last = begin + (uintptr_t)count - 1u;
    const tvm_ext_hvx *const low = (const tvm_ext_hvx *)(begin & ~(uintptr_t)127u);
    const tvm_ext_hvx *const high = (const tvm_ext_hvx *)(last & ~(uintptr_t)127u);
    return Q6_V_valign_VVR(*high, *low, (int32_t)begin);
}

/* Stores the first `count` bytes, from 1 to 128. */
TVM_EXT_INLINE void tvm_ext_hvx_store_first(void *address, tvm_ext_hvx value, int32_t count)
{
    if (count == TVM_EXT_HVX_BYTES) {
        tvm_ext_hvx_store(address, value);
        return;
    }
    const uintptr_t begin = (uintptr_t)address;
    const int32_t end = (int32_t)(begin & 127u) + count;
    HVX_Vector *const block = (HVX_Vector *)(begin & ~(uintptr_t)127u);
    const tvm_ext_hvx turned = Q6_V_vlalign_VVR(value, value, (int32_t)begin);
    const HVX_VectorPred ahead = Q6_Q_vsetq_R((int32_t)begin);
    if (end > TVM_EXT_HVX_BYTES) {
        Q6_vmem_QnRIV(ahead, block, turned);
        Q6_vmem_QRIV(Q6_Q_vsetq2_R(end - TVM_EXT_HVX_BYTES), block + 1, turned);
    } else {
        Q6_vmem_QnRIV(Q6_Q_or_QQn(ahead, Q6_Q_vsetq2_R(end)), block, turned);
    }
}

/* Return a vector with the same word, or the same byte, everywhere. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_words(int32_t word)
{
    return Q6_V_vsplat_R(word);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_bytes(int32_t byte)
{
    return Q6_Vb_vsplat_R(byte);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_add(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_Vw_vadd_VwVw(a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_sub(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_Vw_vsub_VwVw(a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_and(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_V_vand_VV(a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_xor(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_V_vxor_VV(a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_or(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_V_vor_VV(a, b);
}

/* Return the words shifted right, or left, by 0 to 31 bits. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_right(tvm_ext_hvx value, int32_t bits)
{
    return Q6_Vw_vasr_VwR(value, bits);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_left(tvm_ext_hvx value, int32_t bits)
{
    return Q6_Vw_vasl_VwR(value, bits);
}

/* Returns each word shifted left by its own number of bits, or right if the number is negative; -31 to 31. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_shifted(tvm_ext_hvx value, tvm_ext_hvx bits)
{
    return Q6_Vw_vasl_VwVw(value, bits);
}

/* Return the words a * b / 2^31, rounded down, or to nearest with halves up. b: 0 to 2^31 - 1. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_high(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_Vw_vmpyoacc_VwVwVh_s1_sat_shift(Q6_Vw_vmpye_VwVuh(a, b), a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_high_rounded(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_Vw_vmpyoacc_VwVwVh_s1_rnd_sat_shift(Q6_Vw_vmpye_VwVuh(a, b), a, b);
}

/* Returns the words a * b modulo 2^32. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_low(tvm_ext_hvx a, tvm_ext_hvx b)
{
    return Q6_Vw_vadd_VwVw(Q6_Vw_vmpyie_VwVuh(a, b), Q6_Vw_vasl_VwR(Q6_Vw_vmpyio_VwVh(a, b), 16));
}

/* Subtracts 1 from odd words of `value` where `zero` is 0. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_even_where_zero(tvm_ext_hvx value, tvm_ext_hvx zero)
{
    const HVX_VectorPred is_zero = Q6_Q_vcmp_eq_VwVw(zero, Q6_V_vzero());
    return Q6_Vw_condnac_QVwVw(is_zero, value, Q6_V_vand_VV(value, Q6_V_vsplat_R(1)));
}

/* Adds to each word the products of its four unsigned weights with the four elements of `word`. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_dot(tvm_ext_hvx sums, tvm_ext_hvx weights, int32_t word, bool is_unsigned)
{
    return is_unsigned ? Q6_Vuw_vrmpyacc_VuwVubRub(sums, weights, word) : Q6_Vw_vrmpyacc_VwVubRb(sums, weights, word);
}

/* Adds to each word the products of its four elements with its four signed weights. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_dots(tvm_ext_hvx sums, tvm_ext_hvx elements, tvm_ext_hvx weights,
                                            bool is_unsigned)
{
    return is_unsigned ? Q6_Vw_vrmpyacc_VwVubVb(sums, elements, weights)
                       : Q6_Vw_vrmpyacc_VwVbVb(sums, elements, weights);
}

/* Returns the word of the elements at `address`, which is a multiple of 8, or of those 4 elements after it. */
TVM_EXT_INLINE int64_t tvm_ext_hvx_eight(const uint8_t *address)
{
    int64_t elements;
    (void)memcpy(&elements, __builtin_assume_aligned(address, 8), sizeof elements);
    return elements;
}

/* Adds eight elements to two sums, in the two halves of `totals`. */
TVM_EXT_INLINE int64_t tvm_ext_hvx_add_eight(int64_t totals, int64_t elements, bool is_unsigned)
{
    const int64_t ones = 0x0101010101010101LL;
    return is_unsigned ? Q6_P_vrmpybuacc_PP(totals, elements, ones) : Q6_P_vrmpybsuacc_PP(totals, elements, ones);
}

/* Returns words whose bytes are those of four vectors at the same index: the words of the first 32 bytes, then the
 * next. */
TVM_EXT_INLINE tvm_ext_hvx_four tvm_ext_hvx_interleave(tvm_ext_hvx a, tvm_ext_hvx b, tvm_ext_hvx c, tvm_ext_hvx d)
{
    const HVX_VectorPair ab = Q6_W_vshuff_VVR(b, a, -1);
    const HVX_VectorPair cd = Q6_W_vshuff_VVR(d, c, -1);
    const HVX_VectorPair low = Q6_W_vshuff_VVR(Q6_V_lo_W(cd), Q6_V_lo_W(ab), -2);
    const HVX_VectorPair high = Q6_W_vshuff_VVR(Q6_V_hi_W(cd), Q6_V_hi_W(ab), -2);
    const tvm_ext_hvx_four words = {{Q6_V_lo_W(low), Q6_V_hi_W(low), Q6_V_lo_W(high), Q6_V_hi_W(high)}};
    return words;
}

/* Return the larger, or the smaller, of each two elements of 8 bits. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_max(tvm_ext_hvx a, tvm_ext_hvx b, bool is_unsigned)
{
    return is_unsigned ? Q6_Vub_vmax_VubVub(a, b) : Q6_Vb_vmax_VbVb(a, b);
}

TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_min(tvm_ext_hvx a, tvm_ext_hvx b, bool is_unsigned)
{
    return is_unsigned ? Q6_Vub_vmin_VubVub(a, b) : Q6_Vb_vmin_VbVb(a, b);
}

/* Returns elements of 8 bits as words, in their order. */
TVM_EXT_INLINE tvm_ext_hvx_four tvm_ext_hvx_unpacked(tvm_ext_hvx bytes, bool is_unsigned)
{
    const HVX_VectorPair halves = is_unsigned ? Q6_Wuh_vunpack_Vub(bytes) : Q6_Wh_vunpack_Vb(bytes);
    const HVX_VectorPair first = Q6_Ww_vunpack_Vh(Q6_V_lo_W(halves));
    const HVX_VectorPair second = Q6_Ww_vunpack_Vh(Q6_V_hi_W(halves));
    const tvm_ext_hvx_four words = {{Q6_V_lo_W(first), Q6_V_hi_W(first), Q6_V_lo_W(second), Q6_V_hi_W(second)}};
    return words;
}

/* Returns the vector whose first byte is byte `bytes`; the bytes before it follow the last one. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_from_byte(tvm_ext_hvx value, int32_t bytes)
{
    return Q6_V_vror_VR(value, bytes);
}

/* Packs two vectors of 16 bits into elements of 8 bits, clamped to [low, high]. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_packed_halves(tvm_ext_hvx first, tvm_ext_hvx second, bool is_unsigned,
                                                     int32_t low, int32_t high)
{
    const tvm_ext_hvx bytes = is_unsigned ? Q6_Vub_vpack_VhVh_sat(second, first) : Q6_Vb_vpack_VhVh_sat(second, first);
    const tvm_ext_hvx raised = tvm_ext_hvx_max(bytes, tvm_ext_hvx_bytes(low), is_unsigned);
    return tvm_ext_hvx_min(raised, tvm_ext_hvx_bytes(high), is_unsigned);
}

/* Packs words into elements of 8 bits in their order, clamped to [low, high]. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_packed(tvm_ext_hvx_four words, bool is_unsigned, int32_t low, int32_t high)
{
    return tvm_ext_hvx_packed_halves(Q6_Vh_vpack_VwVw_sat(words.part[1], words.part[0]),
                                     Q6_Vh_vpack_VwVw_sat(words.part[3], words.part[2]), is_unsigned, low, high);
}

/* Returns sums of 16 bits that are zero. */
TVM_EXT_INLINE tvm_ext_hvx_halves tvm_ext_hvx_no_halves(void)
{
    return Q6_W_vcombine_VV(Q6_V_vzero(), Q6_V_vzero());
}

/* Adds each element to its sum of 16 bits. */
TVM_EXT_INLINE tvm_ext_hvx_halves tvm_ext_hvx_accumulate(tvm_ext_hvx_halves sums, tvm_ext_hvx elements,
                                                         bool is_unsigned)
{
    const tvm_ext_hvx ones = tvm_ext_hvx_bytes(1);
    return is_unsigned ? Q6_Wuh_vmpyacc_WuhVubVub(sums, elements, ones) : Q6_Wh_vmpyacc_WhVbVb(sums, elements, ones);
}

/* Returns sums of 16 bits as words, in the order of their elements. */
TVM_EXT_INLINE tvm_ext_hvx_four tvm_ext_hvx_widened(tvm_ext_hvx_halves sums, bool is_unsigned)
{
    const HVX_VectorPair ordered = Q6_W_vshuff_VVR(Q6_V_hi_W(sums), Q6_V_lo_W(sums), -2);
    HVX_VectorPair first;
    HVX_VectorPair second;
    if (is_unsigned) {
        first = Q6_Wuw_vunpack_Vuh(Q6_V_lo_W(ordered));
        second = Q6_Wuw_vunpack_Vuh(Q6_V_hi_W(ordered));
    } else {
        first = Q6_Ww_vunpack_Vh(Q6_V_lo_W(ordered));
        second = Q6_Ww_vunpack_Vh(Q6_V_hi_W(ordered));
    }
    const tvm_ext_hvx_four words = {{Q6_V_lo_W(first), Q6_V_hi_W(first), Q6_V_lo_W(second), Q6_V_hi_W(second)}};
    return words;
}

/* Returns start + first * a + second * b of 64 elements of 16 bits, shifted right and saturated to 16 bits. */
TVM_EXT_INLINE HVX_Vector tvm_ext_hvx_weighted_half(HVX_Vector a, HVX_Vector b, int32_t start, int32_t first,
                                                    int32_t second, int32_t shift)
{
    const int32_t first_low = (int32_t)(int16_t)first;
    const int32_t second_low = (int32_t)(int16_t)second;
    const int32_t first_high = (first - first_low) >> 16;
    const int32_t second_high = (second - second_low) >> 16;
    HVX_VectorPair low = Q6_W_vcombine_VV(Q6_V_vsplat_R(start), Q6_V_vsplat_R(start));
    low = Q6_Ww_vmpyacc_WwVhRh(low, a, Q6_R_combine_RlRl(first_low, first_low));
    low = Q6_Ww_vmpyacc_WwVhRh(low, b, Q6_R_combine_RlRl(second_low, second_low));
    HVX_VectorPair high = Q6_Ww_vmpy_VhRh(a, Q6_R_combine_RlRl(first_high, first_high));
    high = Q6_Ww_vmpyacc_WwVhRh(high, b, Q6_R_combine_RlRl(second_high, second_high));
    const HVX_Vector even = Q6_Vw_vaslacc_VwVwR(Q6_V_lo_W(low), Q6_V_lo_W(high), 16);
    const HVX_Vector odd = Q6_Vw_vaslacc_VwVwR(Q6_V_hi_W(low), Q6_V_hi_W(high), 16);
    return Q6_Vh_vsat_VwVw(Q6_Vw_vasr_VwR(odd, shift), Q6_Vw_vasr_VwR(even, shift));
}

/* Returns elements (start + first * a + second * b) / 2^shift, rounded down and clamped to [low, high]. Sums of three
 * terms fit 32 bits. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_weighted(tvm_ext_hvx a, bool a_is_unsigned, tvm_ext_hvx b, bool b_is_unsigned,
                                                int32_t start, int32_t first, int32_t second, int32_t shift,
                                                bool is_unsigned, int32_t low, int32_t high)
{
    const HVX_VectorPair x = a_is_unsigned ? Q6_Wuh_vunpack_Vub(a) : Q6_Wh_vunpack_Vb(a);
    const HVX_VectorPair y = b_is_unsigned ? Q6_Wuh_vunpack_Vub(b) : Q6_Wh_vunpack_Vb(b);
    const HVX_Vector head = tvm_ext_hvx_weighted_half(Q6_V_lo_W(x), Q6_V_lo_W(y), start, first, second, shift);
    const HVX_Vector tail = tvm_ext_hvx_weighted_half(Q6_V_hi_W(x), Q6_V_hi_W(y), start, first, second, shift);
    return tvm_ext_hvx_packed_halves(head, tail, is_unsigned, low, high);
}

#else
#include "tvm_ext_hvx_plain.h"
#endif

#endif
