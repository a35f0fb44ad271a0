/* Samples shifted left as far as their largest size allows. */
#ifndef TVM_EXT_AUDIO_AUTO_SCALE_H
#define TVM_EXT_AUDIO_AUTO_SCALE_H

#include "tvm_ext_audio_bits.h"

/* The shift. A sample of -32768 has no size of 16 bits: behind it the search begins anew, below all others. */
static inline int32_t tvm_ext_audio_auto_scale(const int16_t *input, int16_t *output, int32_t count)
{
    int32_t largest = 0;
    for (int32_t k = 0; k < count; ++k) {
        const int32_t x = input[k];
        if (x > largest) {
            largest = x;
        } else if (-x > largest) {
            largest = x == INT16_MIN ? INT16_MIN : -x;
        }
    }
    const int32_t shift = largest > 0 ? 15 - tvm_ext_audio_bits((uint32_t)largest) : 0;
    for (int32_t k = 0; k < count; ++k) {
        output[k] = (int16_t)(uint16_t)((uint32_t)(int32_t)input[k] << shift);
    }
    return shift;
}

#endif
