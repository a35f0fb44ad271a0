/* Convolution of quantized images in groups of channels by Helium: two output pixels by four channels at a time.
 *
 * If the channels of a group are whole words, a product gathers the words of its window: from the image if the window
 * lies inside, otherwise from a copy of both windows. Windows of other groups are copied group after group, so that all
 * taps of a group's channels are adjacent. Groups are those of the layer, or several of them with zeros among their
 * weights. An initial sum includes the zero point's part of all weights, because padding is read like the input. */
#ifndef TVM_EXT_HELIUM_GROUPS_H
#define TVM_EXT_HELIUM_GROUPS_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_helium_patch.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t groups;
    int32_t depth;                  /* input channels of a group */
    int32_t copy_columns; /* columns of the copy of two windows that is gathered by words; 0: not by words */
    int32_t inside_begin; /* columns [begin, end) are gathered from the image, if the rows are inside, too */
    int32_t inside_end;
    tvm_ext_helium_product product; /* runs and steps of a group */
} tvm_ext_helium_groups_layer;

/* Computes all groups of two pixels. places: bytes from the first word of a window to each of its words; NULL for
 * windows that are copied group after group. It is not inlined; compilers call it directly. */
typedef void tvm_ext_helium_groups_two(const int8_t *x0, const int8_t *x1, const int32_t *places, uint8_t *y0,
                                       uint8_t *y1, const int8_t *restrict weights, const int32_t *restrict factors);

#ifdef TVM_EXT_HAS_HELIUM

/* TVM_EXT_DOTS_2X4_STEP with x gathered by words. */
#define TVM_EXT_GATHERED_2X4_STEP(mac)                                                                               \
    "vldrw.u32 %q[v3], [%[t]], #16\n\tvldrw.u32 %q[v0], [%[x0], %q[v3]]\n\t"                                         \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r0, %q[v0], %q[v2]\n\t"                                                 \
    "vldrw.u32 %q[v1], [%[x1], %q[v3]]\n\t" mac " r8, %q[v1], %q[v2]\n\t"                                            \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r2, %q[v0], %q[v3]\n\t" mac " r10, %q[v1], %q[v3]\n\t"                  \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r4, %q[v0], %q[v2]\n\t" mac " r12, %q[v1], %q[v2]\n\t"                  \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r6, %q[v0], %q[v3]\n\t" mac " lr, %q[v1], %q[v3]\n\t"

/* sum0 and sum1, four channels each, += the words at `table` of two windows times the channels' `filters`, in `steps`
 * steps of four words. `table` and `filters` are advanced past them; windows begin at a multiple of four bytes. One
 * operand takes a high register: of the low ones, three are left beside a frame pointer. */
#define TVM_EXT_GATHERED_2X4(steps, row0, row1, table, filters, sum0, sum1)                                          \
    do {                                                                                                             \
        int8x16_t dots_v0, dots_v1, dots_v2, dots_v3;                                                                \
        __asm__ volatile(                                                                                            \
            TVM_EXT_GATHERED_2X4_STEP("vmladav.s8")                                                                  \
            ".rept %c[num_steps]-1\n\t" TVM_EXT_GATHERED_2X4_STEP("vmladava.s8") ".endr\n\t"                         \
            "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                             \
            "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"                           \
            : [f] "+r"(filters), [t] "+r"(table), [v0] "=&w"(dots_v0), [v1] "=&w"(dots_v1), [v2] "=&w"(dots_v2),     \
              [v3] "=&w"(dots_v3)                                                                                    \
            : [x0] "r"(row0), [x1] "h"(row1), [num_steps] "i"(steps)                                                 \
            : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");                                           \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
        (sum1) = vaddq_s32((sum1), vreinterpretq_s32_s8(dots_v1));                                                   \
    } while (0)

#else

static inline tvm_ext_i32x4 tvm_ext_gathered_dots(int32_t steps, const int8_t *x, const int32_t *places,
                                                  const int8_t *f, tvm_ext_i32x4 sum)
{
    for (int32_t i = 0; i < steps * 64; ++i) {
        const int32_t place = places[(i / 64 * 4) + (i % 16 / 4)] + (i % 4);
        const int32_t channel = i % 64 / 16;
        sum.lane[channel] = tvm_ext_wrap((int64_t)sum.lane[channel] + (x[place] * f[i]));
    }
    return sum;
}

