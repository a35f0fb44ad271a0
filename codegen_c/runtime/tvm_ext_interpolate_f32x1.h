/* Interpolation of images of floats: weighted sums of a few rows, then of a few columns of these sums.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_INTERPOLATE_F32X1_H
#define TVM_EXT_INTERPOLATE_F32X1_H

#include "tvm_ext_lanes_f32x1.h"

/* Floats that a loop computes at once: four where they are single, otherwise one vector. */
#define TVM_EXT_INTERPOLATE_F32X1_GROUP (TVM_EXT_F32X1_LANES == 1 ? 4 : TVM_EXT_F32X1_LANES)

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    int32_t row_taps;
    int32_t column_taps;
} tvm_ext_interpolate_f32_layer;

/* Multiplies a row by its weight, or adds the product to a line. */
TVM_EXT_INLINE void tvm_ext_interpolate_add_f32x1(const float *x, float weight, float *restrict line, int32_t length,
                                                  bool is_first)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    for (int32_t i = 0; i < whole; i += TVM_EXT_F32X1_LANES) {
        const tvm_ext_f32x1 element = tvm_ext_f32x1_load(&x[i]);
        tvm_ext_f32x1_store(&line[i], is_first ? tvm_ext_f32x1_multiply(element, tvm_ext_f32x1_splat(weight))
                                               : tvm_ext_f32x1_fma_n(weight, element, tvm_ext_f32x1_load(&line[i])));
    }
    for (int32_t i = whole; i < length; ++i) {
        line[i] = is_first ? x[i] * weight : TVM_EXT_FMA(weight, x[i], line[i]);
    }
}

/* Sets a line to the weighted sum of two rows. */
TVM_EXT_INLINE void tvm_ext_interpolate_two_f32x1(const float *x0, const float *x1, const float *restrict weights,
                                                  float *restrict line, int32_t length)
{
    const int32_t whole = tvm_ext_whole_f32x1(length);
    const float weight0 = weights[0];
    const float weight1 = weights[1];
    int32_t i = 0;
    for (; i + TVM_EXT_INTERPOLATE_F32X1_GROUP <= whole; i += TVM_EXT_INTERPOLATE_F32X1_GROUP) {
        for (int32_t j = i; j < i + TVM_EXT_INTERPOLATE_F32X1_GROUP; j += TVM_EXT_F32X1_LANES) {
            const tvm_ext_f32x1 product =
                tvm_ext_f32x1_multiply(tvm_ext_f32x1_load(&x0[j]), tvm_ext_f32x1_splat(weight0));
            tvm_ext_f32x1_store(&line[j], tvm_ext_f32x1_fma_n(weight1, tvm_ext_f32x1_load(&x1[j]), product));
        }
    }
    for (; i < whole; i += TVM_EXT_F32X1_LANES) {
        const tvm_ext_f32x1 product = tvm_ext_f32x1_multiply(tvm_ext_f32x1_load(&x0[i]), tvm_ext_f32x1_splat(weight0));
        tvm_ext_f32x1_store(&line[i], tvm_ext_f32x1_fma_n(weight1, tvm_ext_f32x1_load(&x1[i]), product));
    }
    for (; i < length; ++i) {
        line[i] = TVM_EXT_FMA(weight1, x1[i], x0[i] * weight0);
    }
}

/* Sets a line to the weighted sum of the input rows of an output row. */
TVM_EXT_INLINE void tvm_ext_interpolate_line_f32x1(const tvm_ext_interpolate_f32_layer *layer, const float *input,
                                                   const int16_t *restrict rows, const float *restrict weights,
                                                   int32_t n, float *restrict line)
{
    const int32_t length = layer->input.columns * layer->input.channels;
    int32_t r = 0;
    if (layer->row_taps > 1) {
        tvm_ext_interpolate_two_f32x1(&input[tvm_ext_row(&layer->input, n, rows[0])],
                                      &input[tvm_ext_row(&layer->input, n, rows[1])], weights, line, length);
        r = 2;
    }
    for (; r < layer->row_taps; ++r) {
        tvm_ext_interpolate_add_f32x1(&input[tvm_ext_row(&layer->input, n, rows[r])], weights[r], line, length, r == 0);
    }
}

