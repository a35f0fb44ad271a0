/* Blocks of one to four channels of quantized layers: sums that begin with a bias, add products, become elements. */
#ifndef TVM_EXT_QBLOCK_H
#define TVM_EXT_QBLOCK_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

#define TVM_EXT_QBLOCK 4

/* Elements of a pixel from which on a loop over them stays one: unrolled, they would be held on the stack for all
 * channels of the pixel, which takes more instructions than loading them again. */
#define TVM_EXT_QBLOCK_ROLLED 8

#if defined(__GNUC__) && !defined(__clang__)
#define TVM_EXT_NOT_UNROLLED _Pragma("GCC unroll 1")
#else
#define TVM_EXT_NOT_UNROLLED
#endif

/* From sums to elements of the output: a factor multiplier / 2^shift, then the zero point, then limits. */
typedef struct {
    bool rounds_twice;    /* as TensorFlow Lite does; otherwise once, halves to even */
    int32_t channel_step; /* 1 where each channel has a factor of its own, 0 where all share one */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_rescale;

/* The element of a sum, whose factor is that of channel k. */
TVM_EXT_INLINE uint8_t tvm_ext_rescaled(const tvm_ext_rescale *layer, int32_t sum, const int32_t *restrict multipliers,
                                        const uint8_t *restrict shifts, int32_t k)
{
    const int32_t multiplier = multipliers[k * layer->channel_step];
    const int32_t shift = shifts[k * layer->channel_step];
    const int32_t value = layer->rounds_twice ? tvm_ext_requantize_tflite(sum, multiplier, shift)
                                              : tvm_ext_requantize(sum, multiplier, shift);
    return (uint8_t)tvm_ext_limited(value + layer->zero_point, layer->low, layer->high);
}

/* Copies the sums of a block: to begin with, or to go on later. */
TVM_EXT_INLINE void tvm_ext_qblock_copy(int32_t *sums, const int32_t *source, int32_t count)
{
    sums[0] = source[0];
    if (count > 1) {
        sums[1] = source[1];
    }
    if (count > 2) {
        sums[2] = source[2];
    }
    if (count > 3) {
        sums[3] = source[3];
    }
}

/* Adds the products of one element less the zero point and of its weights. */
TVM_EXT_INLINE void tvm_ext_qblock_add_one(int32_t *sums, int32_t value, const int8_t *weights, int32_t count)
{
    sums[0] += value * weights[0];
    if (count > 1) {
        sums[1] += value * weights[1];
    }
    if (count > 2) {
        sums[2] += value * weights[2];
    }
    if (count > 3) {
        sums[3] += value * weights[3];
    }
}

/* Adds the products of `length` elements of a pixel, each less the zero point, and of the weights of a block.
 *
 * weights: those of the block's channels side by side, for each element. */
TVM_EXT_INLINE void tvm_ext_qblock_add(int32_t *sums, const tvm_ext_image *image, const uint8_t *elements,
                                       int32_t zero_point, const int8_t *weights, int32_t length, int32_t count)
{
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_qblock_add_one(sums, tvm_ext_element(image, &elements[c]) - zero_point, &weights[c * count], count);
    }
}

/* The same in a loop that stays one. */
TVM_EXT_INLINE void tvm_ext_qblock_add_rolled(int32_t *sums, const tvm_ext_image *image, const uint8_t *elements,
                                              int32_t zero_point, const int8_t *weights, int32_t length, int32_t count)
{
    TVM_EXT_NOT_UNROLLED
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_qblock_add_one(sums, tvm_ext_element(image, &elements[c]) - zero_point, &weights[c * count], count);
    }
}

/* Elements of a block from channel k on; `output`: the first channel of its pixel. */
TVM_EXT_INLINE void tvm_ext_qblock_store(const tvm_ext_rescale *layer, uint8_t *output, const int32_t *sums,
                                         const int32_t *restrict multipliers, const uint8_t *restrict shifts, int32_t k,
                                         int32_t count)
{
    output[k] = tvm_ext_rescaled(layer, sums[0], multipliers, shifts, k);
    if (count > 1) {
        output[k + 1] = tvm_ext_rescaled(layer, sums[1], multipliers, shifts, k + 1);
    }
    if (count > 2) {
        output[k + 2] = tvm_ext_rescaled(layer, sums[2], multipliers, shifts, k + 2);
    }
    if (count > 3) {
        output[k + 3] = tvm_ext_rescaled(layer, sums[3], multipliers, shifts, k + 3);
    }
}

#endif
