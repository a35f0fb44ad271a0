/* A call of a driver, as the reference stores it, and windows of its layer. */
#ifndef TVM_EXT_OFFLOAD_CALL_H
#define TVM_EXT_OFFLOAD_CALL_H

#include "tvm_ext_offload.h"

typedef struct {
    const void *weights;
    const void *bias;
    const int32_t *multipliers;
    const int32_t *shifts;
} tvm_ext_reference_constants;

typedef enum {
    TVM_EXT_REFERENCE_NOTHING,
    TVM_EXT_REFERENCE_CONV2D,
    TVM_EXT_REFERENCE_DEPTHWISE,
    TVM_EXT_REFERENCE_DENSE,
    TVM_EXT_REFERENCE_MAX_POOL,
    TVM_EXT_REFERENCE_AVERAGE_POOL,
    TVM_EXT_REFERENCE_ADD,
    TVM_EXT_REFERENCE_CONV2D_F32,
    TVM_EXT_REFERENCE_DEPTHWISE_F32,
    TVM_EXT_REFERENCE_DENSE_F32,
    TVM_EXT_REFERENCE_MAX_POOL_F32,
    TVM_EXT_REFERENCE_AVERAGE_POOL_F32,
    TVM_EXT_REFERENCE_ADD_F32,
} tvm_ext_reference_kind;

typedef struct {
    tvm_ext_reference_kind kind;
    const void *layer;
    const void *input;
    const void *other; /* of layers with two inputs */
    tvm_ext_reference_constants constants;
    void *output;
} tvm_ext_reference_call;

/* The window of one output element: its image, the first row and column that it covers, and the output channel. */
typedef struct {
    int32_t image;
    int32_t top;
    int32_t left;
    int32_t channel;
} tvm_ext_reference_place;

/* Returns the window of output element `index` of a layer of images. */
static inline tvm_ext_reference_place tvm_ext_reference_placed(const tvm_ext_offload_window *window, int32_t index)
{
    const int32_t pixel = index / window->output_channels;
    const int32_t row = pixel / window->output_columns;
    const tvm_ext_reference_place place = {
        row / window->output_rows,
        row % window->output_rows * window->row_stride - window->top,
        pixel % window->output_columns * window->column_stride - window->left,
        index % window->output_channels,
    };
    return place;
}

/* Returns the number of output elements. */
static inline int32_t tvm_ext_reference_results(const tvm_ext_offload_window *window)
{
    return window->images * window->output_rows * window->output_columns * window->output_channels;
}

/* Returns the input index of the first channel of the pixel under a tap; -1 outside the input. */
static inline int32_t tvm_ext_reference_pixel(const tvm_ext_offload_window *window,
                                              const tvm_ext_reference_place *place, int32_t tap)
{
    const int32_t h = place->top + tap / window->kernel_columns * window->row_dilation;
    const int32_t w = place->left + tap % window->kernel_columns * window->column_dilation;
    if (h < 0 || h >= window->input_rows || w < 0 || w >= window->input_columns) {
        return -1;
    }
    return ((place->image * window->input_rows + h) * window->input_columns + w) * window->input_channels;
}

/* Returns the input channel that a depthwise output channel reads. */
static inline int32_t tvm_ext_reference_source(const tvm_ext_offload_window *window, int32_t channel)
{
    return channel / (window->output_channels / window->input_channels);
}

#endif
