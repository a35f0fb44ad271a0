/* Vector operations on squares of 4 x 4 bytes: interleaved copies of four rows, and the sums of the four windows of up
 * to 3 x 3 taps in a square. Helium, or plain C with the same results. */
#ifndef TVM_EXT_HELIUM_SQUARE_LANES_H
#define TVM_EXT_HELIUM_SQUARE_LANES_H

#include "tvm_ext_helium.h"
#include "tvm_ext_helium_lanes.h"
#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

#include <stdbool.h>
#include <stdint.h>

/* Blocks of eight results in a row: offset of the first word in bytes, offset of the first result, number of blocks. */
typedef struct {
    int32_t square;
    int32_t element;
    int32_t count;
} tvm_ext_squares_blocks;

/* A few rows of the channels of a copy. The assembly reads the members by offset and advances them between channels. */
typedef struct {
    const uint8_t *copy;
    uint8_t *y;
    const int32_t *factors;     /* per channel: initial accumulator, multiplier, and shift unless shared */
    const int8_t *weights;      /* weights of the channel, followed by a zero */
    const int8_t *upper_tables; /* indices of the weights in both windows of the upper row, then of the lower one */
    const int8_t *lower_tables;
    const tvm_ext_squares_blocks *across; /* blocks of two squares side by side */
    const tvm_ext_squares_blocks *across_end;
    const tvm_ext_squares_blocks *down; /* blocks of two squares, one below the other */
    const tvm_ext_squares_blocks *down_end;
    int32_t channels;
    int32_t across_step; /* elements from block to block */
    uint32_t lane[4];
    uint16_t across_places[8]; /* offsets of results from the element of their block */
    uint16_t down_places[8];
    int32_t down_step;
    int32_t zero_point;
} tvm_ext_squares_work;

/* Distances of a layer in bytes: from a block's second square to the next block's first, and between both squares. */
typedef struct {
    int32_t next;
    int32_t second;
    int32_t down; /* both distances for squares below each other, or 0 if there are none */
    int32_t taps; /* taps of a window, plus one for the zero */
    int32_t narrow; /* common right shift of all channels, or 0 if each channel has its own */
} tvm_ext_squares_distances;

/* Sets the interleaved offsets of the results of two squares: two columns, `column` bytes apart, of a row at `first`
 * and of a row at `second`; the second square lies `square` bytes further. All offsets are below 2^16. */
static inline void tvm_ext_squares_places(uint16_t places[8], int32_t first, int32_t second, int32_t column,
                                          int32_t square)
{
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t place = (i < 2 ? first : second) + (i % 2 * column);
        places[2 * i] = (uint16_t)place;
        places[(2 * i) + 1] = (uint16_t)(place + square);
    }
}

#ifdef TVM_EXT_HAS_HELIUM

#define TVM_EXT_SQUARES_STORE                                                                                        \
    "vst40.8 {q0, q1, q2, q3}, [%[to]]\n\tvst41.8 {q0, q1, q2, q3}, [%[to]]\n\t"                                     \
    "vst42.8 {q0, q1, q2, q3}, [%[to]]\n\tvst43.8 {q0, q1, q2, q3}, [%[to]]\n\tadd %[to], %[to], %[step]\n\t"

#define TVM_EXT_SQUARES_COPY(is, loads, flip)                                                                        \
    __asm__ volatile("vctp.8 %[lanes]\n\tdls lr, %[n]\n"                                                             \
                     "1:\n\tvpstttt\n\t" loads flip TVM_EXT_SQUARES_STORE "le lr, 1b\n\t"                            \
                     : [r0] "+r"(r0), [r1] "+r"(r1), [r2] "+r"(r2), [r3] "+r"(r3), [to] "+r"(target)                 \
                     : [pitch] is(pitch), [step] "i"(step), [n] "r"(count), [lanes] "r"(lanes), [bits] "w"(bits)     \
                     : "q0", "q1", "q2", "q3", "lr", "cc", "memory")
