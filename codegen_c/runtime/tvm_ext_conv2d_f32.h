/* Shapes of a convolution of float images. */
#ifndef TVM_EXT_CONV2D_F32_H
#define TVM_EXT_CONV2D_F32_H

#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
} tvm_ext_conv2d_f32_layer;

#endif
