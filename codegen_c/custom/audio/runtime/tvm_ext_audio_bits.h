/* Bits that an unsigned number needs, and square roots of such numbers. */
#ifndef TVM_EXT_AUDIO_BITS_H
#define TVM_EXT_AUDIO_BITS_H

#include <stdint.h>

/* Bits of a number: 0 of 0, 1 of 1, 32 of what has the highest one set. */
static inline int32_t tvm_ext_audio_bits(uint32_t x)
{
    int32_t bits = 0;
    for (int32_t step = 16; step > 0; step /= 2) {
        if ((x >> step) != 0u) {
            bits += step;
            x >>= step;
        }
    }
    return bits + (int32_t)(x != 0u);
}

/* Square root of 32 bits, rounded to the nearest whole number of 16 bits. */
static inline uint32_t tvm_ext_audio_sqrt_u32(uint32_t x)
{
    uint32_t root = 0;
    uint32_t rest = x;
    for (uint32_t bit = UINT32_C(1) << 30; bit != 0u; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return rest > root && root != UINT16_MAX ? root + 1u : root;
}

/* Square root of 64 bits, rounded to the nearest whole number of 32 bits. */
static inline uint32_t tvm_ext_audio_sqrt_u64(uint64_t x)
{
    if ((x >> 32) == 0u) {
        return tvm_ext_audio_sqrt_u32((uint32_t)x);
    }
    uint64_t root = 0;
    uint64_t rest = x;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0u; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return (uint32_t)(rest > root && root != UINT32_MAX ? root + 1u : root);
}

#endif
