/* Sums, differences, products and quotients of two quantized images by Helium: eight elements at a time. Larger or
 * smaller of two elements: 16 at a time. */
#ifndef TVM_EXT_HELIUM_QBINARY_H
#define TVM_EXT_HELIUM_QBINARY_H

#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

#include <stddef.h>

#define TVM_EXT_HELIUM_AT_ONCE 8

/* Fractional bits of TensorFlow Lite's sums, in units of twice the larger input scale. */
#define TVM_EXT_HELIUM_QBINARY_BITS 20

/* Bits of the low part of a factor of a sum that is rounded once. */
#define TVM_EXT_HELIUM_LOW_BITS 16

/* Constants of a function of two elements. The factor of a result is described in tvm_ext_helium_rescale.h.
 *
 * A sum that is rounded once adds elements times factors, whose low and high parts are summed separately, because it
 * may need more than 32 bits. A sum that is rounded twice scales both elements to a common scale first, by two
 * factors; portable kernels compute such differences. */
typedef struct {
    bool is_product;
    bool is_narrow; /* a sum of 32 bits: start + first_multiplier * a + second_multiplier * b, with the zero points */
    int32_t start;
    int32_t first_zero_point;
    int32_t second_zero_point;
    int64_t first_factor; /* in a sum that is rounded once; negative if the element is subtracted */
    int64_t second_factor;
    int32_t first_multiplier; /* in a sum that is rounded twice */
    int32_t first_shift;
    int32_t second_multiplier;
    int32_t second_shift;
    int32_t multiplier; /* factor of the result, except for a sum that is rounded once */
    int32_t shift;      /* shift of the result; for a sum that is rounded once, beyond its low part */
    tvm_ext_helium_rescale rescale;
    /* For a quotient, a factor for each divisor from second_zero_point on: a result is (start + a * factor) *
     * 2^shift, rounded down. NULL for other functions. */
    const int32_t *reciprocal;
} tvm_ext_helium_qbinary;

typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    tvm_ext_helium_qbinary function;
} tvm_ext_helium_qbinary_layer;

