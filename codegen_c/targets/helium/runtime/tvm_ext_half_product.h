/* Products of floats that were halves, and of half weights, for 8 output channels at a time.
 *
 * Weights are packed so that the lower halves of a vector are channels 0 to 3, and the upper ones 4 to 7: two
 * conversions widen them. Sums are float32, each with its products in order, as in the tiles of single vectors. */
#ifndef TVM_EXT_HALF_PRODUCT_H
#define TVM_EXT_HALF_PRODUCT_H

#include "tvm_ext_halves_f32x4.h"

#define TVM_EXT_HALF_CHANNELS 8

/* Adds the products of one element of each of up to 3 pixels, `step` elements apart. sums: [pixels][2]. */
TVM_EXT_INLINE void tvm_ext_half_product_add_element(tvm_ext_f32x4 *sums, const float *x, int32_t step,
                                                     const uint16_t *weights, int32_t pixels)
{
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    const uint32x4_t both = vreinterpretq_u32_u16(vldrhq_u16(weights));
    const tvm_ext_f32x4 f0 = tvm_ext_lower_halves_f32x4(both);
    const tvm_ext_f32x4 f1 = tvm_ext_upper_halves_f32x4(both);
#else
    uint16_t lower[4];
    uint16_t upper[4];
    for (int32_t i = 0; i < 4; ++i) {
        lower[i] = weights[2 * i];
        upper[i] = weights[(2 * i) + 1];
    }
    const tvm_ext_f32x4 f0 = tvm_ext_f32x4_of_halves(lower);
    const tvm_ext_f32x4 f1 = tvm_ext_f32x4_of_halves(upper);
#endif
    sums[0] = tvm_ext_f32x4_fma_n(x[0], f0, sums[0]);
    sums[1] = tvm_ext_f32x4_fma_n(x[0], f1, sums[1]);
    if (pixels > 1) {
        sums[2] = tvm_ext_f32x4_fma_n(x[step], f0, sums[2]);
        sums[3] = tvm_ext_f32x4_fma_n(x[step], f1, sums[3]);
    }
    if (pixels > 2) {
        sums[4] = tvm_ext_f32x4_fma_n(x[2 * step], f0, sums[4]);
        sums[5] = tvm_ext_f32x4_fma_n(x[2 * step], f1, sums[5]);
    }
}

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

/* Loads 8 weights and widens them, loads two adjacent elements, and adds the products of one to two sums. */
#define TVM_EXT_HALF_WEIGHTS "vldrh.u16 %q[f0], [%[w]], #16\n\t" TVM_EXT_WIDEN_UPPER(f1, f0) TVM_EXT_WIDEN_LOWER(f0, f0)
#define TVM_EXT_HALF_TWO(first, second, place) "ldrd %[" #first "], %[" #second "], [%[" #place "]], #8\n\t"
#define TVM_EXT_HALF_FMA(sum, next, element)                                                                           \
    "vfma.f32 %q[" #sum "], %q[f0], %[" #element "]\n\tvfma.f32 %q[" #next "], %q[f1], %[" #element "]\n\t"
#define TVM_EXT_HALF_BEGIN TVM_EXT_REGISTERS "wls lr, %[pairs], 2f\n1:\n\t"
#define TVM_EXT_HALF_END "le lr, 1b\n2:\n\t"

/* Adds the products of `pairs` times two elements of 3 pixels. */
TVM_EXT_INLINE void tvm_ext_half_product_add_pairs_3(tvm_ext_f32x4 *sums, const float *x, int32_t step,
                                                     const uint16_t *weights, int32_t pairs)
{
    const float *x1 = &x[step];
    const float *x2 = &x[2 * step];
    tvm_ext_f32x4 f0;
    tvm_ext_f32x4 f1;
    int32_t t0, t1, t2, t3, t4, t5;
    __asm__ volatile(TVM_EXT_HALF_BEGIN TVM_EXT_HALF_TWO(t0, t1, x0) TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_TWO(t2, t3, x1)
                         TVM_EXT_HALF_FMA(s0, s1, t0) TVM_EXT_HALF_TWO(t4, t5, x2) TVM_EXT_HALF_FMA(s2, s3, t2)
                             TVM_EXT_HALF_FMA(s4, s5, t4) TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_FMA(s0, s1, t1)
                                 TVM_EXT_HALF_FMA(s2, s3, t3) TVM_EXT_HALF_FMA(s4, s5, t5) TVM_EXT_HALF_END
                     : [s0] "+w"(sums[0]), [s1] "+w"(sums[1]), [s2] "+w"(sums[2]), [s3] "+w"(sums[3]),
                       [s4] "+w"(sums[4]), [s5] "+w"(sums[5]), [f0] "=&w"(f0), [f1] "=&w"(f1), [x0] "+r"(x),
                       [x1] "+r"(x1), [x2] "+r"(x2), [w] "+r"(weights), [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2),
                       [t3] "=&r"(t3), [t4] "=&r"(t4), [t5] "=&r"(t5)
                     : [pairs] "r"(pairs)
                     : "lr", "cc", "memory");
}

