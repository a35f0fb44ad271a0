/* Sums, differences and products of two quantized images in plain C, element by element. */
#ifndef TVM_EXT_QBINARY_H
#define TVM_EXT_QBINARY_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_litert.h"
#include "tvm_ext_requantize_tflite.h"

/* Constants of a function of two elements. Factors are multiplier / 2^shift.
 *
 * A product has one factor. A sum that is rounded once scales both elements to the output in one shift; a sum that
 * is rounded twice scales both to a common scale, by two factors, and then the sum to the output. */
typedef struct {
    bool is_product;
    bool is_difference;
    bool is_wide; /* products need more than 32 bits; they are rounded once */
    bool rounds_twice;
    bool rounds_up; /* a sum that is rounded once: halves up, otherwise to even */
    bool in_floats; /* the multiplier of a product is the bits of a float32 factor, as in LiteRT */
    int32_t bits; /* fractional bits of a sum that is rounded twice, in units of twice the larger input scale */
    int32_t first_zero_point;
    int32_t second_zero_point;
    int32_t first_multiplier; /* of the first element in a sum */
    int32_t first_shift;
    int32_t second_multiplier;
    int32_t second_shift;
    int32_t multiplier; /* of the result */
    int32_t shift;
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_qbinary;

typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    tvm_ext_qbinary function;
} tvm_ext_qbinary_layer;

/* Returns (a - b) or (a + b) before the zero point of the output is added. */
TVM_EXT_INLINE int32_t tvm_ext_qbinary_sum(const tvm_ext_qbinary *function, int32_t a, int32_t b)
{
    if (function->rounds_twice) {
        const int32_t scale = 1 << function->bits;
        const int32_t first = tvm_ext_requantize_tflite((a - function->first_zero_point) * scale,
                                                        function->first_multiplier, function->first_shift);
        const int32_t second = tvm_ext_requantize_tflite((b - function->second_zero_point) * scale,
                                                         function->second_multiplier, function->second_shift);
        const int32_t sum = function->is_difference ? first - second : first + second;
        return tvm_ext_requantize_tflite(sum, function->multiplier, function->shift);
    }
    const int64_t first = function->first_multiplier;
    const int64_t second =
        function->is_difference ? -(int64_t)function->second_multiplier : function->second_multiplier;
    const int64_t start = -((function->first_zero_point * first) + (function->second_zero_point * second));
    const int64_t total = (a * first) + (b * second) + start;
    return function->rounds_up ? tvm_ext_round_shift_up(total, function->shift)
                               : tvm_ext_round_shift(total, function->shift);
}

/* Returns an element of the output. */
TVM_EXT_INLINE int32_t tvm_ext_qbinary_element(const tvm_ext_qbinary *function, int32_t a, int32_t b)
{
    int32_t value;
    if (function->is_product && function->is_wide) {
        const int64_t product = (int64_t)(a - function->first_zero_point) * (b - function->second_zero_point);
        value = tvm_ext_round_shift(product * function->multiplier, function->shift);
    } else if (function->is_product) {
        const int32_t product = (a - function->first_zero_point) * (b - function->second_zero_point);
        value = function->in_floats      ? tvm_ext_requantize_litert(product, function->multiplier, function->shift)
                : function->rounds_twice ? tvm_ext_requantize_tflite(product, function->multiplier, function->shift)
                                         : tvm_ext_requantize(product, function->multiplier, function->shift);
    } else {
        value = tvm_ext_qbinary_sum(function, a, b);
    }
    return tvm_ext_limited(value + function->zero_point, function->low, function->high);
}

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_qbinary_rows(const tvm_ext_qbinary_layer *layer, const void *first, const void *second,
                                         void *output, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const void *a = tvm_ext_source(&layer->first, first, tvm_ext_row(&layer->first, 0, h));
        const void *b = tvm_ext_source(&layer->second, second, tvm_ext_row(&layer->second, 0, h));
        void *y = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, 0, h));
        for (int32_t w = 0; w < runs; ++w) {
            for (int32_t i = 0; i < length; ++i) {
                const int32_t element = tvm_ext_qbinary_element(&layer->function, tvm_ext_element(&layer->first, a, i),
                                                                tvm_ext_element(&layer->second, b, i));
                tvm_ext_set(&layer->output, y, i, element);
            }
            a = tvm_ext_source(&layer->first, a, length);
            b = tvm_ext_source(&layer->second, b, length);
            y = tvm_ext_target(&layer->output, y, layer->output.pitch);
        }
    }
}

#endif
