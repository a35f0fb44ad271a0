/* Sums of products of bytes, and the copies they read: Helium, or plain C with the same results. */
#ifndef TVM_EXT_HELIUM_PRODUCT_H
#define TVM_EXT_HELIUM_PRODUCT_H

#include "tvm_ext_helium.h"

#include <stdint.h>
#include <string.h>

#ifdef TVM_EXT_HAS_HELIUM

/* One step of 16 products for two rows of x and four channels of f: loads and sums alternate. The step before it
 * loads its elements of x0 between its last two sums, AHEAD, because two loads that follow each other take longer. */
#define TVM_EXT_DOTS_2X4_AHEAD "vldrb.u8 %q[v0], [%[x0]], #16\n\t"
#define TVM_EXT_DOTS_2X4_STEP(mac, ahead)                                                                            \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r0, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v1], [%[x1]], #16\n\t" mac " r8, %q[v1], %q[v2]\n\t"                                                \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r2, %q[v0], %q[v3]\n\t" mac " r10, %q[v1], %q[v3]\n\t"                  \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r4, %q[v0], %q[v2]\n\t" mac " r12, %q[v1], %q[v2]\n\t"                  \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r6, %q[v0], %q[v3]\n\t" ahead mac " lr, %q[v1], %q[v3]\n\t"

#define TVM_EXT_DOTS_1X4_STEP(mac, ahead)                                                                            \
    "vldrb.u8 %q[v0], [%[x0]], #16\n\t"                                                                              \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r0, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r2, %q[v0], %q[v3]\n\t"                                                 \
    "vldrb.u8 %q[v2], [%[f]], #16\n\t" mac " r4, %q[v0], %q[v2]\n\t"                                                 \
    "vldrb.u8 %q[v3], [%[f]], #16\n\t" mac " r6, %q[v0], %q[v3]\n\t"

/* The same for weights of 4 bits: a vector holds those of two channels, the first one's in the lower four bits of
 * each byte; both are multiplied as 16 times their values. */
#define TVM_EXT_DOTS_2X4_S4_PAIR(mac, a0, a1, b0, b1)                                                                \
    "vldrb.u8 %q[v2], [%[f]], #16\n\tvshl.i8 %q[v3], %q[v2], #4\n\t" mac " " a0 ", %q[v0], %q[v3]\n\t"               \
    mac " " a1 ", %q[v1], %q[v3]\n\tvand %q[v2], %q[v2], %q[mask]\n\t" mac " " b0 ", %q[v0], %q[v2]\n\t"             \
    mac " " b1 ", %q[v1], %q[v2]\n\t"
#define TVM_EXT_DOTS_2X4_S4_STEP(mac, ahead)                                                                         \
    "vldrb.u8 %q[v0], [%[x0]], #16\n\tvldrb.u8 %q[v1], [%[x1]], #16\n\t"                                             \
    TVM_EXT_DOTS_2X4_S4_PAIR(mac, "r0", "r8", "r2", "r10") TVM_EXT_DOTS_2X4_S4_PAIR(mac, "r4", "r12", "r6", "lr")

#define TVM_EXT_DOTS_1X4_S4_PAIR(mac, a, b)                                                                          \
    "vldrb.u8 %q[v2], [%[f]], #16\n\tvshl.i8 %q[v3], %q[v2], #4\n\t" mac " " a ", %q[v0], %q[v3]\n\t"                \
    "vand %q[v2], %q[v2], %q[mask]\n\t" mac " " b ", %q[v0], %q[v2]\n\t"
#define TVM_EXT_DOTS_1X4_S4_STEP(mac, ahead)                                                                         \
    "vldrb.u8 %q[v0], [%[x0]], #16\n\t"                                                                              \
    TVM_EXT_DOTS_1X4_S4_PAIR(mac, "r0", "r2") TVM_EXT_DOTS_1X4_S4_PAIR(mac, "r4", "r6")

/* All steps of all runs; the first one initializes the sums. ahead: loads of a step that precede it. */
#define TVM_EXT_DOTS_RUNS(step, ahead, advance)                                                                      \
    ahead ".if %c[num_steps] > 1\n\t" step("vmladav.s8", ahead)                                                      \
    ".rept %c[num_steps]-2\n\t" step("vmladava.s8", ahead) ".endr\n\t" step("vmladava.s8", "")                       \
    ".else\n\t" step("vmladav.s8", "") ".endif\n\t"                                                                  \
    ".rept %c[num_runs]-1\n\t" advance ahead                                                                         \
    ".rept %c[num_steps]-1\n\t" step("vmladava.s8", ahead) ".endr\n\t" step("vmladava.s8", "") ".endr\n\t"

