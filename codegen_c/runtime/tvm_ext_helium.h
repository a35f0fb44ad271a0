/* 8-bit vectors for generated kernels: Helium where the compiler has it, plain C everywhere else, lane by lane
 * the same bytes. Lanes are counted from 0; "even" and "odd" are those of even and of odd number. */
#ifndef TVM_EXT_HELIUM_H
#define TVM_EXT_HELIUM_H

#include "tvm_ext_requantize.h"

#include <stdint.h>
#include <string.h>

/* Without optimisation compilers run out of registers below. */
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && defined(__OPTIMIZE__)

#include <arm_mve.h>

typedef int8x16_t tvm_ext_i8x16;
typedef int16x8_t tvm_ext_i16x8;
typedef int32x4_t tvm_ext_i32x4;

/* Fixes the order of what is before and behind it: loads ahead of their use would not find registers. */
#define TVM_EXT_IN_ORDER(a, b) __asm__ volatile("" : "+w"(a), "+w"(b) : : "memory")

/* Products of 16 bytes at `x` and `f`, of even and of odd lanes. */
#define TVM_EXT_MULTIPLY_I8X16(even, odd, x, f)                                                                      \
    do {                                                                                                             \
        const int8x16_t multiply_x = vldrbq_s8(x), multiply_f = vldrbq_s8(f);                                        \
        (even) = vmullbq_int_s8(multiply_x, multiply_f);                                                             \
        (odd) = vmulltq_int_s8(multiply_x, multiply_f);                                                              \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
    } while (0)

/* The same, added to even and odd. x is loaded twice, as there is no register to keep it in. */
#define TVM_EXT_MULTIPLY_ADD_I8X16(even, odd, x, f)                                                                  \
    do {                                                                                                             \
        const int8x16_t multiply_f = vldrbq_s8(f);                                                                   \
        (even) = vaddq_s16((even), vmullbq_int_s8(vldrbq_s8(x), multiply_f));                                        \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
        (odd) = vaddq_s16((odd), vmulltq_int_s8(vldrbq_s8(x), multiply_f));                                          \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
    } while (0)

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

/* sum0 and sum1, four channels each, += two rows x0 and x1 times the channels' `filters`, over `runs` runs of `steps` * 16
 * elements. Runs of x lie `skip` bytes apart, end to begin; `filters` holds 16 elements of each channel by turns and is
 * advanced past them. runs, steps: digits. The sums take all even registers. */
#define TVM_EXT_DOTS_2X4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                               \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0), *dots_x1 = (row1);                                                           \
        int8x16_t dots_v0, dots_v1, dots_v2, dots_v3;                                                                \
        __asm__ volatile(TVM_EXT_DOTS_2X4_STEP("vmladav.s8") ".rept " #steps "-1\n\t"                                         \
                TVM_EXT_DOTS_2X4_STEP("vmladava.s8") ".endr\n\t"                                                     \
                ".rept " #runs "-1\n\tadd %[x0], %[x0], %[jump]\n\tadd %[x1], %[x1], %[jump]\n\t"                    \
                ".rept " #steps "\n\t" TVM_EXT_DOTS_2X4_STEP("vmladava.s8") ".endr\n\t.endr\n\t"                     \
                "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                         \
                "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"                       \
                : [x0] "+r"(dots_x0), [x1] "+r"(dots_x1), [f] "+r"(filters), [v0] "=&w"(dots_v0), [v1] "=&w"(dots_v1),     \
                  [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)                                                           \
                : [jump] "rI"(skip)                                                                                  \
                : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");                                       \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
        (sum1) = vaddq_s32((sum1), vreinterpretq_s32_s8(dots_v1));                                                   \
    } while (0)

/* The same for one row. */
#define TVM_EXT_DOTS_1X4(runs, steps, row0, skip, filters, sum0)                                                           \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0);                                                                              \
        int8x16_t dots_v0, dots_v2, dots_v3;                                                                         \
        __asm__ volatile(TVM_EXT_DOTS_1X4_STEP("vmladav.s8") ".rept " #steps "-1\n\t"                                         \
                TVM_EXT_DOTS_1X4_STEP("vmladava.s8") ".endr\n\t"                                                     \
                ".rept " #runs "-1\n\tadd %[x0], %[x0], %[jump]\n\t"                                                 \
                ".rept " #steps "\n\t" TVM_EXT_DOTS_1X4_STEP("vmladava.s8") ".endr\n\t.endr\n\t"                     \
                "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                         \
                : [x0] "+r"(dots_x0), [f] "+r"(filters), [v0] "=&w"(dots_v0), [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)     \
                : [jump] "rI"(skip)                                                                                  \
                : "r0", "r2", "r4", "r6", "memory");                                                                 \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
    } while (0)

