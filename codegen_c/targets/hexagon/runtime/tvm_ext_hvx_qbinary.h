/* Sums and differences of two quantized tensors of one shape with HVX: 128 elements at a time. */
#ifndef TVM_EXT_HVX_QBINARY_H
#define TVM_EXT_HVX_QBINARY_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_hvx_requantize.h"
#include "tvm_ext_layer.h"

/* A factor multiplier / 2^(31 - shift) with TensorFlow Lite's roundings. */
typedef struct {
    int32_t multiplier;
    int32_t half; /* 2^(-shift - 1), or 0 */
    int32_t shift; /* 0 or negative */
} tvm_ext_hvx_factor;

/* An element is (start + first_weight * a + second_weight * b) / 2^shift, rounded down, if one form with 32 bits gives
 * every pair its result. Otherwise the three factors of TensorFlow Lite are applied one after the other. */
typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    bool rounds_thrice;
    bool is_difference;
    int32_t start; /* with the half that the shift rounds up */
    int32_t first_weight;
    int32_t second_weight;
    int32_t shift;
    int32_t bits; /* fractional bits of a sum that is rounded three times */
    tvm_ext_hvx_factor first_factor;
    tvm_ext_hvx_factor second_factor;
    tvm_ext_hvx_factor output_factor;
    int32_t low;
    int32_t high;
} tvm_ext_hvx_qbinary_layer;

/* Returns words times a factor. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_times(tvm_ext_hvx values, const tvm_ext_hvx_factor *factor)
{
    return tvm_ext_hvx_scaled_twice(values, tvm_ext_hvx_words(factor->multiplier), tvm_ext_hvx_words(factor->half),
                                    tvm_ext_hvx_words(factor->shift));
}

/* Returns elements of an operand in the unit of the sum. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_operand(const tvm_ext_hvx_qbinary_layer *layer, tvm_ext_hvx elements,
                                               int32_t zero_point, const tvm_ext_hvx_factor *factor)
{
    const tvm_ext_hvx distances = tvm_ext_hvx_sub(elements, tvm_ext_hvx_words(zero_point));
    return tvm_ext_hvx_times(tvm_ext_hvx_left(distances, layer->bits), factor);
}

/* Returns sums or differences that are rounded three times. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_summed_thrice(const tvm_ext_hvx_qbinary_layer *layer, tvm_ext_hvx a,
                                                     tvm_ext_hvx b)
{
    const tvm_ext_hvx_four x = tvm_ext_hvx_unpacked(a, layer->first.is_unsigned);
    const tvm_ext_hvx_four y = tvm_ext_hvx_unpacked(b, layer->second.is_unsigned);
    const tvm_ext_hvx zero_points = tvm_ext_hvx_words(layer->output.zero_point);
    tvm_ext_hvx_four results;
    TVM_EXT_HVX_UNROLL for (int32_t v = 0; v < 4; ++v)
    {
        const tvm_ext_hvx first = tvm_ext_hvx_operand(layer, x.part[v], layer->first.zero_point, &layer->first_factor);
        const tvm_ext_hvx second =
            tvm_ext_hvx_operand(layer, y.part[v], layer->second.zero_point, &layer->second_factor);
        const tvm_ext_hvx sums = layer->is_difference ? tvm_ext_hvx_sub(first, second) : tvm_ext_hvx_add(first, second);
        results.part[v] = tvm_ext_hvx_add(tvm_ext_hvx_times(sums, &layer->output_factor), zero_points);
    }
    return tvm_ext_hvx_packed(results, layer->output.is_unsigned, layer->low, layer->high);
}

/* Returns the elements of 128 pairs. */
TVM_EXT_INLINE tvm_ext_hvx tvm_ext_hvx_summed(const tvm_ext_hvx_qbinary_layer *layer, tvm_ext_hvx a, tvm_ext_hvx b)
{
    if (layer->rounds_thrice) {
        return tvm_ext_hvx_summed_thrice(layer, a, b);
    }
    return tvm_ext_hvx_weighted(a, layer->first.is_unsigned, b, layer->second.is_unsigned, layer->start,
                                layer->first_weight, layer->second_weight, layer->shift, layer->output.is_unsigned,
                                layer->low, layer->high);
}

/* Computes a run of elements. */
TVM_EXT_INLINE void tvm_ext_hvx_qbinary_run(const tvm_ext_hvx_qbinary_layer *layer, uint8_t *output, const uint8_t *a,
                                            const uint8_t *b, int32_t count)
{
    for (int32_t i = 0; i < count; i += TVM_EXT_HVX_BYTES) {
        const int32_t left = count - i < TVM_EXT_HVX_BYTES ? count - i : TVM_EXT_HVX_BYTES;
        const tvm_ext_hvx elements =
            tvm_ext_hvx_summed(layer, tvm_ext_hvx_load_first(&a[i], left), tvm_ext_hvx_load_first(&b[i], left));
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
