/* Tiles of float products: sums of some pixels by some vectors of output channels in registers.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_TILE_F32X1_H
#define TVM_EXT_TILE_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_TILE_F32X1_VECTORS 12

/* Loads up to 12 contiguous vectors of a block. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_load(tvm_ext_f32x1 *block, const float *source, int32_t vectors)
{
    block[0] = tvm_ext_f32x1_load(source);
    if (vectors > 1) {
        block[1] = tvm_ext_f32x1_load(&source[TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 2) {
        block[2] = tvm_ext_f32x1_load(&source[2 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 3) {
        block[3] = tvm_ext_f32x1_load(&source[3 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 4) {
        block[4] = tvm_ext_f32x1_load(&source[4 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 5) {
        block[5] = tvm_ext_f32x1_load(&source[5 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 6) {
        block[6] = tvm_ext_f32x1_load(&source[6 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 7) {
        block[7] = tvm_ext_f32x1_load(&source[7 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 8) {
        block[8] = tvm_ext_f32x1_load(&source[8 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 9) {
        block[9] = tvm_ext_f32x1_load(&source[9 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 10) {
        block[10] = tvm_ext_f32x1_load(&source[10 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 11) {
        block[11] = tvm_ext_f32x1_load(&source[11 * TVM_EXT_F32X1_LANES]);
    }
}

/* Adds the products of one element of a pixel and up to 12 vectors of weights f. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add_element(tvm_ext_f32x1 *sums, float a, const tvm_ext_f32x1 *f,
                                                   int32_t vectors)
{
    sums[0] = tvm_ext_f32x1_fma_n(a, f[0], sums[0]);
    if (vectors > 1) {
        sums[1] = tvm_ext_f32x1_fma_n(a, f[1], sums[1]);
    }
    if (vectors > 2) {
        sums[2] = tvm_ext_f32x1_fma_n(a, f[2], sums[2]);
    }
    if (vectors > 3) {
        sums[3] = tvm_ext_f32x1_fma_n(a, f[3], sums[3]);
    }
    if (vectors > 4) {
        sums[4] = tvm_ext_f32x1_fma_n(a, f[4], sums[4]);
    }
    if (vectors > 5) {
        sums[5] = tvm_ext_f32x1_fma_n(a, f[5], sums[5]);
    }
    if (vectors > 6) {
        sums[6] = tvm_ext_f32x1_fma_n(a, f[6], sums[6]);
    }
    if (vectors > 7) {
        sums[7] = tvm_ext_f32x1_fma_n(a, f[7], sums[7]);
    }
    if (vectors > 8) {
        sums[8] = tvm_ext_f32x1_fma_n(a, f[8], sums[8]);
    }
    if (vectors > 9) {
        sums[9] = tvm_ext_f32x1_fma_n(a, f[9], sums[9]);
    }
    if (vectors > 10) {
        sums[10] = tvm_ext_f32x1_fma_n(a, f[10], sums[10]);
    }
    if (vectors > 11) {
        sums[11] = tvm_ext_f32x1_fma_n(a, f[11], sums[11]);
    }
}

/* Initializes sums of up to 6 pixels, [pixels][vectors], with the elements at `start`. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_start(tvm_ext_f32x1 *sums, const float *start, int32_t pixels, int32_t vectors)
{
    tvm_ext_tile_f32x1_load(sums, start, vectors);
    if (pixels > 1) {
        tvm_ext_tile_f32x1_load(&sums[vectors], start, vectors);
    }
    if (pixels > 2) {
        tvm_ext_tile_f32x1_load(&sums[2 * vectors], start, vectors);
    }
    if (pixels > 3) {
        tvm_ext_tile_f32x1_load(&sums[3 * vectors], start, vectors);
    }
    if (pixels > 4) {
        tvm_ext_tile_f32x1_load(&sums[4 * vectors], start, vectors);
    }
    if (pixels > 5) {
        tvm_ext_tile_f32x1_load(&sums[5 * vectors], start, vectors);
    }
}

/* Adds the products of one element of each of up to 6 pixels, `step` elements apart. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add_elements(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                                    const tvm_ext_f32x1 *f, int32_t pixels, int32_t vectors)
{
    tvm_ext_tile_f32x1_add_element(sums, x[0], f, vectors);
    if (pixels > 1) {
        tvm_ext_tile_f32x1_add_element(&sums[vectors], x[step], f, vectors);
    }
    if (pixels > 2) {
        tvm_ext_tile_f32x1_add_element(&sums[2 * vectors], x[2 * step], f, vectors);
    }
    if (pixels > 3) {
        tvm_ext_tile_f32x1_add_element(&sums[3 * vectors], x[3 * step], f, vectors);
    }
    if (pixels > 4) {
        tvm_ext_tile_f32x1_add_element(&sums[4 * vectors], x[4 * step], f, vectors);
    }
    if (pixels > 5) {
        tvm_ext_tile_f32x1_add_element(&sums[5 * vectors], x[5 * step], f, vectors);
    }
}

#if TVM_EXT_F32X1_LANES == 1 && defined(__thumb2__) && defined(__ARM_FEATURE_FMA) && defined(__GNUC__) &&              \
    !defined(__SOFTFP__)
#define TVM_EXT_TILE_F32X1_BY_4 1

/* Registers: s0 to s15 sums, s16 to s23 weights, s24 to s27 elements; r1 and r4 to r6 pixels. The loop processes two
 * elements of each pixel; the first of an odd number precedes it. */
