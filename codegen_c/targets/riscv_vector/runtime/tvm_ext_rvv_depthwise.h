/* Depthwise convolution of quantized images with RISC-V's vectors: vectors of channels of one output pixel at a time,
 * or of adjacent pixels with few channels.
 *
 * A tap is read in place, or from a pixel of zero points if it lies outside the image; the initial accumulators correct
 * for the zero points. */
#ifndef TVM_EXT_RVV_DEPTHWISE_H
#define TVM_EXT_RVV_DEPTHWISE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_pairs.h"
#include "tvm_ext_rvv_requantize.h"
#include "tvm_ext_taps.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    tvm_ext_window window;
    int32_t inside_begin; /* output columns [begin, end) whose windows lie in columns of the image */
    int32_t inside_end;
    bool has_pairs;  /* taps are multiplied in pairs */
    bool is_short;   /* rows of weights have at most 16 numbers */
    int32_t repeats; /* adjacent pixels that are computed together, and copies of weights and factors for them */
    tvm_ext_rvv_rescale requantize;
} tvm_ext_rvv_depthwise_layer;

/* Sums all channels of one output pixel. offset: elements from the address of each tap to the element to read. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_DEPTHWISE(SUFFIX, TYPE, WIDEN)                                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_##SUFFIX(int32_t *sums, const uint8_t *const *taps, int32_t count, \
                                                           int32_t offset, const int8_t *weights,                \
                                                           const int32_t *starts, int32_t channels)              \
    {                                                                                                            \
        for (intptr_t k = 0; k < channels;) {                                                                    \
            intptr_t length;                                                                                     \
            const uint8_t *x;                                                                                    \
            const uint8_t *const *tap = taps;                                                                    \
            const int8_t *w = &weights[k];                                                                       \
            __asm__ volatile(TVM_EXT_RVV_BEGIN "vsetvli %[length], %[left], e16, m4, ta, ma\n\t"                 \
                                               "vle32.v v0, (%[starts])\n"                                       \
                                               "1:\n\t"                                                          \
                                               TVM_EXT_RVV_LOAD("x", "0", "tap")                                 \
                                               "vle8.v v8, (%[w])\n\t"                                           \
                                               "addi %[tap], %[tap], " TVM_EXT_RVV_ADDRESS_BYTES "\n\t"          \
                                               "add %[x], %[x], %[offset]\n\t"                                   \
                                               "vle8.v v10, (%[x])\n\t"                                          \
                                               "add %[w], %[w], %[step]\n\t"                                     \
                                               "vsext.vf2 v12, v8\n\t" WIDEN " v16, v10\n\t"                     \
                                               "vwmacc.vv v0, v12, v16\n\t"                                      \
                                               "bne %[tap], %[end], 1b\n\t"                                      \
                                               "vse32.v v0, (%[sums])\n\t" TVM_EXT_RVV_END                       \
                             : [length] "=&r"(length), [x] "=&r"(x), [tap] "+&r"(tap), [w] "+&r"(w)              \
                             : [left] "r"(channels - k), [starts] "r"(&starts[k]), [offset] "r"(offset + k),     \
                               [step] "r"((intptr_t)channels), [end] "r"(&taps[count]), [sums] "r"(&sums[k])     \
                             : "memory" TVM_EXT_RVV_CHANGED);                                                    \
            k += length;                                                                                         \
        }                                                                                                        \
    }
#else
#define TVM_EXT_RVV_DEFINE_DEPTHWISE(SUFFIX, TYPE, WIDEN)                                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_##SUFFIX(int32_t *sums, const uint8_t *const *taps, int32_t count, \
                                                           int32_t offset, const int8_t *weights,                \
                                                           const int32_t *starts, int32_t channels)              \
    {                                                                                                            \
        for (int32_t k = 0; k < channels; ++k) {                                                                 \
            uint32_t sum = (uint32_t)starts[k];                                                                  \
            for (int32_t t = 0; t < count; ++t) {                                                                \
                const int32_t element = ((const TYPE *)taps[t])[offset + k];                                     \
                sum += (uint32_t)(element * weights[(t * channels) + k]);                                        \
            }                                                                                                    \
            sums[k] = (int32_t)sum;                                                                              \
        }                                                                                                        \
    }
#endif
TVM_EXT_RVV_DEFINE_DEPTHWISE(s8, int8_t, "vsext.vf2")
TVM_EXT_RVV_DEFINE_DEPTHWISE(u8, uint8_t, "vzext.vf2")

/* Task in pairs of taps: `count` results, of the channels of one pixel or of adjacent pixels. Rows of weights and
 * factors have `pitch` numbers, in which those of the channels are repeated. */
