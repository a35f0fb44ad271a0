/* LayerNorm and RMSNorm of quantized vectors in plain C: exact sums, one inverse square root for each vector. */
#ifndef TVM_EXT_NORMALIZE_H
#define TVM_EXT_NORMALIZE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

/* A vector x of n elements becomes (n (x - z) - S) / sqrt(n Q - S^2 + epsilon), times a weight, plus a bias; S and Q
 * are the sums of x - z and of its squares. S is 0 where vectors are not centered. */
typedef struct {
    int32_t vectors;
    int32_t length;
    bool is_unsigned;   /* uint8 input, otherwise int8 */
    bool is_centered;
    int32_t zero_point; /* of the input */
    int32_t fraction;   /* fractional bits of the argument of the root; even */
    int64_t epsilon;
    int32_t quotient;   /* fractional bits of a quotient */
    int32_t rest;       /* fractional bits of a result before its final shift */
    int32_t low;
    int32_t high;
} tvm_ext_normalize_layer;

/* A factor for the elements of a vector, and the left shift before it. */
typedef struct {
    int32_t root;
    int32_t left;
} tvm_ext_normalize_factor;

/* Returns element c of a vector. */
TVM_EXT_INLINE int32_t tvm_ext_normalize_element(const tvm_ext_normalize_layer *layer, const uint8_t *x, int32_t c)
{
    return layer->is_unsigned ? (int32_t)x[c] : (int32_t)((const int8_t *)x)[c];
}

/* Returns the high word of a product. */
TVM_EXT_INLINE int32_t tvm_ext_high_word(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b) >> 32);
}

/* Returns the bit length of a number above 0. */
TVM_EXT_INLINE int32_t tvm_ext_bit_length(uint64_t value)
{
#if defined(__GNUC__)
    return 64 - __builtin_clzll(value);
#else
    int32_t bits = 0;
    for (uint64_t rest = value; rest > 0; rest >>= 1) {
        ++bits;
    }
    return bits;
#endif
}

/* An inverse root of m, the highest 31 or 32 bits of a number, and the even right shift that gives m. */
typedef struct {
    uint32_t root;
    int32_t shift;
} tvm_ext_inverse_root;

/* Returns 2^46 / sqrt(m) of a number above 0 by Newton's method. */
TVM_EXT_INLINE tvm_ext_inverse_root tvm_ext_inverse_root_of(uint64_t value)
{
    const int32_t bits = tvm_ext_bit_length(value);
    const int32_t shift = ((bits - 31) >> 1) * 2;
    const uint32_t mantissa = (uint32_t)(shift > 0 ? value >> shift : value << -shift);
    uint32_t root = mantissa < 0x80000000u ? 1803886264u : 1277752771u;
    for (int32_t i = 0; i < 5; ++i) {
        const uint32_t square = (uint32_t)(((uint64_t)root * root) >> 32);
        const uint32_t error = 0x30000000u - (uint32_t)(((uint64_t)mantissa * square) >> 32);
        const uint64_t next = ((uint64_t)root * error) >> 29;
        root = next < 0x7fffffffu ? (uint32_t)next : 0x7fffffffu;
    }
    const tvm_ext_inverse_root result = {root, shift};
    return result;
}

/* Returns the factor from the sums of a vector. */
TVM_EXT_INLINE tvm_ext_normalize_factor tvm_ext_normalize_root(const tvm_ext_normalize_layer *layer, int64_t total,
                                                               int64_t squares)
{
    const uint64_t exact =
        ((uint64_t)((layer->length * squares) - (total * total)) << layer->fraction) + (uint64_t)layer->epsilon;
    const tvm_ext_inverse_root inverse = tvm_ext_inverse_root_of(exact > 0 ? exact : 1);
    const int32_t left = 32 + layer->quotient - 46 - ((inverse.shift - layer->fraction) >> 1);
    const tvm_ext_normalize_factor factor = {(int32_t)inverse.root, left < 31 ? left : 31};
    return factor;
}

/* Normalizes all vectors. Elements minus the zero point, and the sum, are multiplied modulo 2^32: the result fits. */
TVM_EXT_INLINE void tvm_ext_normalize(const tvm_ext_normalize_layer *layer, const void *input, void *output,
                                      const int32_t *restrict weight, const int32_t *restrict bias)
{
    const int32_t length = layer->length;
    for (int32_t m = 0; m < layer->vectors; ++m) {
        const uint8_t *const x = &((const uint8_t *)input)[m * length];
        uint8_t *const y = &((uint8_t *)output)[m * length];
        int32_t total = 0;
        int32_t squares = 0;
        for (int32_t c = 0; c < length; ++c) {
            const int32_t element = tvm_ext_normalize_element(layer, x, c) - layer->zero_point;
            total += element;
            squares += element * element;
        }
        total = layer->is_centered ? total : 0;
        const tvm_ext_normalize_factor factor = tvm_ext_normalize_root(layer, total, squares);
        const uint32_t scale = (uint32_t)length << factor.left;
        const uint32_t start = (uint32_t)(-(length * layer->zero_point) - total) << factor.left;
        for (int32_t c = 0; c < length; ++c) {
            const uint32_t element = (uint32_t)tvm_ext_normalize_element(layer, x, c);
            const int32_t quotient = tvm_ext_high_word((int32_t)((element * scale) + start), factor.root);
            const int32_t value = (tvm_ext_high_word(quotient, weight[c]) + bias[c]) >> layer->rest;
            y[c] = (uint8_t)tvm_ext_limited(value, layer->low, layer->high);
        }
    }
}

#endif