/* Computes a pixel from the columns of a line. */
TVM_EXT_INLINE void tvm_ext_interpolate_pixel_f32x1(const tvm_ext_interpolate_f32_layer *layer,
                                                    const float *restrict line, const int16_t *restrict columns,
                                                    const float *restrict weights, float *pixel)
{
    const int32_t channels = layer->input.channels;
    const int32_t whole = tvm_ext_whole_f32x1(channels);
    for (int32_t k = 0; k < whole; k += TVM_EXT_F32X1_LANES) {
        tvm_ext_f32x1 sum = tvm_ext_f32x1_multiply(tvm_ext_f32x1_load(&line[(columns[0] * channels) + k]),
                                                   tvm_ext_f32x1_splat(weights[0]));
        for (int32_t t = 1; t < layer->column_taps; ++t) {
            sum = tvm_ext_f32x1_fma_n(weights[t], tvm_ext_f32x1_load(&line[(columns[t] * channels) + k]), sum);
        }
        tvm_ext_f32x1_store(&pixel[k], sum);
    }
    for (int32_t k = whole; k < channels; ++k) {
        float sum = line[(columns[0] * channels) + k] * weights[0];
        for (int32_t t = 1; t < layer->column_taps; ++t) {
            sum = TVM_EXT_FMA(weights[t], line[(columns[t] * channels) + k], sum);
        }
        pixel[k] = sum;
    }
}

/* Computes a vector of each of two pixels from the same two columns. */
TVM_EXT_INLINE void tvm_ext_interpolate_both_f32x1(const float *x0, const float *x1, const float *weights, float *first,
                                                   float *second)
{
    const tvm_ext_f32x1 element0 = tvm_ext_f32x1_load(x0);
    const tvm_ext_f32x1 element1 = tvm_ext_f32x1_load(x1);
    const tvm_ext_f32x1 product0 = tvm_ext_f32x1_multiply(element0, tvm_ext_f32x1_splat(weights[0]));
    const tvm_ext_f32x1 product1 = tvm_ext_f32x1_multiply(element0, tvm_ext_f32x1_splat(weights[2]));
    tvm_ext_f32x1_store(first, tvm_ext_f32x1_fma_n(weights[1], element1, product0));
    tvm_ext_f32x1_store(second, tvm_ext_f32x1_fma_n(weights[3], element1, product1));
}

/* Computes two neighbouring pixels that read the same two columns of a line. */
TVM_EXT_INLINE void tvm_ext_interpolate_pair_f32x1(const tvm_ext_interpolate_f32_layer *layer,
                                                   const float *restrict line, const int16_t *restrict columns,
                                                   const float *restrict four, float *pixel)
{
    const int32_t channels = layer->input.channels;
    const int32_t whole = tvm_ext_whole_f32x1(channels);
    const float *const x0 = &line[columns[0] * channels];
    const float *const x1 = &line[columns[1] * channels];
    float *const second = &pixel[layer->output.pitch];
    const float weights[4] = {four[0], four[1], four[2], four[3]};
    int32_t k = 0;
    for (; k + TVM_EXT_INTERPOLATE_F32X1_GROUP <= whole; k += TVM_EXT_INTERPOLATE_F32X1_GROUP) {
        for (int32_t j = k; j < k + TVM_EXT_INTERPOLATE_F32X1_GROUP; j += TVM_EXT_F32X1_LANES) {
            tvm_ext_interpolate_both_f32x1(&x0[j], &x1[j], weights, &pixel[j], &second[j]);
        }
    }
    for (; k < whole; k += TVM_EXT_F32X1_LANES) {
        tvm_ext_interpolate_both_f32x1(&x0[k], &x1[k], weights, &pixel[k], &second[k]);
    }
    for (; k < channels; ++k) {
        pixel[k] = TVM_EXT_FMA(weights[1], x1[k], x0[k] * weights[0]);
        second[k] = TVM_EXT_FMA(weights[3], x1[k], x0[k] * weights[2]);
    }
}

/* Computes output rows [row_begin, row_end) of all images. line: as long as a row of the input. */
TVM_EXT_INLINE void tvm_ext_interpolate_f32x1(const tvm_ext_interpolate_f32_layer *layer, const float *input,
                                              float *output, const int16_t *restrict rows,
                                              const float *restrict row_weights, const int16_t *restrict columns,
                                              const float *restrict column_weights, float *restrict line,
                                              int32_t row_begin, int32_t row_end)
{
    const int32_t taps = layer->column_taps;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_interpolate_line_f32x1(layer, input, &rows[h * layer->row_taps], &row_weights[h * layer->row_taps],
                                           n, line);
            float *pixel = &output[tvm_ext_row(&layer->output, n, h)];
            int32_t w = 0;
            while (w < layer->output.columns) {
                const int16_t *const from = &columns[w * taps];
                const float *const weights = &column_weights[w * taps];
                if (taps == 2 && w + 1 < layer->output.columns && from[0] == from[2] && from[1] == from[3]) {
                    tvm_ext_interpolate_pair_f32x1(layer, line, from, weights, pixel);
                    pixel += 2 * layer->output.pitch;
                    w += 2;
                } else {
                    tvm_ext_interpolate_pixel_f32x1(layer, line, from, weights, pixel);
                    pixel += layer->output.pitch;
                    ++w;
                }
            }
        }
    }
}

#endif
