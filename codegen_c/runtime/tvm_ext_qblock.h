/* Blocks of one to four channels of quantized layers: sums begin with a bias, add products, and become elements.
 *
 * Sums have 32 bits, or 64 if 32 do not suffice: then products of a few elements are added in 32 bits and carried
 * over. */
#ifndef TVM_EXT_QBLOCK_H
#define TVM_EXT_QBLOCK_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_litert.h"
#include "tvm_ext_requantize_tflite.h"

#define TVM_EXT_QBLOCK 4

/* Elements of a pixel from which a loop over them is kept: unrolled, they would be held on the stack for all
 * channels of the pixel, which takes more instructions than loading them again. */
#define TVM_EXT_QBLOCK_ROLLED 8

#if defined(__GNUC__) && !defined(__clang__)
#define TVM_EXT_NOT_UNROLLED _Pragma("GCC unroll 1")
#else
#define TVM_EXT_NOT_UNROLLED
#endif

/* Elements whose products are added in 32 bits before they are carried over to 64-bit sums: 128 * 2^16 * 2^7 = 2^30. */
#define TVM_EXT_QBLOCK_PIECE 128

/* Requantization of sums to elements of the output: a factor multiplier / 2^shift, then the zero point, then bounds. */
typedef struct {
    bool is_wide;         /* sums and biases have 64 bits, otherwise 32 */
    bool rounds_twice;    /* as in TensorFlow Lite with 32-bit sums; otherwise once */
    bool in_floats;       /* as in LiteRT; multipliers are the bits of float32 factors */
    bool rounds_up;       /* once, halves up, as in TensorFlow Lite with 64-bit sums; otherwise halves to even */
    bool by_high_product; /* shifts are of high products, by one less; the generator has proved that it rounds the same
                           */
    int32_t channel_step; /* 1 if each channel has a factor of its own, 0 if all share one */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_rescale;

/* Sums of a block. part: the sums themselves, or for 64-bit sums the part to be carried over to `whole`. */
typedef struct {
    int32_t part[TVM_EXT_QBLOCK];
    int64_t whole[TVM_EXT_QBLOCK];
} tvm_ext_qsums;

/* Returns the quotient of a sum by the high word of its product: by 2^(33 + shift), or by 2^(32 + shift) if it is
 * rounded twice. The first of two roundings rounds a negative sum down, unless a ReLU makes it the least element. */
TVM_EXT_INLINE int32_t tvm_ext_rescaled_by_high_product(const tvm_ext_rescale *layer, int32_t sum, int32_t multiplier,
                                                        int32_t shift)
{
    int32_t high;
    if (layer->rounds_twice) {
        high = tvm_ext_multiply_high(sum, multiplier) + (layer->low >= layer->zero_point ? 0 : sum >> 31);
    } else {
        high = (int32_t)(((int64_t)sum * multiplier) >> 32);
    }
    return ((high >> shift) + 1) >> 1;
}

/* Returns the element of a sum, with the factor of channel k. */
TVM_EXT_INLINE int32_t tvm_ext_rescaled(const tvm_ext_rescale *layer, int64_t sum, const int32_t *restrict multipliers,
                                        const uint8_t *restrict shifts, int32_t k)
{
    const int32_t multiplier = multipliers[k * layer->channel_step];
    const int32_t shift = shifts[k * layer->channel_step];
    int32_t value;
    if (layer->by_high_product) {
        value = tvm_ext_rescaled_by_high_product(layer, (int32_t)sum, multiplier, shift);
    } else if (layer->rounds_twice) {
        value = tvm_ext_requantize_tflite((int32_t)sum, multiplier, shift);
    } else if (layer->in_floats) {
        value = tvm_ext_requantize_litert((int32_t)sum, multiplier, shift);
    } else if (layer->rounds_up) {
        value = tvm_ext_round_shift_up(sum * multiplier, shift);
    } else {
        value = tvm_ext_round_shift(sum * multiplier, shift);
    }
    return tvm_ext_limited(value + layer->zero_point, layer->low, layer->high);
}

/* Copies the sums of a block: initial sums, or sums of an earlier call. */
TVM_EXT_INLINE void tvm_ext_qblock_copy(int32_t *sums, const int32_t *source, int32_t count)
{
    sums[0] = source[0];
    if (count > 1) {
        sums[1] = source[1];
    }
    if (count > 2) {
        sums[2] = source[2];
    }
    if (count > 3) {
        sums[3] = source[3];
    }
}

/* Adds the products of one element minus the zero point and of its weights. */
TVM_EXT_INLINE void tvm_ext_qblock_add_one(int32_t *sums, int32_t value, const int8_t *weights, int32_t count)
{
    sums[0] += value * weights[0];
    if (count > 1) {
        sums[1] += value * weights[1];
    }
    if (count > 2) {
        sums[2] += value * weights[2];
    }
    if (count > 3) {
        sums[3] += value * weights[3];
    }
}

/* Adds the products of `length` elements of a pixel, each minus the zero point, and of the weights of a block.
 *
 * weights: for each element those of the block's channels, adjacent. */
TVM_EXT_INLINE void tvm_ext_qblock_add(int32_t *sums, const tvm_ext_image *image, const void *elements,
                                       int32_t zero_point, const int8_t *weights, int32_t length, int32_t count)
{
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_qblock_add_one(sums, tvm_ext_element(image, elements, c) - zero_point, &weights[c * count], count);
    }
}

