/* Shapes of a convolution of float images, and positions of its windows. */
#ifndef TVM_EXT_CONV2D_F32_H
#define TVM_EXT_CONV2D_F32_H

#include "tvm_ext_layer.h"
#include "tvm_ext_narrow.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
    tvm_ext_weights weights;
} tvm_ext_conv2d_f32_layer;

/* Position of a window: the row and column of its first tap, and its taps inside the image. */
typedef struct {
    int32_t top;
    int32_t left;
    tvm_ext_taps rows;
    tvm_ext_taps columns;
} tvm_ext_place;

/* Position of the window of row h and column w of the output. */
TVM_EXT_INLINE tvm_ext_place tvm_ext_conv2d_f32_place(const tvm_ext_conv2d_f32_layer *layer, int32_t h, int32_t w)
{
    const tvm_ext_window *const window = &layer->window;
    tvm_ext_place place;
    place.top = (h * window->row_stride) - window->top;
    place.left = (w * window->column_stride) - window->left;
    place.rows = tvm_ext_row_taps(window, &layer->input, place.top);
    place.columns = tvm_ext_column_taps(window, &layer->input, place.left);
    return place;
}

#endif