#define TVM_EXT_SQUARES_NEAR                                                                                         \
    "vldrbt.u8 q0, [%[r0]], %[pitch]\n\tvldrbt.u8 q1, [%[r1]], %[pitch]\n\t"                                         \
    "vldrbt.u8 q2, [%[r2]], %[pitch]\n\tvldrbt.u8 q3, [%[r3]], %[pitch]\n\t"
#define TVM_EXT_SQUARES_FAR                                                                                          \
    "vldrbt.u8 q0, [%[r0]]\n\tvldrbt.u8 q1, [%[r1]]\n\tvldrbt.u8 q2, [%[r2]]\n\tvldrbt.u8 q3, [%[r3]]\n\t"           \
    "add %[r0], %[r0], %[pitch]\n\tadd %[r1], %[r1], %[pitch]\n\t"                                                   \
    "add %[r2], %[r2], %[pitch]\n\tadd %[r3], %[r3], %[pitch]\n\t"
#define TVM_EXT_SQUARES_TURN                                                                                         \
    "veor q0, q0, %q[bits]\n\tveor q1, q1, %q[bits]\n\tveor q2, q2, %q[bits]\n\tveor q3, q3, %q[bits]\n\t"

/* Copies `count` times `lanes` bytes of four rows, `pitch` bytes apart, interleaved: the first bytes of all rows, then
 * the second ones. Targets are `step` bytes apart, and each copy writes 64 bytes. `turned`: the highest bit of each
 * byte is inverted. pitch, step and turned are constants after inlining. */
TVM_EXT_INLINE void tvm_ext_squares_copy(uint8_t *target, const uint8_t *const *rows, int32_t count, int32_t lanes,
                                         int32_t pitch, int32_t step, bool turned)
{
    const uint8_t *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    const int8x16_t bits = vdupq_n_s8(INT8_MIN);
    if (pitch > INT8_MAX && turned) {
        TVM_EXT_SQUARES_COPY("r", TVM_EXT_SQUARES_FAR, TVM_EXT_SQUARES_TURN);
    } else if (pitch > INT8_MAX) {
        TVM_EXT_SQUARES_COPY("r", TVM_EXT_SQUARES_FAR, "");
    } else if (turned) {
        TVM_EXT_SQUARES_COPY("i", TVM_EXT_SQUARES_NEAR, TVM_EXT_SQUARES_TURN);
    } else {
        TVM_EXT_SQUARES_COPY("i", TVM_EXT_SQUARES_NEAR, "");
    }
}

#define TVM_EXT_SQUARES_MOVE_ON(flip)                                                                                \
    __asm__ volatile("vctp.8 %[lanes]\n\tdls lr, %[n]\n"                                                             \
                     "1:\n\tvld40.8 {q0, q1, q2, q3}, [%[from]]\n\tvld41.8 {q0, q1, q2, q3}, [%[from]]\n\t"          \
                     "vld42.8 {q0, q1, q2, q3}, [%[from]]\n\tvld43.8 {q0, q1, q2, q3}, [%[from]]\n\t"                \
                     "vmov q0, q2\n\tvmov q1, q3\n\tvpstt\n\tvldrbt.u8 q2, [%[r2]]\n\tvldrbt.u8 q3, [%[r3]]\n\t"     \
                     "add %[r2], %[r2], %[pitch]\n\tadd %[r3], %[r3], %[pitch]\n\t"                                  \
                     "add %[from], %[from], %[step]\n\t" flip TVM_EXT_SQUARES_STORE "le lr, 1b\n\t"                  \
                     : [r2] "+r"(r2), [r3] "+r"(r3), [from] "+r"(from), [to] "+r"(target)                            \
                     : [pitch] "r"(pitch), [step] "i"(step), [n] "r"(count), [lanes] "r"(lanes), [bits] "w"(bits)    \
                     : "q0", "q1", "q2", "q3", "lr", "cc", "memory")

