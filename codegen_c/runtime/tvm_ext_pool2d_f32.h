/* Maxima and sums of a float image whose rows come in parts, stored in the output between the calls. */
#ifndef TVM_EXT_POOL2D_F32_H
#define TVM_EXT_POOL2D_F32_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    bool is_maximum; /* otherwise a sum */
} tvm_ext_pool2d_f32_layer;

/* Adds one more element to a maximum or sum; a last element that is NaN stays. */
TVM_EXT_INLINE float tvm_ext_pool2d_f32_take(const tvm_ext_pool2d_f32_layer *layer, float value, float x)
{
    const float larger = value > x ? value : x;
    return layer->is_maximum ? larger : value + x;
}

/* Updates `count` channels, 1 to 4, from channel k on, with rows [begin, end). */
TVM_EXT_INLINE void tvm_ext_pool2d_f32_block(const tvm_ext_pool2d_f32_layer *layer, const float *input, float *output,
                                             int32_t begin, int32_t end, int32_t k, int32_t count)
{
    const float start = layer->is_maximum ? -INFINITY : 0.0f;
    float values[4] = {start, start, start, start};
    if (begin > 0) {
        for (int32_t j = 0; j < count; ++j) {
            values[j] = output[k + j];
        }
    }
    for (int32_t h = begin; h < end; ++h) {
        const float *x = &input[tvm_ext_row(&layer->input, 0, h) + k];
        for (int32_t w = 0; w < layer->input.columns; ++w) {
            values[0] = tvm_ext_pool2d_f32_take(layer, values[0], x[0]);
            if (count > 1) {
                values[1] = tvm_ext_pool2d_f32_take(layer, values[1], x[1]);
            }
            if (count > 2) {
                values[2] = tvm_ext_pool2d_f32_take(layer, values[2], x[2]);
            }
            if (count > 3) {
                values[3] = tvm_ext_pool2d_f32_take(layer, values[3], x[3]);
            }
            x += layer->input.channels;
        }
    }
    for (int32_t j = 0; j < count; ++j) {
        output[k + j] = values[j];
    }
}

/* Updates all channels with rows [begin, end) of the image. */
TVM_EXT_INLINE void tvm_ext_pool2d_f32_add(const tvm_ext_pool2d_f32_layer *layer, const float *input, float *output,
                                           int32_t begin, int32_t end)
{
    const int32_t channels = layer->input.channels;
    const int32_t full = channels - (channels % 4);
    for (int32_t k = 0; k < full; k += 4) {
        tvm_ext_pool2d_f32_block(layer, input, output, begin, end, k, 4);
    }
    if (full < channels) {
        tvm_ext_pool2d_f32_block(layer, input, output, begin, end, full, channels - full);
    }
}

#endif
