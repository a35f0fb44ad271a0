/* Sums and differences of two quantized images, 16 elements at a time, rounded once.
 *
 * A factor is split into high * 2^16 + low, so that its products with elements have 16 by 16 bits. The sum of the high
 * products plus the carry from the low products is shifted once. The compiler uses this kernel only if its numbers give
 * the exact result for all pairs of elements. */
#ifndef TVM_EXT_HOST_QBINARY_H
#define TVM_EXT_HOST_QBINARY_H

#include "tvm_ext_i32x16.h"
#include "tvm_ext_qbinary.h"

typedef struct {
    tvm_ext_qbinary_layer layer;
    int16_t high[2]; /* upper halves of the factors of both elements */
    int16_t low[2];
    int32_t addend[2]; /* high and low part; contains the zero points and the rounding of the result */
    int32_t shift;     /* right shift of the sums of high products */
} tvm_ext_host_qbinary_layer;

/* Computes `length` contiguous elements. */
TVM_EXT_INLINE void tvm_ext_host_qbinary_run(const tvm_ext_host_qbinary_layer *layer, const uint8_t *first,
                                             const uint8_t *second, uint8_t *output, int32_t length)
{
    const tvm_ext_qbinary *const function = &layer->layer.function;
    const tvm_ext_image *const images[2] = {&layer->layer.first, &layer->layer.second};
    const int32_t whole = length - (length % 16);
    for (int32_t i = 0; i < whole; i += 16) {
        const tvm_ext_i32x16 a = tvm_ext_i32x16_widen(&first[i], images[0]->is_unsigned);
        const tvm_ext_i32x16 b = tvm_ext_i32x16_widen(&second[i], images[1]->is_unsigned);
        const tvm_ext_i32x16 low = tvm_ext_i32x16_weighted(a, b, layer->low, layer->addend[1]);
        const tvm_ext_i32x16 sums = tvm_ext_i32x16_add(tvm_ext_i32x16_weighted(a, b, layer->high, layer->addend[0]),
                                                       tvm_ext_i32x16_shifted_down(low, 16));
        tvm_ext_i32x16_store_bytes(&output[i], tvm_ext_i32x16_shifted_down(sums, layer->shift), 16, 0, function->low,
                                   function->high, layer->layer.output.is_unsigned);
    }
    for (int32_t i = whole; i < length; ++i) {
        output[i] = (uint8_t)tvm_ext_qbinary_element(function, tvm_ext_element(images[0], first, i),
                                                     tvm_ext_element(images[1], second, i));
    }
}

/* Computes output rows [row_begin, row_end) of one image, row by row, or pixel by pixel if pixels have gaps. */
TVM_EXT_INLINE void tvm_ext_host_qbinary(const tvm_ext_host_qbinary_layer *layer, const void *first, const void *second,
                                         void *output, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const image = &layer->layer.output;
    const bool is_one_run = image->pitch == image->channels;
    const int32_t runs = is_one_run ? 1 : image->columns;
    const int32_t length = is_one_run ? image->columns * image->channels : image->channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *const a = &((const uint8_t *)first)[tvm_ext_row(&layer->layer.first, 0, h)];
        const uint8_t *const b = &((const uint8_t *)second)[tvm_ext_row(&layer->layer.second, 0, h)];
        uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(image, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            tvm_ext_host_qbinary_run(layer, &a[w * length], &b[w * length], &y[w * image->pitch], length);
        }
    }
}

#endif
