/* Windows whose taps are the lanes of one vector: bytes of four rows are interleaved, words of them gathered, and
 * sums of four columns computed at a time. Helium, or plain C with the same results. */
#ifndef TVM_EXT_HELIUM_LANES_H
#define TVM_EXT_HELIUM_LANES_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef TVM_EXT_HAS_HELIUM

/* The addresses of four words. */
typedef uint32x4_t tvm_ext_words;

/* The addresses `lane[i]` bytes after `place`, which may precede the first byte: they are advanced before they are
   read. */
static inline tvm_ext_words tvm_ext_words_at(const uint8_t *first, int32_t place, const uint32_t lane[4])
{
    return vaddq_n_u32(vldrwq_u32(lane), (uint32_t)(uintptr_t)first + (uint32_t)place);
}

static inline tvm_ext_words tvm_ext_words_moved(tvm_ext_words words, int32_t bytes)
{
    return vaddq_n_u32(words, (uint32_t)bytes);
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_gather(const int8_t *source, const int8_t places[16])
{
    return vldrbq_gather_offset_s8(source, vreinterpretq_u8_s8(vldrbq_s8(places)));
}

/* Offsets of four results in each of two rows, `step` bytes apart: those of the first row in the even lanes, from
 * `even` on. All are below 2^16. */
static inline tvm_ext_i16x8 tvm_ext_i16x8_places(int32_t even, int32_t odd, int32_t step)
{
    uint16_t places[8];
    for (int32_t i = 0; i < 4; ++i) {
        places[2 * i] = (uint16_t)(even + (i * step));
        places[(2 * i) + 1] = (uint16_t)(odd + (i * step));
    }
    return vreinterpretq_s16_u16(vldrhq_u16(places));
}

/* Stores the low bytes of all lanes, each `places` bytes after `target`. */
static inline void tvm_ext_i16x8_scatter(uint8_t *target, tvm_ext_i16x8 places, tvm_ext_i16x8 a)
{
    vstrbq_scatter_offset_s16((int8_t *)target, vreinterpretq_u16_s16(places), a);
}

/* Stores the low bytes of the even lanes. */
static inline void tvm_ext_i16x8_scatter_even(uint8_t *target, tvm_ext_i32x4 places, tvm_ext_i16x8 a)
{
    vstrbq_scatter_offset_s32((int8_t *)target, vreinterpretq_u32_s32(places), vreinterpretq_s32_s16(a));
}

#define TVM_EXT_INTERLEAVE(flip)                                                                                     \
    __asm__ volatile("dls lr, %[n]\n"                                                                                \
                     "1:\n\tvldrb.u8 q0, [%[r0]]\n\tadd %[r0], %[r0], %[s0]\n\t"                                     \
                     "vldrb.u8 q1, [%[r1]]\n\tadd %[r1], %[r1], %[s1]\n\t"                                           \
                     "vldrb.u8 q2, [%[r2]]\n\tadd %[r2], %[r2], %[s2]\n\t"                                           \
                     "vldrb.u8 q3, [%[r3]]\n\tadd %[r3], %[r3], %[s3]\n\t" flip                                      \
                     "vst40.8 {q0, q1, q2, q3}, [%[to]]\n\tvst41.8 {q0, q1, q2, q3}, [%[to]]\n\t"                    \
                     "vst42.8 {q0, q1, q2, q3}, [%[to]]\n\tvst43.8 {q0, q1, q2, q3}, [%[to]]!\n\t"                   \
                     "le lr, 1b\n\t"                                                                                 \
                     : [r0] "+r"(r0), [r1] "+r"(r1), [r2] "+r"(r2), [r3] "+r"(r3), [to] "+r"(target)                 \
                     : [s0] "r"(s0), [s1] "r"(s1), [s2] "r"(s2), [s3] "r"(s3), [n] "r"(count), [bits] "w"(bits)      \
                     : "q0", "q1", "q2", "q3", "lr", "cc", "memory")

/* `count` times 16 bytes of each of four rows, count > 0: the first bytes of all rows, then the second ones. Row r goes
 * on steps[r] bytes further after 16. The highest bit of each byte is turned over where `turned`. */
static inline void tvm_ext_interleave(uint8_t *target, const uint8_t *const *rows, const int32_t *steps, int32_t count,
                                      bool turned)
{
    const uint8_t *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    const int32_t s0 = steps[0], s1 = steps[1], s2 = steps[2], s3 = steps[3];
    const int8x16_t bits = vdupq_n_s8(INT8_MIN);
    if (turned) {
        TVM_EXT_INTERLEAVE("veor q0, q0, %q[bits]\n\tveor q1, q1, %q[bits]\n\tveor q2, q2, %q[bits]\n\t"
                           "veor q3, q3, %q[bits]\n\t");
    } else {
        TVM_EXT_INTERLEAVE("");
    }
}

/* Adds the products of the words of four columns and one vector of weights, or one vector for each of two rows of
 * results. */
#define TVM_EXT_LANES_1(mac, first)                                                                                  \
    "vldrw.u32 %q[x0], [%q[at], %[" first "]]!\n\t" mac " r0, %q[x0], %q[w0]\n\t"                                    \
    "vldrw.u32 %q[x1], [%q[at], %[step]]!\n\t" mac " r2, %q[x1], %q[w0]\n\t"                                         \
    "vldrw.u32 %q[x0], [%q[at], %[step]]!\n\t" mac " r4, %q[x0], %q[w0]\n\t"                                         \
    "vldrw.u32 %q[x1], [%q[at], %[step]]!\n\t" mac " r6, %q[x1], %q[w0]\n\t"
#define TVM_EXT_LANES_2(mac, first)                                                                                  \
    "vldrw.u32 %q[x0], [%q[at], %[" first "]]!\n\t" mac " r0, %q[x0], %q[w0]\n\t" mac " r8, %q[x0], %q[w1]\n\t"      \
    "vldrw.u32 %q[x1], [%q[at], %[step]]!\n\t" mac " r2, %q[x1], %q[w0]\n\t" mac " r10, %q[x1], %q[w1]\n\t"          \
    "vldrw.u32 %q[x0], [%q[at], %[step]]!\n\t" mac " r4, %q[x0], %q[w0]\n\t" mac " r12, %q[x0], %q[w1]\n\t"          \
    "vldrw.u32 %q[x1], [%q[at], %[step]]!\n\t" mac " r6, %q[x1], %q[w0]\n\t" mac " lr, %q[x1], %q[w1]\n\t"

#define TVM_EXT_LANES_WEIGHTS_1 "vldrb.u8 %q[w0], [%[w]], #16\n\t"
#define TVM_EXT_LANES_WEIGHTS_2 TVM_EXT_LANES_WEIGHTS_1 "vldrb.u8 %q[w1], [%[w]], #16\n\t"
#define TVM_EXT_LANES_SUMS_1                                                                                         \
    "vmov %q[x0][2], %q[x0][0], r0, r4\n\tvmov %q[x0][3], %q[x0][1], r2, r6\n\t"
#define TVM_EXT_LANES_SUMS_2                                                                                         \
    TVM_EXT_LANES_SUMS_1 "vmov %q[x1][2], %q[x1][0], r8, r12\n\tvmov %q[x1][3], %q[x1][1], r10, lr\n\t"

/* Sums of four columns for one row of results, or two: sums[0], sums[1]. Words begin one column before the first one,
 * `step` bytes from column to column, and move on by four columns. Of one vector of weights for each row, w[0] and w[1]
 * are those; otherwise they are read from `table`, by turns, and `next` leads from the last column to the first one of
 * the next vector. All numbers are constants where it is inlined. */
TVM_EXT_INLINE tvm_ext_words tvm_ext_lanes_sums(tvm_ext_i32x4 sums[2], tvm_ext_words at, const tvm_ext_i8x16 w[2],
                                                const int8_t *table, int32_t vectors, int32_t rows, int32_t step,
                                                int32_t next)
{
    int8x16_t x0, x1, w0, w1;
    if (vectors == 1 && rows == 1) {
        __asm__ volatile(TVM_EXT_LANES_1("vmladav.s8", "step") TVM_EXT_LANES_SUMS_1
                         : [x0] "=&w"(x0), [x1] "=&w"(x1), [at] "+w"(at)
                         : [w0] "w"(w[0]), [step] "i"(step)
                         : "r0", "r2", "r4", "r6", "memory");
    } else if (vectors == 1) {
        __asm__ volatile(TVM_EXT_LANES_2("vmladav.s8", "step") TVM_EXT_LANES_SUMS_2
                         : [x0] "=&w"(x0), [x1] "=&w"(x1), [at] "+w"(at)
                         : [w0] "w"(w[0]), [w1] "w"(w[1]), [step] "i"(step)
                         : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");
    } else if (rows == 1) {
        __asm__ volatile(
            TVM_EXT_LANES_WEIGHTS_1 TVM_EXT_LANES_1("vmladav.s8", "step") ".rept %c[more]\n\t" TVM_EXT_LANES_WEIGHTS_1
                TVM_EXT_LANES_1("vmladava.s8", "next") ".endr\n\t" TVM_EXT_LANES_SUMS_1
            : [x0] "=&w"(x0), [x1] "=&w"(x1), [at] "+w"(at), [w] "+r"(table), [w0] "=&w"(w0)
            : [step] "i"(step), [next] "i"(next), [more] "i"(vectors - 1)
            : "r0", "r2", "r4", "r6", "memory");
    } else {
        __asm__ volatile(
            TVM_EXT_LANES_WEIGHTS_2 TVM_EXT_LANES_2("vmladav.s8", "step") ".rept %c[more]\n\t" TVM_EXT_LANES_WEIGHTS_2
                TVM_EXT_LANES_2("vmladava.s8", "next") ".endr\n\t" TVM_EXT_LANES_SUMS_2
            : [x0] "=&w"(x0), [x1] "=&w"(x1), [at] "+w"(at), [w] "+r"(table), [w0] "=&w"(w0), [w1] "=&w"(w1)
            : [step] "i"(step), [next] "i"(next), [more] "i"(vectors - 1)
            : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");
    }
    sums[0] = vreinterpretq_s32_s8(x0);
    sums[1] = vreinterpretq_s32_s8(x1);
    return vectors == 1 ? at : tvm_ext_words_moved(at, -(next + (3 * step)) * (vectors - 1));
}

#else

/* The addresses of four words that a copy reads or writes. */
typedef struct {
    const uint8_t *first;
    int32_t place[4];
} tvm_ext_words;

static inline tvm_ext_words tvm_ext_words_at(const uint8_t *first, int32_t place, const uint32_t lane[4])
{
    tvm_ext_words words = {first, {0, 0, 0, 0}};
    for (int32_t i = 0; i < 4; ++i) {
        words.place[i] = place + (int32_t)lane[i];
    }
    return words;
}

static inline tvm_ext_words tvm_ext_words_moved(tvm_ext_words words, int32_t bytes)
{
    for (int32_t i = 0; i < 4; ++i) {
        words.place[i] += bytes;
    }
    return words;
}

static inline tvm_ext_i8x16 tvm_ext_i8x16_gather(const int8_t *source, const int8_t places[16])
{
    TVM_EXT_EACH(tvm_ext_i8x16, 16, source[(uint8_t)places[i]]);
}

static inline tvm_ext_i16x8 tvm_ext_i16x8_places(int32_t even, int32_t odd, int32_t step)
{
    TVM_EXT_EACH(tvm_ext_i16x8, 8, (int16_t)(uint16_t)((i % 2 > 0 ? odd : even) + (i / 2 * step)));
}

static inline void tvm_ext_i16x8_scatter(uint8_t *target, tvm_ext_i16x8 places, tvm_ext_i16x8 a)
{
    for (int32_t i = 0; i < 8; ++i) {
        target[(uint16_t)places.lane[i]] = (uint8_t)(a.lane[i] & 255);
    }
}

static inline void tvm_ext_i16x8_scatter_even(uint8_t *target, tvm_ext_i32x4 places, tvm_ext_i16x8 a)
{
    for (int32_t i = 0; i < 4; ++i) {
        target[places.lane[i]] = (uint8_t)(a.lane[2 * i] & 255);
    }
}

static inline void tvm_ext_interleave(uint8_t *target, const uint8_t *const *rows, const int32_t *steps, int32_t count,
                                      bool turned)
{
    for (int32_t i = 0; i < count * 16; ++i) {
        for (int32_t r = 0; r < 4; ++r) {
            const uint8_t element = rows[r][(i / 16 * steps[r]) + (i % 16)];
            target[(i * 4) + r] = (uint8_t)(turned ? element ^ 128u : element);
        }
    }
}

TVM_EXT_INLINE tvm_ext_words tvm_ext_lanes_sums(tvm_ext_i32x4 sums[2], tvm_ext_words at, const tvm_ext_i8x16 w[2],
                                                const int8_t *table, int32_t vectors, int32_t rows, int32_t step,
                                                int32_t next)
{
    sums[0] = tvm_ext_i32x4_splat(0);
    sums[1] = sums[0];
    for (int32_t i = 0; i < vectors * 4; ++i) {
        at = tvm_ext_words_moved(at, i > 0 && i % 4 == 0 ? next : step);
        for (int32_t r = 0; r < rows; ++r) {
            for (int32_t k = 0; k < 16; ++k) {
                const int32_t weight = vectors == 1 ? w[r].lane[k] : table[(((i / 4 * rows) + r) * 16) + k];
                const int32_t element = (int32_t)at.first[at.place[k / 4] + (k % 4)];
                sums[r].lane[i % 4] += (element > INT8_MAX ? element - 256 : element) * weight;
            }
        }
    }
    return tvm_ext_words_moved(at, -(next + (3 * step)) * (vectors - 1));
}

#endif

#endif