#define TVM_EXT_TILE_F32X1_ONE(X, A, B, C, D)                                                                         \
    "vldmia " X "!, {s24}\n\t"                                                                                        \
    "vfma.f32 " A ", s24, s16\n\t"                                                                                    \
    "vfma.f32 " B ", s24, s17\n\t"                                                                                    \
    "vfma.f32 " C ", s24, s18\n\t"                                                                                    \
    "vfma.f32 " D ", s24, s19\n\t"
#define TVM_EXT_TILE_F32X1_TWO(X, X0, X1, A, B, C, D)                                                                 \
    "vldmia " X "!, {" X0 ", " X1 "}\n\t"                                                                             \
    "vfma.f32 " A ", " X0 ", s16\n\t"                                                                                 \
    "vfma.f32 " B ", " X0 ", s17\n\t"                                                                                 \
    "vfma.f32 " C ", " X0 ", s18\n\t"                                                                                 \
    "vfma.f32 " D ", " X0 ", s19\n\t"                                                                                 \
    "vfma.f32 " A ", " X1 ", s20\n\t"                                                                                 \
    "vfma.f32 " B ", " X1 ", s21\n\t"                                                                                 \
    "vfma.f32 " C ", " X1 ", s22\n\t"                                                                                 \
    "vfma.f32 " D ", " X1 ", s23\n\t"

#define TVM_EXT_TILE_F32X1_ONE_1 TVM_EXT_TILE_F32X1_ONE("r1", "s0", "s1", "s2", "s3")
#define TVM_EXT_TILE_F32X1_ONE_2 TVM_EXT_TILE_F32X1_ONE_1 TVM_EXT_TILE_F32X1_ONE("r4", "s4", "s5", "s6", "s7")
#define TVM_EXT_TILE_F32X1_ONE_3 TVM_EXT_TILE_F32X1_ONE_2 TVM_EXT_TILE_F32X1_ONE("r5", "s8", "s9", "s10", "s11")
#define TVM_EXT_TILE_F32X1_ONE_4 TVM_EXT_TILE_F32X1_ONE_3 TVM_EXT_TILE_F32X1_ONE("r6", "s12", "s13", "s14", "s15")
#define TVM_EXT_TILE_F32X1_TWO_1 TVM_EXT_TILE_F32X1_TWO("r1", "s24", "s25", "s0", "s1", "s2", "s3")
#define TVM_EXT_TILE_F32X1_TWO_2                                                                                      \
    TVM_EXT_TILE_F32X1_TWO_1 TVM_EXT_TILE_F32X1_TWO("r4", "s26", "s27", "s4", "s5", "s6", "s7")
#define TVM_EXT_TILE_F32X1_TWO_3                                                                                      \
    TVM_EXT_TILE_F32X1_TWO_2 TVM_EXT_TILE_F32X1_TWO("r5", "s24", "s25", "s8", "s9", "s10", "s11")
#define TVM_EXT_TILE_F32X1_TWO_4                                                                                      \
    TVM_EXT_TILE_F32X1_TWO_3 TVM_EXT_TILE_F32X1_TWO("r6", "s26", "s27", "s12", "s13", "s14", "s15")