/* target[0, count) = source, 16 bytes at a time. */
static inline void tvm_ext_copy_i8(int8_t *target, const void *source, int32_t count)
{
    int8x16_t value;
    __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
                     "1:\n\tvldrb.u8 %q[v], [%[from]], #16\n\tvstrb.8 %q[v], [%[to]], #16\n\tletp lr, 1b\n"
                     "2:\n\t"
                     : [v] "=&w"(value), [from] "+r"(source), [to] "+r"(target)
                     : [n] "r"(count)
                     : "lr", "cc", "memory");
}

/* The same with the highest bit of each byte turned over: uint8_t as int8_t, 128 less. */
static inline void tvm_ext_copy_u8(int8_t *target, const void *source, int32_t count)
{
    const int8x16_t bits = vdupq_n_s8(INT8_MIN);
    int8x16_t value;
    __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
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
    __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
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

/* The first `count` bytes, zeros behind them. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_load_first(const void *source, int32_t count)
{
    return vldrbq_z_s8((const int8_t *)source, vctp8q((uint32_t)count));
}

static inline void tvm_ext_i8x16_store(void *target, tvm_ext_i8x16 a)
{
    vstrbq_s8((int8_t *)target, a);
}

static inline void tvm_ext_i8x16_store_first(void *target, tvm_ext_i8x16 a, int32_t count)
{
    vstrbq_p_s8((int8_t *)target, a, vctp8q((uint32_t)count));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_splat(int8_t value)
{
    return vdupq_n_s8(value);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_xor(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return veorq_s8(a, b);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_max(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return vmaxq_s8(a, b);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_min(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    return vminq_s8(a, b);
}

/* The even lanes of a in the low, those of b in the high byte of each pair: their low bytes. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_of(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    return vmovntq_s16(vreinterpretq_s8_s16(even), odd);
}

/* The same, each limited to int8_t. */
static inline tvm_ext_i8x16 tvm_ext_i8x16_limited(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    int8x16_t result;
    __asm__("vqmovnb.s16 %q0, %q1\n\tvqmovnt.s16 %q0, %q2" : "=&w"(result) : "w"(even), "w"(odd));
    return result;
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_splat(int16_t value)
{
    return vdupq_n_s16(value);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_even(tvm_ext_i8x16 a)
{
    return vmovlbq_s8(a);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_odd(tvm_ext_i8x16 a)
{
    return vmovltq_s8(a);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    return vaddq_s16(a, b);
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

/* a in the even lanes, b in the odd ones, limited to 16 bits. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_narrow(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    int16x8_t result;
    __asm__("vqmovnb.s32 %q0, %q1\n\tvqmovnt.s32 %q0, %q2" : "=&w"(result) : "w"(a), "w"(b));
    return result;
}

/* The low byte of each lane is a, limited to int8_t; the high byte is not to be read. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_limited(tvm_ext_i16x8 a)
{
    int16x8_t result;
    __asm__("vqmovnb.s16 %q0, %q1" : "=w"(result) : "w"(a));
    return result;
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

static inline tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    return vldrwq_s32(source);
}

/* Up to four bytes, widened; zeros behind them. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_load_i8(const int8_t *source, int32_t count)
{
    return count >= 4 ? vldrbq_s32(source) : vldrbq_z_s32(source, vctp32q((uint32_t)count));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_u8(const uint8_t *source, int32_t count)
{
    const uint32x4_t a = count >= 4 ? vldrbq_u32(source) : vldrbq_z_u32(source, vctp32q((uint32_t)count));
    return vreinterpretq_s32_u32(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    return vdupq_n_s32(value);
}

/* The even, and the odd, lanes. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_even(tvm_ext_i16x8 a)
{
    return vmovlbq_s16(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_odd(tvm_ext_i16x8 a)
{
    return vmovltq_s16(a);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vaddq_s32(a, b);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vmulq_s32(a, b);
}

/* a + b * c. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_mla(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    return vmlaq_n_s32(a, b, c);
}

/* a * 2^shift rounded down; the result must fit. shift: -31 to 31. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_shift(tvm_ext_i32x4 a, int32_t shift)
{
    return vshlq_r_s32(a, shift);
}

/* a * 2^shift, rounded once, halves up; shift: -31 to -1. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    return vrshlq_s32(a, shift);
}

/* The same for a number a + low / 2^32, halves to even: low is 0 where it has no such part. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_even(tvm_ext_i32x4 a, tvm_ext_i32x4 low, tvm_ext_i32x4 shift)
{
    /* 32 leading zeros: a whole number. Predicates would say so, too, but GCC 12 breaks on some of theirs. */
    const int32x4_t is_whole = vshrq_n_s32(vclzq_s32(low), 5);
    return vrshlq_s32(vsubq_s32(a, vbicq_s32(is_whole, vshlq_s32(a, shift))), shift);
}

/* High words of the products. */
static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_high(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    return vmulhq_s32(a, b);
}

#else

typedef struct {
    int8_t lane[16];
} tvm_ext_i8x16;

typedef struct {
    int16_t lane[8];
} tvm_ext_i16x8;

typedef struct {
    int32_t lane[4];
} tvm_ext_i32x4;

#define TVM_EXT_IN_ORDER(a, b) ((void)0)
#define TVM_EXT_EACH(type, count, value)                                                                             \
    type result;                                                                                                     \
    for (int32_t i = 0; i < (count); ++i) {                                                                          \
        result.lane[i] = (value);                                                                                    \
    }                                                                                                                \
    return result

/* Sums and products of int32_t as the hardware makes them: modulo 2^32. */
static inline int32_t tvm_ext_wrap(int64_t value)
{
    const uint32_t word = (uint32_t)((uint64_t)value & UINT32_MAX);
    int32_t result;
    memcpy(&result, &word, sizeof(result));
    return result;
}

static inline tvm_ext_i32x4 tvm_ext_dots(
    int32_t runs, int32_t steps, const int8_t *x, int32_t skip, const int8_t *f, tvm_ext_i32x4 sum)
{
    for (int32_t r = 0; r < runs; ++r) {
        for (int32_t s = 0; s < steps; ++s) {
            for (int32_t i = 0; i < 64; ++i) {
                sum.lane[i / 16] = tvm_ext_wrap((int64_t)sum.lane[i / 16] + x[i % 16] * f[i]);
            }
            x += 16;
            f += 64;
        }
        if (r + 1 < runs) {
            x += skip;
        }
    }
    return sum;
}

#define TVM_EXT_DOTS_2X4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                               \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots((runs), (steps), (row0), (skip), (filters), (sum0));                                         \
        (sum1) = tvm_ext_dots((runs), (steps), (row1), (skip), (filters), (sum1));                                         \
        (filters) += (runs) * (steps) * 64;                                                                                \
    } while (0)

#define TVM_EXT_DOTS_1X4(runs, steps, row0, skip, filters, sum0)                                                           \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots((runs), (steps), (row0), (skip), (filters), (sum0));                                         \
        (filters) += (runs) * (steps) * 64;                                                                                \
    } while (0)

static inline void tvm_ext_copy_i8(int8_t *target, const void *source, int32_t count)
{
    memcpy(target, source, (size_t)count);
}

static inline void tvm_ext_copy_u8(int8_t *target, const void *source, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = (int8_t)(((const uint8_t *)source)[i] - 128);
    }
}

static inline void tvm_ext_fill_i8(int8_t *target, int8_t value, int32_t count)
{
    for (int32_t i = 0; i < count; ++i) {
        target[i] = value;
    }
}

static inline int16_t tvm_ext_limit_i16(int32_t value)
{
    return (int16_t)tvm_ext_clamp(value, INT16_MIN, INT16_MAX);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_load_first(const void *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, i < count ? ((const int8_t *)source)[i] : 0);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_load(const int8_t *source)
{
    return tvm_ext_i8x16_load_first(source, 16);
}

static inline void tvm_ext_i8x16_store(void *target, tvm_ext_i8x16 a)
{
    memcpy(target, a.lane, sizeof(a.lane));
}

static inline void tvm_ext_i8x16_store_first(void *target, tvm_ext_i8x16 a, int32_t count)
{
    memcpy(target, a.lane, (size_t)(count < 16 ? count : 16));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_splat(int8_t value)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, value);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_xor(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)(a.lane[i] ^ b.lane[i]));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_max(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_min(tvm_ext_i8x16 a, tvm_ext_i8x16 b)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_of(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)(uint8_t)((i % 2 ? odd : even).lane[i / 2] & 255));
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_limited(tvm_ext_i16x8 even, tvm_ext_i16x8 odd)
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, (int8_t)tvm_ext_clamp((i % 2 ? odd : even).lane[i / 2], INT8_MIN, INT8_MAX));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_splat(int16_t value)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, value);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_even(tvm_ext_i8x16 a)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, a.lane[2 * i]);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_odd(tvm_ext_i8x16 a)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, a.lane[2 * i + 1]);
}