/* Returns weight i of 4 bits; the first of two is in the lower bits of a byte. */
TVM_EXT_INLINE int32_t tvm_ext_nibble(const int8_t *bytes, int32_t i)
{
    const int32_t byte = bytes[i / 2];
    return i % 2 == 0 ? ((byte & 15) ^ 8) - 8 : byte >> 4;
}

/* Adds the same products for weights of 4 bits, from weight `first` on. */
TVM_EXT_INLINE void tvm_ext_qblock_add_nibbles(int32_t *sums, const tvm_ext_image *image, const void *elements,
                                               int32_t zero_point, const int8_t *bytes, int32_t first, int32_t length,
                                               int32_t count)
{
    TVM_EXT_NOT_UNROLLED
    for (int32_t c = 0; c < length; ++c) {
        const int32_t value = tvm_ext_element(image, elements, c) - zero_point;
        const int32_t i = first + (c * count);
        sums[0] += value * tvm_ext_nibble(bytes, i);
        if (count > 1) {
            sums[1] += value * tvm_ext_nibble(bytes, i + 1);
        }
        if (count > 2) {
            sums[2] += value * tvm_ext_nibble(bytes, i + 2);
        }
        if (count > 3) {
            sums[3] += value * tvm_ext_nibble(bytes, i + 3);
        }
    }
}

/* tvm_ext_qblock_add in a loop that is not unrolled. */
TVM_EXT_INLINE void tvm_ext_qblock_add_rolled(int32_t *sums, const tvm_ext_image *image, const void *elements,
                                              int32_t zero_point, const int8_t *weights, int32_t length, int32_t count)
{
    TVM_EXT_NOT_UNROLLED
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_qblock_add_one(sums, tvm_ext_element(image, elements, c) - zero_point, &weights[c * count], count);
    }
}

/* Initializes sum i of a block from channel k on. bias: of all channels, 32 or 64 bits each. */
TVM_EXT_INLINE void tvm_ext_qsums_begin_one(const tvm_ext_rescale *layer, tvm_ext_qsums *sums, const void *bias,
                                            int32_t k, int32_t i)
{
    if (layer->is_wide) {
        sums->whole[i] = ((const int64_t *)bias)[k + i];
        sums->part[i] = 0;
    } else {
        sums->part[i] = ((const int32_t *)bias)[k + i];
    }
}

/* Initializes all sums of a block. */
TVM_EXT_INLINE void tvm_ext_qsums_begin(const tvm_ext_rescale *layer, tvm_ext_qsums *sums, const void *bias, int32_t k,
                                        int32_t count)
{
    tvm_ext_qsums_begin_one(layer, sums, bias, k, 0);
    if (count > 1) {
        tvm_ext_qsums_begin_one(layer, sums, bias, k, 1);
    }
    if (count > 2) {
        tvm_ext_qsums_begin_one(layer, sums, bias, k, 2);
    }
    if (count > 3) {
        tvm_ext_qsums_begin_one(layer, sums, bias, k, 3);
    }
}

