/* Functions of one quantized image in plain C, element by element: a table of results indexed by the element's bits. */
#ifndef TVM_EXT_QUNARY_H
#define TVM_EXT_QUNARY_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
} tvm_ext_qunary_layer;

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_qunary(const tvm_ext_qunary_layer *layer, const void *input, void *output,
                                   const void *restrict table, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    const uint8_t *const results = (const uint8_t *)table;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *x = &((const uint8_t *)input)[tvm_ext_row(&layer->input, 0, h)];
        uint8_t *y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            for (int32_t i = 0; i < length; ++i) {
                y[i] = results[x[i]];
            }
            x += length;
            y += layer->output.pitch;
        }
    }
}

#endif
