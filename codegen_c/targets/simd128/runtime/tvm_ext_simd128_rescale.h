/* Requantization of the sums of 8 channels, and copies of input rows as numbers of 16 bits. */
#ifndef TVM_EXT_SIMD128_RESCALE_H
#define TVM_EXT_SIMD128_RESCALE_H

#include "tvm_ext_simd128.h"

/* Channels of a unit, and numbers per channel in a table of factors: the initial sum, then a float factor, its offset
 * and the offset of negative sums, or a multiplier, a half and a power of two. The same numbers of a unit are adjacent.
 */
#define TVM_EXT_SIMD128_UNIT 8
#define TVM_EXT_SIMD128_FACTORS (4 * TVM_EXT_SIMD128_UNIT)

typedef struct {
    bool has_floats;   /* factors are floats that give each sum its exact element */
    bool has_signs;    /* negative sums have offsets of their own */
    bool rounds_twice; /* integer factors: as TensorFlow Lite does; otherwise once, halves up */
    bool is_unsigned;  /* elements are uint8, otherwise int8 */
    int32_t shift;
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_simd128_rescale;

/* Returns the results of four sums, with the zero point. factors: of the unit, from the vector's first channel on. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_simd128_rescaled(const tvm_ext_simd128_rescale *rescale, tvm_ext_i32x4 sums,
                                                      const int32_t *factors)
{
    const int32_t *const first = &factors[TVM_EXT_SIMD128_UNIT];
    const int32_t *const second = &factors[2 * TVM_EXT_SIMD128_UNIT];
    const int32_t *const third = &factors[3 * TVM_EXT_SIMD128_UNIT];
    if (rescale->has_floats) {
        return tvm_ext_i32x4_scaled_by_floats(sums, first, second, third, rescale->has_signs, rescale->zero_point);
    }
    const tvm_ext_i32x4 high = tvm_ext_i32x4_high_product(sums, first, rescale->rounds_twice);
    const tvm_ext_i32x4 result = tvm_ext_i32x4_divided(high, second, third, rescale->shift, rescale->rounds_twice);
    return tvm_ext_i32x4_add(result, tvm_ext_i32x4_splat(rescale->zero_point));
}

/* Stores the first `count` elements of a unit. */
TVM_EXT_INLINE void tvm_ext_simd128_end(const tvm_ext_simd128_rescale *rescale, uint8_t *target, tvm_ext_i32x4 first,
                                        tvm_ext_i32x4 second, const int32_t *factors, int32_t count)
{
    const tvm_ext_i32x4 low = tvm_ext_simd128_rescaled(rescale, first, factors);
    const tvm_ext_i32x4 high = tvm_ext_simd128_rescaled(rescale, second, &factors[4]);
    if (count >= TVM_EXT_SIMD128_UNIT) {
        tvm_ext_i32x4_store_bytes(target, low, high, rescale->low, rescale->high, rescale->is_unsigned);
    } else {
        uint8_t elements[TVM_EXT_SIMD128_UNIT];
        tvm_ext_i32x4_store_bytes(elements, low, high, rescale->low, rescale->high, rescale->is_unsigned);
        (void)memcpy(target, elements, (size_t)count);
    }
}

/* Returns 8 weights of 8 bits plus an offset, which weights of 9 bits have. */
TVM_EXT_INLINE tvm_ext_i16x8 tvm_ext_simd128_weights(const uint8_t *weights, int32_t offset)
{
    const tvm_ext_i16x8 result = tvm_ext_i16x8_widen(weights, false);
    return offset == 0 ? result : tvm_ext_i16x8_add(result, tvm_ext_i16x8_splat(offset));
}

/* Writes `value` `count` times, in whole vectors. */
TVM_EXT_INLINE void tvm_ext_simd128_fill(int16_t *target, int32_t value, int32_t count)
{
    for (int32_t i = 0; i < count; i += 8) {
        tvm_ext_i16x8_store(&target[i], tvm_ext_i16x8_splat(value));
    }
}

/* Widens `count` elements of 8 bits; writes whole vectors, and reads no element after the last one. */
TVM_EXT_INLINE void tvm_ext_simd128_widen(int16_t *target, const uint8_t *source, int32_t count, bool is_unsigned)
{
    const int32_t whole = count - (count % 8);
    for (int32_t i = 0; i < whole; i += 8) {
        tvm_ext_i16x8_store(&target[i], tvm_ext_i16x8_widen(&source[i], is_unsigned));
    }
    if (whole < count) {
        uint8_t rest[8] = {0};
        (void)memcpy(rest, &source[whole], (size_t)(count - whole));
        tvm_ext_i16x8_store(&target[whole], tvm_ext_i16x8_widen(rest, is_unsigned));
    }
}

/* Returns the columns of a copied row. */
TVM_EXT_INLINE int32_t tvm_ext_simd128_columns(const tvm_ext_image *image, const tvm_ext_window *window)
{
    return window->left + image->columns + window->right;
}

/* Copies the rows of image n that a window whose first row is `top` reads, with the zero point as padding.
 * rows: [rows of the window][columns with padding][channels], and space for 15 more numbers. */
TVM_EXT_INLINE void tvm_ext_simd128_copy_rows(const tvm_ext_image *image, const tvm_ext_window *window, int16_t *rows,
                                              const void *input, int32_t n, int32_t top)
{
    const int32_t channels = image->channels;
    const int32_t length = tvm_ext_simd128_columns(image, window) * channels;
    for (int32_t r = 0; r < window->rows; ++r) {
        int16_t *const row = &rows[r * length];
        const int32_t y = top + (r * window->row_dilation);
        if (y < 0 || y >= image->rows) {
            tvm_ext_simd128_fill(row, image->zero_point, length);
            continue;
        }
        int16_t *const inside = &row[window->left * channels];
        tvm_ext_simd128_fill(row, image->zero_point, window->left * channels);
        tvm_ext_simd128_widen(inside, &((const uint8_t *)input)[tvm_ext_row(image, n, y)], image->columns * channels,
                              image->is_unsigned);
        tvm_ext_simd128_fill(&inside[image->columns * channels], image->zero_point, window->right * channels);
    }
}

#endif
