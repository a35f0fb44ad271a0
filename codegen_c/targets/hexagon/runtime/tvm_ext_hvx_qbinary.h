/* Sums and differences of two quantized tensors of one shape with HVX: 128 elements at a time. */
#ifndef TVM_EXT_HVX_QBINARY_H
#define TVM_EXT_HVX_QBINARY_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    int32_t start; /* with the half that the shift rounds up */
    int32_t first_factor;
    int32_t second_factor;
    int32_t shift;
    int32_t low;
    int32_t high;
} tvm_ext_hvx_qbinary_layer;

/* Computes a run of elements. */
TVM_EXT_INLINE void tvm_ext_hvx_qbinary_run(const tvm_ext_hvx_qbinary_layer *layer, uint8_t *output, const uint8_t *a,
                                            const uint8_t *b, int32_t count)
{
    for (int32_t i = 0; i < count; i += TVM_EXT_HVX_BYTES) {
        const int32_t left = count - i < TVM_EXT_HVX_BYTES ? count - i : TVM_EXT_HVX_BYTES;
        const tvm_ext_hvx elements = tvm_ext_hvx_weighted(
            tvm_ext_hvx_load_first(&a[i], left), layer->first.is_unsigned, tvm_ext_hvx_load_first(&b[i], left),
            layer->second.is_unsigned, layer->start, layer->first_factor, layer->second_factor, layer->shift,
            layer->output.is_unsigned, layer->low, layer->high);
        tvm_ext_hvx_store_first(&output[i], elements, left);
    }
}

/* Computes output rows [row_begin, row_end) of one image, row by row, or pixel by pixel if pixels have gaps. */
TVM_EXT_INLINE void tvm_ext_hvx_qbinary_rows(const tvm_ext_hvx_qbinary_layer *layer, const void *first,
                                             const void *second, void *output, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *const a = &((const uint8_t *)first)[tvm_ext_row(&layer->first, 0, h)];
        const uint8_t *const b = &((const uint8_t *)second)[tvm_ext_row(&layer->second, 0, h)];
        uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            tvm_ext_hvx_qbinary_run(layer, &y[w * layer->output.pitch], &a[w * length], &b[w * length], length);
        }
    }
}

#endif
