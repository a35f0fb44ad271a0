/* Layers of integers in the reference of a driver: plain C, with the bytes of the other kernels. */
#ifndef TVM_EXT_OFFLOAD_INTEGERS_H
#define TVM_EXT_OFFLOAD_INTEGERS_H

#include "tvm_ext_offload_call.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

static inline int32_t tvm_ext_reference_read(const void *elements, int32_t index, bool is_unsigned)
{
    return is_unsigned ? ((const uint8_t *)elements)[index] : ((const int8_t *)elements)[index];
}

static inline void tvm_ext_reference_write(void *elements, int32_t index, bool is_unsigned, int32_t value)
{
    if (is_unsigned) {
        ((uint8_t *)elements)[index] = (uint8_t)value;
    } else {
        ((int8_t *)elements)[index] = (int8_t)value;
    }
}

/* Returns a sum times a factor. */
static inline int32_t tvm_ext_reference_rounded(int32_t sum, int32_t multiplier, int32_t shift, bool rounds_twice)
{
    return rounds_twice ? tvm_ext_requantize_tflite(sum, multiplier, 31 - shift)
                        : tvm_ext_requantize(sum, multiplier, 31 - shift);
}

/* Returns a sum times the factor of a channel, or of a number of elements. */
static inline int32_t tvm_ext_reference_scaled(int32_t sum, const tvm_ext_reference_constants *constants, int32_t index,
                                               bool rounds_twice)
{
    return tvm_ext_reference_rounded(sum, constants->multipliers[index], constants->shifts[index], rounds_twice);
}

/* Returns the sum of (x - zero_point) * w over `count` contiguous elements. */
static inline int32_t tvm_ext_reference_products(const void *input, int32_t first, bool is_unsigned, int32_t zero_point,
                                                 const int8_t *weights, int32_t count)
{
    int32_t sum = 0;
    for (int32_t c = 0; c < count; ++c) {
        sum += (tvm_ext_reference_read(input, first + c, is_unsigned) - zero_point) * weights[c];
    }
    return sum;
}

/* Returns the sum of one output element of a convolution. */
static inline int32_t tvm_ext_reference_sum(const tvm_ext_reference_call *call, const tvm_ext_reference_place *place,
                                            bool is_depthwise)
{
    const tvm_ext_offload_conv2d *const layer = (const tvm_ext_offload_conv2d *)call->layer;
    const tvm_ext_offload_window *const window = &layer->window;
    const int8_t *const weights = (const int8_t *)call->constants.weights;
    const int32_t taps = window->kernel_rows * window->kernel_columns;
    const int32_t depth = is_depthwise ? 1 : window->input_channels;
    const int32_t begin = is_depthwise ? tvm_ext_reference_source(window, place->channel) : 0;
    int32_t sum = ((const int32_t *)call->constants.bias)[place->channel];
    for (int32_t tap = 0; tap < taps; ++tap) {
        const int32_t pixel = tvm_ext_reference_pixel(window, place, tap);
        const int32_t weight =
            is_depthwise ? tap * window->output_channels + place->channel : (place->channel * taps + tap) * depth;
        if (pixel >= 0) {
            sum += tvm_ext_reference_products(call->input, pixel + begin, layer->is_unsigned, layer->input_zero_point,
                                              &weights[weight], depth);
        }
    }
    return sum;
}

static inline void tvm_ext_reference_convolve(const tvm_ext_reference_call *call, bool is_depthwise)
{
    const tvm_ext_offload_conv2d *const layer = (const tvm_ext_offload_conv2d *)call->layer;
    const int32_t results = tvm_ext_reference_results(&layer->window);
    for (int32_t i = 0; i < results; ++i) {
        const tvm_ext_reference_place place = tvm_ext_reference_placed(&layer->window, i);
        const int32_t sum = tvm_ext_reference_sum(call, &place, is_depthwise);
        const int32_t scaled = tvm_ext_reference_scaled(sum, &call->constants, place.channel, layer->rounds_twice);
        const int32_t value = tvm_ext_clamp(scaled + layer->output_zero_point, layer->low, layer->high);
        tvm_ext_reference_write(call->output, i, layer->is_unsigned, value);
    }
}