#define TVM_EXT_MULTIPLY_I8X16(even, odd, x, f)                                                                      \
    do {                                                                                                             \
        for (int32_t i = 0; i < 8; ++i) {                                                                            \
            (even).lane[i] = (int16_t)((x)[2 * i] * (f)[2 * i]);                                                     \
            (odd).lane[i] = (int16_t)((x)[2 * i + 1] * (f)[2 * i + 1]);                                              \
        }                                                                                                            \
    } while (0)

#define TVM_EXT_MULTIPLY_ADD_I8X16(even, odd, x, f)                                                                  \
    do {                                                                                                             \
        for (int32_t i = 0; i < 8; ++i) {                                                                            \
            (even).lane[i] = (int16_t)((even).lane[i] + (x)[2 * i] * (f)[2 * i]);                                    \
            (odd).lane[i] = (int16_t)((odd).lane[i] + (x)[2 * i + 1] * (f)[2 * i + 1]);                              \
        }                                                                                                            \
    } while (0)

static inline tvm_ext_i16x8 tvm_ext_i16x8_add(tvm_ext_i16x8 a, tvm_ext_i16x8 b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, (int16_t)(uint16_t)((a.lane[i] + b.lane[i]) & 0xFFFF));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_add_n(tvm_ext_i16x8 a, int16_t b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, tvm_ext_limit_i16(a.lane[i] + b));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_clamp(tvm_ext_i16x8 a, int16_t low, int16_t high)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, (int16_t)tvm_ext_clamp(a.lane[i], low, high));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_narrow(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, tvm_ext_limit_i16((i % 2 ? b : a).lane[i / 2]));
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_limited(tvm_ext_i16x8 a)
{
    return tvm_ext_i16x8_clamp(a, INT8_MIN, INT8_MAX);
}

