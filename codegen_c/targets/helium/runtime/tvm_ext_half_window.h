/* Windows of an image of halves as floats, which products read if no column is outside. */
#ifndef TVM_EXT_HALF_WINDOW_H
#define TVM_EXT_HALF_WINDOW_H

#include "tvm_ext_halves_f32x4.h"

TVM_EXT_INLINE void tvm_ext_half_zeros(float *target, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = 0.0f;
    }
}

/* Converts columns [first, first + columns) of a row of an image that has `extent` columns, with zeros outside. */
TVM_EXT_INLINE void tvm_ext_half_window_row(float *target, const uint16_t *row, int32_t first, int32_t columns,
                                            int32_t extent, int32_t channels)
{
    const int32_t begin = (first < 0) ? TVM_EXT_MIN(-first, columns) : 0;
    const int32_t inside = TVM_EXT_MIN(columns, extent - first);
    const int32_t end = TVM_EXT_MAX(begin, inside);
    tvm_ext_half_zeros(target, begin * channels);
    if (begin < end) {
        tvm_ext_widen_halves(&target[begin * channels], &row[(first + begin) * channels], (end - begin) * channels);
    }
    tvm_ext_half_zeros(&target[end * channels], (columns - end) * channels);
}

#endif
