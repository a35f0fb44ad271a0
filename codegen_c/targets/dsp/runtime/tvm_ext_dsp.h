/* Integer arithmetic of Arm's DSP extension: 16-bit pairs and high products, and the equivalents in plain C. */
#ifndef TVM_EXT_DSP_H
#define TVM_EXT_DSP_H

#include <stdint.h>
#include <string.h>

#include "tvm_ext_kernels.h"

/* C11 leaves the right shift of negative numbers to the compiler; this code needs it to keep the sign. */
_Static_assert((-3 >> 1) == -2, "right shifts of negative numbers must keep the sign");

#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define TVM_EXT_DSP 1
#else
#define TVM_EXT_DSP 0
#endif

/* Linkage of functions with one copy for all layers. */
#if TVM_EXT_DSP && defined(__clang__)
#define TVM_EXT_DSP_SHARED static __attribute__((noinline, unused))
#elif TVM_EXT_DSP
#define TVM_EXT_DSP_SHARED static __attribute__((noinline, noclone, unused))
#else
#define TVM_EXT_DSP_SHARED static inline
#endif

/* Loads four bytes from any address, the first one lowest. */
static inline uint32_t tvm_ext_dsp_load(const void *bytes)
{
#if TVM_EXT_DSP
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
#else
    const uint8_t *b = (const uint8_t *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
#endif
}

/* Stores four bytes at any address, the lowest one first. */
static inline void tvm_ext_dsp_store(void *bytes, uint32_t word)
{
#if TVM_EXT_DSP
    memcpy(bytes, &word, sizeof word);
#else
    uint8_t *const b = (uint8_t *)bytes;
    for (int32_t i = 0; i < 4; ++i) {
        b[i] = (uint8_t)(word >> (8 * i) & 0xffu);
    }
#endif
}

/* A pair holds two signed 16-bit numbers: the first in the low half. */
static inline int32_t tvm_ext_dsp_low(uint32_t pair)
{
    return (int16_t)(uint16_t)(pair & 0xffffu);
}

static inline int32_t tvm_ext_dsp_high(uint32_t pair)
{
    return (int16_t)(uint16_t)(pair >> 16);
}

/* Stores a number of 16 bits in the high half of a pair. */
static inline void tvm_ext_dsp_store_high(uint32_t *pair, uint32_t number)
{
#if TVM_EXT_DSP
    const uint16_t half = (uint16_t)(number & 0xffffu);
    memcpy((uint8_t *)pair + sizeof half, &half, sizeof half);
#else
    *pair = (*pair & 0xffffu) | number << 16;
#endif
}

/* Returns the pair (low half of a, low half of b). */
static inline uint32_t tvm_ext_dsp_lows(uint32_t a, uint32_t b)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
#else
    return (a & 0xffffu) | b << 16;
#endif
}

/* Returns the pair (high half of a, high half of b). */
static inline uint32_t tvm_ext_dsp_highs(uint32_t a, uint32_t b)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(pair) : "r"(b), "r"(a));
    return pair;
#else
    return a >> 16 | (b & 0xffff0000u);
#endif
}

/* Returns bytes 0 and 2 of a word, and 1 and 3, as a pair: sign-extended, or from 0 to 255. */
static inline uint32_t tvm_ext_dsp_even_s8(uint32_t word)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(word));
    return pair;
#else
    const uint32_t bytes = word & 0x00ff00ffu;
    return tvm_ext_dsp_lows(((bytes & 0xffffu) ^ 0x80u) - 0x80u, (bytes >> 16 ^ 0x80u) - 0x80u);
#endif
}

static inline uint32_t tvm_ext_dsp_odd_s8(uint32_t word)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
#else
    return tvm_ext_dsp_even_s8(word >> 8);
#endif
}

static inline uint32_t tvm_ext_dsp_even_u8(uint32_t word)
{
    return word & 0x00ff00ffu;
}

static inline uint32_t tvm_ext_dsp_odd_u8(uint32_t word)
{
    return word >> 8 & 0x00ff00ffu;
}

/* Returns 16 times weight i of 4 bits; the first of two is in the lower bits of a byte. */
static inline uint32_t tvm_ext_dsp_nibble(const int8_t *bytes, int32_t i)
{
    const uint32_t byte = (uint32_t)bytes[i / 2];
    return i % 2 == 0 ? (uint32_t)((int32_t)(byte << 28) >> 24) : byte & 0xfffffff0u;
}

/* Returns a + b, and a - b, for each half separately. */
static inline uint32_t tvm_ext_dsp_add_pair(uint32_t a, uint32_t b)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("sadd16 %0, %1, %2" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
#else
    return tvm_ext_dsp_lows(a + b, (a >> 16) + (b >> 16));
#endif
}

static inline uint32_t tvm_ext_dsp_subtract_pair(uint32_t a, uint32_t b)
{
#if TVM_EXT_DSP
    uint32_t pair;
    __asm__("ssub16 %0, %1, %2" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
#else
    return tvm_ext_dsp_lows(a - b, (a >> 16) - (b >> 16));
#endif
}

/* Returns sum + low * low + high * high, modulo 2^32. */
static inline int32_t tvm_ext_dsp_smlad(uint32_t a, uint32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    const int32_t low = tvm_ext_dsp_low(a) * tvm_ext_dsp_low(b);
    const int32_t high = tvm_ext_dsp_high(a) * tvm_ext_dsp_high(b);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
#endif
}

/* Return sum + one half of a * one half of b, modulo 2^32. */
static inline int32_t tvm_ext_dsp_low_low(uint32_t a, uint32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return (int32_t)((uint32_t)sum + (uint32_t)(tvm_ext_dsp_low(a) * tvm_ext_dsp_low(b)));
#endif
}

static inline int32_t tvm_ext_dsp_low_high(uint32_t a, uint32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smlabt %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return (int32_t)((uint32_t)sum + (uint32_t)(tvm_ext_dsp_low(a) * tvm_ext_dsp_high(b)));
#endif
}

static inline int32_t tvm_ext_dsp_high_low(uint32_t a, uint32_t b, int32_t sum)
{
    return tvm_ext_dsp_low_high(b, a, sum);
}

static inline int32_t tvm_ext_dsp_high_high(uint32_t a, uint32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smlatt %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return (int32_t)((uint32_t)sum + (uint32_t)(tvm_ext_dsp_high(a) * tvm_ext_dsp_high(b)));
#endif
}

/* Returns sum + floor(a * b / 2^32). */
static inline int32_t tvm_ext_dsp_high_product(int32_t a, int32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return (int32_t)((int64_t)a * b >> 32) + sum;
#endif
}

/* Returns sum + a * b / 2^32, rounded to nearest, halves up. */
static inline int32_t tvm_ext_dsp_high_product_rounded(int32_t a, int32_t b, int32_t sum)
{
#if TVM_EXT_DSP
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 31)) >> 32) + sum;
#endif
}

#endif