/* start + a * first + b * second of 32 bits, which must fit. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_total(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int64_t start, int64_t first,
                                                  int64_t second)
{
    const tvm_ext_i32x4 sum = tvm_ext_i32x4_mla(tvm_ext_i32x4_splat((int32_t)start), a, (int32_t)first);
    return tvm_ext_i32x4_mla(sum, b, (int32_t)second);
}

/* Four sums that are rounded once. A rounding shift of the high parts, with the carry of the low ones, rounds the
 * whole: the rest of the low parts cannot carry. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_sums_once(const tvm_ext_helium_qbinary *function, tvm_ext_i32x4 a,
                                                      tvm_ext_i32x4 b)
{
    const int64_t unit = (int64_t)1 << TVM_EXT_HELIUM_LOW_BITS;
    const int64_t first = function->first_factor;
    const int64_t second = function->second_factor;
    const int64_t start = -((function->first_zero_point * first) + (function->second_zero_point * second));
    const tvm_ext_i32x4 low = tvm_ext_helium_total(a, b, start & (unit - 1), first & (unit - 1), second & (unit - 1));
    const tvm_ext_i32x4 high = tvm_ext_helium_total(
        a, b, start >> TVM_EXT_HELIUM_LOW_BITS, first >> TVM_EXT_HELIUM_LOW_BITS, second >> TVM_EXT_HELIUM_LOW_BITS);
    const tvm_ext_i32x4 carry = tvm_ext_i32x4_shift(low, -TVM_EXT_HELIUM_LOW_BITS);
    const tvm_ext_i32x4 sum = tvm_ext_i32x4_add(high, carry);
    const tvm_ext_i32x4 shift = tvm_ext_i32x4_splat(function->shift);
    if (function->rescale.has_ties) {
        const tvm_ext_i32x4 below = tvm_ext_i32x4_shift(low, TVM_EXT_HELIUM_LOW_BITS);
        return tvm_ext_i32x4_round_shift_even(sum, below, shift);
    }
    return tvm_ext_i32x4_round_shift(sum, shift);
}

/* Four elements minus their zero point. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_centred(tvm_ext_i32x4 elements, int32_t zero_point)
{
    return zero_point != 0 ? tvm_ext_i32x4_add(elements, tvm_ext_i32x4_splat(-zero_point)) : elements;
}

/* Four elements on the common scale of TensorFlow Lite's sums. That scale is twice the larger one, whose own factor
 * is exactly a half. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_common(tvm_ext_i32x4 elements, int32_t zero_point, int32_t multiplier,
                                                   int32_t shift)
{
    const tvm_ext_i32x4 centred = tvm_ext_helium_centred(elements, zero_point);
    if (multiplier == (int32_t)1 << 30 && shift == 0) {
        return tvm_ext_i32x4_shift(centred, TVM_EXT_HELIUM_QBINARY_BITS - 1);
    }
    const tvm_ext_i32x4 value = tvm_ext_i32x4_shift(centred, TVM_EXT_HELIUM_QBINARY_BITS);
    const tvm_ext_i32x4 product = tvm_ext_i32x4_multiply_doubled(value, tvm_ext_i32x4_splat(multiplier));
    return tvm_ext_i32x4_shift_away(product, tvm_ext_i32x4_splat(shift));
}

/* Four results, without the zero point unless the sums contain it. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_four(const tvm_ext_helium_qbinary *function, tvm_ext_i32x4 a,
                                                 tvm_ext_i32x4 b)
{
    if (function->reciprocal != NULL) {
        const tvm_ext_i32x4 places = tvm_ext_helium_centred(b, function->second_zero_point);
        const tvm_ext_i32x4 factors = tvm_ext_i32x4_gather(function->reciprocal, places);
        const tvm_ext_i32x4 dividends = tvm_ext_helium_centred(a, function->first_zero_point);
        return tvm_ext_i32x4_shift(tvm_ext_i32x4_multiply_add_n(dividends, factors, function->start), function->shift);
    }
    if (function->is_narrow) {
        const tvm_ext_i32x4 factors = tvm_ext_i32x4_splat(function->first_multiplier);
        const tvm_ext_i32x4 sum = tvm_ext_i32x4_multiply_add_n(a, factors, function->start);
        return tvm_ext_i32x4_round_shift_n(tvm_ext_i32x4_mla(sum, b, function->second_multiplier), function->shift);
    }
    if (!function->is_product && !function->rescale.rounds_twice) {
        return tvm_ext_helium_sums_once(function, a, b);
    }
    tvm_ext_i32x4 value;
    if (function->is_product) {
        value = tvm_ext_i32x4_multiply(tvm_ext_helium_centred(a, function->first_zero_point),
                                       tvm_ext_helium_centred(b, function->second_zero_point));
    } else {
        value = tvm_ext_i32x4_add(
            tvm_ext_helium_common(a, function->first_zero_point, function->first_multiplier, function->first_shift),
            tvm_ext_helium_common(b, function->second_zero_point, function->second_multiplier, function->second_shift));
    }
    return tvm_ext_helium_rescaled(&function->rescale, value, tvm_ext_i32x4_splat(function->multiplier),
                                   tvm_ext_i32x4_splat(function->shift));
}

/* The first `count` of four elements, widened. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_widened(const tvm_ext_image *image, const uint8_t *elements, int32_t count)
{
    return image->is_unsigned ? tvm_ext_i32x4_load_u8(elements, count)
                              : tvm_ext_i32x4_load_i8((const int8_t *)elements, count);
}

/* Four elements of an operand from element i of a run on, of which `count` are inside; step 0: one element for all. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_operand(const tvm_ext_image *image, const uint8_t *run, int32_t i,
                                                    int32_t step, int32_t count)
{
    if (step == 0) {
        return tvm_ext_i32x4_splat(image->is_unsigned ? (int32_t)run[0] : (int32_t)((const int8_t *)run)[0]);
    }
    return tvm_ext_helium_widened(image, &run[i], count);
}

/* Computes a run of `length` elements. A step is 1 for an operand with an element for each result, and 0 for an operand
 * of one element. */
