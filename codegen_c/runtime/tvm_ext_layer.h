/* Shapes of a layer, as generated functions hand them to the loops in these headers.
 *
 * Those loops are inlined into each layer's function, always: its shapes are constants there, so compilers fold what
 * depends on them, from GCC's -O1 on. */
#ifndef TVM_EXT_LAYER_H
#define TVM_EXT_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TVM_EXT_INLINE static inline __attribute__((always_inline))
#else
#define TVM_EXT_INLINE static inline
#endif

/* Images [images][rows][columns][channels] of elements of one byte. */
typedef struct {
    int32_t images;
    int32_t rows;
    int32_t columns;
    int32_t channels;
    int32_t pitch;      /* elements from one pixel to the next: channels, or more */
    bool is_ring;       /* only ring_rows rows are stored, in a ring buffer */
    int32_t ring_rows;
    int32_t ring_shift; /* row h is row (h + ring_shift) % ring_rows of the ring buffer */
    bool is_unsigned;   /* uint8, otherwise int8 */
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

/* Index of the first element of row h of image n. */
TVM_EXT_INLINE int32_t tvm_ext_row(const tvm_ext_image *image, int32_t n, int32_t h)
{
    const int32_t row = image->is_ring ? (h + image->ring_shift) % image->ring_rows : (n * image->rows) + h;
    return row * image->columns * image->pitch;
}

#endif
