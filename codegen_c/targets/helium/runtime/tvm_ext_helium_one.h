/* A window of one column times all output channels, four channels at a time, for pixels left over from groups of
 * four; weights are packed as in tvm_ext_helium_fours.h. */
#ifndef TVM_EXT_HELIUM_ONE_H
#define TVM_EXT_HELIUM_ONE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_helium_fours.h"

#include <stdint.h>

#ifdef TVM_EXT_HAS_HELIUM

/* 16 products of the channels 0 and 2, and of 1 and 3. */
#define TVM_EXT_HELIUM_ONE_STEP                                                                                      \
    "vldrb.u8 q0, [%[x]], #16\n\tvldrb.u8 q1, [%[f]], #16\n\tvmladava.s8 r0, q0, q1\n\t"                            \
    "vldrb.u8 q2, [%[f]], #16\n\tvmladava.s8 r2, q0, q2\n\tvldrb.u8 q1, [%[g]], #16\n\t"                            \
    "vmladava.s8 r4, q0, q1\n\tvldrb.u8 q2, [%[g]], #16\n\tvmladava.s8 r6, q0, q2\n\t"

/* Factors of two channels take `num_bytes`: starts and multipliers, and shifts unless all channels share one. */
#define TVM_EXT_HELIUM_ONE_ALL(layer, window, result, packed, steps, shift, num_bytes, rounded)                      \
    do {                                                                                                             \
        const int8_t *one_x = (window), *one_f = (packed), *one_g = &one_f[(32 * (steps)) + (num_bytes)];            \
        uint8_t *one_y = (result);                                                                                   \
        const uint32x4_t one_counted = vidupq_n_u32(0, 4);                                                           \
        const uint32x4_t one_multipliers =                                                                           \
            vaddq_m_n_u32(vaddq_n_u32(one_counted, 8), one_counted, (32 * (steps)) + (num_bytes), 0xff00);           \
        const uint32x4_t one_evens = vidupq_n_u32(0, 2); /* 0, 2, 1, 3 without a literal */                          \
        const uint32x4_t one_places = vsubq_m_n_u32(one_evens, one_evens, 3, 0xff00);                                \
        const int32x4_t one_low = vdupq_n_s32((layer)->is_unsigned ? 0 : INT8_MIN);                                  \
        __asm__ volatile(                                                                                            \
            "1:\n\tldrd r0, r2, [%[f], #32*%c[num_steps]]\n\tldrd r4, r6, [%[g], #32*%c[num_steps]]\n\t"             \
            ".rept %c[num_steps]\n\t" TVM_EXT_HELIUM_ONE_STEP ".endr\n\t"                                            \
            "vmov q0[2], q0[0], r0, r4\n\tvmov q0[3], q0[1], r2, r6\n\t"                                             \
            "vldrw.u32 q1, [%[f], %q[multipliers]]\n\tldrd r8, r10, [%[g], #%c[factors]]\n\t"                        \
            rounded "vqadd.s32 q0, q0, r8\n\t"                                                                       \
            "vmax.s32 q0, q0, %q[low]\n\tvmin.s32 q0, q0, %q[high]\n\tvstrb.32 q0, [%[y], %q[places]]\n\t"           \
            "adds %[y], %[y], #4\n\tadd %[f], %[g], #%c[factors]+8\n\t"                                              \
            "add %[g], %[f], #32*%c[num_steps]+%c[factors]\n\t"                                                      \
            "sub %[x], %[x], #16*%c[num_steps]\n\tcmp r10, #0\n\tbne 1b\n\t"                                         \
            : [x] "+r"(one_x), [f] "+r"(one_f), [g] "+r"(one_g), [y] "+r"(one_y)                                     \
            : [multipliers] "w"(one_multipliers), [shifts] "w"(vaddq_n_u32(one_multipliers, 8)),                     \
              [places] "w"(one_places), [low] "w"(one_low), [high] "w"(vaddq_n_s32(one_low, 255)),                   \
              [num_steps] "i"(steps), [last] "i"(shift), [factors] "i"(num_bytes)                                    \
            : "r0", "r2", "r4", "r6", "r8", "r10", "q0", "q1", "q2", "cc", "memory");                                \
    } while (0)

/* Sums begin at the channels' starts, after their weights. steps, shift: constants. */
#define TVM_EXT_HELIUM_ONE(layer, window, result, packed, steps, shift)                                              \
    TVM_EXT_HELIUM_ONE_ALL(layer, window, result, packed, steps, shift, 16,                                          \
                           "vqdmulh.s32 q0, q0, q1\n\tvrshr.s32 q0, q0, #%c[last]\n\t")

/* The same with TensorFlow Lite's two roundings and a shift of each channel. */
#define TVM_EXT_HELIUM_ONE_TWICE(layer, window, result, packed, steps)                                               \
    TVM_EXT_HELIUM_ONE_ALL(layer, window, result, packed, steps, 0, 24,                                              \
                           "vldrw.u32 q2, [%[f], %q[shifts]]\n\tvqrdmulh.s32 q0, q0, q1\n\tvrshl.s32 q0, q0, q2\n\t")

/* The same, with halves below zero rounded down: products below zero are decreased by one first. */
#define TVM_EXT_HELIUM_ONE_SIGNED(layer, window, result, packed, steps)                                              \
    TVM_EXT_HELIUM_ONE_ALL(layer, window, result, packed, steps, 0, 24,                                              \
                           "vldrw.u32 q2, [%[f], %q[shifts]]\n\tvqrdmulh.s32 q0, q0, q1\n\tmov r0, #1\n\t"           \
                           "vqdmlah.s32 q0, q0, r0\n\tvrshl.s32 q0, q0, q2\n\t")

#else

static inline void tvm_ext_helium_one_plain(const tvm_ext_helium_fours *layer, const int8_t *x, uint8_t *y,
                                            const int8_t *packed)
{
    const int32_t half_bytes = (32 * layer->steps) + (4 * tvm_ext_helium_num_factors(layer));
    int32_t left = 1;
    for (int32_t k = 0; left > 0; k += 4) {
        const int8_t *const end = &packed[2 * half_bytes];
        for (int32_t i = 0; i < 4; ++i) {
            const int8_t *const half = &packed[i % 2 * half_bytes];
            const int8_t *const factors = &half[(32 * layer->steps) + (i / 2 * 4)];
            int32_t sum = tvm_ext_helium_four_number(factors);
            for (int32_t j = 0; j < 16 * layer->steps; ++j) {
                sum = tvm_ext_wrap((int64_t)sum + (x[j] * half[(j / 16 * 32) + (i / 2 * 16) + (j % 16)]));
            }
            const int32_t shift = layer->rounds_twice ? tvm_ext_helium_four_number(&factors[16]) : 0;
            y[k + i] = tvm_ext_helium_four_element(layer, sum, tvm_ext_helium_four_number(&factors[8]), shift,
                                                   tvm_ext_helium_four_number(end));
        }
        left = tvm_ext_helium_four_number(&end[4]);
        packed = &end[8];
    }
}

#define TVM_EXT_HELIUM_ONE(layer, window, result, packed, ...)                                                       \
    tvm_ext_helium_one_plain((layer), (window), (result), (packed))
#define TVM_EXT_HELIUM_ONE_TWICE(layer, window, result, packed, steps)                                               \
    tvm_ext_helium_one_plain((layer), (window), (result), (packed))
#define TVM_EXT_HELIUM_ONE_SIGNED TVM_EXT_HELIUM_ONE_TWICE

#endif

#endif
