/* 8-bit vectors for generated kernels: Helium where the compiler has it, plain C everywhere else, lane by lane
 * the same bytes. Lanes are counted from 0; "even" and "odd" are those of even and of odd number. */
#ifndef TVM_EXT_HELIUM_H
#define TVM_EXT_HELIUM_H

#include "tvm_ext_requantize.h"

#include <stdint.h>
#include <string.h>

#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)

#include <arm_mve.h>

typedef int8x16_t tvm_ext_i8x16;
typedef int16x8_t tvm_ext_i16x8;
typedef int32x4_t tvm_ext_i32x4;

/* One step of 16 products for two rows of x and four channels of f: loads and sums take turns. */
#define TVM_EXT_DOTS_2X4_STEP(mac)                                                                                   \
    "vldrb.u8 %q[v0], [%[x0]], #16\n\t"                                                                              \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r0, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v1], [%[x1]], #16\n\t" mac " r8, %q[v1], %q[v2]\n\t"                                                \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r2, %q[v0], %q[v3]\n\t" mac " r10, %q[v1], %q[v3]\n\t"                  \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r4, %q[v0], %q[v2]\n\t" mac " r12, %q[v1], %q[v2]\n\t"                  \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r6, %q[v0], %q[v3]\n\t" mac " lr, %q[v1], %q[v3]\n\t"

#define TVM_EXT_DOTS_1X4_STEP(mac)                                                                                   \
    "vldrb.u8 %q[v0], [%[x0]], #16\n\t"                                                                              \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r0, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r2, %q[v0], %q[v3]\n\t"                                                 \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r4, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r6, %q[v0], %q[v3]\n\t"

/* sum0 and sum1, four channels each, += two rows x0 and x1 times channels f, over `runs` runs of `steps` * 16
 * elements. Runs of x lie `skip` bytes apart, end to begin; f holds 16 elements of each channel by turns and is
 * advanced past them. runs, steps: digits. The sums take all even registers. */
#define TVM_EXT_DOTS_2X4(runs, steps, row0, row1, skip, f, sum0, sum1)                                               \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0), *dots_x1 = (row1);                                                           \
        int8x16_t dots_v0, dots_v1, dots_v2, dots_v3;                                                                \
        __asm__(TVM_EXT_DOTS_2X4_STEP("vmladav.s8") ".rept " #steps "-1\n\t"                                         \
                TVM_EXT_DOTS_2X4_STEP("vmladava.s8") ".endr\n\t"                                                     \
                ".rept " #runs "-1\n\tadd %[x0], %[x0], %[jump]\n\tadd %[x1], %[x1], %[jump]\n\t"                    \
                ".rept " #steps "\n\t" TVM_EXT_DOTS_2X4_STEP("vmladava.s8") ".endr\n\t.endr\n\t"                     \
                "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                         \
                "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"                       \
                : [x0] "+r"(dots_x0), [x1] "+r"(dots_x1), [f] "+r"(f), [v0] "=&w"(dots_v0), [v1] "=&w"(dots_v1),     \
                  [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)                                                           \
                : [jump] "r"(skip)                                                                                   \
                : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");                                       \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
        (sum1) = vaddq_s32((sum1), vreinterpretq_s32_s8(dots_v1));                                                   \
    } while (0)

/* The same for one row. */
#define TVM_EXT_DOTS_1X4(runs, steps, row0, skip, f, sum0)                                                           \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0);                                                                              \
        int8x16_t dots_v0, dots_v2, dots_v3;                                                                         \
        __asm__(TVM_EXT_DOTS_1X4_STEP("vmladav.s8") ".rept " #steps "-1\n\t"                                         \
                TVM_EXT_DOTS_1X4_STEP("vmladava.s8") ".endr\n\t"                                                     \
                ".rept " #runs "-1\n\tadd %[x0], %[x0], %[jump]\n\t"                                                 \
                ".rept " #steps "\n\t" TVM_EXT_DOTS_1X4_STEP("vmladava.s8") ".endr\n\t.endr\n\t"                     \
                "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                         \
                : [x0] "+r"(dots_x0), [f] "+r"(f), [v0] "=&w"(dots_v0), [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)     \
                : [jump] "r"(skip)                                                                                   \
                : "r0", "r2", "r4", "r6", "memory");                                                                 \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
    } while (0)