typedef struct {
    uint8_t *output;
    const uint8_t *const *taps;
    int32_t num_taps;
    int32_t offset;
    const int8_t *weights;
    const int32_t *factors;
    int32_t pitch;
    int32_t count;
    const tvm_ext_rvv_rescale *requantize;
} tvm_ext_rvv_depthwise_task;

/* Computes and requantizes results, two taps at a time: their products are added in 16 bits, which the weights must
 * allow (tvm_ext_rvv_pairs.h). Groups of registers: BYTES for elements of 8 bits, HALVES and WORDS for wider ones. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(SUFFIX, ROUND, BYTES, HALVES, WORDS)                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_pairs_##SUFFIX##_##ROUND(const tvm_ext_rvv_depthwise_task *task)     \
    {                                                                                                                  \
        for (intptr_t k = 0; k < task->count;) {                                                                       \
            intptr_t length, a, b, c, d, e;                                                                            \
            const uint8_t *const *tap = task->taps;                                                                    \
            const int8_t *w = &task->weights[k];                                                                       \
            const tvm_ext_rvv_rescale *const by = task->requantize;                                                    \
            const int32_t *const starts = &task->factors[k];                                                           \
            const tvm_ext_rvv_finish finish = {starts,         &starts[task->pitch], &starts[2 * task->pitch],         \
                                               by->left_shift, by->zero_point,       by->low,                          \
                                               by->high};                                                              \
            __asm__ volatile(                                                                                          \
                TVM_EXT_RVV_BEGIN "csrwi vxrm, 0\n\t"                                                                  \
                                  "vsetvli %[length], %[left], e8, " BYTES ", ta, ma\n\t"                              \
                                  TVM_EXT_RVV_LOAD("a", "0", "finish")                                                 \
                                  "vle32.v v0, (%[a])\n\t"                                                             \
                                  "beq %[tap], %[pairs], 2f\n"                                                         \
                                  "1:\n\t"                                                                             \
                                  TVM_EXT_RVV_LOAD("a", "0", "tap")                                                    \
                                  TVM_EXT_RVV_LOAD("b", "1", "tap")                                                    \
                                  "addi %[tap], %[tap], 2*" TVM_EXT_RVV_ADDRESS_BYTES "\n\t"                           \
                                  "add %[a], %[a], %[offset]\n\t"                                                      \
                                  "vle8.v v10, (%[w])\n\t"                                                             \
                                  "add %[w], %[w], %[step]\n\t"                                                        \
                                  "vle8.v v8, (%[a])\n\t"                                                              \
                                  "add %[b], %[b], %[offset]\n\t"                                                      \
                                  "vle8.v v14, (%[w])\n\t"                                                             \
                                  "add %[w], %[w], %[step]\n\t"                                                        \
                                  "vle8.v v12, (%[b])\n\t"                                                             \
                                  "vwmul.vv v16, v8, v10\n\t"                                                          \
                                  "vwmacc.vv v16, v12, v14\n\t" TVM_EXT_RVV_PAIR_TYPE("e16", HALVES)                   \
                                      "vwadd.wv v0, v0, v16\n\t" TVM_EXT_RVV_PAIR_TYPE("e8", BYTES)                    \
                "bne %[tap], %[pairs], 1b\n"                                                                           \
                "2:\n\t"                                                                                               \
                "beq %[tap], %[end], 3f\n\t"                                                                           \
                TVM_EXT_RVV_LOAD("a", "0", "tap")                                                                      \
                "vle8.v v10, (%[w])\n\t"                                                                               \
                "add %[a], %[a], %[offset]\n\t"                                                                        \
                "vle8.v v8, (%[a])\n\t"                                                                                \
                "vwmul.vv v16, v8, v10\n\t" TVM_EXT_RVV_PAIR_TYPE("e16", HALVES)                                       \
                "vwadd.wv v0, v0, v16\n"                                                                               \
                "3:\n\t"                                                                                               \
                TVM_EXT_RVV_LOAD("a", "1", "finish")                                                                   \
                TVM_EXT_RVV_LOAD("b", "2", "finish") TVM_EXT_RVV_PAIR_TYPE("e32", WORDS)                               \
                "vle32.v v16, (%[a])\n\t"                                                                              \
                "vle32.v v24, (%[b])\n\t"                                                                              \
                TVM_EXT_RVV_LOAD("b", "3", "finish")                                                                   \
                TVM_EXT_RVV_LOAD("c", "4", "finish")                                                                   \
                TVM_EXT_RVV_LOAD("d", "5", "finish")                                                                   \
                TVM_EXT_RVV_LOAD("e", "6", "finish") TVM_EXT_RVV_REQUANTIZE("v0", "v16", ROUND, BYTES, HALVES)         \
                "vse8.v v0, (%[output])\n\t" TVM_EXT_RVV_END                                                           \
                : [length] "=&r"(length), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [e] "=&r"(e),        \
                  [tap] "+&r"(tap), [w] "+&r"(w)                                                                       \
                : [left] "r"(task->count - k), [finish] "r"(&finish), [offset] "r"(task->offset + k),                  \
                  [step] "r"((intptr_t)task->pitch), [pairs] "r"(&task->taps[task->num_taps / 2 * 2]),                 \
                  [end] "r"(&task->taps[task->num_taps]), [output] "r"(&task->output[k])                               \
                : "memory" TVM_EXT_RVV_CHANGED);                                                                       \
            k += length;                                                                                               \
        }                                                                                                              \
    }
#else
#define TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(SUFFIX, ROUND, BYTES, HALVES, WORDS)                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_depthwise_pairs_##SUFFIX##_##ROUND(const tvm_ext_rvv_depthwise_task *task)     \
    {                                                                                                                  \
        for (int32_t k = 0; k < task->count; ++k) {                                                                    \
            uint32_t sum = (uint32_t)task->factors[k];                                                                 \
            for (int32_t t = 0; t < task->num_taps; ++t) {                                                             \
                const int32_t element = ((const int8_t *)task->taps[t])[task->offset + k];                             \
                sum += (uint32_t)(element * task->weights[(t * task->pitch) + k]);                                     \
            }                                                                                                          \
            const int32_t total = (int32_t)sum;                                                                        \
            tvm_ext_rvv_requantize(task->requantize, &task->output[k], &total, &task->factors[k], task->pitch, 1);     \
        }                                                                                                              \
    }
#endif
TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(short, once, "m1", "m2", "m4")
TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(short, twice, "m1", "m2", "m4")
TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(long, once, "m2", "m4", "m8")
TVM_EXT_RVV_DEFINE_DEPTHWISE_PAIRS(long, twice, "m2", "m4", "m8")

/* Computes the results of a task. */
TVM_EXT_INLINE void tvm_ext_rvv_depthwise_in_pairs(bool is_short, bool rounds_twice,
                                                   const tvm_ext_rvv_depthwise_task *task)
{
    if (rounds_twice) {
        if (is_short) {
            tvm_ext_rvv_depthwise_pairs_short_twice(task);
        } else {
            tvm_ext_rvv_depthwise_pairs_long_twice(task);
        }
    } else if (is_short) {
        tvm_ext_rvv_depthwise_pairs_short_once(task);
    } else {
        tvm_ext_rvv_depthwise_pairs_long_once(task);
    }
}

