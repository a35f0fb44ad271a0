/* Dense layers on quantized elements with RISC-V's vectors: all output channels of one or three rows at a time. */
#ifndef TVM_EXT_RVV_DENSE_H
#define TVM_EXT_RVV_DENSE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv_product.h"
#include "tvm_ext_rvv_requantize.h"

typedef struct {
    int32_t rows;
    int32_t depth;
    int32_t channels;
    bool has_unsigned_input;
    int32_t at_once; /* rows computed together: 1 or 3 */
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_dense_layer;

/* Computes all rows. The last group may overlap the group before it. scratch: accumulators of the rows of a group. */
TVM_EXT_INLINE void tvm_ext_rvv_dense(const tvm_ext_rvv_dense_layer *layer, const void *input, void *output,
                                      const int8_t *weights, const int32_t *factors, void *scratch)
{
    const int32_t channels = layer->channels;
    int32_t *const sums = (int32_t *)scratch;
    const uint8_t *elements[TVM_EXT_RVV_MOST_PIXELS];
    const tvm_ext_rvv_product_task task = {sums,         elements, weights, &factors[TVM_EXT_RVV_STARTS * channels],
                                           layer->depth, channels};
    for (int32_t first = 0; first < layer->rows; first += layer->at_once) {
        const int32_t last = layer->rows - layer->at_once;
        const int32_t m = first < last ? first : last;
        for (int32_t i = 0; i < layer->at_once; ++i) {
            elements[i] = &((const uint8_t *)input)[(m + i) * layer->depth];
        }
        tvm_ext_rvv_product(layer->at_once, layer->has_unsigned_input, &task);
        for (int32_t i = 0; i < layer->at_once; ++i) {
            tvm_ext_rvv_requantize(&layer->requantize, &((uint8_t *)output)[(m + i) * channels], &sums[i * channels],
                                   factors, channels, channels);
        }
    }
}

#endif
