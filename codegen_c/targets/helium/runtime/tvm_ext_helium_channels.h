/* All output channels of one row of bytes, or of two, by Helium: four channels at a time, 16 products at a time.
 *
 * A row is a vector, or a window of an image: one run of bytes, or several of equal length. Weights are packed block
 * after block of four channels, 16 bytes of each channel in turn, or for 4 bits 16 bytes of each two; rows and
 * weights are padded to whole steps of 16 bytes. Factors are four initial sums, multipliers and shifts of each
 * block. */
#ifndef TVM_EXT_HELIUM_CHANNELS_H
#define TVM_EXT_HELIUM_CHANNELS_H

#include "tvm_ext_helium_product.h"
#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_HELIUM_BLOCK 4 /* channels */
#define TVM_EXT_HELIUM_STEP 16 /* bytes */
#define TVM_EXT_HELIUM_FACTORS (3 * TVM_EXT_HELIUM_BLOCK)

typedef struct {
    int32_t runs;        /* in a row */
    int32_t steps;       /* in a run */
    int32_t group_steps; /* unrolled; of all runs if it covers all of their steps */
    int32_t channels;
    bool has_nibbles;    /* weights of 4 bits, otherwise of 8 */
    bool holds_sums;     /* the output: 32-bit sums, before requantization */
    tvm_ext_helium_rescale rescale;
} tvm_ext_helium_product;

/* Computes all channels of two rows, whose results go to y0 and y1. skip: bytes from the end of a run to the next
 * one. It is not inlined, so that it has all registers to itself; compilers call it directly. */
typedef void tvm_ext_helium_two(const int8_t *x0, const int8_t *x1, int32_t skip, uint8_t *y0, uint8_t *y1,
                                const int8_t *restrict weights, const int32_t *restrict factors);

/* Computes all channels of one row, whose results go to y0. */
typedef void tvm_ext_helium_one(const int8_t *x0, uint8_t *y0, const int8_t *restrict weights,
                                const int32_t *restrict factors);

/* Returns the bytes of an element of the output, or of a sum. */
TVM_EXT_INLINE int32_t tvm_ext_helium_output_bytes(const tvm_ext_helium_product *product)
{
    return product->holds_sums ? 4 : 1;
}

/* Returns the bytes of a row, padded. */
TVM_EXT_INLINE int32_t tvm_ext_helium_row_bytes(const tvm_ext_helium_product *product)
{
    return product->runs * product->steps * TVM_EXT_HELIUM_STEP;
}

/* Adds `runs` runs of `steps` steps of one row or two to their sums; returns the weights after them. Both numbers
 * are constants at the call. */
TVM_EXT_INLINE const int8_t *tvm_ext_helium_add(tvm_ext_i32x4 *sums, const int8_t *x0, const int8_t *x1, int32_t skip,
                                                const int8_t *weights, int32_t runs, int32_t steps, int32_t rows,
                                                bool has_nibbles)
{
    if (has_nibbles && rows > 1) {
        TVM_EXT_DOTS_2X4_S4(runs, steps, x0, x1, skip, weights, sums[0], sums[1]);
    } else if (has_nibbles) {
        TVM_EXT_DOTS_1X4_S4(runs, steps, x0, skip, weights, sums[0]);
    } else if (rows > 1) {
        TVM_EXT_DOTS_2X4(runs, steps, x0, x1, skip, weights, sums[0], sums[1]);
    } else {
        TVM_EXT_DOTS_1X4(runs, steps, x0, skip, weights, sums[0]);
    }
    return weights;
}