/* Does the same two rows further down. The first two rows are the last two of the copy `from`, which may be target. */
TVM_EXT_INLINE void tvm_ext_squares_move_on(uint8_t *target, const uint8_t *from, const uint8_t *const *rows,
                                            int32_t count, int32_t lanes, int32_t pitch, int32_t step, bool turned)
{
    const uint8_t *r2 = rows[2], *r3 = rows[3];
    const int8x16_t bits = vdupq_n_s8(INT8_MIN);
    if (turned) {
        TVM_EXT_SQUARES_MOVE_ON("veor q2, q2, %q[bits]\n\tveor q3, q3, %q[bits]\n\t");
    } else {
        TVM_EXT_SQUARES_MOVE_ON("");
    }
}

/* Fills byte `row` of every word of a copy. Up to 15 bytes after the copy are treated as further words. */
static inline void tvm_ext_squares_fill_row(uint8_t *copy, int32_t bytes, int32_t row, int8_t value)
{
    const int8x16_t values = vdupq_n_s8(value);
    const uint32_t lanes = 0x1111u << (uint32_t)row;
    const int32_t vectors = (bytes + 15) / 16;
    __asm__ volatile("vmsr p0, %[lanes]\n\tdls lr, %[n]\n"
                     "1:\n\tvpst\n\tvstrbt.8 %q[values], [%[to]], #16\n\tle lr, 1b\n\t"
                     : [to] "+r"(copy)
                     : [values] "w"(values), [lanes] "r"(lanes), [n] "r"(vectors)
                     : "lr", "cc", "memory");
}

/* Two squares of four results each, with loads, products and the code after them interleaved. The accumulators are in
 * high registers, because GCC otherwise finds too few low ones for the operands. */
#define TVM_EXT_SQUARES_BLOCK(next, second, product, lower)                                                          \
    "vldrw.u32 q6, [q4, " next "]!\n\tvmladav.s8 r12, q6, q0\n\tvmladav.s8 r8, q6, q2\n\t"                           \
    "vmladav.s8 r10, q6, q1\n\tvldrw.u32 q7, [q4, " second "]!\n\tvmladav.s8 r6, q6, q3\n\t"                         \
    "vmov q6[2], q6[0], r12, r8\n\tvmladav.s8 r12, q7, q0\n\tvmov q6[3], q6[1], r10, r6\n\t"                         \
    "vmladav.s8 r8, q7, q2\n\tvadd.i32 q6, q6, r4\n\tvmladav.s8 r10, q7, q1\n\tvmladav.s8 r6, q7, q3\n\t"            \
    "vmov q7[2], q7[0], r12, r8\n\t" product " q6, q6, r5\n\tvmov q7[3], q7[1], r10, r6\n\t"                         \
    "vadd.i32 q7, q7, r4\n\t" product " q7, q7, r5\n\t" lower "vqadd.s16 q6, q6, r11\n\t"                            \
    "vqmovnb.s16 q6, q6\n\tvstrb.16 q6, [r1, q5]\n\tadd r1, r1, r9\n\t"

/* Runs all blocks of a list from r2 on, up to the end that the work stores at an offset. */
#define TVM_EXT_SQUARES_BLOCKS(run, loop, end, next, second, product, lower)                                         \
    run ":\n\tldrd r6, r8, [r2], #8\n\tldr r12, [r2], #4\n\tldrd r10, r1, [%[work]]\n\tadd r6, r6, r10\n\t"          \
    "add r1, r1, r8\n\tvldrw.u32 q4, [%[work], #48]\n\tvadd.i32 q4, q4, r6\n\tdls lr, r12\n" loop ":\n\t"            \
    TVM_EXT_SQUARES_BLOCK(next, second, product, lower) "le lr, " loop "b\n\tldr r6, [%[work], " end "]\n\t"         \
    "cmp r2, r6\n\tbne " run "b\n\t"

#define TVM_EXT_SQUARES_DOWN(product, lower)                                                                         \
    "ldrd r2, r6, [%[work], #32]\n\tcmp r2, r6\n\tbeq 6f\n\tvldrw.u32 q5, [%[work], #80]\n\t"                        \
    "ldr r9, [%[work], #96]\n" TVM_EXT_SQUARES_BLOCKS("4", "5", "#36", "%[down]", "%[down]", product, lower) "6:\n\t"

