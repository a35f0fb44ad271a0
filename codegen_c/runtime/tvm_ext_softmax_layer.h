/* Softmax over vectors of quantized elements, as described to the loops of several instruction sets. */
#ifndef TVM_EXT_SOFTMAX_LAYER_H
#define TVM_EXT_SOFTMAX_LAYER_H

#include "tvm_ext_layer.h"

typedef struct {
    int32_t vectors;
    int32_t length;
    bool is_unsigned;   /* uint8 input, otherwise int8 */
    int64_t steps;      /* steps of the output in a probability of 1, times a power of two */
    int32_t shift;      /* from exponentials times steps to the output's scale: 33 to 53 */
    int32_t zero_point; /* of the output */
    int32_t low;
    int32_t high;
} tvm_ext_softmax_layer;

/* Returns element c of a vector. */
TVM_EXT_INLINE int32_t tvm_ext_softmax_element(const tvm_ext_softmax_layer *layer, const uint8_t *x, int32_t c)
{
    return layer->is_unsigned ? (int32_t)x[c] : (int32_t)((const int8_t *)x)[c];
}

#endif
