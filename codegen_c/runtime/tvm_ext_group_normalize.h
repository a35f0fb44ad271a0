/* GroupNorm and InstanceNorm of quantized images in plain C: exact sums, and one multiplier for each channel. */
#ifndef TVM_EXT_GROUP_NORMALIZE_H
#define TVM_EXT_GROUP_NORMALIZE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_normalize.h"
#include "tvm_ext_requantize.h"

/* A group is `depth` channels of all pixels of an image, n elements. With S and Q, the sums of its elements and of
 * their squares, its spread is n Q - S^2, and an element x becomes (x - S / n) weight / sqrt(spread + epsilon) + bias.
 */
typedef struct {
    int32_t images;
    int32_t groups;
    int32_t depth;
    int32_t pixels;
    int32_t channel_stride;
    int32_t pixel_stride;
    bool is_unsigned;        /* uint8 input, otherwise int8 */
    int32_t fraction;        /* fractional bits of the argument of the root; even */
    int64_t epsilon;
    int32_t reciprocal;      /* 1 / n, with mean_shift + 22 fractional bits */
    int32_t mean_shift;
    int32_t weight_fraction; /* fractional bits of the weights, which are multiplied by n */
    int32_t rest;            /* fractional bits of a result before its final shift */
    int32_t low;
    int32_t high;
} tvm_ext_group_normalize_layer;

/* The statistics of a group: its mean with 22 fractional bits, and an inverse root; a root of 0 for equal elements. */
typedef struct {
    int32_t mean;
    int32_t root;
    int32_t shift; /* of weight times root */
} tvm_ext_group_statistics;

/* Returns element p of a channel. */
TVM_EXT_INLINE int32_t tvm_ext_group_element(const tvm_ext_group_normalize_layer *layer, const uint8_t *x, int32_t p)
{
    const uint8_t element = x[p * layer->pixel_stride];
    return layer->is_unsigned ? (int32_t)element : (int32_t)(int8_t)element;
}

/* Returns the statistics of the group that begins at x. Squares of 65,536 elements fit in 32 bits without a sign. */
TVM_EXT_INLINE tvm_ext_group_statistics tvm_ext_group_sums(const tvm_ext_group_normalize_layer *layer, const uint8_t *x)
{
    int32_t total = 0;
    uint32_t squares = 0;
    for (int32_t c = 0; c < layer->depth; ++c) {
        const uint8_t *const channel = &x[c * layer->channel_stride];
        for (int32_t p = 0; p < layer->pixels; ++p) {
            const int32_t element = tvm_ext_group_element(layer, channel, p);
            total += element;
            squares += (uint32_t)(element * element);
        }
    }
    const uint64_t length = (uint64_t)layer->depth * (uint64_t)layer->pixels;
    const uint64_t spread = (length * squares) - (uint64_t)((int64_t)total * total);
    const uint64_t value = (spread << layer->fraction) + (uint64_t)layer->epsilon;
    const tvm_ext_inverse_root inverse = tvm_ext_inverse_root_of(value > 0 ? value : 1);
    const int64_t half = (int64_t)1 << (layer->mean_shift - 1);
    const int32_t shift = 46 + ((inverse.shift - layer->fraction) >> 1) + layer->weight_fraction - layer->rest;
    const tvm_ext_group_statistics found = {
        (int32_t)((((int64_t)total * layer->reciprocal) + half) >> layer->mean_shift),
        spread > 0 ? (int32_t)inverse.root : 0,
        shift < 62 ? shift : 62,
    };
    return found;
}

/* Normalizes all images. An element's product is computed modulo 2^32: the result fits. */
TVM_EXT_INLINE void tvm_ext_group_normalize(const tvm_ext_group_normalize_layer *layer, const void *input, void *output,
                                            const int32_t *restrict weight, const int32_t *restrict bias)
{
    const int32_t channels = layer->groups * layer->depth;
    for (int32_t image = 0; image < layer->images; ++image) {
        for (int32_t group = 0; group < layer->groups; ++group) {
            const int32_t first = group * layer->depth;
            const int32_t start = (image * channels * layer->pixels) + (first * layer->channel_stride);
            const tvm_ext_group_statistics of = tvm_ext_group_sums(layer, &((const uint8_t *)input)[start]);
            const int64_t half = (int64_t)1 << (of.shift - 1);
            for (int32_t c = 0; c < layer->depth; ++c) {
                const uint8_t *const x = &((const uint8_t *)input)[start + (c * layer->channel_stride)];
                uint8_t *const y = &((uint8_t *)output)[start + (c * layer->channel_stride)];
                const int32_t factor = (int32_t)((((int64_t)weight[first + c] * of.root) + half) >> of.shift);
                const int64_t middle = (((int64_t)factor * of.mean) + (1 << 21)) >> 22;
                const uint32_t addend = (uint32_t)bias[first + c] - (uint32_t)middle;
                for (int32_t p = 0; p < layer->pixels; ++p) {
                    const uint32_t element = (uint32_t)tvm_ext_group_element(layer, x, p);
                    const int32_t value = (int32_t)((element * (uint32_t)factor) + addend) >> layer->rest;
                    y[p * layer->pixel_stride] = (uint8_t)tvm_ext_limited(value, layer->low, layer->high);
                }
            }
        }
    }
}

#endif