/* Computes output rows [row_begin, row_end) of all images by one method. Adjacent pixels whose windows lie inside the
 * image share the addresses of the taps; only the offset changes. */
TVM_EXT_INLINE void tvm_ext_rvv_depthwise_rows(const tvm_ext_rvv_depthwise_layer *layer, const uint8_t **taps,
                                               const void *input, void *output, const int8_t *weights,
                                               const int32_t *factors, void *scratch, int32_t row_begin,
                                               int32_t row_end, tvm_ext_rvv_method method)
{
    const bool has_pairs = method != TVM_EXT_RVV_SINGLE_TAPS;
    const tvm_ext_window *const window = &layer->window;
    const int32_t channels = layer->output.channels;
    const int32_t count = window->rows * window->columns;
    int32_t *const sums = (int32_t *)scratch;
    uint8_t *const padding = has_pairs ? (uint8_t *)scratch : (uint8_t *)&sums[channels];
    const int32_t repeats = layer->output.pitch == channels ? layer->repeats : 1;
#if !TVM_EXT_RVV
    /* The first pixel of a row sets the addresses. Compilers that inline the plain C loops cannot see this and
     * would warn of uninitialized variables. */
    for (int32_t t = 0; t < count; ++t) {
        taps[t] = padding;
    }
#endif
    if (tvm_ext_is_padded(window)) {
        tvm_ext_rvv_fill(padding, layer->input.zero_point, channels);
    }
    for (int32_t n = 0; n < layer->output.images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int32_t top = (h * window->row_stride) - window->top;
            const bool has_all_rows = top >= 0 && top + ((window->rows - 1) * window->row_dilation) < layer->input.rows;
            uint8_t *const row = &((uint8_t *)output)[tvm_ext_row(&layer->output, n, h)];
            for (int32_t w = 0; w < layer->output.columns;) {
                const bool is_inside = has_all_rows && w >= layer->inside_begin && w < layer->inside_end;
                const int32_t left = (w * window->column_stride) - window->left;
                const int32_t pixels = !is_inside                        ? 1
                                       : repeats < layer->inside_end - w ? repeats
                                                                         : layer->inside_end - w;
                int32_t offset = 0;
                if (is_inside && w > layer->inside_begin) {
                    offset = (w - layer->inside_begin) * window->column_stride * channels;
                } else {
                    tvm_ext_find_taps(window, &layer->input, taps, (const uint8_t *)input, padding, n, top, left);
                }
                uint8_t *const elements = &row[w * layer->output.pitch];
                if (has_pairs) {
                    const tvm_ext_rvv_depthwise_task task = {elements,
                                                             taps,
                                                             count,
                                                             offset,
                                                             weights,
                                                             factors,
                                                             layer->repeats * channels,
                                                             pixels * channels,
                                                             &layer->requantize};
                    tvm_ext_rvv_depthwise_in_pairs(layer->is_short, method == TVM_EXT_RVV_PAIRS_TWICE, &task);
                } else {
                    const int32_t *const starts = &factors[TVM_EXT_RVV_STARTS * channels];
                    if (layer->input.is_unsigned) {
                        tvm_ext_rvv_depthwise_u8(sums, taps, count, offset, weights, starts, channels);
                    } else {
                        tvm_ext_rvv_depthwise_s8(sums, taps, count, offset, weights, starts, channels);
                    }
                    tvm_ext_rvv_requantize(&layer->requantize, elements, sums, factors, channels, channels);
                }
                w += pixels;
            }
        }
    }
}

