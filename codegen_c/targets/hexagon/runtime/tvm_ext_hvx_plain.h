/* The operations of tvm_ext_hvx.h in plain C, for processors without HVX. */
#ifndef TVM_EXT_HVX_PLAIN_H
#define TVM_EXT_HVX_PLAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tvm_ext_hvx.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

#if !TVM_EXT_HVX

#define TVM_EXT_HVX_SHARED static inline
#define TVM_EXT_HVX_UNROLL

typedef struct {
    int32_t word[TVM_EXT_HVX_WORDS];
} tvm_ext_hvx;

typedef struct {
    tvm_ext_hvx part[4];
} tvm_ext_hvx_four;

typedef struct {
    int32_t sum[TVM_EXT_HVX_BYTES];
} tvm_ext_hvx_halves;

/* Returns element i of a vector. */
static inline int32_t tvm_ext_hvx_element(const tvm_ext_hvx *vector, int32_t i, bool is_unsigned)
{
    const uint8_t byte = ((const uint8_t *)vector->word)[i];
    return is_unsigned ? (int32_t)byte : (int32_t)(int8_t)byte;
}

static inline tvm_ext_hvx tvm_ext_hvx_load_first(const void *address, int32_t count)
{
    tvm_ext_hvx value = {{0}};
    (void)memcpy(value.word, address, (size_t)count);
    return value;
}

static inline tvm_ext_hvx tvm_ext_hvx_load(const void *address)
{
    return tvm_ext_hvx_load_first(address, TVM_EXT_HVX_BYTES);
}

static inline void tvm_ext_hvx_store_first(void *address, tvm_ext_hvx value, int32_t count)
{
    (void)memcpy(address, value.word, (size_t)count);
}

static inline void tvm_ext_hvx_store(void *address, tvm_ext_hvx value)
{
    tvm_ext_hvx_store_first(address, value, TVM_EXT_HVX_BYTES);
}

static inline tvm_ext_hvx tvm_ext_hvx_words(int32_t word)
{
    tvm_ext_hvx value;
    for (int32_t i = 0; i < TVM_EXT_HVX_WORDS; ++i) {
        value.word[i] = word;
    }
    return value;
}

static inline tvm_ext_hvx tvm_ext_hvx_bytes(int32_t byte)
{
    tvm_ext_hvx value;
    (void)memset(value.word, byte & 0xff, sizeof value.word);
    return value;
}

/* Defines an operation on each word of two vectors. */
#define TVM_EXT_HVX_DEFINE(NAME, EXPRESSION)                                      \
    static inline tvm_ext_hvx tvm_ext_hvx_##NAME(tvm_ext_hvx first, tvm_ext_hvx second) \
    {                                                                             \
        tvm_ext_hvx value;                                                        \
        for (int32_t i = 0; i < TVM_EXT_HVX_WORDS; ++i) {                         \
            const int32_t a = first.word[i];                                      \
            const int32_t b = second.word[i];                                     \
            value.word[i] = (int32_t)(EXPRESSION);                                \
        }                                                                         \
        return value;                                                             \
    }
TVM_EXT_HVX_DEFINE(add, (uint32_t)a + (uint32_t)b)
TVM_EXT_HVX_DEFINE(sub, (uint32_t)a - (uint32_t)b)
TVM_EXT_HVX_DEFINE(and, a &b)
TVM_EXT_HVX_DEFINE(or, a | b)
TVM_EXT_HVX_DEFINE(xor, a ^ b)
TVM_EXT_HVX_DEFINE(shifted, b < 0 ? a >> -b : (int32_t)((uint32_t)a << b))
TVM_EXT_HVX_DEFINE(high, ((int64_t)a * b) >> 31)
TVM_EXT_HVX_DEFINE(high_rounded, (((int64_t)a * b) + ((int64_t)1 << 30)) >> 31)
TVM_EXT_HVX_DEFINE(low, (uint32_t)a *(uint32_t)b)
TVM_EXT_HVX_DEFINE(even_where_zero, b == 0 ? a - (a & 1) : a)

static inline tvm_ext_hvx tvm_ext_hvx_right(tvm_ext_hvx value, int32_t bits)
{
    return tvm_ext_hvx_shifted(value, tvm_ext_hvx_words(-bits));
}

static inline tvm_ext_hvx tvm_ext_hvx_left(tvm_ext_hvx value, int32_t bits)
{
    return tvm_ext_hvx_shifted(value, tvm_ext_hvx_words(bits));
}

static inline tvm_ext_hvx tvm_ext_hvx_dots(tvm_ext_hvx sums, tvm_ext_hvx elements, tvm_ext_hvx weights,
                                           bool is_unsigned)
{
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        const int32_t product =
            tvm_ext_hvx_element(&elements, i, is_unsigned) * tvm_ext_hvx_element(&weights, i, false);
        sums.word[i / 4] = (int32_t)((uint32_t)sums.word[i / 4] + (uint32_t)product);
    }
    return sums;
}

static inline tvm_ext_hvx tvm_ext_hvx_dot(tvm_ext_hvx sums, tvm_ext_hvx weights, int32_t word, bool is_unsigned)
{
    const tvm_ext_hvx elements = tvm_ext_hvx_words(word);
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        const int32_t product = tvm_ext_hvx_element(&elements, i, is_unsigned) * tvm_ext_hvx_element(&weights, i, true);
        sums.word[i / 4] = (int32_t)((uint32_t)sums.word[i / 4] + (uint32_t)product);
    }
    return sums;
}

