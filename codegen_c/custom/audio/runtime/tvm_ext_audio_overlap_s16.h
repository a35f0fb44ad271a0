/* Frames that overlap, added up. */
#ifndef TVM_EXT_AUDIO_OVERLAP_S16_H
#define TVM_EXT_AUDIO_OVERLAP_S16_H

#include "tvm_ext_audio_samples.h"

#include <string.h>

/* `step` samples for each of `count` frames of `size`; kept: `size` samples that later frames are added to. */
static inline void tvm_ext_audio_overlap_s16(const int16_t *input, int16_t *kept, int16_t *output, int32_t count,
                                             int32_t size, int32_t step)
{
    for (int32_t frame = 0; frame < count; ++frame) {
        for (int32_t k = 0; k < size; ++k) {
            kept[k] = tvm_ext_audio_sum_s16(input[frame * size + k], kept[k]);
        }
        memcpy(&output[frame * step], kept, (size_t)step * sizeof(*kept));
        memmove(kept, &kept[step], (size_t)(size - step) * sizeof(*kept));
        memset(&kept[size - step], 0, (size_t)step * sizeof(*kept));
    }
}

#endif