#define TVM_EXT_SQUARES_CHANNELS(product, lower, own, more)                                                          \
    __asm__ volatile("ldr r11, [%[work], #100]\n"                                                                    \
                     "1:\n\tldrd r6, r8, [%[work], #8]\n\tldrd r10, r12, [%[work], #16]\n\t"                         \
                     "vldrb.u8 q4, [r10]\n\tvldrb.u8 q5, [r10, #16]\n\tvldrb.u8 q6, [r12]\n\t"                       \
                     "vldrb.u8 q7, [r12, #16]\n\tldrd r4, r5, [r6], #8\n\tvldrb.u8 q0, [r8, q4]\n\t"                 \
                     own "vldrb.u8 q1, [r8, q5]\n\tldr r2, [%[work], #24]\n\tvldrb.u8 q2, [r8, q6]\n\t"            \
                     "ldr r9, [%[work], #44]\n\tvldrb.u8 q3, [r8, q7]\n\tadd r8, r8, %[taps]\n\t"                    \
                     "strd r6, r8, [%[work], #8]\n\tvldrw.u32 q5, [%[work], #64]\n"                                  \
                     TVM_EXT_SQUARES_BLOCKS("2", "3", "#28", "%[next]", "%[second]", product, lower) more            \
                     "ldrd r6, r8, [%[work]]\n\tadd r6, r6, #4\n\tadd r8, r8, #1\n\tstrd r6, r8, [%[work]]\n\t"      \
                     "ldr r6, [%[work], #40]\n\tsubs r6, r6, #1\n\tstr r6, [%[work], #40]\n\tbne 1b\n\t"             \
                     :                                                                                               \
                     : [work] "r"(work), [next] "i"(far.next), [second] "i"(far.second), [down] "i"(far.down),       \
                       [taps] "i"(far.taps), [narrow] "i"(far.narrow)                                                \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", \
                       "r10", "r11", "r12", "lr", "cc", "memory")

#define TVM_EXT_SQUARES_ALL(product, lower, own)                                                                     \
    if (far.down > 0) {                                                                                              \
        TVM_EXT_SQUARES_CHANNELS(product, lower, own, TVM_EXT_SQUARES_DOWN(product, lower));                         \
    } else {                                                                                                         \
        TVM_EXT_SQUARES_CHANNELS(product, lower, own, "");                                                           \
    }
#define TVM_EXT_SQUARES_SHIFTED "vrshl.s32 q6, r3\n\tvrshl.s32 q7, r3\n\tvqmovnb.s32 q6, q6\n\tvqmovnt.s32 q6, q7\n\t"
#define TVM_EXT_SQUARES_OWN_SHIFT "ldr r3, [r6], #4\n\t"
#define TVM_EXT_SQUARES_NARROWED "vqrshrnb.s32 q6, q6, %[narrow]\n\tvqrshrnt.s32 q6, q7, %[narrow]\n\t"

/* Computes all results of all channels. far: constants after inlining. Shifts are those of doubled products. */
TVM_EXT_INLINE void tvm_ext_squares_channels(tvm_ext_squares_work *work, const tvm_ext_helium_rescale *rescale,
                                             tvm_ext_squares_distances far)
{
    if (rescale->rounds_twice) {
        TVM_EXT_SQUARES_ALL("vqrdmulh.s32", TVM_EXT_SQUARES_SHIFTED, TVM_EXT_SQUARES_OWN_SHIFT)
    } else if (far.narrow == 0) {
        TVM_EXT_SQUARES_ALL("vqdmulh.s32", TVM_EXT_SQUARES_SHIFTED, TVM_EXT_SQUARES_OWN_SHIFT)
    } else {
        TVM_EXT_SQUARES_ALL("vqdmulh.s32", TVM_EXT_SQUARES_NARROWED, "")
    }
}

#else

#include "tvm_ext_helium_square_plain.h"

#endif

#endif