/* sum0 and sum1, four channels each, += two rows x0 and x1 times the channels' `filters`, over `runs` runs of
 * `steps` * 16 elements. Runs of x lie `skip` bytes apart, end to begin; `filters` holds 16 elements of each channel
 * by turns and is advanced past them. runs, steps: constants. The sums take all even registers, `skip` a high one: of
 * the low ones, three are left beside a frame pointer. */
#define TVM_EXT_DOTS_2X4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                         \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0), *dots_x1 = (row1);                                                           \
        int8x16_t dots_v0, dots_v1, dots_v2, dots_v3;                                                                \
        __asm__ volatile(                                                                                            \
            TVM_EXT_DOTS_RUNS(TVM_EXT_DOTS_2X4_STEP, TVM_EXT_DOTS_2X4_AHEAD,                                         \
                              "add %[x0], %[x0], %[jump]\n\tadd %[x1], %[x1], %[jump]\n\t")                          \
            "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                             \
            "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"                           \
            : [x0] "+r"(dots_x0), [x1] "+r"(dots_x1), [f] "+r"(filters), [v0] "=&w"(dots_v0),                        \
              [v1] "=&w"(dots_v1), [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)                                          \
            : [jump] "hI"(skip), [num_runs] "i"(runs), [num_steps] "i"(steps)                                        \
            : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");                                           \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
        (sum1) = vaddq_s32((sum1), vreinterpretq_s32_s8(dots_v1));                                                   \
    } while (0)

/* The same for one row. */
#define TVM_EXT_DOTS_1X4(runs, steps, row0, skip, filters, sum0)                                                     \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0);                                                                              \
        int8x16_t dots_v0, dots_v2, dots_v3;                                                                         \
        __asm__ volatile(                                                                                            \
            TVM_EXT_DOTS_RUNS(TVM_EXT_DOTS_1X4_STEP, "", "add %[x0], %[x0], %[jump]\n\t")                            \
            "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                             \
            : [x0] "+r"(dots_x0), [f] "+r"(filters), [v0] "=&w"(dots_v0), [v2] "=&w"(dots_v2),                       \
              [v3] "=&w"(dots_v3)                                                                                    \
            : [jump] "rI"(skip), [num_runs] "i"(runs), [num_steps] "i"(steps)                                        \
            : "r0", "r2", "r4", "r6", "memory");                                                                     \
        (sum0) = vaddq_s32((sum0), vreinterpretq_s32_s8(dots_v0));                                                   \
    } while (0)

/* TVM_EXT_DOTS_2X4 with weights of 4 bits, half as many bytes of `filters`. */
#define TVM_EXT_DOTS_2X4_S4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                      \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0), *dots_x1 = (row1);                                                           \
        const int8x16_t dots_mask = vdupq_n_s8(-16);                                                                 \
        int8x16_t dots_v0, dots_v1, dots_v2, dots_v3;                                                                \
        __asm__ volatile(                                                                                            \
            TVM_EXT_DOTS_RUNS(TVM_EXT_DOTS_2X4_S4_STEP, "",                                                          \
                              "add %[x0], %[x0], %[jump]\n\tadd %[x1], %[x1], %[jump]\n\t")                          \
            "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                             \
            "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"                           \
            : [x0] "+r"(dots_x0), [x1] "+r"(dots_x1), [f] "+r"(filters), [v0] "=&w"(dots_v0),                        \
              [v1] "=&w"(dots_v1), [v2] "=&w"(dots_v2), [v3] "=&w"(dots_v3)                                          \
            : [jump] "hI"(skip), [num_runs] "i"(runs), [num_steps] "i"(steps), [mask] "w"(dots_mask)                 \
            : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");                                           \
        (sum0) = vaddq_s32((sum0), vshrq_n_s32(vreinterpretq_s32_s8(dots_v0), 4));                                   \
        (sum1) = vaddq_s32((sum1), vshrq_n_s32(vreinterpretq_s32_s8(dots_v1), 4));                                   \
    } while (0)