/* tvm_ext_tile_f32x1_add for some pixels by 4 vectors; several registers are loaded at once. length: at least 1. */
#define TVM_EXT_TILE_F32X1_DEFINE(PIXELS, SUMS)                                                                       \
    static __attribute__((noinline, unused)) void tvm_ext_tile_f32x1_add_##PIXELS##x4(                                \
        float *sums, const float *x, int32_t step, const float *weights, int32_t length)                              \
    {                                                                                                                 \
        register float *r0 __asm__("r0") = sums;                                                                      \
        register const float *r1 __asm__("r1") = x;                                                                   \
        register int32_t r2 __asm__("r2") = step;                                                                     \
        register const float *r3 __asm__("r3") = weights;                                                             \
        register int32_t r12 __asm__("r12") = length;                                                                 \
        __asm__ volatile("add r4, r1, r2, lsl #2\n\t"                                                                 \
                         "add r5, r4, r2, lsl #2\n\t"                                                                 \
                         "add r6, r5, r2, lsl #2\n\t"                                                                 \
                         "vldmia r0, {" SUMS "}\n\t"                                                                  \
                         "lsrs r12, r12, #1\n\t"                                                                      \
                         "bcc 1f\n\t"                                                                                 \
                         "vldmia r3!, {s16-s19}\n\t" TVM_EXT_TILE_F32X1_ONE_##PIXELS "cmp r12, #0\n\t"                \
                         "beq 2f\n"                                                                                   \
                         "1:\n\t"                                                                                     \
                         "vldmia r3!, {s16-s23}\n\t" TVM_EXT_TILE_F32X1_TWO_##PIXELS "subs r12, r12, #1\n\t"          \
                         "bne 1b\n"                                                                                   \
                         "2:\n\t"                                                                                     \
                         "vstmia r0, {" SUMS "}\n\t"                                                                  \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r12)                                          \
                         :                                                                                            \
                         : "r4", "r5", "r6", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",\
                           "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", \
                           "s25", "s26", "s27", "cc", "memory");                                                      \
    }

TVM_EXT_TILE_F32X1_DEFINE(1, "s0-s3")
TVM_EXT_TILE_F32X1_DEFINE(2, "s0-s7")
TVM_EXT_TILE_F32X1_DEFINE(3, "s0-s11")
TVM_EXT_TILE_F32X1_DEFINE(4, "s0-s15")
#else
#define TVM_EXT_TILE_F32X1_BY_4 0
#endif

/* Adds the products of `length` elements of up to 6 pixels, `step` elements apart, and of the weights of a block.
 *
 * weights: for each element those of the block's channels, adjacent. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                           const float *restrict weights, int32_t length, int32_t pixels,
                                           int32_t vectors)
{
#if TVM_EXT_TILE_F32X1_BY_4
    /* A call does not pay for runs that are known to be short. */
    if (vectors == 4 && pixels <= 4 && (!__builtin_constant_p(length) || length >= 8)) {
        if (length <= 0) {
            return; /* a window outside the image */
        }
        if (pixels == 4) {
            tvm_ext_tile_f32x1_add_4x4(sums, x, step, weights, length);
        } else if (pixels == 3) {
            tvm_ext_tile_f32x1_add_3x4(sums, x, step, weights, length);
        } else if (pixels == 2) {
            tvm_ext_tile_f32x1_add_2x4(sums, x, step, weights, length);
        } else {
            tvm_ext_tile_f32x1_add_1x4(sums, x, step, weights, length);
        }
        return;
    }
#endif
    const float *block = weights;
    int32_t c = 0;
#ifdef TVM_EXT_F32X1_ADDS_BY_4
    if (pixels == 1 && vectors == 4) {
        c = length - (length % 4);
        tvm_ext_f32x1_add_by_4(sums, x, block, c);
        block += c * 4 * TVM_EXT_F32X1_LANES;
    }
#endif
    for (; c < length; ++c) {
        tvm_ext_f32x1 f[TVM_EXT_TILE_F32X1_VECTORS];
        tvm_ext_tile_f32x1_load(f, block, vectors);
        tvm_ext_tile_f32x1_add_elements(sums, &x[c], step, f, pixels, vectors);
        block += vectors * TVM_EXT_F32X1_LANES;
    }
}

#endif
