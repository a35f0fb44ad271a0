/* Stands in for the driver of an accelerator: the same layers in plain C, slowly, with the very bytes of the other
 * kernels.
 *
 * A call is kept, and computed when it is waited for; with TVM_EXT_OFFLOAD_EARLY when it is started. A program that
 * reads a result or writes to an operand before the wait gives other bytes in one of the two. */
#ifndef TVM_EXT_OFFLOAD_REFERENCE_H
#define TVM_EXT_OFFLOAD_REFERENCE_H

#include <stddef.h>

#include "tvm_ext_offload.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"

#ifndef TVM_EXT_OFFLOAD_EARLY
#define TVM_EXT_OFFLOAD_EARLY 0
#endif

/* Answers of a wait that come of calls out of order. */
#define TVM_EXT_OFFLOAD_NOT_STARTED 101
#define TVM_EXT_OFFLOAD_STARTED_TWICE 102

typedef struct {
    const int8_t *weights;
    const int32_t *bias;
    const int32_t *multipliers;
    const int32_t *shifts;
} tvm_ext_reference_constants;

typedef enum {
    TVM_EXT_REFERENCE_NOTHING,
    TVM_EXT_REFERENCE_CONV2D,
    TVM_EXT_REFERENCE_DEPTHWISE,
    TVM_EXT_REFERENCE_DENSE,
} tvm_ext_reference_kind;

typedef struct {
    tvm_ext_reference_kind kind;
    const void *layer;
    const void *input;
    tvm_ext_reference_constants constants;
    void *output;
} tvm_ext_reference_call;

/* An accelerator, and the call that it is at. */
typedef struct {
    tvm_ext_reference_call call;
    uint32_t starts;
    uint32_t waits;
    int32_t status;
} tvm_ext_reference_unit;

static inline void tvm_ext_reference_write(void *elements, int32_t index, bool is_unsigned, int32_t value)
{
    if (is_unsigned) {
        ((uint8_t *)elements)[index] = (uint8_t)value;
    } else {
        ((int8_t *)elements)[index] = (int8_t)value;
    }
}

/* A sum times the factor of a channel. */
static inline int32_t tvm_ext_reference_scaled(int32_t sum, const tvm_ext_reference_constants *constants,
                                               int32_t channel, bool rounds_twice)
{
    const int32_t multiplier = constants->multipliers[channel];
    const int32_t shift = 31 - constants->shifts[channel];
    return rounds_twice ? tvm_ext_requantize_tflite(sum, multiplier, shift)
                        : tvm_ext_requantize(sum, multiplier, shift);
}

/* Sum of (x - zero_point) * w over `count` elements that lie one behind the other. */
static inline int32_t tvm_ext_reference_products(const void *input, int32_t first, bool is_unsigned, int32_t zero_point,
                                                 const int8_t *weights, int32_t count)
{
    int32_t sum = 0;
    if (is_unsigned) {
        const uint8_t *const elements = (const uint8_t *)input + first;
        for (int32_t c = 0; c < count; ++c) {
            sum += (elements[c] - zero_point) * weights[c];
        }
    } else {
        const int8_t *const elements = (const int8_t *)input + first;
        for (int32_t c = 0; c < count; ++c) {
            sum += (elements[c] - zero_point) * weights[c];
        }
    }
    return sum;
}

/* Sum of one output channel at the window whose first tap is (top, left). */
static inline int32_t tvm_ext_reference_sum(const tvm_ext_reference_call *call, int32_t image, int32_t top,
                                            int32_t left, int32_t channel, bool is_depthwise)
{
    const tvm_ext_offload_conv2d *const layer = call->layer;
    const int32_t channels = layer->input_channels;
    const int32_t begin = is_depthwise ? channel / (layer->output_channels / channels) : 0;
    int32_t sum = call->constants.bias[channel];
    for (int32_t r = 0; r < layer->kernel_rows; ++r) {
        const int32_t h = top + r * layer->row_dilation;
        for (int32_t s = 0; s < layer->kernel_columns; ++s) {
            const int32_t w = left + s * layer->column_dilation;
            if (h < 0 || h >= layer->input_rows || w < 0 || w >= layer->input_columns) {
                continue;
            }
            const int32_t first = ((image * layer->input_rows + h) * layer->input_columns + w) * channels + begin;
            const int32_t tap = r * layer->kernel_columns + s;
            const int32_t taps = layer->kernel_rows * layer->kernel_columns;
            const int32_t place =
                is_depthwise ? tap * layer->output_channels + channel : (channel * taps + tap) * channels;
            sum += tvm_ext_reference_products(call->input, first, layer->is_unsigned, layer->input_zero_point,
                                              &call->constants.weights[place], is_depthwise ? 1 : channels);
        }
    }
    return sum;
}

