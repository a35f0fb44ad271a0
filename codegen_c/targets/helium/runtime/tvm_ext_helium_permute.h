/* Transposed matrices of bytes by Helium, such as planes converted to a channels-last image and back: 16 elements at a
 * time if they are at most 17 bytes apart on the one side, otherwise eight. */
#ifndef TVM_EXT_HELIUM_PERMUTE_H
#define TVM_EXT_HELIUM_PERMUTE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"

#include <stdint.h>

/* Each output row is a matrix: element (w, c) of it is element w of plane c. Columns of the output are adjacent in the
 * input. */
typedef struct {
    tvm_ext_image output;
    int32_t first; /* the element of the planes that becomes the output's first one */
    int32_t row;   /* elements from a row of a plane to the next */
    int32_t plane;
    bool gathers;  /* the channels of a pixel are gathered; otherwise the pixels of a plane are scattered */
} tvm_ext_helium_permute_layer;

#ifdef TVM_EXT_HAS_HELIUM

#define TVM_EXT_HELIUM_MOST_APART 17 /* bytes, of 16 elements whose offsets have 8 bits */

/* A loop that loads and stores vectors of `count` elements in all, one side with the offsets `apart`. step: bytes from
 * a vector to the next on that side. */
#define TVM_EXT_HELIUM_MOVES(lanes, load, store, apart, from, to, step, count)                                       \
    do {                                                                                                             \
        const void *moves_x = (from);                                                                                \
        void *moves_y = (to);                                                                                        \
        uint8x16_t moves_v;                                                                                          \
        __asm__ volatile("wlstp." lanes " lr, %[n], 2f\n"                                                            \
                         "1:\n\t" load "\n\t" store "\n\t"                                                           \
                         "letp lr, 1b\n"                                                                             \
                         "2:\n\t"                                                                                    \
                         : [v] "=&w"(moves_v), [x] "+l"(moves_x), [y] "+l"(moves_y)                                  \
                         : [n] "r"(count), [p] "w"(apart), [s] "r"(step)                                             \
                         : "lr", "cc", "memory");                                                                    \
    } while (0)

/* target[i * distance] = source[i], for i from 0 to count. */
static inline void tvm_ext_helium_scatter(int8_t *target, const int8_t *source, int32_t distance, int32_t count)
{
    if (distance <= TVM_EXT_HELIUM_MOST_APART) {
        const uint8x16_t apart = vmulq_n_u8(vidupq_n_u8(0, 1), (uint8_t)distance);
        TVM_EXT_HELIUM_MOVES("8", "vldrb.u8 %q[v], [%[x]], #16", "vstrb.8 %q[v], [%[y], %q[p]]\n\tadd %[y], %[s]",
                             apart, source, target, 16 * distance, count);
    } else {
        const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)distance);
        TVM_EXT_HELIUM_MOVES("16", "vldrb.u16 %q[v], [%[x]], #8", "vstrb.16 %q[v], [%[y], %q[p]]\n\tadd %[y], %[s]",
                             apart, source, target, 8 * distance, count);
    }
}

/* target[i] = source[i * distance], for i from 0 to count. */
static inline void tvm_ext_helium_collect(int8_t *target, const int8_t *source, int32_t distance, int32_t count)
{
    if (distance <= TVM_EXT_HELIUM_MOST_APART) {
        const uint8x16_t apart = vmulq_n_u8(vidupq_n_u8(0, 1), (uint8_t)distance);
        TVM_EXT_HELIUM_MOVES("8", "vldrb.u8 %q[v], [%[x], %q[p]]\n\tadd %[x], %[s]", "vstrb.8 %q[v], [%[y]], #16",
                             apart, source, target, 16 * distance, count);
    } else {
        const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)distance);
        TVM_EXT_HELIUM_MOVES("16", "vldrb.u16 %q[v], [%[x], %q[p]]\n\tadd %[x], %[s]", "vstrb.16 %q[v], [%[y]], #8",
                             apart, source, target, 8 * distance, count);
    }
}

#else

static inline void tvm_ext_helium_scatter(int8_t *target, const int8_t *source, int32_t distance, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i * distance] = source[i];
    }
}

static inline void tvm_ext_helium_collect(int8_t *target, const int8_t *source, int32_t distance, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = source[i * distance];
    }
}

#endif

/* Computes output rows [row_begin, row_end). Rows that are contiguous in planes and in the output are one matrix. */
TVM_EXT_INLINE void tvm_ext_helium_permute(const tvm_ext_helium_permute_layer *layer, const void *input, void *output,
                                           int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    const int32_t rows = !made->is_ring && layer->row == made->columns ? row_end - row_begin : 1;
    const int32_t columns = rows * made->columns;
    for (int32_t h = row_begin; h < row_end; h += rows) {
        const int8_t *const x = &((const int8_t *)input)[layer->first + (h * layer->row)];
        int8_t *const y = &((int8_t *)output)[tvm_ext_row(made, 0, h)];
        if (layer->gathers) {
            for (int32_t w = 0; w < columns; ++w) {
                tvm_ext_helium_collect(&y[w * made->channels], &x[w], layer->plane, made->channels);
            }
        } else {
            for (int32_t c = 0; c < made->channels; ++c) {
                tvm_ext_helium_scatter(&y[c], &x[c * layer->plane], made->channels, columns);
            }
        }
    }
}

#endif
