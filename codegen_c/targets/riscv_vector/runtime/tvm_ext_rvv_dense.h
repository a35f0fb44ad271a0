/* Dense layers on quantized elements with RISC-V's vectors: all output channels of a few rows at a time. */
#ifndef TVM_EXT_RVV_DENSE_H
#define TVM_EXT_RVV_DENSE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv_pairs.h"
#include "tvm_ext_rvv_product.h"
#include "tvm_ext_rvv_requantize.h"

typedef struct {
    int32_t rows;
    int32_t depth;
    int32_t channels;
    bool has_unsigned_input;
    int32_t at_once; /* rows computed together: 1 or 3, or in pairs of taps 1, 2, 5 or 6 */
    bool has_pairs; /* taps are multiplied in pairs (tvm_ext_rvv_pairs.h) */
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_dense_layer;

/* Computes all rows. The last group may overlap the group before it. scratch: accumulators of the rows of a group, or
 * of one row if taps are multiplied in pairs. */
TVM_EXT_INLINE void tvm_ext_rvv_dense(const tvm_ext_rvv_dense_layer *layer, const void *input, void *output,
                                      const int8_t *weights, const int32_t *factors, void *scratch)
{
    const int32_t channels = layer->channels;
    const int32_t at_once = layer->at_once;
    const bool has_pairs = layer->has_pairs;
    const bool rounds_twice = layer->requantize.rounds_twice;
    const bool has_unsigned_input = layer->has_unsigned_input;
    int32_t *const sums = (int32_t *)scratch;
    const uint8_t *elements[TVM_EXT_RVV_MOST_PIXELS];
    uint8_t *results[TVM_EXT_RVV_MOST_PIXELS];
    const tvm_ext_rvv_product_task task = {sums,         elements, weights, &factors[TVM_EXT_RVV_STARTS * channels],
                                           layer->depth, channels};
    const tvm_ext_rvv_pairs_task pairs = {
        at_once, elements, results, weights, factors, channels, layer->depth, channels, &layer->requantize, sums};
    for (int32_t first = 0; first < layer->rows; first += at_once) {
        const int32_t last = layer->rows - at_once;
        const int32_t m = first < last ? first : last;
        for (int32_t i = 0; i < at_once; ++i) {
            elements[i] = &((const uint8_t *)input)[(m + i) * layer->depth];
            results[i] = &((uint8_t *)output)[(m + i) * channels];
        }
        if (has_pairs) {
            tvm_ext_rvv_pairs(at_once, rounds_twice, &pairs);
            continue;
        }
        tvm_ext_rvv_product(at_once, has_unsigned_input, &task);
        for (int32_t i = 0; i < at_once; ++i) {
            tvm_ext_rvv_requantize(&layer->requantize, results[i], &sums[i * channels], factors, channels, channels);
        }
    }
}

#endif
