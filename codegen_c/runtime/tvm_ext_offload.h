/* The interface of an accelerator's driver: layers with their shapes, windows, zero points and bounds.
 *
 * A function that starts a layer takes the layer, which is constant and keeps its address, then pointers to tensors
 * and constants. It returns at once; all pointers stay valid, and no other code uses the tensors, until the driver's
 * wait returns. At most one start is active. All memory is little-endian; tensors are C arrays of the given shapes.
 * Layers of floats have functions of their own.
 *
 * Factors are multiplier * 2^(shift - 31); multipliers are 0 or 2^30 to 2^31 - 1. rounds_twice: as in TensorFlow
 * Lite, the upper half of 2 * sum * multiplier with halves rounded up, of a sum shifted left if shift > 0, then
 * divided by 2^-shift with halves rounded away from zero; otherwise once, to nearest, halves to even. Sums fit
 * int32. */
#ifndef TVM_EXT_OFFLOAD_H
#define TVM_EXT_OFFLOAD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Input and output images [images, rows, columns, channels], and a window that slides over the input. */
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
} tvm_ext_offload_window;

/* conv2d: weights int8 [output channels, kernel rows, kernel columns, input channels]. depthwise: weights int8
 * [kernel rows, kernel columns, output channels]; output channel k reads input channel k / (output channels / input
 * channels). bias, multipliers, shifts: int32, one of each for an output channel.
 *
 *     sum    = bias[k] + products of (x - input_zero_point) * w; products outside the input are skipped
 *     output = clamp(rounded(sum * factor[k]) + output_zero_point, low, high) */
typedef struct {
    tvm_ext_offload_window window;
    int32_t input_zero_point;
    int32_t output_zero_point;
    int32_t low; /* bounds of the output, which include a fused activation */
    int32_t high;
    bool is_unsigned; /* elements are uint8, not int8 */
    bool rounds_twice;
} tvm_ext_offload_conv2d;

/* dense: input [vectors, input channels], weights int8 [output channels, input channels], output [vectors, output
 * channels]; sums and results as in conv2d. */
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

/* max_pool: the largest element of a window inside the input, clamped to [low, high]. average_pool, of n elements
 * inside the input:
 *
 *     sum    = all (x - input_zero_point)
 *     output = clamp(rounded(sum * factor[num_factors > 1 ? n - fewest : 0]) + output_zero_point, low, high)
 *
 * If multipliers and shifts are NULL, clamp(sum of all x / n, low, high), halves away from zero. */
typedef struct {
    tvm_ext_offload_window window;
    int32_t input_zero_point;
    int32_t output_zero_point;
    int32_t low;
    int32_t high;
    int32_t fewest; /* the fewest elements of the input in a window */
    int32_t num_factors;
    bool is_unsigned;
    bool rounds_twice;
} tvm_ext_offload_pool;

/* add, element by element. A sum that is rounded once:
 *
 *     sum    = (a - first_zero_point) * first + (b - second_zero_point) * second
 *     output = clamp(rounded(sum) + output_zero_point, low, high)
 *
 * A sum that is rounded again:
 *
 *     sum    = rounded((a - first_zero_point) * 2^bits * first) + rounded((b - second_zero_point) * 2^bits * second)
 *     output = clamp(rounded(sum * factor) + output_zero_point, low, high)
 *
 * If the sum is rounded once, both shifts are equal, and multipliers may be less than 2^30. */
typedef struct {
    int32_t elements;
    int32_t first_zero_point;
    int32_t second_zero_point;
    int32_t output_zero_point;
    int32_t low;
    int32_t high;
    int32_t first_multiplier;
    int32_t first_shift;
    int32_t second_multiplier;
    int32_t second_shift;
    int32_t multiplier; /* the factor of a sum that is rounded again, otherwise 0 */
    int32_t shift;
    int32_t bits;
    bool is_unsigned;
    bool rounds_twice;
} tvm_ext_offload_add;

/* The layers of floats: weights and bias are floats, and results are clamped to [low, high], which may be infinite. */
typedef struct {
    tvm_ext_offload_window window;
    float low;
    float high;
} tvm_ext_offload_conv2d_f32;

typedef struct {
    int32_t vectors;
    int32_t input_channels;
    int32_t output_channels;
    float low;
    float high;
} tvm_ext_offload_dense_f32;

/* An average is a sum divided by the number of elements inside the input, or by that of the window. */
typedef struct {
    tvm_ext_offload_window window;
    bool counts_padding;
    float low;
    float high;
} tvm_ext_offload_pool_f32;

typedef struct {
    int32_t elements;
    float low;
    float high;
} tvm_ext_offload_add_f32;

/* A run returns the first status of a wait other than 0. */
static inline void tvm_ext_offload_done(int32_t *status, int32_t answer)
{
    if (*status == 0) {
        *status = answer;
    }
}

#endif