static inline int64_t tvm_ext_hvx_eight(const uint8_t *address)
{
    int64_t elements;
    (void)memcpy(&elements, address, sizeof elements);
    return elements;
}

static inline int64_t tvm_ext_hvx_add_eight(int64_t totals, int64_t elements, bool is_unsigned)
{
    int32_t sums[2] = {(int32_t)totals, (int32_t)(totals >> 32)};
    for (int32_t i = 0; i < 8; ++i) {
        const uint8_t byte = (uint8_t)((uint64_t)elements >> (8 * i));
        sums[i / 4] += is_unsigned ? (int32_t)byte : (int32_t)(int8_t)byte;
    }
    return (int64_t)(((uint64_t)(uint32_t)sums[1] << 32) | (uint32_t)sums[0]);
}

static inline tvm_ext_hvx_four tvm_ext_hvx_interleave(tvm_ext_hvx a, tvm_ext_hvx b, tvm_ext_hvx c, tvm_ext_hvx d)
{
    tvm_ext_hvx_four words;
    const tvm_ext_hvx *const sources[4] = {&a, &b, &c, &d};
    for (int32_t i = 0; i < 4 * TVM_EXT_HVX_BYTES; ++i) {
        ((uint8_t *)words.part)[i] = ((const uint8_t *)sources[i % 4]->word)[i / 4];
    }
    return words;
}

static inline tvm_ext_hvx_four tvm_ext_hvx_unpacked(tvm_ext_hvx bytes, bool is_unsigned)
{
    tvm_ext_hvx_four words;
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        words.part[i / 32].word[i % 32] = tvm_ext_hvx_element(&bytes, i, is_unsigned);
    }
    return words;
}

static inline tvm_ext_hvx tvm_ext_hvx_from_byte(tvm_ext_hvx value, int32_t bytes)
{
    tvm_ext_hvx turned;
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        ((uint8_t *)turned.word)[i] = ((const uint8_t *)value.word)[(i + bytes) % TVM_EXT_HVX_BYTES];
    }
    return turned;
}

static inline tvm_ext_hvx tvm_ext_hvx_packed(tvm_ext_hvx_four words, bool is_unsigned, int32_t low, int32_t high)
{
    tvm_ext_hvx bytes;
    (void)is_unsigned;
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        ((uint8_t *)bytes.word)[i] = (uint8_t)tvm_ext_clamp(words.part[i / 32].word[i % 32], low, high);
    }
    return bytes;
}

static inline tvm_ext_hvx tvm_ext_hvx_max(tvm_ext_hvx a, tvm_ext_hvx b, bool is_unsigned)
{
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        const bool is_less = tvm_ext_hvx_element(&a, i, is_unsigned) < tvm_ext_hvx_element(&b, i, is_unsigned);
        ((uint8_t *)a.word)[i] = ((const uint8_t *)(is_less ? b.word : a.word))[i];
    }
    return a;
}

static inline tvm_ext_hvx tvm_ext_hvx_min(tvm_ext_hvx a, tvm_ext_hvx b, bool is_unsigned)
{
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        const bool is_less = tvm_ext_hvx_element(&a, i, is_unsigned) < tvm_ext_hvx_element(&b, i, is_unsigned);
        ((uint8_t *)a.word)[i] = ((const uint8_t *)(is_less ? a.word : b.word))[i];
    }
    return a;
}

static inline tvm_ext_hvx_halves tvm_ext_hvx_no_halves(void)
{
    const tvm_ext_hvx_halves sums = {{0}};
    return sums;
}

static inline tvm_ext_hvx_halves tvm_ext_hvx_accumulate(tvm_ext_hvx_halves sums, tvm_ext_hvx elements, bool is_unsigned)
{
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        sums.sum[i] += tvm_ext_hvx_element(&elements, i, is_unsigned);
    }
    return sums;
}

static inline tvm_ext_hvx_four tvm_ext_hvx_widened(tvm_ext_hvx_halves sums, bool is_unsigned)
{
    tvm_ext_hvx_four words;
    (void)is_unsigned;
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        words.part[i / 32].word[i % 32] = sums.sum[i];
    }
    return words;
}

static inline tvm_ext_hvx tvm_ext_hvx_weighted(tvm_ext_hvx a, bool a_is_unsigned, tvm_ext_hvx b, bool b_is_unsigned,
                                               int32_t start, int32_t first, int32_t second, int32_t shift,
                                               bool is_unsigned, int32_t low, int32_t high)
{
    tvm_ext_hvx_four words;
    for (int32_t i = 0; i < TVM_EXT_HVX_BYTES; ++i) {
        const int32_t x = tvm_ext_hvx_element(&a, i, a_is_unsigned);
        const int32_t y = tvm_ext_hvx_element(&b, i, b_is_unsigned);
        words.part[i / 32].word[i % 32] = (start + (first * x) + (second * y)) >> shift;
    }
    return tvm_ext_hvx_packed(words, is_unsigned, low, high);
}

#endif

#endif
