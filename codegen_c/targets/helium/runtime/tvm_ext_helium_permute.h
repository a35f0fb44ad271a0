/* Planes of bytes converted to a channels-last image, by Helium: 16 pixels of a plane at a time. */
#ifndef TVM_EXT_HELIUM_PERMUTE_H
#define TVM_EXT_HELIUM_PERMUTE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"

#include <stdint.h>

typedef struct {
    tvm_ext_image output;
    int32_t first; /* the element of the planes that becomes the output's first one */
    int32_t row;   /* elements from a row of a plane to the next */
    int32_t plane;
} tvm_ext_helium_permute_layer;

#ifdef TVM_EXT_HAS_HELIUM

/* Stores the first `count` bytes, `distance` apart, which is at most 17. */
static inline void tvm_ext_i8x16_store_apart(int8_t *target, tvm_ext_i8x16 a, uint8_t distance, int32_t count)
{
    const uint8x16_t places = vmulq_n_u8(vidupq_n_u8(0, 1), distance);
    vstrbq_scatter_offset_p_s8(target, places, a, vctp8q((uint32_t)count));
}

#else

static inline void tvm_ext_i8x16_store_apart(int8_t *target, tvm_ext_i8x16 a, uint8_t distance, int32_t count)
{
    for (int32_t i = 0; i < 16 && i < count; ++i) {
        target[i * distance] = a.lane[i];
    }
}

#endif

/* Computes output rows [row_begin, row_end). */
TVM_EXT_INLINE void tvm_ext_helium_permute(const tvm_ext_helium_permute_layer *layer, const void *input, void *output,
                                           int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const made = &layer->output;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const int8_t *const x = &((const int8_t *)input)[layer->first + (h * layer->row)];
        int8_t *const y = &((int8_t *)output)[tvm_ext_row(made, 0, h)];
        for (int32_t w = 0; w < made->columns; w += 16) {
            for (int32_t c = 0; c < made->channels; ++c) {
                const int32_t count = made->columns - w;
                const tvm_ext_i8x16 plane = tvm_ext_i8x16_load_first(&x[(c * layer->plane) + w], count);
                tvm_ext_i8x16_store_apart(&y[(w * made->channels) + c], plane, (uint8_t)made->channels, count);
            }
        }
    }
}

#endif