static inline void tvm_ext_i16x8_store_even(void *target, tvm_ext_i16x8 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        ((uint8_t *)target)[i] = (uint8_t)(a.lane[2 * i] & 255);
    }
}

static inline void tvm_ext_i16x8_store_odd(void *target, tvm_ext_i16x8 a, int32_t count)
{
    for (int32_t i = 0; i < 4 && i < count; ++i) {
        ((uint8_t *)target)[i] = (uint8_t)(a.lane[2 * i + 1] & 255);
    }
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load(const int32_t *source)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, source[i]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_i8(const int8_t *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, i < count ? source[i] : 0);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_load_u8(const uint8_t *source, int32_t count)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, i < count ? source[i] : 0);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_splat(int32_t value)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, value);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_even(tvm_ext_i16x8 a)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, a.lane[2 * i]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_odd(tvm_ext_i16x8 a)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, a.lane[2 * i + 1]);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_add(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((int64_t)a.lane[i] + b.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((int64_t)a.lane[i] * b.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_mla(tvm_ext_i32x4 a, tvm_ext_i32x4 b, int32_t c)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap(a.lane[i] + (int64_t)b.lane[i] * c));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_shift(tvm_ext_i32x4 a, int32_t shift)
{
    const int64_t factor = (int64_t)1 << (shift > 0 ? shift : 0);
    TVM_EXT_EACH(tvm_ext_i32x4, 4, tvm_ext_wrap((a.lane[i] >> (shift < 0 ? -shift : 0)) * factor));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift(tvm_ext_i32x4 a, tvm_ext_i32x4 shift)
{
    TVM_EXT_EACH(
        tvm_ext_i32x4, 4, (int32_t)((a.lane[i] + ((int64_t)1 << (-shift.lane[i] - 1))) >> -shift.lane[i]));
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_round_shift_even(tvm_ext_i32x4 a, tvm_ext_i32x4 low, tvm_ext_i32x4 shift)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t is_even = 1 & ~(a.lane[i] >> -shift.lane[i]);
        a.lane[i] = tvm_ext_wrap((int64_t)a.lane[i] - (low.lane[i] == 0 ? is_even : 0));
    }
    return tvm_ext_i32x4_round_shift(a, shift);
}

static inline tvm_ext_i32x4 tvm_ext_i32x4_multiply_high(tvm_ext_i32x4 a, tvm_ext_i32x4 b)
{
    TVM_EXT_EACH(tvm_ext_i32x4, 4, (int32_t)(((int64_t)a.lane[i] * b.lane[i]) >> 32));
}

#endif

#endif
