/* Functions of one quantized image that are linear on either side of zero, in plain C: scales, ReLU, leaky ReLU. */
#ifndef TVM_EXT_QLINEAR_H
#define TVM_EXT_QLINEAR_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

/* A factor of multiplier / 2^shift. */
typedef struct {
    int32_t multiplier;
    int32_t shift;
} tvm_ext_qlinear_factor;

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    bool rounds_twice; /* as in TensorFlow Lite; otherwise once, halves to even */
    tvm_ext_qlinear_factor above; /* for elements from zero on */
    tvm_ext_qlinear_factor below;
    int32_t low;
    int32_t high;
} tvm_ext_qlinear_layer;

/* Returns the element of the output for an element of the input. */
TVM_EXT_INLINE int32_t tvm_ext_qlinear_element(const tvm_ext_qlinear_layer *layer, int32_t x)
{
    const int32_t steps = x - layer->input.zero_point;
    const tvm_ext_qlinear_factor factor = steps < 0 ? layer->below : layer->above;
    const int32_t value = layer->rounds_twice ? tvm_ext_requantize_tflite(steps, factor.multiplier, factor.shift)
                                              : tvm_ext_requantize(steps, factor.multiplier, factor.shift);
    return tvm_ext_limited(value + layer->output.zero_point, layer->low, layer->high);
}

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_qlinear(const tvm_ext_qlinear_layer *layer, const void *input, void *output,
                                    int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const void *x = tvm_ext_source(&layer->input, input, tvm_ext_row(&layer->input, 0, h));
        void *y = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, 0, h));
        for (int32_t w = 0; w < runs; ++w) {
            for (int32_t i = 0; i < length; ++i) {
                tvm_ext_set(&layer->output, y, i, tvm_ext_qlinear_element(layer, tvm_ext_element(&layer->input, x, i)));
            }
            x = tvm_ext_source(&layer->input, x, length);
            y = tvm_ext_target(&layer->output, y, layer->output.pitch);
        }
    }
}

#endif
