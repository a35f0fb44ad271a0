/* Convolution of quantized images on Armv6-M: eight output pixels by one channel at a time.
 *
 * The windows of eight pixels are packed to words of two elements (tvm_ext_armv6m_product.h), padding as zero
 * points, so that borders and the inside run the same code; then all channels read them. There, elements are from
 * -128 to 127. */
#ifndef TVM_EXT_ARMV6M_CONV2D_H
#define TVM_EXT_ARMV6M_CONV2D_H

#include <stddef.h>

#include "tvm_ext_armv6m_pixels.h"
#include "tvm_ext_armv6m_product.h"
#include "tvm_ext_armv6m_requantize.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    tvm_ext_armv6m_requantize requantize;
} tvm_ext_armv6m_conv2d_layer;

/* The window of an output pixel: its first row and column. */
typedef struct {
    int32_t image;
    int32_t top;
    int32_t left;
} tvm_ext_armv6m_place;

/* Computes all channels of eight pixels from their cells; `output`: the first element of each pixel. It is not
 * inlined, so that it has all registers to itself; compilers call it directly. */
typedef void tvm_ext_armv6m_pixels(uint8_t *const output[TVM_EXT_ARMV6M_PIXELS], const int8_t *weights,
                                   const int32_t *factors, const uint32_t *cells);

/* Packs words of `count` adjacent elements of two pixels. Returns the address of the next word. */
TVM_EXT_ARMV6M_SHARED uint32_t *tvm_ext_armv6m_pack_s8(uint32_t *cell, const int8_t *first, const int8_t *second,
                                                       int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        *cell = (uint32_t)(int32_t)first[i] + ((uint32_t)(int32_t)second[i] << 16);
        cell += TVM_EXT_ARMV6M_PAIRS;
    }
    return cell;
}

TVM_EXT_ARMV6M_SHARED uint32_t *tvm_ext_armv6m_pack_u8(uint32_t *cell, const uint8_t *first, const uint8_t *second,
                                                       int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        *cell = (uint32_t)first[i] + ((uint32_t)second[i] << 16) - 0x00800080u;
        cell += TVM_EXT_ARMV6M_PAIRS;
    }
    return cell;
}

/* Packs words of `count` adjacent elements of two pixels, either of which may be padding: NULL. */
TVM_EXT_INLINE uint32_t *tvm_ext_armv6m_pack(const tvm_ext_image *input, uint32_t *cell, const uint8_t *first,
                                             const uint8_t *second, int32_t count)
{
    if (first != NULL && second != NULL) {
        return input->is_unsigned ? tvm_ext_armv6m_pack_u8(cell, first, second, count)
                                  : tvm_ext_armv6m_pack_s8(cell, (const int8_t *)first, (const int8_t *)second, count);
    }
    const int32_t offset = input->is_unsigned ? 128 : 0;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t x = (first != NULL ? tvm_ext_element(input, first, i) : input->zero_point) - offset;
        const int32_t y = (second != NULL ? tvm_ext_element(input, second, i) : input->zero_point) - offset;
        *cell = (uint32_t)x + ((uint32_t)y << 16);
        cell += TVM_EXT_ARMV6M_PAIRS;
    }
    return cell;
}

/* Returns the first element of input row y; NULL for a row of padding. */
TVM_EXT_INLINE const uint8_t *tvm_ext_armv6m_row(const tvm_ext_armv6m_conv2d_layer *layer, const uint8_t *input,
                                                 int32_t image, int32_t y)
{
    const bool is_padded = layer->window.top > 0 || layer->window.bottom > 0;
    return is_padded && (y < 0 || y >= layer->input.rows) ? NULL : &input[tvm_ext_row(&layer->input, image, y)];
}

/* Returns the first element of column x of a row; NULL for padding. */
TVM_EXT_INLINE const uint8_t *tvm_ext_armv6m_column(const tvm_ext_armv6m_conv2d_layer *layer, const uint8_t *row,
                                                    int32_t x)
{
    const bool is_padded = layer->window.left > 0 || layer->window.right > 0;
    const bool is_outside = is_padded && (x < 0 || x >= layer->input.columns);
    return row == NULL || is_outside ? NULL : &row[x * layer->input.channels];
}

