/* Products of two quantized activations in plain C: vectors of the first times the matrices of the second. */
#ifndef TVM_EXT_QMATMUL_H
#define TVM_EXT_QMATMUL_H

#include "tvm_ext_layer.h"
#include "tvm_ext_matrices.h"
#include "tvm_ext_qblock.h"

typedef struct {
    tvm_ext_image input;  /* a vector of `depth` elements in each pixel */
    tvm_ext_image output; /* a vector of `columns` elements in each pixel */
    tvm_ext_matrices second;
    tvm_ext_rescale rescale;
} tvm_ext_qmatmul_layer;

/* Computes one vector times the matrix at `matrix`. */
TVM_EXT_INLINE void tvm_ext_qmatmul_vector(const tvm_ext_qmatmul_layer *layer, const void *x, const void *matrix,
                                           void *y, const int32_t *multipliers, const uint8_t *shifts)
{
    const tvm_ext_matrices *const second = &layer->second;
    for (int32_t n = 0; n < second->columns; ++n) {
        int32_t sum = 0;
        for (int32_t c = 0; c < second->depth; ++c) {
            const int32_t factor =
                tvm_ext_matrix_element(second, matrix, (n * second->column_step) + (c * second->element_step));
            sum += (tvm_ext_element(&layer->input, x, c) - layer->input.zero_point) * factor;
        }
        tvm_ext_set(&layer->output, y, n, tvm_ext_rescaled(&layer->rescale, sum, multipliers, shifts, 0));
    }
}

/* Computes output rows [row_begin, row_end). */
TVM_EXT_INLINE void tvm_ext_qmatmul(const tvm_ext_qmatmul_layer *layer, const void *input, const void *second,
                                    void *output, const int32_t *multipliers, const uint8_t *shifts, int32_t row_begin,
                                    int32_t row_end)
{
    const int32_t depth = layer->second.depth;
    const int32_t columns = layer->second.columns;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *const x = &((const uint8_t *)input)[tvm_ext_row(&layer->input, 0, h)];
        uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < layer->output.columns; ++w) {
            const int32_t head = layer->second.heads_inside ? w : h;
            const void *const matrix = &((const uint8_t *)second)[head * layer->second.head_step];
            tvm_ext_qmatmul_vector(layer, &x[w * depth], matrix, &y[w * columns], multipliers, shifts);
        }
    }
}

#endif
