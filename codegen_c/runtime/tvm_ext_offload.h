/* Layers as the driver of an accelerator gets them: shapes, windows, zero points and bounds, as the model has them.
 *
 * A function of the driver that starts one gets the layer, which is constant and stays where it is, then pointers to
 * tensors and constants. It returns at once; all of them stay valid, and nothing else touches the tensors, until the
 * driver's wait returns. There is one start at a time. All memory is little-endian, tensors lie as C arrays of the
 * shapes given, the last axis first in steps of one element.
 *
 *     sum    = bias[k] + products of (x - input_zero_point) * w; a product outside of the input is left out
 *     output = clamp(rounded(sum * multipliers[k] * 2^(shifts[k] - 31)) + output_zero_point, low, high)
 *
 * multipliers are 0 or 2^30 to 2^31 - 1. rounds_twice: as TensorFlow Lite does, that is the upper half of 2 * sum *
 * multiplier with halves rounded up, of a sum shifted left where shift > 0, then divided by 2^-shift with halves
 * rounded away from zero; otherwise once, to nearest, halves to even. Sums fit int32. */
#ifndef TVM_EXT_OFFLOAD_H
#define TVM_EXT_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* conv2d: input [images, rows, columns, channels], weights int8 [output channels, kernel rows, kernel columns, input
 * channels]. depthwise: weights int8 [kernel rows, kernel columns, output channels]; output channel k reads input
 * channel k / (output channels / input channels). bias, multipliers, shifts: int32, one of each for an output
 * channel. */
typedef struct {
    int32_t images;
    int32_t input_rows;
    int32_t input_columns;
    int32_t input_channels;
    int32_t output_rows;
    int32_t output_columns;
    int32_t output_channels;
    int32_t kernel_rows;
    int32_t kernel_columns;
    int32_t row_stride;
    int32_t column_stride;
    int32_t row_dilation;
    int32_t column_dilation;
    int32_t top; /* padding */
    int32_t left;
    int32_t bottom;
    int32_t right;
    int32_t input_zero_point;
    int32_t output_zero_point;
    int32_t low; /* bounds of the output, a fused activation among them */
    int32_t high;
    bool is_unsigned; /* elements are uint8, not int8 */
    bool rounds_twice;
} tvm_ext_offload_conv2d;

/* dense: input [vectors, input channels], weights int8 [output channels, input channels], output [vectors, output
 * channels]. */
typedef struct {
    int32_t vectors;
    int32_t input_channels;
    int32_t output_channels;
    int32_t input_zero_point;
    int32_t output_zero_point;
    int32_t low;
    int32_t high;
    bool is_unsigned;
    bool rounds_twice;
} tvm_ext_offload_dense;

/* A run answers what the first wait does that answers something else than 0. */
static inline void tvm_ext_offload_done(int32_t *status, int32_t answer)
{
    if (*status == 0) {
        *status = answer;
    }
}

#endif
