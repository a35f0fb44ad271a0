/* Dense layers of quantized vectors in plain C: one vector by up to four output channels at a time.
 *
 * A bias includes the zero point's part of its channel's sums. Weights are packed block after block of channels,
 * [elements of a vector][channels of the block] each. */
#ifndef TVM_EXT_QDENSE_H
#define TVM_EXT_QDENSE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;  /* a vector in each row; for a vector in parts, a part in each row */
    tvm_ext_image output; /* a vector in each row */
    tvm_ext_rescale rescale;
} tvm_ext_qdense_layer;

/* Computes `count` elements from channel k on of the output vector for one vector of the input. */
TVM_EXT_INLINE void tvm_ext_qdense_block(const tvm_ext_qdense_layer *layer, const void *vector, void *output,
                                         const int8_t *restrict weights, const void *restrict bias,
                                         const int32_t *restrict multipliers, const uint8_t *restrict shifts, int32_t k,
                                         int32_t count)
{
    const int32_t depth = layer->input.channels;
    tvm_ext_qsums sums;
    tvm_ext_qsums_begin(&layer->rescale, &sums, bias, k, count);
    tvm_ext_qsums_add(&layer->rescale, &sums, &layer->input, vector, 0, &weights[k * depth], depth, count, false);
    tvm_ext_qsums_store(&layer->rescale, &sums, &layer->output, output, multipliers, shifts, k, count);
}

/* Computes all vectors. */
TVM_EXT_INLINE void tvm_ext_qdense(const tvm_ext_qdense_layer *layer, const void *input, void *output,
                                   const int8_t *restrict weights, const void *restrict bias,
                                   const int32_t *restrict multipliers, const uint8_t *restrict shifts)
{
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    for (int32_t m = 0; m < layer->input.rows; ++m) {
        const void *const vector = tvm_ext_source(&layer->input, input, m * layer->input.channels);
        void *const result = tvm_ext_target(&layer->output, output, m * channels);
        for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
            tvm_ext_qdense_block(layer, vector, result, weights, bias, multipliers, shifts, k, TVM_EXT_QBLOCK);
        }
        if (full < channels) {
            tvm_ext_qdense_block(layer, vector, result, weights, bias, multipliers, shifts, full, channels - full);
        }
    }
}

/* Updates `count` sums from channel k on with parts [begin, end) of a vector; the last part stores their elements. */
TVM_EXT_INLINE void tvm_ext_qdense_block_of_parts(const tvm_ext_qdense_layer *layer, const void *input, void *output,
                                                  int32_t *sums_kept, const int8_t *restrict weights,
                                                  const int32_t *start, const int32_t *restrict multipliers,
                                                  const uint8_t *restrict shifts, int32_t begin, int32_t end, int32_t k,
                                                  int32_t count)
{
    const int32_t part = layer->input.channels;
    const int8_t *const filter = &weights[k * layer->input.rows * part];
    tvm_ext_qsums sums;
    tvm_ext_qsums_begin(&layer->rescale, &sums, start, k, count);
    for (int32_t h = begin; h < end; ++h) {
        const void *const elements = tvm_ext_source(&layer->input, input, tvm_ext_row(&layer->input, 0, h));
        tvm_ext_qsums_add(&layer->rescale, &sums, &layer->input, elements, 0, &filter[h * part * count], part, count,
                          false);
    }
    tvm_ext_qblock_copy(&sums_kept[k], sums.part, count);
    if (end == layer->input.rows) {
        tvm_ext_qsums_store(&layer->rescale, &sums, &layer->output, output, multipliers, shifts, k, count);
    }
}

/* Adds products of parts [begin, end) of one vector to the sums of all channels.
 *
 * Sums begin at the bias; the last part stores the elements of the output. */
TVM_EXT_INLINE void tvm_ext_qdense_add(const tvm_ext_qdense_layer *layer, const void *input, void *output,
                                       int32_t *sums, const int8_t *restrict weights, const int32_t *restrict bias,
                                       const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                       int32_t begin, int32_t end)
{
    const int32_t channels = layer->output.channels;
    const int32_t full = channels - (channels % TVM_EXT_QBLOCK);
    const int32_t *const start = begin > 0 ? sums : bias;
    for (int32_t k = 0; k < full; k += TVM_EXT_QBLOCK) {
        tvm_ext_qdense_block_of_parts(layer, input, output, sums, weights, start, multipliers, shifts, begin, end, k,
                                      TVM_EXT_QBLOCK);
    }
    if (full < channels) {
        tvm_ext_qdense_block_of_parts(layer, input, output, sums, weights, start, multipliers, shifts, begin, end, full,
                                      channels - full);
    }
}

#endif