/* Adds the products of `pairs` times two elements of 2 pixels. */
TVM_EXT_INLINE void tvm_ext_half_product_add_pairs_2(tvm_ext_f32x4 *sums, const float *x, int32_t step,
                                                     const uint16_t *weights, int32_t pairs)
{
    const float *x1 = &x[step];
    tvm_ext_f32x4 f0;
    tvm_ext_f32x4 f1;
    int32_t t0, t1, t2, t3;
    __asm__ volatile(TVM_EXT_HALF_BEGIN TVM_EXT_HALF_TWO(t0, t1, x0) TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_TWO(t2, t3, x1)
                         TVM_EXT_HALF_FMA(s0, s1, t0) TVM_EXT_HALF_FMA(s2, s3, t2)
                             TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_FMA(s0, s1, t1) TVM_EXT_HALF_FMA(s2, s3, t3)
                                 TVM_EXT_HALF_END
                     : [s0] "+w"(sums[0]), [s1] "+w"(sums[1]), [s2] "+w"(sums[2]), [s3] "+w"(sums[3]), [f0] "=&w"(f0),
                       [f1] "=&w"(f1), [x0] "+r"(x), [x1] "+r"(x1), [w] "+r"(weights), [t0] "=&r"(t0), [t1] "=&r"(t1),
                       [t2] "=&r"(t2), [t3] "=&r"(t3)
                     : [pairs] "r"(pairs)
                     : "lr", "cc", "memory");
}

/* Adds the products of `pairs` times two elements of one pixel. */
TVM_EXT_INLINE void tvm_ext_half_product_add_pairs_1(tvm_ext_f32x4 *sums, const float *x, const uint16_t *weights,
                                                     int32_t pairs)
{
    tvm_ext_f32x4 f0;
    tvm_ext_f32x4 f1;
    int32_t t0, t1;
    __asm__ volatile(TVM_EXT_HALF_BEGIN TVM_EXT_HALF_TWO(t0, t1, x0) TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_FMA(s0, s1, t0)
                         TVM_EXT_HALF_WEIGHTS TVM_EXT_HALF_FMA(s0, s1, t1) TVM_EXT_HALF_END
                     : [s0] "+w"(sums[0]), [s1] "+w"(sums[1]), [f0] "=&w"(f0), [f1] "=&w"(f1), [x0] "+r"(x),
                       [w] "+r"(weights), [t0] "=&r"(t0), [t1] "=&r"(t1)
                     : [pairs] "r"(pairs)
                     : "lr", "cc", "memory");
}

#endif

/* Adds the products of `length` elements of up to 3 pixels, `step` elements apart, and of the weights of a block.
 *
 * sums: [pixels][2]. weights: those of 8 channels for each element. */
TVM_EXT_INLINE void tvm_ext_half_product_add(tvm_ext_f32x4 *sums, const float *x, int32_t step,
                                             const uint16_t *restrict weights, int32_t length, int32_t pixels)
{
    int32_t c = 0;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
    const int32_t pairs = length / 2;
    if (pixels == 3) {
        tvm_ext_half_product_add_pairs_3(sums, x, step, weights, pairs);
    } else if (pixels == 2) {
        tvm_ext_half_product_add_pairs_2(sums, x, step, weights, pairs);
    } else {
        tvm_ext_half_product_add_pairs_1(sums, x, weights, pairs);
    }
    c = 2 * pairs;
#endif
    for (; c < length; ++c) {
        tvm_ext_half_product_add_element(sums, &x[c], step, &weights[c * TVM_EXT_HALF_CHANNELS], pixels);
    }
}

#endif