/* Adds all products of one block of channels to the sums of one row or two; returns the weights of the next block. */
TVM_EXT_INLINE const int8_t *tvm_ext_helium_add_row(const tvm_ext_helium_product *product, tvm_ext_i32x4 *sums,
                                                    const int8_t *x0, const int8_t *x1, int32_t skip,
                                                    const int8_t *weights, int32_t rows)
{
    const int32_t group = product->group_steps;
    if (group == product->runs * product->steps) {
        const int32_t jump = product->runs > 1 ? skip : 0;
        return tvm_ext_helium_add(sums, x0, x1, jump, weights, product->runs, product->steps, rows,
                                  product->has_nibbles);
    }
    const int32_t rest = product->steps % group;
    for (int32_t r = 0; r < product->runs; ++r) {
        for (int32_t s = 0; s < product->steps / group; ++s) {
            weights = tvm_ext_helium_add(sums, x0, x1, 0, weights, 1, group, rows, product->has_nibbles);
            x0 += group * TVM_EXT_HELIUM_STEP;
            x1 += group * TVM_EXT_HELIUM_STEP;
        }
        if (rest > 0) {
            weights = tvm_ext_helium_add(sums, x0, x1, 0, weights, 1, rest, rows, product->has_nibbles);
        }
        x0 += (rest * TVM_EXT_HELIUM_STEP) + skip;
        x1 += (rest * TVM_EXT_HELIUM_STEP) + skip;
    }
    return weights;
}

/* Requantizes the sums of a block of channels of one row or two, or stores them. rest: channels from the block's
 * first one on. */
TVM_EXT_INLINE void tvm_ext_helium_store_block(const tvm_ext_helium_product *product, const tvm_ext_i32x4 *sums,
                                               uint8_t *y0, uint8_t *y1, const int32_t *factors, int32_t rest,
                                               int32_t rows)
{
    const bool is_whole = product->channels % TVM_EXT_HELIUM_BLOCK == 0;
    const int32_t count = is_whole ? TVM_EXT_HELIUM_BLOCK : rest;
    if (product->holds_sums) {
        tvm_ext_i32x4_store_some((int32_t *)(void *)y0, sums[0], count);
        if (rows > 1) {
            tvm_ext_i32x4_store_some((int32_t *)(void *)y1, sums[1], count);
        }
        return;
    }
    const tvm_ext_i32x4 multiplier = tvm_ext_i32x4_load(&factors[TVM_EXT_HELIUM_BLOCK]);
    const tvm_ext_i32x4 shift = tvm_ext_i32x4_load(&factors[2 * TVM_EXT_HELIUM_BLOCK]);
    const tvm_ext_i32x4 first = tvm_ext_helium_rescaled(&product->rescale, sums[0], multiplier, shift);
    const tvm_ext_i32x4 second =
        rows > 1 ? tvm_ext_helium_rescaled(&product->rescale, sums[1], multiplier, shift) : first;
    const tvm_ext_i16x8 results = tvm_ext_helium_pairs(&product->rescale, tvm_ext_i16x8_narrow(first, second));
    tvm_ext_i16x8_store_even(y0, results, count);
    if (rows > 1) {
        tvm_ext_i16x8_store_odd(y1, results, count);
    }
}

/* Computes all channels of `rows` rows, 1 or 2. For one row, x1 and y1 are the first row again. Results are counted
 * down, and their addresses are incremented, because the sums leave few registers. */
TVM_EXT_INLINE void tvm_ext_helium_channels(const tvm_ext_helium_product *product, const int8_t *x0, const int8_t *x1,
                                            int32_t skip, uint8_t *y0, uint8_t *y1, const int8_t *restrict weights,
                                            const int32_t *restrict factors, int32_t rows)
{
    const int8_t *filter = weights;
    const int32_t *factor = factors;
    const int32_t block_bytes = TVM_EXT_HELIUM_BLOCK * tvm_ext_helium_output_bytes(product);
    for (int32_t rest = product->channels; rest > 0; rest -= TVM_EXT_HELIUM_BLOCK) {
        tvm_ext_i32x4 sums[2];
        sums[0] = tvm_ext_i32x4_load(factor);
        sums[1] = sums[0];
        filter = tvm_ext_helium_add_row(product, sums, x0, x1, skip, filter, rows);
        tvm_ext_helium_store_block(product, sums, y0, y1, factor, rest, rows);
        factor += TVM_EXT_HELIUM_FACTORS;
        y0 += block_bytes;
        y1 += block_bytes;
    }
}

/* Copies elements as int8; uint8 is converted. */
TVM_EXT_INLINE void tvm_ext_helium_copy(const tvm_ext_image *image, int8_t *target, const uint8_t *source,
                                        int32_t count)
{
    if (image->is_unsigned) {
        tvm_ext_copy_u8(target, source, count);
    } else {
        tvm_ext_copy_i8(target, source, count);
    }
}

#endif