/* target[0, count) = source, each byte with the bits of `flip` turned over; 16 at a time. */
static inline void tvm_ext_copy_i8(int8_t *target, const void *source, int32_t count, int8_t flip)
{
    const int8x16_t bits = vdupq_n_s8(flip);
    int8x16_t value;
    __asm__("wlstp.8 lr, %[n], 2f\n"
            "1:\n\tvldrb.u8 %q[v], [%[from]], #16\n\tveor %q[v], %q[v], %q[bits]\n\t"
            "vstrb.8 %q[v], [%[to]], #16\n\tletp lr, 1b\n"
            "2:\n\t"
            : [v] "=&w"(value), [from] "+r"(source), [to] "+r"(target)
            : [n] "r"(count), [bits] "w"(bits)
            : "lr", "cc", "memory");
}

/* target[0, count) = value. */
static inline void tvm_ext_fill_i8(int8_t *target, int8_t value, int32_t count)
{
    const int8x16_t values = vdupq_n_s8(value);
    __asm__("wlstp.8 lr, %[n], 2f\n"
            "1:\n\tvstrb.8 %q[v], [%[to]], #16\n\tletp lr, 1b\n"
            "2:\n\t"
            : [to] "+r"(target)
            : [n] "r"(count), [v] "w"(values)
            : "lr", "cc", "memory");
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_load(const int8_t *source)
{
    return vldrbq_s8(source);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    return vldrwq_s32(source);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vaddq_s32(a, b);
}

/* a * 2^shift, which must fit; shift: 0 to 31. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_shift_left(tvm_ext_i32x4 a, int32_t shift)
{
    return vshlq_r_s32(a, shift);
}

/* a * multiplier / 2^(32 - shift), rounded once, halves up; multiplier: 0 to 2^31 - 1, shift: -31 to -1.
 * The rounding shift of the product's high word rounds the product: its low word cannot carry. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_scale(tvm_ext_i32x4 a, tvm_ext_i32x4 multiplier, tvm_ext_i32x4 shift)
{
    return vrshlq_s32(vmulhq_s32(a, multiplier), shift);
}

/* The same, halves to even: where the low word is 0 and the result would be even, one is taken off the high word. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_scale_even(tvm_ext_i32x4 a, tvm_ext_i32x4 multiplier, tvm_ext_i32x4 shift)
{
    const int32x4_t high = vmulhq_s32(a, multiplier);
    const int32x4_t even = vbicq_s32(vdupq_n_s32(1), vshlq_s32(high, shift));
    const mve_pred16_t whole = vcmpeqq_n_s32(vmulq_s32(a, multiplier), 0);
    return vrshlq_s32(vsubq_m_s32(high, high, even, whole), shift);
}

/* a to the even lanes, b to the odd ones, limited to 16 bits. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_narrow(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(a), a), b);
}

/* a + b, limited to 16 bits. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_add_n(tvm_ext_i16x8 a, int16_t b)
{
    return vqaddq_n_s16(a, b);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_clamp(tvm_ext_i16x8 a, int16_t low, int16_t high)
{
    return vminq_s16(vmaxq_s16(a, vdupq_n_s16(low)), vdupq_n_s16(high));
}

/* The low byte of each lane is a, limited to int8_t; the rest of the lane may be anything. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_even_to_i8(tvm_ext_i16x8 a)
{
    return vreinterpretq_s16_s8(vqmovnbq_s16(vreinterpretq_s8_s16(a), a));
}

/* The low bytes of the first `count` even lanes; count: 1 to 4. */
static inline void tvm_ext_i16x8_store_even(void *target, tvm_ext_i16x8 a, int32_t count)
{
    if (count >= 4) {
        vstrbq_s32((int8_t *)target, vreinterpretq_s32_s16(a));
    } else {
        vstrbq_p_s32((int8_t *)target, vreinterpretq_s32_s16(a), vctp32q((uint32_t)count));
    }
}

/* The low bytes of the first `count` odd lanes. */
static inline void tvm_ext_i16x8_store_odd(void *target, tvm_ext_i16x8 a, int32_t count)
{
    const uint32x4_t low = vshrq_n_u32(vreinterpretq_u32_s16(a), 16);
    tvm_ext_i16x8_store_even(target, vreinterpretq_s16_u32(low), count);
}

#else
#endif

#endif