/* The same for one row. */
#define TVM_EXT_DOTS_1X4_S4(runs, steps, row0, skip, filters, sum0)                                                  \
    do {                                                                                                             \
        const int8_t *dots_x0 = (row0);                                                                              \
        const int8x16_t dots_mask = vdupq_n_s8(-16);                                                                 \
        int8x16_t dots_v0, dots_v2, dots_v3;                                                                         \
        __asm__ volatile(                                                                                            \
            TVM_EXT_DOTS_RUNS(TVM_EXT_DOTS_1X4_S4_STEP, "", "add %[x0], %[x0], %[jump]\n\t")                         \
            "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"                             \
            : [x0] "+r"(dots_x0), [f] "+r"(filters), [v0] "=&w"(dots_v0), [v2] "=&w"(dots_v2),                       \
              [v3] "=&w"(dots_v3)                                                                                    \
            : [jump] "rI"(skip), [num_runs] "i"(runs), [num_steps] "i"(steps), [mask] "w"(dots_mask)                 \
            : "r0", "r2", "r4", "r6", "memory");                                                                     \
        (sum0) = vaddq_s32((sum0), vshrq_n_s32(vreinterpretq_s32_s8(dots_v0), 4));                                   \
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

/* Copies elements with the highest bit of each byte inverted, which converts uint8_t to int8_t, minus 128. */
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

/* Keeps the order of statements before and after it: earlier loads would not find registers. */
#define TVM_EXT_IN_ORDER(a, b) __asm__ volatile("" : "+w"(a), "+w"(b) : : "memory")

/* Products of 16 bytes at `x` and `f`, of even and of odd lanes. */
#define TVM_EXT_MULTIPLY_I8X16(even, odd, x, f)                                                                      \
    do {                                                                                                             \
        const int8x16_t multiply_x = vldrbq_s8(x), multiply_f = vldrbq_s8(f);                                        \
        (even) = vmullbq_int_s8(multiply_x, multiply_f);                                                             \
        (odd) = vmulltq_int_s8(multiply_x, multiply_f);                                                              \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
    } while (0)

/* Adds the products of 16 bytes at `x` and `f` to `even` and `odd`. x is loaded twice, because no register is free
 * to keep it. */
#define TVM_EXT_MULTIPLY_ADD_I8X16(even, odd, x, f)                                                                  \
    do {                                                                                                             \
        const int8x16_t multiply_f = vldrbq_s8(f);                                                                   \
        (even) = vaddq_s16((even), vmullbq_int_s8(vldrbq_s8(x), multiply_f));                                        \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
        (odd) = vaddq_s16((odd), vmulltq_int_s8(vldrbq_s8(x), multiply_f));                                          \
        TVM_EXT_IN_ORDER(even, odd);                                                                                 \
    } while (0)

#else

static inline tvm_ext_i32x4 tvm_ext_dots(int32_t runs, int32_t steps, const int8_t *x, int32_t skip, const int8_t *f,
                                         tvm_ext_i32x4 sum)
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

#define TVM_EXT_DOTS_2X4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                         \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots((runs), (steps), (row0), (skip), (filters), (sum0));                                   \
        (sum1) = tvm_ext_dots((runs), (steps), (row1), (skip), (filters), (sum1));                                   \
        (filters) += (runs) * (steps) * 64;                                                                          \
    } while (0)

#define TVM_EXT_DOTS_1X4(runs, steps, row0, skip, filters, sum0)                                                     \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots((runs), (steps), (row0), (skip), (filters), (sum0));                                   \
        (filters) += (runs) * (steps) * 64;                                                                          \
    } while (0)

static inline tvm_ext_i32x4 tvm_ext_dots_s4(int32_t runs, int32_t steps, const int8_t *x, int32_t skip, const int8_t *f,
                                            tvm_ext_i32x4 sum)
{
    for (int32_t r = 0; r < runs; ++r) {
        for (int32_t s = 0; s < steps; ++s) {
            for (int32_t i = 0; i < 32; ++i) {
                const int32_t pair = i / 16 * 2, byte = f[i];
                const int32_t low = ((byte & 15) ^ 8) - 8;
                sum.lane[pair] = tvm_ext_wrap((int64_t)sum.lane[pair] + x[i % 16] * low);
                sum.lane[pair + 1] = tvm_ext_wrap((int64_t)sum.lane[pair + 1] + x[i % 16] * (byte >> 4));
            }
            x += 16;
            f += 32;
        }
        if (r + 1 < runs) {
            x += skip;
        }
    }
    return sum;
}

#define TVM_EXT_DOTS_2X4_S4(runs, steps, row0, row1, skip, filters, sum0, sum1)                                      \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots_s4((runs), (steps), (row0), (skip), (filters), (sum0));                                \
        (sum1) = tvm_ext_dots_s4((runs), (steps), (row1), (skip), (filters), (sum1));                                \
        (filters) += (runs) * (steps) * 32;                                                                          \
    } while (0)

#define TVM_EXT_DOTS_1X4_S4(runs, steps, row0, skip, filters, sum0)                                                  \
    do {                                                                                                             \
        (sum0) = tvm_ext_dots_s4((runs), (steps), (row0), (skip), (filters), (sum0));                                \
        (filters) += (runs) * (steps) * 32;                                                                          \
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

#define TVM_EXT_IN_ORDER(a, b) ((void)0)

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

#endif

#endif
