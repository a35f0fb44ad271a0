/* SVDF on integers, as TensorFlow Lite Micro computes it: features of an input, kept for some steps, and their weighted
 * sums over these steps. Features and weights over time both have 8 or both have 16 bits. */
#ifndef TVM_EXT_SVDF_H
#define TVM_EXT_SVDF_H

#include <string.h>

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize_tflite.h"

/* Features whose sums are in registers at the same time. */
#define TVM_EXT_SVDF_BLOCK 4

/* multiplier / 2^shift, for tvm_ext_requantize_tflite */
typedef struct {
    int32_t multiplier;
    int32_t shift;
} tvm_ext_svdf_factor;

typedef struct {
    tvm_ext_image features; /* a step in each row */
    tvm_ext_svdf_factor factor;
} tvm_ext_svdf_features;

typedef struct {
    tvm_ext_image window; /* the steps, from the oldest to the newest */
    int32_t rank; /* features of each output; the block holds whole outputs, or else it is 1 */
    int32_t block;
    tvm_ext_svdf_factor factor;
    int32_t zero_point; /* of the outputs */
} tvm_ext_svdf_layer;

/* Writes the features of a step from their sums. */
TVM_EXT_INLINE void tvm_ext_svdf_narrow(const tvm_ext_svdf_features *layer, const int32_t *sums, void *features)
{
    const int32_t most = layer->features.is_wide ? INT16_MAX : INT8_MAX;
    for (int32_t f = 0; f < layer->features.channels; ++f) {
        const int32_t value = tvm_ext_requantize_tflite(sums[f], layer->factor.multiplier, layer->factor.shift);
        tvm_ext_set(&layer->features, features, f, value > most ? most : value < -most - 1 ? -most - 1 : value);
    }
}

/* Adds the zero point of the state to features of 8 bits. It wraps, as in TensorFlow Lite Micro. */
TVM_EXT_INLINE void tvm_ext_svdf_shift(int8_t *features, int32_t count, int32_t zero_point)
{
    int32_t f = 0;
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
    for (; f + 4 <= count; f += 4) {
        uint32_t word;
        memcpy(&word, &features[f], sizeof word);
        __asm__("uadd8 %0, %1, %2" : "=r"(word) : "r"(word), "r"(0x01010101u * (uint8_t)zero_point));
        memcpy(&features[f], &word, sizeof word);
    }
#endif
    for (; f < count; ++f) {
        features[f] = (int8_t)(uint8_t)((uint32_t)features[f] + (uint32_t)zero_point);
    }
}

/* Sums of `count` features from feature f on over all steps. They wrap, as in TensorFlow Lite Micro. */
TVM_EXT_INLINE void tvm_ext_svdf_add(const tvm_ext_svdf_layer *layer, const void *window, const void *weights,
                                     uint32_t *sums, int32_t f, int32_t count)
{
    for (int32_t m = 0; m < layer->window.rows; ++m) {
        const int32_t first = (m * layer->window.channels) + f;
        for (int32_t j = 0; j < count; ++j) {
            sums[j] += (uint32_t)(tvm_ext_element(&layer->window, window, first + j) *
                                  tvm_ext_element(&layer->window, weights, first + j));
        }
    }
}

/* Computes the outputs of one batch. weights: [steps][features]. bias: of each output. */
TVM_EXT_INLINE void tvm_ext_svdf_sum(const tvm_ext_svdf_layer *layer, const void *window, int8_t *output,
                                     const void *weights, const int32_t *bias)
{
    int32_t unit = 0;
    uint32_t total = 0;
    for (int32_t f = 0; f < layer->window.channels; f += layer->block) {
        uint32_t sums[TVM_EXT_SVDF_BLOCK] = {0};
        tvm_ext_svdf_add(layer, window, weights, sums, f, layer->block);
        for (int32_t j = 0; j < layer->block; ++j) {
            total += sums[j];
            if ((f + j + 1) % layer->rank == 0) {
                const int32_t value = (int32_t)(total + (uint32_t)bias[unit]);
                const int32_t result =
                    tvm_ext_requantize_tflite(value, layer->factor.multiplier, layer->factor.shift) + layer->zero_point;
                output[unit] = (int8_t)(result > INT8_MAX ? INT8_MAX : result < INT8_MIN ? INT8_MIN : result);
                total = 0;
                ++unit;
            }
        }
    }
}

#endif
