/* Shapes of a layer, which generated functions pass to the loops in these headers.
 *
 * These loops are always inlined into each layer's function: the shapes are constants there, so compilers fold
 * expressions of them, from GCC's -O1 on. */
#ifndef TVM_EXT_LAYER_H
#define TVM_EXT_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#if defined(TVM_EXT_INLINE)
/* as the build says */
#elif defined(__GNUC__)
#define TVM_EXT_INLINE static inline __attribute__((always_inline))
#else
#define TVM_EXT_INLINE static inline
#endif

/* Images [images][rows][columns][channels]: of floats, or of quantized elements of 8 or 16 bits. */
typedef struct {
    int32_t images;
    int32_t rows;
    int32_t columns;
    int32_t channels;
    int32_t pitch;      /* elements from one pixel to the next: channels, or more */
    int32_t row_pitch;  /* elements from one row to the next in a wider image; 0: those of its pixels */
    bool is_ring;       /* only ring_rows rows are stored, in a ring buffer */
    int32_t ring_rows;
    int32_t ring_shift; /* row h is row (h + ring_shift) % ring_rows of the ring buffer */
    bool holds_sums;    /* 32-bit sums of products, before requantization; only written */
    bool is_wide;       /* quantized elements of 16 bits, otherwise 8 */
    bool is_unsigned;   /* quantized elements are uint8 or uint16, otherwise int8 or int16 */
    int32_t zero_point; /* of the quantization: real = scale * (element - zero_point) */
} tvm_ext_image;

/* A window that slides over an image. */
typedef struct {
    int32_t rows; /* taps */
    int32_t columns;
    int32_t row_stride;
    int32_t column_stride;
    int32_t row_dilation;
    int32_t column_dilation;
    int32_t top; /* rows and columns of padding */
    int32_t left;
    int32_t bottom;
    int32_t right;
} tvm_ext_window;

/* Taps [begin, end) of a window along one axis that lie inside the image. */
typedef struct {
    int32_t begin;
    int32_t end;
} tvm_ext_taps;

/* Returns the elements from one row to the next. */
TVM_EXT_INLINE int32_t tvm_ext_row_elements(const tvm_ext_image *image)
{
    return image->row_pitch > 0 ? image->row_pitch : image->columns * image->pitch;
}

/* Returns the index of the first element of row h of image n. */
TVM_EXT_INLINE int32_t tvm_ext_row(const tvm_ext_image *image, int32_t n, int32_t h)
{
    const int32_t row = image->is_ring ? (h + image->ring_shift) % image->ring_rows : (n * image->rows) + h;
    return row * tvm_ext_row_elements(image);
}

/* Returns the value of quantized element i after an address in an image. */
TVM_EXT_INLINE int32_t tvm_ext_element(const tvm_ext_image *image, const void *place, int32_t i)
{
    if (image->is_wide) {
        return image->is_unsigned ? (int32_t)((const uint16_t *)place)[i] : (int32_t)((const int16_t *)place)[i];
    }
    return image->is_unsigned ? (int32_t)((const uint8_t *)place)[i] : (int32_t)((const int8_t *)place)[i];
}

/* Returns the address of quantized element i after another address in an image: to read from, and to write to. */
TVM_EXT_INLINE const void *tvm_ext_source(const tvm_ext_image *image, const void *place, int32_t i)
{
    return &((const uint8_t *)place)[image->is_wide ? 2 * i : i];
}

TVM_EXT_INLINE void *tvm_ext_target(const tvm_ext_image *image, void *place, int32_t i)
{
    return &((uint8_t *)place)[image->holds_sums ? 4 * i : image->is_wide ? 2 * i : i];
}

/* Writes quantized element i after an address in an image. */
TVM_EXT_INLINE void tvm_ext_set(const tvm_ext_image *image, void *place, int32_t i, int32_t value)
{
    if (image->is_wide) {
        ((uint16_t *)place)[i] = (uint16_t)value;
    } else {
        ((uint8_t *)place)[i] = (uint8_t)value;
    }
}

TVM_EXT_INLINE bool tvm_ext_is_padded(const tvm_ext_window *window)
{
    return window->top > 0 || window->left > 0 || window->bottom > 0 || window->right > 0;
}

/* Returns the taps inside [0, extent) along an axis with padding before and behind; the first tap reads `first`. If all
 * taps are in padding, `begin` and `end` are equal. */
TVM_EXT_INLINE tvm_ext_taps tvm_ext_taps_inside(int32_t first, int32_t taps, int32_t dilation, int32_t extent,
                                                int32_t before, int32_t behind)
{
    tvm_ext_taps inside = {0, taps};
    if (before > 0 && first < 0) {
        const int32_t begin = (dilation - 1 - first) / dilation;
        inside.begin = begin < taps ? begin : taps;
    }
    if (behind > 0 && first + ((taps - 1) * dilation) >= extent) {
        inside.end = first < extent ? (extent - first + dilation - 1) / dilation : 0;
    }
    return inside;
}

/* Returns the taps inside the image of a window whose first row is `top`. */
TVM_EXT_INLINE tvm_ext_taps tvm_ext_row_taps(const tvm_ext_window *window, const tvm_ext_image *image, int32_t top)
{
    return tvm_ext_taps_inside(top, window->rows, window->row_dilation, image->rows, window->top, window->bottom);
}

/* Returns the taps inside the image of a window whose first column is `left`. */
TVM_EXT_INLINE tvm_ext_taps tvm_ext_column_taps(const tvm_ext_window *window, const tvm_ext_image *image, int32_t left)
{
    return tvm_ext_taps_inside(left, window->columns, window->column_dilation, image->columns, window->left,
                               window->right);
}

#endif