#define TVM_EXT_GATHERED_2X4(steps, row0, row1, table, filters, sum0, sum1)                                          \
    do {                                                                                                             \
        (sum0) = tvm_ext_gathered_dots((steps), (row0), (table), (filters), (sum0));                                 \
        (sum1) = tvm_ext_gathered_dots((steps), (row1), (table), (filters), (sum1));                                 \
        (filters) += (steps) * 64;                                                                                   \
        (table) += (steps) * 4;                                                                                      \
    } while (0)

#endif

/* Returns the bytes of a group's copy, which are whole steps. */
TVM_EXT_INLINE int32_t tvm_ext_helium_group_bytes(const tvm_ext_helium_groups_layer *layer)
{
    return layer->product.steps * TVM_EXT_HELIUM_STEP;
}

/* Returns the bytes from the copy of a window to that of the next. */
TVM_EXT_INLINE int32_t tvm_ext_helium_next_copy(const tvm_ext_helium_groups_layer *layer)
{
    return layer->copy_columns > 0 ? layer->window.column_stride * layer->input.channels
                                   : layer->groups * tvm_ext_helium_group_bytes(layer);
}

/* A tvm_ext_helium_patch, which the function of each layer calls: copies the rows of the windows of two pixels, or the
 * window of one, group after group. */
TVM_EXT_INLINE void tvm_ext_helium_groups_copy(const tvm_ext_helium_groups_layer *layer, int8_t *restrict patch,
                                               const uint8_t *input, int32_t h, int32_t w)
{
    const tvm_ext_image *const image = &layer->input;
    const tvm_ext_window *const window = &layer->window;
    if (layer->copy_columns > 0) {
        tvm_ext_window two = *window;
        two.columns = layer->copy_columns;
        two.column_dilation = 1;
        two.right = 1; /* there may be no second pixel */
        tvm_ext_helium_copy_window(image, &two, image->channels, patch, input, h, w);
        return;
    }
    const int32_t bytes = tvm_ext_helium_group_bytes(layer);
    const int32_t depth = layer->depth;
    const int32_t top = (h * window->row_stride) - window->top;
    const int32_t left = (w * window->column_stride) - window->left;
    const tvm_ext_taps rows = tvm_ext_row_taps(window, image, top);
    const tvm_ext_taps taps = tvm_ext_column_taps(window, image, left);
    if (rows.begin > 0 || taps.begin > 0 || rows.end < window->rows || taps.end < window->columns) {
        const int32_t zero_point = image->zero_point - (image->is_unsigned ? 128 : 0);
        tvm_ext_fill_i8(patch, (int8_t)zero_point, layer->groups * bytes);
    }
    for (int32_t r = rows.begin; r < rows.end; ++r) {
        const int32_t row = tvm_ext_row(image, 0, top + (r * window->row_dilation));
        const uint8_t *const from = &input[row + (left * image->channels)];
        int8_t *const to = &patch[r * window->columns * depth];
        for (int32_t s = taps.begin; s < taps.end; ++s) {
            const uint8_t *const tap = &from[s * window->column_dilation * image->channels];
            for (int32_t g = 0; g < layer->groups; ++g) {
                tvm_ext_helium_copy(image, &to[(g * bytes) + (s * depth)], &tap[g * depth], depth);
            }
        }
    }
}

/* Adds all products of a block of channels to the sums of two windows; returns the weights of the next block. */
TVM_EXT_INLINE const int8_t *tvm_ext_helium_add_words(const tvm_ext_helium_product *product, tvm_ext_i32x4 *sums,
                                                      const int8_t *x0, const int8_t *x1, const int32_t *places,
                                                      const int8_t *weights)
{
    const int32_t group = product->group_steps;
    for (int32_t s = 0; s < product->steps / group; ++s) {
        TVM_EXT_GATHERED_2X4(group, x0, x1, places, weights, sums[0], sums[1]);
    }
    if (product->steps % group > 0) {
        TVM_EXT_GATHERED_2X4(product->steps % group, x0, x1, places, weights, sums[0], sums[1]);
    }
    return weights;
}