/* Packs the words of the windows of two pixels. */
TVM_EXT_INLINE void tvm_ext_armv6m_pack_windows(const tvm_ext_armv6m_conv2d_layer *layer, uint32_t *cell,
                                                const uint8_t *input, const tvm_ext_armv6m_place *first,
                                                const tvm_ext_armv6m_place *second)
{
    const tvm_ext_window *const window = &layer->window;
    const int32_t most = layer->input.columns - window->columns;
    const bool is_padded = window->left > 0 || window->right > 0;
    const bool is_inside =
        !is_padded || (first->left >= 0 && first->left <= most && second->left >= 0 && second->left <= most);
    const bool is_one_run = window->column_dilation == 1 && is_inside;
    const int32_t runs = is_one_run ? 1 : window->columns;
    const int32_t count = is_one_run ? window->columns * layer->input.channels : layer->input.channels;
    for (int32_t r = 0; r < window->rows; ++r) {
        const int32_t y = r * window->row_dilation;
        const uint8_t *const a = tvm_ext_armv6m_row(layer, input, first->image, first->top + y);
        const uint8_t *const b = tvm_ext_armv6m_row(layer, input, second->image, second->top + y);
        for (int32_t s = 0; s < runs; ++s) {
            const int32_t x = s * window->column_dilation;
            cell = tvm_ext_armv6m_pack(&layer->input, cell, tvm_ext_armv6m_column(layer, a, first->left + x),
                                       tvm_ext_armv6m_column(layer, b, second->left + x), count);
        }
    }
}

/* A tvm_ext_armv6m_pixels, which the function of each layer calls. A missing pixel is replaced by the first one,
 * which is stored last. */
TVM_EXT_INLINE void tvm_ext_armv6m_conv2d_pixels(const tvm_ext_armv6m_conv2d_layer *layer,
                                                 uint8_t *const output[TVM_EXT_ARMV6M_PIXELS], const int8_t *weights,
                                                 const int32_t *factors, const uint32_t *cells)
{
#if TVM_EXT_ARMV6M
    if (layer->requantize.fraction_bits > 0) {
        const tvm_ext_armv6m_pixels_layer pixels = {
            output, factors, cells, weights, layer->output.channels, layer->requantize.fraction_bits,
        };
        if (layer->requantize.has_two_constants) {
            tvm_ext_armv6m_pixels_twice(&pixels);
        } else {
            tvm_ext_armv6m_pixels_once(&pixels);
        }
        return;
    }
#endif
    uint32_t sums[TVM_EXT_ARMV6M_PIXELS];
    for (int32_t k = 0; k < layer->output.channels; ++k) {
        weights = tvm_ext_armv6m_product(sums, cells, weights);
        for (int32_t i = TVM_EXT_ARMV6M_PIXELS - 1; i >= 0; --i) {
            output[i][k] = tvm_ext_armv6m_element(&layer->requantize, sums[i], factors);
        }
        factors += tvm_ext_armv6m_num_factors(&layer->requantize);
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: cells of eight pixels. */
TVM_EXT_INLINE void tvm_ext_armv6m_conv2d(const tvm_ext_armv6m_conv2d_layer *layer, tvm_ext_armv6m_pixels *compute,
                                          const void *input, void *output, const int8_t *weights,
                                          const int32_t *factors, void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_window *const window = &layer->window;
    uint32_t *const cells = (uint32_t *)scratch;
    uint8_t *pixels[TVM_EXT_ARMV6M_PIXELS];
    tvm_ext_armv6m_place first = {0, 0, 0};
    int32_t lane = 0;
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns; ++w) {
                const tvm_ext_armv6m_place place = {n, (h * window->row_stride) - window->top,
                                                    (w * window->column_stride) - window->left};
                const bool is_last =
                    w == layer->output.columns - 1 && h == row_end - 1 && n == layer->output.images - 1;
                if (lane % 2 == 0) {
                    first = place;
                }
                if (lane % 2 == 1 || is_last) {
                    tvm_ext_armv6m_pack_windows(layer, &cells[lane / 2], (const uint8_t *)input, &first, &place);
                }
                pixels[lane] = &row[w * layer->output.pitch];
                ++lane;
                if (lane < TVM_EXT_ARMV6M_PIXELS && !is_last) {
                    continue;
                }
                for (; lane < TVM_EXT_ARMV6M_PIXELS; ++lane) {
                    pixels[lane] = pixels[0];
                }
                compute(pixels, weights, factors, cells);
                lane = 0;
            }
        }
    }
}

#endif