TVM_EXT_INLINE void tvm_ext_helium_qbinary_run(const tvm_ext_helium_qbinary_layer *layer, const void *first,
                                               int32_t first_step, const void *second, int32_t second_step,
                                               void *output, int32_t length)
{
    const uint8_t *const a = (const uint8_t *)first;
    const uint8_t *const b = (const uint8_t *)second;
    uint8_t *const y = (uint8_t *)output;
    const bool is_whole = length % TVM_EXT_HELIUM_AT_ONCE == 0;
    for (int32_t i = 0; i < length; i += TVM_EXT_HELIUM_AT_ONCE) {
        const int32_t left = length - i;
        const int32_t count = is_whole ? 4 : left;
        const int32_t more = is_whole ? 4 : left > 4 ? left - 4 : 0;
        const tvm_ext_i32x4 even =
            tvm_ext_helium_four(&layer->function, tvm_ext_helium_operand(&layer->first, a, i, first_step, count),
                                tvm_ext_helium_operand(&layer->second, b, i, second_step, count));
        const tvm_ext_i32x4 odd =
            tvm_ext_helium_four(&layer->function, tvm_ext_helium_operand(&layer->first, a, i + 4, first_step, more),
                                tvm_ext_helium_operand(&layer->second, b, i + 4, second_step, more));
        const tvm_ext_i16x8 results = tvm_ext_helium_pairs(&layer->function.rescale, tvm_ext_i16x8_narrow(even, odd));
        tvm_ext_i16x8_store_even(&y[i], results, count);
        tvm_ext_i16x8_store_odd(&y[i + 4], results, more);
    }
}

/* 16 elements of an operand from element i of a run on, of which `count` are inside, in the order of int8_t; step 0:
 * one element for all. */
TVM_EXT_INLINE tvm_ext_i8x16 tvm_ext_helium_ordered(const void *run, int32_t i, int32_t step, int32_t count,
                                                    bool is_unsigned)
{
    const int8_t *const place = &((const int8_t *)run)[i * step];
    const tvm_ext_i8x16 elements = step == 0     ? tvm_ext_i8x16_splat(place[0])
                                   : count >= 16 ? tvm_ext_i8x16_load(place)
                                                 : tvm_ext_i8x16_load_first(place, count);
    return is_unsigned ? tvm_ext_i8x16_xor(elements, tvm_ext_i8x16_splat(INT8_MIN)) : elements;
}

/* The larger of each two elements of a run of `length`, or the smaller. A step is 0 for an operand of one element. */
TVM_EXT_INLINE void tvm_ext_helium_extreme_run(bool is_larger, bool is_unsigned, const void *first, int32_t first_step,
                                               const void *second, int32_t second_step, void *output, int32_t length)
{
    const tvm_ext_i8x16 bits = tvm_ext_i8x16_splat(INT8_MIN);
    for (int32_t i = 0; i < length; i += 16) {
        const int32_t count = length % 16 == 0 ? 16 : length - i;
        const tvm_ext_i8x16 a = tvm_ext_helium_ordered(first, i, first_step, count, is_unsigned);
        const tvm_ext_i8x16 b = tvm_ext_helium_ordered(second, i, second_step, count, is_unsigned);
        const tvm_ext_i8x16 chosen = is_larger ? tvm_ext_i8x16_max(a, b) : tvm_ext_i8x16_min(a, b);
        const tvm_ext_i8x16 result = is_unsigned ? tvm_ext_i8x16_xor(chosen, bits) : chosen;
        if (count >= 16) {
            tvm_ext_i8x16_store(&((int8_t *)output)[i], result);
        } else {
            tvm_ext_i8x16_store_first(&((int8_t *)output)[i], result, count);
        }
    }
}

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_helium_qbinary_rows(const tvm_ext_helium_qbinary_layer *layer, const void *first,
                                                const void *second, void *output, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *a = &((const uint8_t *)first)[tvm_ext_row(&layer->first, 0, h)];
        const uint8_t *b = &((const uint8_t *)second)[tvm_ext_row(&layer->second, 0, h)];
        uint8_t *y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            tvm_ext_helium_qbinary_run(layer, a, 1, b, 1, y, length);
            a += length;
            b += length;
            y += layer->output.pitch;
        }
    }
}

#endif
