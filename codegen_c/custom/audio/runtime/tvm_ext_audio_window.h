/* Frames of 16 bits times a window. */
#ifndef TVM_EXT_AUDIO_WINDOW_H
#define TVM_EXT_AUDIO_WINDOW_H

#include <stdint.h>

/* Products of `count` samples and a window of `length`, again and again, shifted right and clamped. */
static inline void tvm_ext_audio_window(const int16_t *input, const int16_t *weights, int16_t *output, int32_t count,
                                        int32_t length, int32_t shift)
{
    for (int32_t begin = 0; begin < count; begin += length) {
        for (int32_t k = 0; k < length; ++k) {
            const int32_t product = ((int32_t)input[begin + k] * weights[k]) >> shift;
            const int32_t raised = product < INT16_MIN ? INT16_MIN : product;
            output[begin + k] = (int16_t)(raised > INT16_MAX ? INT16_MAX : raised);
        }
    }
}

#endif