/* Adds the 32-bit part of sum i to the whole sum, and resets the part. */
TVM_EXT_INLINE void tvm_ext_qsums_carry_one(tvm_ext_qsums *sums, int32_t i)
{
    sums->whole[i] += sums->part[i];
    sums->part[i] = 0;
}

/* Carries over 64-bit sums: at the latest after as many products as 32 bits hold. */
TVM_EXT_INLINE void tvm_ext_qsums_carry(const tvm_ext_rescale *layer, tvm_ext_qsums *sums, int32_t count)
{
    if (layer->is_wide) {
        tvm_ext_qsums_carry_one(sums, 0);
        if (count > 1) {
            tvm_ext_qsums_carry_one(sums, 1);
        }
        if (count > 2) {
            tvm_ext_qsums_carry_one(sums, 2);
        }
        if (count > 3) {
            tvm_ext_qsums_carry_one(sums, 3);
        }
    }
}

/* Adds the products of `length` adjacent elements from an address in an image on, as tvm_ext_qblock_add does.
 *
 * is_rolled: in a loop that is not unrolled. */
TVM_EXT_INLINE void tvm_ext_qsums_add(const tvm_ext_rescale *layer, tvm_ext_qsums *sums, const tvm_ext_image *image,
                                      const void *elements, int32_t zero_point, const int8_t *weights, int32_t length,
                                      int32_t count, bool is_rolled)
{
    if (layer->is_wide) {
        for (int32_t c = 0; c < length; c += TVM_EXT_QBLOCK_PIECE) {
            const int32_t piece = length - c < TVM_EXT_QBLOCK_PIECE ? length - c : TVM_EXT_QBLOCK_PIECE;
            tvm_ext_qblock_add_rolled(sums->part, image, tvm_ext_source(image, elements, c), zero_point,
                                      &weights[c * count], piece, count);
            tvm_ext_qsums_carry(layer, sums, count);
        }
    } else if (is_rolled) {
        tvm_ext_qblock_add_rolled(sums->part, image, elements, zero_point, weights, length, count);
    } else {
        tvm_ext_qblock_add(sums->part, image, elements, zero_point, weights, length, count);
    }
}

/* Returns the element of channel i of a block. */
TVM_EXT_INLINE int32_t tvm_ext_qsums_element(const tvm_ext_rescale *layer, const tvm_ext_qsums *sums,
                                             const int32_t *restrict multipliers, const uint8_t *restrict shifts,
                                             int32_t k, int32_t i)
{
    const int64_t sum = layer->is_wide ? sums->whole[i] : sums->part[i];
    return tvm_ext_rescaled(layer, sum, multipliers, shifts, k + i);
}

/* Stores the elements of a block from channel k on, or its sums; `pixel`: the first channel of its pixel in an
   image. */
TVM_EXT_INLINE void tvm_ext_qsums_store(const tvm_ext_rescale *layer, const tvm_ext_qsums *sums,
                                        const tvm_ext_image *image, void *pixel, const int32_t *restrict multipliers,
                                        const uint8_t *restrict shifts, int32_t k, int32_t count)
{
    if (image->holds_sums) {
        tvm_ext_qblock_copy(&((int32_t *)pixel)[k], sums->part, count);
        return;
    }
    tvm_ext_set(image, pixel, k, tvm_ext_qsums_element(layer, sums, multipliers, shifts, k, 0));
    if (count > 1) {
        tvm_ext_set(image, pixel, k + 1, tvm_ext_qsums_element(layer, sums, multipliers, shifts, k, 1));
    }
    if (count > 2) {
        tvm_ext_set(image, pixel, k + 2, tvm_ext_qsums_element(layer, sums, multipliers, shifts, k, 2));
    }
    if (count > 3) {
        tvm_ext_set(image, pixel, k + 3, tvm_ext_qsums_element(layer, sums, multipliers, shifts, k, 3));
    }
}

#endif
