/* Layers of floats in the reference of a driver: sums in the order of the other kernels, with the same bits. */
#ifndef TVM_EXT_OFFLOAD_FLOATS_H
#define TVM_EXT_OFFLOAD_FLOATS_H

#include "tvm_ext_kernels.h"
#include "tvm_ext_offload_call.h"

/* Clamps a value; NaN is kept. */
static inline float tvm_ext_reference_bounded(float value, float low, float high)
{
    const float raised = value < low ? low : value;
    return high < raised ? high : raised;
}

/* Returns sum + x * w, element by element. */
static inline float tvm_ext_reference_products_f32(float sum, const float *x, const float *w, int32_t count)
{
    for (int32_t c = 0; c < count; ++c) {
        sum = TVM_EXT_FMA(x[c], w[c], sum);
    }
    return sum;
}

/* Returns the sum of one output element of a convolution. */
static inline float tvm_ext_reference_sum_f32(const tvm_ext_reference_call *call, const tvm_ext_reference_place *place,
                                              bool is_depthwise)
{
    const tvm_ext_offload_conv2d_f32 *const layer = (const tvm_ext_offload_conv2d_f32 *)call->layer;
    const tvm_ext_offload_window *const window = &layer->window;
    const float *const input = (const float *)call->input;
    const float *const weights = (const float *)call->constants.weights;
    const int32_t taps = window->kernel_rows * window->kernel_columns;
    const int32_t depth = is_depthwise ? 1 : window->input_channels;
    const int32_t begin = is_depthwise ? tvm_ext_reference_source(window, place->channel) : 0;
    float sum = ((const float *)call->constants.bias)[place->channel];
    for (int32_t tap = 0; tap < taps; ++tap) {
        const int32_t pixel = tvm_ext_reference_pixel(window, place, tap);
        const int32_t weight =
            is_depthwise ? tap * window->output_channels + place->channel : (place->channel * taps + tap) * depth;
        if (pixel >= 0) {
            sum = tvm_ext_reference_products_f32(sum, &input[pixel + begin], &weights[weight], depth);
        }
    }
    return sum;
}

static inline void tvm_ext_reference_convolve_f32(const tvm_ext_reference_call *call, bool is_depthwise)
{
    const tvm_ext_offload_conv2d_f32 *const layer = (const tvm_ext_offload_conv2d_f32 *)call->layer;
    const int32_t results = tvm_ext_reference_results(&layer->window);
    for (int32_t i = 0; i < results; ++i) {
        const tvm_ext_reference_place place = tvm_ext_reference_placed(&layer->window, i);
        const float sum = tvm_ext_reference_sum_f32(call, &place, is_depthwise);
        ((float *)call->output)[i] = tvm_ext_reference_bounded(sum, layer->low, layer->high);
    }
}

static inline void tvm_ext_reference_dense_f32(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_dense_f32 *const layer = (const tvm_ext_offload_dense_f32 *)call->layer;
    const int32_t depth = layer->input_channels;
    for (int32_t v = 0; v < layer->vectors; ++v) {
        const float *const x = (const float *)call->input + v * depth;
        for (int32_t k = 0; k < layer->output_channels; ++k) {
            const float *const w = (const float *)call->constants.weights + k * depth;
            const float sum = tvm_ext_reference_products_f32(((const float *)call->constants.bias)[k], x, w, depth);
            ((float *)call->output)[v * layer->output_channels + k] =
                tvm_ext_reference_bounded(sum, layer->low, layer->high);
        }
    }
}

/* Returns one output element of a pool. */
static inline float tvm_ext_reference_pooled_f32(const tvm_ext_reference_call *call,
                                                 const tvm_ext_reference_place *place)
{
    const tvm_ext_offload_pool_f32 *const layer = (const tvm_ext_offload_pool_f32 *)call->layer;
    const int32_t taps = layer->window.kernel_rows * layer->window.kernel_columns;
    float largest = -INFINITY;
    float sum = 0.0f;
    int32_t elements = 0;
    for (int32_t tap = 0; tap < taps; ++tap) {
        const int32_t pixel = tvm_ext_reference_pixel(&layer->window, place, tap);
        if (pixel >= 0) {
            const float x = ((const float *)call->input)[pixel + place->channel];
            largest = largest > x ? largest : x;
            sum += x;
            elements++;
        }
    }
    if (call->kind == TVM_EXT_REFERENCE_MAX_POOL_F32) {
        return largest;
    }
    return sum / (float)(layer->counts_padding ? taps : elements);
}

static inline void tvm_ext_reference_pool_f32(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_pool_f32 *const layer = (const tvm_ext_offload_pool_f32 *)call->layer;
    const int32_t results = tvm_ext_reference_results(&layer->window);
    for (int32_t i = 0; i < results; ++i) {
        const tvm_ext_reference_place place = tvm_ext_reference_placed(&layer->window, i);
        const float value = tvm_ext_reference_pooled_f32(call, &place);
        ((float *)call->output)[i] = tvm_ext_reference_bounded(value, layer->low, layer->high);
    }
}

static inline void tvm_ext_reference_add_f32(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_add_f32 *const layer = (const tvm_ext_offload_add_f32 *)call->layer;
    for (int32_t i = 0; i < layer->elements; ++i) {
        const float sum = ((const float *)call->input)[i] + ((const float *)call->other)[i];
        ((float *)call->output)[i] = tvm_ext_reference_bounded(sum, layer->low, layer->high);
    }
}

#endif