static inline void tvm_ext_reference_dense(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_dense *const layer = (const tvm_ext_offload_dense *)call->layer;
    const int32_t depth = layer->input_channels;
    for (int32_t v = 0; v < layer->vectors; ++v) {
        for (int32_t k = 0; k < layer->output_channels; ++k) {
            const int8_t *const weights = (const int8_t *)call->constants.weights + k * depth;
            const int32_t sum = ((const int32_t *)call->constants.bias)[k] +
                                tvm_ext_reference_products(call->input, v * depth, layer->is_unsigned,
                                                           layer->input_zero_point, weights, depth);
            const int32_t scaled = tvm_ext_reference_scaled(sum, &call->constants, k, layer->rounds_twice);
            const int32_t value = tvm_ext_clamp(scaled + layer->output_zero_point, layer->low, layer->high);
            tvm_ext_reference_write(call->output, v * layer->output_channels + k, layer->is_unsigned, value);
        }
    }
}

/* Returns one output element of a pool. */
static inline int32_t tvm_ext_reference_pooled(const tvm_ext_reference_call *call, const tvm_ext_reference_place *place)
{
    const tvm_ext_offload_pool *const layer = (const tvm_ext_offload_pool *)call->layer;
    const int32_t zero_point = layer->num_factors > 0 ? layer->input_zero_point : 0;
    int32_t largest = layer->low;
    int32_t sum = 0;
    int32_t elements = 0;
    for (int32_t tap = 0; tap < layer->window.kernel_rows * layer->window.kernel_columns; ++tap) {
        const int32_t pixel = tvm_ext_reference_pixel(&layer->window, place, tap);
        if (pixel >= 0) {
            const int32_t x = tvm_ext_reference_read(call->input, pixel + place->channel, layer->is_unsigned);
            largest = x > largest ? x : largest;
            sum += x - zero_point;
            elements++;
        }
    }
    if (call->kind == TVM_EXT_REFERENCE_MAX_POOL) {
        return largest;
    }
    if (layer->num_factors == 0) {
        return tvm_ext_average(sum, elements);
    }
    const int32_t index = layer->num_factors > 1 ? elements - layer->fewest : 0;
    return tvm_ext_reference_scaled(sum, &call->constants, index, layer->rounds_twice) + layer->output_zero_point;
}

static inline void tvm_ext_reference_pool(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_pool *const layer = (const tvm_ext_offload_pool *)call->layer;
    const int32_t results = tvm_ext_reference_results(&layer->window);
    for (int32_t i = 0; i < results; ++i) {
        const tvm_ext_reference_place place = tvm_ext_reference_placed(&layer->window, i);
        const int32_t value = tvm_ext_clamp(tvm_ext_reference_pooled(call, &place), layer->low, layer->high);
        tvm_ext_reference_write(call->output, i, layer->is_unsigned, value);
    }
}

/* Returns the sum of two elements minus their zero points, in steps of the output. */
static inline int32_t tvm_ext_reference_added(const tvm_ext_offload_add *layer, int32_t first, int32_t second)
{
    if (layer->rounds_twice) {
        const int32_t one = 1 << layer->bits;
        const int32_t a = tvm_ext_reference_rounded(first * one, layer->first_multiplier, layer->first_shift, true);
        const int32_t b = tvm_ext_reference_rounded(second * one, layer->second_multiplier, layer->second_shift, true);
        return tvm_ext_reference_rounded(a + b, layer->multiplier, layer->shift, true);
    }
    const int64_t sum = (int64_t)first * layer->first_multiplier + (int64_t)second * layer->second_multiplier;
    return tvm_ext_round_shift(sum, 31 - layer->first_shift);
}

static inline void tvm_ext_reference_add(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_add *const layer = (const tvm_ext_offload_add *)call->layer;
    for (int32_t i = 0; i < layer->elements; ++i) {
        const int32_t first = tvm_ext_reference_read(call->input, i, layer->is_unsigned) - layer->first_zero_point;
        const int32_t second = tvm_ext_reference_read(call->other, i, layer->is_unsigned) - layer->second_zero_point;
        const int32_t value = tvm_ext_reference_added(layer, first, second) + layer->output_zero_point;
        tvm_ext_reference_write(call->output, i, layer->is_unsigned, tvm_ext_clamp(value, layer->low, layer->high));
    }
}

#endif
