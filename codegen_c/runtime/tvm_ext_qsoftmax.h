/* Softmax over vectors of quantized elements in plain C: a table of exponentials, one division per vector. */
#ifndef TVM_EXT_QSOFTMAX_H
#define TVM_EXT_QSOFTMAX_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"

typedef struct {
    tvm_ext_image input; /* a vector in each row */
    int64_t steps;       /* steps of the output in a probability of 1, times a power of two */
    int32_t shift;       /* from exponentials times steps to the output's scale */
    int32_t zero_point;  /* of the output */
    int32_t low;
    int32_t high;
} tvm_ext_qsoftmax_layer;

/* Returns the largest element of a vector. */
TVM_EXT_INLINE int32_t tvm_ext_largest(const tvm_ext_image *vectors, const void *x)
{
    int32_t largest = tvm_ext_element(vectors, x, 0);
    for (int32_t c = 0; c < vectors->channels; ++c) {
        const int32_t element = tvm_ext_element(vectors, x, c);
        largest = element > largest ? element : largest;
    }
    return largest;
}

/* Computes all vectors. exponential: of 0, -1, -2 ... steps of the input. */
TVM_EXT_INLINE void tvm_ext_qsoftmax(const tvm_ext_qsoftmax_layer *layer, const void *input, void *output,
                                     const int32_t *restrict exponential)
{
    const int32_t length = layer->input.channels;
    for (int32_t m = 0; m < layer->input.rows; ++m) {
        const uint8_t *const x = &((const uint8_t *)input)[m * length];
        uint8_t *const y = &((uint8_t *)output)[m * length];
        const int32_t largest = tvm_ext_largest(&layer->input, x);
        int64_t sum = 0;
        for (int32_t c = 0; c < length; ++c) {
            sum += exponential[largest - tvm_ext_element(&layer->input, x, c)];
        }
        const int32_t factor = (int32_t)((layer->steps + (sum / 2)) / sum);
        for (int32_t c = 0; c < length; ++c) {
            const int32_t numerator = exponential[largest - tvm_ext_element(&layer->input, x, c)];
            const int32_t value = tvm_ext_requantize(numerator, factor, layer->shift) + layer->zero_point;
            y[c] = (uint8_t)tvm_ext_clamp(value, layer->low, layer->high);
        }
    }
}

#endif
