/* Conversion of floats to quantized elements and back in plain C, by one scale and zero point for the whole image. */
#ifndef TVM_EXT_CONVERT_H
#define TVM_EXT_CONVERT_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    float scale;
    bool rounds_away;
    bool has_reciprocal; /* to integers: scale is 1 / scale, by which LiteRT's default kernels multiply */
} tvm_ext_convert_layer;

/* Returns the element nearest to x / scale, halves to even, or away from zero; NaN becomes the least element. */
TVM_EXT_INLINE int32_t tvm_ext_quantized(const tvm_ext_convert_layer *layer, float x)
{
    const int32_t most = (int32_t)(layer->output.is_wide ? UINT16_MAX : UINT8_MAX);
    const int32_t least = layer->output.is_unsigned ? 0 : -(most / 2) - 1;
    const int32_t largest = least + most;
    const float steps = layer->has_reciprocal ? x * layer->scale : x / layer->scale;
    const float value = (layer->rounds_away ? roundf(steps) : rintf(steps)) + (float)layer->output.zero_point;
    const float raised = value > (float)least ? value : (float)least;
    return (int32_t)(raised < (float)largest ? raised : (float)largest);
}

/* Quantizes output rows [row_begin, row_end) of one image. */
TVM_EXT_INLINE void tvm_ext_quantize(const tvm_ext_convert_layer *layer, const float *input, void *output,
                                     int32_t row_begin, int32_t row_end)
{
    const int32_t length = layer->output.columns * layer->output.channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const float *const x = &input[tvm_ext_row(&layer->input, 0, h)];
        void *const y = tvm_ext_target(&layer->output, output, tvm_ext_row(&layer->output, 0, h));
        for (int32_t i = 0; i < length; ++i) {
            tvm_ext_set(&layer->output, y, i, tvm_ext_quantized(layer, x[i]));
        }
    }
}

/* Dequantizes output rows [row_begin, row_end) of one image. */
TVM_EXT_INLINE void tvm_ext_dequantize(const tvm_ext_convert_layer *layer, const void *input, float *output,
                                       int32_t row_begin, int32_t row_end)
{
    const int32_t length = layer->output.columns * layer->output.channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const void *const x = tvm_ext_source(&layer->input, input, tvm_ext_row(&layer->input, 0, h));
        float *const y = &output[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t i = 0; i < length; ++i) {
            y[i] = (float)(tvm_ext_element(&layer->input, x, i) - layer->input.zero_point) * layer->scale;
        }
    }
}

#endif