#define TVM_EXT_RVV_DEFINE_DEPTHWISE_ROWS(NAME, METHOD)                                                                \
    TVM_EXT_RVV_LOOPS void NAME(const tvm_ext_rvv_depthwise_layer *layer, const uint8_t **taps, const void *input,     \
                                 void *output, const int8_t *weights, const int32_t *factors, void *scratch,           \
                                 int32_t row_begin, int32_t row_end)                                                   \
    {                                                                                                                  \
        tvm_ext_rvv_depthwise_rows(layer, taps, input, output, weights, factors, scratch, row_begin, row_end, METHOD); \
    }
TVM_EXT_RVV_DEFINE_DEPTHWISE_ROWS(tvm_ext_rvv_depthwise_single, TVM_EXT_RVV_SINGLE_TAPS)
TVM_EXT_RVV_DEFINE_DEPTHWISE_ROWS(tvm_ext_rvv_depthwise_once, TVM_EXT_RVV_PAIRS_ONCE)
TVM_EXT_RVV_DEFINE_DEPTHWISE_ROWS(tvm_ext_rvv_depthwise_twice, TVM_EXT_RVV_PAIRS_TWICE)

/* Computes output rows [row_begin, row_end) of all images. taps: space for the addresses of a window's taps. scratch:
 * accumulators of a pixel, unless taps are multiplied in pairs; then, with padding, a pixel of zero points. */
TVM_EXT_INLINE void tvm_ext_rvv_depthwise(const tvm_ext_rvv_depthwise_layer *layer, const uint8_t **taps,
                                          const void *input, void *output, const int8_t *weights,
                                          const int32_t *factors, void *scratch, int32_t row_begin, int32_t row_end)
{
    if (!layer->has_pairs) {
        tvm_ext_rvv_depthwise_single(layer, taps, input, output, weights, factors, scratch, row_begin, row_end);
    } else if (layer->requantize.rounds_twice) {
        tvm_ext_rvv_depthwise_twice(layer, taps, input, output, weights, factors, scratch, row_begin, row_end);
    } else {
        tvm_ext_rvv_depthwise_once(layer, taps, input, output, weights, factors, scratch, row_begin, row_end);
    }
}

#endif
