/* Energy of a spectrum of 16 bits. */
#ifndef TVM_EXT_AUDIO_ENERGY_H
#define TVM_EXT_AUDIO_ENERGY_H

#include <stdint.h>

/* Squares of real and imaginary parts added up, of the bins [begin, end); 0 for the others. */
static inline void tvm_ext_audio_energy(const int16_t *spectrum, uint32_t *energy, int32_t bins, int32_t begin,
                                        int32_t end)
{
    for (int32_t k = 0; k < bins; ++k) {
        const int32_t real = spectrum[2 * k];
        const int32_t imaginary = spectrum[2 * k + 1];
        energy[k] = k >= begin && k < end ? (uint32_t)(real * real) + (uint32_t)(imaginary * imaginary) : 0u;
    }
}

#endif