/* A tvm_ext_helium_groups_two, which the function of each layer calls. */
TVM_EXT_INLINE void tvm_ext_helium_groups_pixels(const tvm_ext_helium_groups_layer *layer, const int8_t *x0,
                                                 const int8_t *x1, const int32_t *places, uint8_t *y0, uint8_t *y1,
                                                 const int8_t *restrict weights, const int32_t *restrict factors)
{
    const tvm_ext_helium_product *const product = &layer->product;
    const int32_t bytes = layer->copy_columns > 0 ? layer->depth : tvm_ext_helium_group_bytes(layer);
    const int8_t *filter = weights;
    for (int32_t g = 0; g < layer->groups; ++g) {
        for (int32_t rest = product->channels; rest > 0; rest -= TVM_EXT_HELIUM_BLOCK) {
            tvm_ext_i32x4 sums[2];
            sums[0] = tvm_ext_i32x4_load(factors);
            sums[1] = sums[0];
            filter = layer->copy_columns > 0 ? tvm_ext_helium_add_words(product, sums, x0, x1, places, filter)
                                             : tvm_ext_helium_add_row(product, sums, x0, x1, 0, filter, 2);
            tvm_ext_helium_store_block(product, sums, y0, y1, factors, rest, 2);
            factors += TVM_EXT_HELIUM_FACTORS;
            y0 += TVM_EXT_MIN(rest, TVM_EXT_HELIUM_BLOCK);
            y1 += TVM_EXT_MIN(rest, TVM_EXT_HELIUM_BLOCK);
        }
        x0 += bytes;
        x1 += bytes;
    }
}

/* Computes output rows [row_begin, row_end) of all images. The last of an odd number of columns is a pair with itself.
 *
 * places: of the words in the image, then in a copy. scratch: the copies of two pixels. */
TVM_EXT_INLINE void tvm_ext_helium_groups(const tvm_ext_helium_groups_layer *layer, tvm_ext_helium_groups_two *two,
                                          tvm_ext_helium_patch *copy, const void *input, void *output,
                                          const int8_t *restrict weights, const int32_t *restrict factors,
                                          const int32_t *restrict places, void *scratch, int32_t row_begin,
                                          int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const tvm_ext_window *const window = &layer->window;
    const int32_t step = window->column_stride * source->channels;
    const bool is_aligned = (uintptr_t)input % 4 == 0; /* gathered words must be */
    int8_t *const copies = (int8_t *)scratch;
    for (int32_t n = 0; n < made->images; ++n) {
        const uint8_t *const image = &((const uint8_t *)input)[n * source->rows * source->columns * source->channels];
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const bool is_inside = is_aligned && tvm_ext_helium_has_all_rows(source, window, top);
            const int32_t begin = is_inside ? layer->inside_begin : made->columns;
            uint8_t *const row = (uint8_t *)tvm_ext_target(made, output, tvm_ext_row(made, n, h));
            for (int32_t w = 0; w < made->columns; w += 2) {
                const int32_t next = TVM_EXT_MIN(w + 1, made->columns - 1);
                uint8_t *const y0 = &row[w * made->pitch];
                uint8_t *const y1 = &row[next * made->pitch];
                if (w >= begin && next < layer->inside_end) {
                    const int32_t left = ((w * window->column_stride) - window->left) * source->channels;
                    const int8_t *const x = (const int8_t *)&image[tvm_ext_row(source, 0, top) + left];
                    two(x, &x[(next - w) * step], places, y0, y1, weights, factors);
                } else {
                    int8_t *const second = &copies[(next - w) * tvm_ext_helium_next_copy(layer)];
                    copy(copies, image, h, w);
                    if (layer->copy_columns == 0) {
                        copy(second, image, h, next);
                    }
                    two(copies, second, &places[4 * layer->product.steps], y0, y1, weights, factors);
                }
            }
        }
    }
}

#endif