static inline void tvm_ext_reference_windows(const tvm_ext_reference_call *call, bool is_depthwise)
{
    const tvm_ext_offload_conv2d *const layer = call->layer;
    int32_t index = 0;
    for (int32_t n = 0; n < layer->images; ++n) {
        for (int32_t p = 0; p < layer->output_rows; ++p) {
            for (int32_t q = 0; q < layer->output_columns; ++q) {
                for (int32_t k = 0; k < layer->output_channels; ++k) {
                    const int32_t top = p * layer->row_stride - layer->top;
                    const int32_t left = q * layer->column_stride - layer->left;
                    const int32_t sum = tvm_ext_reference_sum(call, n, top, left, k, is_depthwise);
                    const int32_t scaled = tvm_ext_reference_scaled(sum, &call->constants, k, layer->rounds_twice);
                    const int32_t value = tvm_ext_clamp(scaled + layer->output_zero_point, layer->low, layer->high);
                    tvm_ext_reference_write(call->output, index++, layer->is_unsigned, value);
                }
            }
        }
    }
}

static inline void tvm_ext_reference_dense(const tvm_ext_reference_call *call)
{
    const tvm_ext_offload_dense *const layer = call->layer;
    for (int32_t v = 0; v < layer->vectors; ++v) {
        for (int32_t k = 0; k < layer->output_channels; ++k) {
            const int32_t depth = layer->input_channels;
            const int32_t sum =
                call->constants.bias[k] + tvm_ext_reference_products(call->input, v * depth, layer->is_unsigned,
                                                                     layer->input_zero_point,
                                                                     &call->constants.weights[k * depth], depth);
            const int32_t scaled = tvm_ext_reference_scaled(sum, &call->constants, k, layer->rounds_twice);
            const int32_t value = tvm_ext_clamp(scaled + layer->output_zero_point, layer->low, layer->high);
            tvm_ext_reference_write(call->output, v * layer->output_channels + k, layer->is_unsigned, value);
        }
    }
}

static inline void tvm_ext_reference_compute(const tvm_ext_reference_call *call)
{
    if (call->kind == TVM_EXT_REFERENCE_DENSE) {
        tvm_ext_reference_dense(call);
    } else if (call->kind != TVM_EXT_REFERENCE_NOTHING) {
        tvm_ext_reference_windows(call, call->kind == TVM_EXT_REFERENCE_DEPTHWISE);
    }
}

static inline void tvm_ext_reference_start(tvm_ext_reference_unit *unit, const tvm_ext_reference_call *call)
{
    if (unit->call.kind != TVM_EXT_REFERENCE_NOTHING) {
        unit->status = TVM_EXT_OFFLOAD_STARTED_TWICE;
    }
    unit->starts++;
    unit->call = *call;
    if (TVM_EXT_OFFLOAD_EARLY) {
        tvm_ext_reference_compute(call);
    }
}

static inline int32_t tvm_ext_reference_wait(tvm_ext_reference_unit *unit)
{
    unit->waits++;
    if (unit->call.kind == TVM_EXT_REFERENCE_NOTHING) {
        unit->status = TVM_EXT_OFFLOAD_NOT_STARTED;
    } else if (!TVM_EXT_OFFLOAD_EARLY) {
        tvm_ext_reference_compute(&unit->call);
    }
    unit->call.kind = TVM_EXT_REFERENCE_NOTHING;
    const int32_t status = unit->status;
    unit->status = 0;
    return status;
}

#endif
