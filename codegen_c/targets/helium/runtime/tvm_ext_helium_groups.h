/* Convolution of quantized images in groups of channels by Helium: two output pixels by four channels at a time.
 *
 * The windows of two pixels are copied to scratch, group after group: all taps of a group's channels are adjacent, as
 * in the window of a convolution without groups, and each group is then a product of its own. Groups are those of the
 * layer, or several of them with zeros among their weights. An initial sum includes the zero point's part of all
 * weights, because padding is read like the input. */
#ifndef TVM_EXT_HELIUM_GROUPS_H
#define TVM_EXT_HELIUM_GROUPS_H

#include <string.h>

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_helium_patch.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
    int32_t depth;                  /* input channels of a group */
    tvm_ext_helium_product product; /* of a group */
} tvm_ext_helium_groups_layer;

/* Computes all groups of two pixels from their copies. It is not inlined; compilers call it directly. */
typedef void tvm_ext_helium_groups_two(const int8_t *copies, uint8_t *y0, uint8_t *y1, const int8_t *restrict weights,
                                       const int32_t *restrict factors);

/* Stores the words of a vector, or the first `count` of them, at these places: bytes from the target, multiples of
 * four. */
#ifdef TVM_EXT_HAS_HELIUM

static inline void tvm_ext_helium_scatter_words(int8_t *target, tvm_ext_i32x4 places, tvm_ext_i8x16 a, int32_t count)
{
    if (count == 4) {
        vstrwq_scatter_offset_s32((int32_t *)(void *)target, vreinterpretq_u32_s32(places), vreinterpretq_s32_s8(a));
        return;
    }
    vstrwq_scatter_offset_p_s32((int32_t *)(void *)target, vreinterpretq_u32_s32(places), vreinterpretq_s32_s8(a),
                                vctp32q((uint32_t)count));
}

#else

static inline void tvm_ext_helium_scatter_words(int8_t *target, tvm_ext_i32x4 places, tvm_ext_i8x16 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        (void)memcpy(&target[places.lane[i]], &a.lane[4 * i], 4);
    }
}

#endif

/* Returns the bytes of a group's copy, which are whole steps. */
TVM_EXT_INLINE int32_t tvm_ext_helium_group_bytes(const tvm_ext_helium_groups_layer *layer)
{
    return layer->product.steps * TVM_EXT_HELIUM_STEP;
}

/* Copies the channels of one tap to their groups; `to` is the place of the tap in the first group. Groups of one word
 * or two are stored by words, because a loop for each of them takes longer than its copy. */
TVM_EXT_INLINE void tvm_ext_helium_groups_tap(const tvm_ext_helium_groups_layer *layer, int8_t *to, const uint8_t *from,
                                              tvm_ext_i32x4 places)
{
    const int32_t channels = layer->input.channels;
    const int32_t depth = layer->depth;
    const int32_t bytes = tvm_ext_helium_group_bytes(layer);
    if (depth == 4 || depth == 8) {
        const tvm_ext_i8x16 bits = tvm_ext_i8x16_splat(INT8_MIN);
        for (int32_t c = 0; c < channels; c += 16) {
            const int32_t count = channels % 16 == 0 ? 16 : TVM_EXT_MIN(16, channels - c);
            const tvm_ext_i8x16 x =
                channels % 16 == 0 ? tvm_ext_i8x16_load(&from[c]) : tvm_ext_i8x16_load_first(&from[c], count);
            tvm_ext_helium_scatter_words(&to[c / depth * bytes], places,
                                         layer->input.is_unsigned ? tvm_ext_i8x16_xor(x, bits) : x, count / 4);
        }
    } else {
        for (int32_t g = 0; g < layer->groups; ++g) {
            tvm_ext_helium_copy(&layer->input, &to[g * bytes], &from[g * depth], depth);
        }
    }
}

/* A tvm_ext_helium_patch, which the function of each layer calls: the copies of all groups. */
TVM_EXT_INLINE void tvm_ext_helium_groups_copy(const tvm_ext_helium_groups_layer *layer, int8_t *restrict patch,
                                               const uint8_t *input, int32_t h, int32_t w)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    const int32_t bytes = tvm_ext_helium_group_bytes(layer);
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps taps = tvm_ext_column_taps(window, image, left);
    const int32_t words[4] = {0, layer->depth == 4 ? bytes : 4, layer->depth == 4 ? 2 * bytes : bytes,
                              layer->depth == 4 ? 3 * bytes : bytes + 4};
    const tvm_ext_i32x4 places = tvm_ext_i32x4_load(words);
    if (rows.begin > 0 || taps.begin > 0 || rows.end < window->rows || taps.end < window->columns) {
        const int32_t zero_point = image->zero_point - (image->is_unsigned ? 128 : 0);
        tvm_ext_fill_i8(patch, (int8_t)zero_point, layer->groups * bytes);
    }
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, 0, top + (r * window->row_dilation));
        const uint8_t *const from = &input[row + (left * image->channels)];
        int8_t *const to = &patch[r * window->columns * layer->depth];
        for (int32_t s = taps.begin; s < taps.end; ++s) {
            tvm_ext_helium_groups_tap(layer, &to[s * layer->depth],
                                      &from[s * window->column_dilation * image->channels], places);
        }
    }
}

/* A tvm_ext_helium_groups_two, which the function of each layer calls. */
TVM_EXT_INLINE void tvm_ext_helium_groups_pixels(const tvm_ext_helium_groups_layer *layer, const int8_t *copies,
                                                 uint8_t *y0, uint8_t *y1, const int8_t *restrict weights,
                                                 const int32_t *restrict factors)
{
    const int32_t bytes = tvm_ext_helium_group_bytes(layer);
    const int32_t channels = layer->product.channels;
    const int32_t blocks = (channels + TVM_EXT_HELIUM_BLOCK - 1) / TVM_EXT_HELIUM_BLOCK;
    for (int32_t g = 0; g < layer->groups; ++g) {
        const int8_t *const second = &copies[layer->groups * bytes];
        tvm_ext_helium_channels(&layer->product, copies, second, 0, y0, y1, weights, factors, 2);
        copies += bytes;
        weights += blocks * TVM_EXT_HELIUM_BLOCK * bytes;
        factors += blocks * TVM_EXT_HELIUM_FACTORS;
        y0 += channels;
        y1 += channels;
    }
}

/* Computes output rows [row_begin, row_end) of all images. The last of an odd number of columns is a pair with itself.
 *
 * scratch: the copies of two pixels. */
TVM_EXT_INLINE void tvm_ext_helium_groups(const tvm_ext_helium_groups_layer *layer, tvm_ext_helium_groups_two *two,
                                          tvm_ext_helium_patch *copy, const void *input, void *output,
                                          const int8_t *restrict weights, const int32_t *restrict factors,
                                          void *scratch, int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    int8_t *const copies = (int8_t *)scratch;
    int8_t *const second = &copies[layer->groups * tvm_ext_helium_group_bytes(layer)];
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
        for (int32_t h = row_begin; h < row_end; ++h) {
            uint8_t *const row = (uint8_t *)tvm_ext_target(made, output, tvm_ext_row(made, n, h));
            for (int32_t w = 0; w < made->columns; w += 2) {
                const int32_t next = TVM_EXT_MIN(w + 1, made->columns - 1);
                copy(copies, image, h, w);
                copy(second, image, h, next);
                two(copies, &row[w * made->pitch], &row[next * made->pitch], weights, factors);
            }
        }
    }
}

#endif
