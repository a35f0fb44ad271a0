/* Inner products of a few pixels with all output channels, 32 channels in a vector of accumulators.
 *
 * An instruction multiplies four elements of a pixel with four weights of 32 channels. It takes unsigned weights, so
 * weights are stored plus 128, and 128 times the sum of a pixel's elements is subtracted from its accumulators. */
#ifndef TVM_EXT_HVX_PRODUCT_H
#define TVM_EXT_HVX_PRODUCT_H

#include "tvm_ext_hvx.h"
#include "tvm_ext_hvx_requantize.h"

enum {
    TVM_EXT_HVX_PIXELS = 4, /* computed together */
    TVM_EXT_HVX_EIGHT = 8   /* elements that the inner loop reads at once */
};

/* sums: words[pixels][groups][32]. elements: of each pixel, a multiple of 8, at addresses that are multiples of 8.
 * weights: uint8[groups][depth / 4][32][4]. */
typedef struct {
    int32_t *sums;
    const uint8_t *const *elements;
    const uint8_t *weights;
    const int32_t *factors;
    int32_t depth;
    int32_t groups;
} tvm_ext_hvx_product_task;

/* Sums the products of `pixels` pixels with `count` groups of channels from `group` on. */
TVM_EXT_INLINE void tvm_ext_hvx_product_groups(const tvm_ext_hvx_product_task *task, int32_t group,
                                               const int32_t pixels, const int32_t count, bool is_unsigned)
{
    const int32_t group_bytes = task->depth * TVM_EXT_HVX_WORDS;
    const uint8_t *weights = &task->weights[group * group_bytes];
    tvm_ext_hvx sums[TVM_EXT_HVX_PIXELS][2];
    int64_t totals[TVM_EXT_HVX_PIXELS];
    TVM_EXT_HVX_UNROLL for (int32_t p = 0; p < pixels; ++p)
    {
        totals[p] = 0;
        TVM_EXT_HVX_UNROLL for (int32_t g = 0; g < count; ++g)
        {
            sums[p][g] = tvm_ext_hvx_starts(task->factors, group + g);
        }
    }
    for (int32_t c = 0; c < task->depth; c += TVM_EXT_HVX_EIGHT) {
        tvm_ext_hvx first[2];
        tvm_ext_hvx second[2];
        TVM_EXT_HVX_UNROLL for (int32_t g = 0; g < count; ++g)
        {
            first[g] = tvm_ext_hvx_load(&weights[g * group_bytes]);
            second[g] = tvm_ext_hvx_load(&weights[(g * group_bytes) + TVM_EXT_HVX_BYTES]);
        }
        TVM_EXT_HVX_UNROLL for (int32_t p = 0; p < pixels; ++p)
        {
            const int64_t eight = tvm_ext_hvx_eight(&task->elements[p][c]);
            totals[p] = tvm_ext_hvx_add_eight(totals[p], eight, is_unsigned);
            TVM_EXT_HVX_UNROLL for (int32_t g = 0; g < count; ++g)
            {
                sums[p][g] = tvm_ext_hvx_dot(sums[p][g], first[g], (int32_t)eight, is_unsigned);
                sums[p][g] = tvm_ext_hvx_dot(sums[p][g], second[g], (int32_t)(eight >> 32), is_unsigned);
            }
        }
        weights += 2 * TVM_EXT_HVX_BYTES;
    }
    TVM_EXT_HVX_UNROLL for (int32_t p = 0; p < pixels; ++p)
    {
        const int32_t total = (int32_t)totals[p] + (int32_t)(totals[p] >> 32);
        const tvm_ext_hvx surplus = tvm_ext_hvx_words((int32_t)((uint32_t)total * 128u));
        TVM_EXT_HVX_UNROLL for (int32_t g = 0; g < count; ++g)
        {
            int32_t *const words = &task->sums[((p * task->groups) + group + g) * TVM_EXT_HVX_WORDS];
            tvm_ext_hvx_store(words, tvm_ext_hvx_sub(sums[p][g], surplus));
        }
    }
}

/* Defines the products of PIXELS pixels with all groups, two groups at a time. */
#define TVM_EXT_HVX_DEFINE_PRODUCT(NAME, PIXELS, IS_UNSIGNED)                              \
    TVM_EXT_HVX_SHARED void tvm_ext_hvx_product_##NAME(const tvm_ext_hvx_product_task *task) \
    {                                                                                      \
        int32_t group = 0;                                                                 \
        for (; group + 2 <= task->groups; group += 2) {                                    \
            tvm_ext_hvx_product_groups(task, group, PIXELS, 2, IS_UNSIGNED);               \
        }                                                                                  \
        if (group < task->groups) {                                                        \
            tvm_ext_hvx_product_groups(task, group, PIXELS, 1, IS_UNSIGNED);               \
        }                                                                                  \
    }
TVM_EXT_HVX_DEFINE_PRODUCT(s8, TVM_EXT_HVX_PIXELS, false)
TVM_EXT_HVX_DEFINE_PRODUCT(u8, TVM_EXT_HVX_PIXELS, true)
TVM_EXT_HVX_DEFINE_PRODUCT(one_s8, 1, false)
TVM_EXT_HVX_DEFINE_PRODUCT(one_u8, 1, true)

/* Sums the products of four pixels, or of one. */
TVM_EXT_INLINE void tvm_ext_hvx_product(const tvm_ext_hvx_product_task *task, int32_t pixels, bool is_unsigned)
{
    if (pixels == 1) {
        (is_unsigned ? tvm_ext_hvx_product_one_u8 : tvm_ext_hvx_product_one_s8)(task);
    } else {
        (is_unsigned ? tvm_ext_hvx_product_u8 : tvm_ext_hvx_product_s8)(task);
    }
}

#endif
