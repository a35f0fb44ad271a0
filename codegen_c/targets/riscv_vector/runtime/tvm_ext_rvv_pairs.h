/* Products of int8 pixels and output channels, two taps at a time, and their requantization, with RISC-V's vectors.
 *
 * The products of two taps are added in 16 bits, which the weights must allow: no two that are multiplied together have
 * more than 255 as the sum of their absolute values. One word holds four elements of a pixel, so a pixel has to lie at
 * a multiple of four bytes. Accumulators stay in registers until their results are stored. */
#ifndef TVM_EXT_RVV_PAIRS_H
#define TVM_EXT_RVV_PAIRS_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"
#include "tvm_ext_rvv_product.h"
#include "tvm_ext_rvv_requantize.h"

/* Products of single taps, or of pairs of taps with one or two roundings: each method is code of its own. */
typedef enum { TVM_EXT_RVV_SINGLE_TAPS, TVM_EXT_RVV_PAIRS_ONCE, TVM_EXT_RVV_PAIRS_TWICE } tvm_ext_rvv_method;

/* Task: results of `channels` output channels of `count` pixels over `depth` elements of each,
 * weights[depth][channels]. Further pixels of a form repeat the first one. factors: rows of `pitch` numbers, as for
 * tvm_ext_rvv_requantize. sums: space for the accumulators of a pixel. */
typedef struct {
    int32_t count;
    const uint8_t *const *pixels;
    uint8_t *const *elements;
    const int8_t *weights;
    const int32_t *factors;
    int32_t pitch;
    int32_t depth;
    int32_t channels;
    const tvm_ext_rvv_rescale *requantize;
    int32_t *sums;
} tvm_ext_rvv_pairs_task;

#if TVM_EXT_RVV
/* Numbers that a loop loads when it needs them; the assembly has their indices. */
typedef struct {
    const int32_t *starts;
    const int32_t *multipliers;
    const int32_t *shifts;
    intptr_t left_shift;
    intptr_t zero_point;
    intptr_t low;
    intptr_t high;
} tvm_ext_rvv_finish;

/* Instructions for pixel PIXEL with its scalar WORD, products P and accumulators A. */
#define TVM_EXT_RVV_PAIR_FIND(PIXEL, WORD, P, A, W, V, M) TVM_EXT_RVV_LOAD("x" PIXEL, PIXEL, "p")
#define TVM_EXT_RVV_PAIR_WORD(PIXEL, WORD, P, A, W, V, M) "lw %[" WORD "], 0(%[x" PIXEL "])\n\t"
#define TVM_EXT_RVV_PAIR_BYTE(PIXEL, WORD, P, A, W, V, M) "lb %[" WORD "], 0(%[x" PIXEL "])\n\t"
#define TVM_EXT_RVV_PAIR_NEXT(PIXEL, WORD, P, A, W, V, M) "srli %[" WORD "], %[" WORD "], 8\n\t"
#define TVM_EXT_RVV_PAIR_STEP_4(PIXEL, WORD, P, A, W, V, M) "addi %[x" PIXEL "], %[x" PIXEL "], 4\n\t"
#define TVM_EXT_RVV_PAIR_STEP_1(PIXEL, WORD, P, A, W, V, M) "addi %[x" PIXEL "], %[x" PIXEL "], 1\n\t"
#define TVM_EXT_RVV_PAIR_ADD(PIXEL, WORD, P, A, W, V, M) "vwadd.wv " A ", " A ", " P "\n\t"
#define TVM_EXT_RVV_PAIR_STORE(PIXEL, WORD, P, A, W, V, M) \
    TVM_EXT_RVV_LOAD("a", PIXEL, "y") "add %[a], %[a], %[k]\n\tvse8.v " A ", (%[a])\n\t"

/* The forms: pixels with registers, copies of the first accumulators, weights of two taps, multipliers and shifts. */
#define TVM_EXT_RVV_EACH_1(DO) \
    DO("0", "a", "v20", "v0", "v16", "v18", "v16")
#define TVM_EXT_RVV_PAIR_COPY_1 ""
#define TVM_EXT_RVV_PAIR_SUMS_1 "v0"
#define TVM_EXT_RVV_PAIR_W_1 "v16"
#define TVM_EXT_RVV_PAIR_V_1 "v18"
#define TVM_EXT_RVV_PAIR_M_1 "v16"

#define TVM_EXT_RVV_EACH_2(DO)                     \
    DO("0", "a", "v20", "v0", "v16", "v18", "v16") \
    DO("1", "b", "v24", "v8", "v16", "v18", "v16")
#define TVM_EXT_RVV_PAIR_COPY_2 "vmv8r.v v8, v0\n\t"
#define TVM_EXT_RVV_PAIR_SUMS_2 "v0, v8"
#define TVM_EXT_RVV_PAIR_W_2 "v16"
#define TVM_EXT_RVV_PAIR_V_2 "v18"
#define TVM_EXT_RVV_PAIR_M_2 "v16"

#define TVM_EXT_RVV_EACH_5(DO)                      \
    DO("0", "a", "v22", "v0", "v20", "v21", "v20")  \
    DO("1", "b", "v24", "v4", "v20", "v21", "v20")  \
    DO("2", "c", "v26", "v8", "v20", "v21", "v20")  \
    DO("3", "d", "v28", "v12", "v20", "v21", "v20") \
    DO("4", "e", "v30", "v16", "v20", "v21", "v20")
#define TVM_EXT_RVV_PAIR_COPY_5 "vmv4r.v v4, v0\n\tvmv4r.v v8, v0\n\tvmv4r.v v12, v0\n\tvmv4r.v v16, v0\n\t"
#define TVM_EXT_RVV_PAIR_SUMS_5 "v0, v4, v8, v12, v16"
#define TVM_EXT_RVV_PAIR_W_5 "v20"
#define TVM_EXT_RVV_PAIR_V_5 "v21"
#define TVM_EXT_RVV_PAIR_M_5 "v20"

#define TVM_EXT_RVV_EACH_6(DO)                     \
    DO("0", "a", "v14", "v0", "v12", "v13", "v20") \
    DO("1", "b", "v15", "v2", "v12", "v13", "v20") \
    DO("2", "c", "v16", "v4", "v12", "v13", "v20") \
    DO("3", "d", "v17", "v6", "v12", "v13", "v20") \
    DO("4", "e", "v18", "v8", "v12", "v13", "v20") \
    DO("5", "f", "v19", "v10", "v12", "v13", "v20")
#define TVM_EXT_RVV_PAIR_COPY_6 \
    "vmv2r.v v2, v0\n\tvmv2r.v v4, v0\n\tvmv2r.v v6, v0\n\tvmv2r.v v8, v0\n\tvmv2r.v v10, v0\n\t"
#define TVM_EXT_RVV_PAIR_SUMS_6 "v0, v2, v4, v6, v8, v10"
#define TVM_EXT_RVV_PAIR_W_6 "v12"
#define TVM_EXT_RVV_PAIR_V_6 "v13"
#define TVM_EXT_RVV_PAIR_M_6 "v20"

/* Multiply a pixel by the weights of the first and of the second tap of a pair, which are loaded in turn. */
#define TVM_EXT_RVV_PAIR_MUL(PIXEL, WORD, P, A, W, V, M) "vwmul.vx " P ", " W ", %[" WORD "]\n\t"
#define TVM_EXT_RVV_PAIR_MACC(PIXEL, WORD, P, A, W, V, M) "vwmacc.vx " P ", %[" WORD "], " V "\n\t"
#define TVM_EXT_RVV_PAIR_FIRST(W) "vle8.v " W ", (%[w])\n\tadd %[w], %[w], %[s]\n\t"
#define TVM_EXT_RVV_PAIR_TYPE(WIDTH, GROUP) "vsetvli zero, zero, " WIDTH ", " GROUP ", ta, ma\n\t"

/* Requantizes the accumulators in the registers SUMS by multipliers in M and shifts in v24, with rounding ROUND: twice,
 * as TensorFlow Lite does, or once. All are multiplied first; M then holds what the second rounding needs. */
#define TVM_EXT_RVV_FOR(SUMS, DO) ".irp sum, " SUMS "\n\t" DO ".endr\n\t"
#define TVM_EXT_RVV_SCALE_twice(M) "vsmul.vv \\sum, \\sum, " M "\n\t"
#define TVM_EXT_RVV_ROUND_twice(M)                                                          \
    "vrsub.vi " M ", v24, 0\n\tvand.vv " M ", " M ", \\sum\n\tvsra.vi " M ", " M ", 31\n\t" \
    "vsadd.vv \\sum, \\sum, " M "\n\tvssra.vv \\sum, \\sum, v24\n\t"
#define TVM_EXT_RVV_SCALE_once(M) "vsll.vx \\sum, \\sum, %[b]\n\tvmulh.vv \\sum, \\sum, " M "\n\t"
#define TVM_EXT_RVV_ROUND_once(M) "vssra.vv \\sum, \\sum, v24\n\t"
#define TVM_EXT_RVV_REQUANTIZE(SUMS, M, ROUND, BYTES, HALVES)                                                          \
    TVM_EXT_RVV_FOR(SUMS, TVM_EXT_RVV_SCALE_##ROUND(M))                                                                \
    TVM_EXT_RVV_FOR(SUMS, TVM_EXT_RVV_ROUND_##ROUND(M) "vsadd.vx \\sum, \\sum, %[c]\n\tvmax.vx \\sum, \\sum, %[d]\n\t" \
                                                       "vmin.vx \\sum, \\sum, %[e]\n\t")                               \
    TVM_EXT_RVV_PAIR_TYPE("e16", HALVES)                                                                               \
    TVM_EXT_RVV_FOR(SUMS, "vnsrl.wi \\sum, \\sum, 0\n\t")                                                              \
    TVM_EXT_RVV_PAIR_TYPE("e8", BYTES) TVM_EXT_RVV_FOR(SUMS, "vnsrl.wi \\sum, \\sum, 0\n\t")

/* Defines the results of PIXELS pixels in groups of registers, BYTES for elements of 8 bits, HALVES and WORDS for wider
 * ones, with rounding ROUND. The loops are over groups of channels, then four taps at a time, then the other taps. */
#define TVM_EXT_RVV_DEFINE_PAIRS(PIXELS, ROUND, BYTES, HALVES, WORDS)                                                 \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_pairs_##PIXELS##_##ROUND(const tvm_ext_rvv_pairs_task *task)                  \
    {                                                                                                                 \
        for (intptr_t k = 0; k < task->channels;) {                                                                   \
            intptr_t length, a, b, c, d, e, f;                                                                        \
            const uint8_t *x0, *x1, *x2, *x3, *x4, *x5;                                                               \
            const int8_t *weights = &task->weights[k];                                                                \
            intptr_t count = task->depth / 4;                                                                         \
            const tvm_ext_rvv_rescale *const by = task->requantize;                                                   \
            const int32_t *const starts = &task->factors[k];                                                          \
            const tvm_ext_rvv_finish finish = {starts,         &starts[task->pitch], &starts[2 * task->pitch],        \
                                               by->left_shift, by->zero_point,       by->low,                         \
                                               by->high};                                                             \
            __asm__ volatile(                                                                                         \
                TVM_EXT_RVV_BEGIN                                                                                     \
                "csrwi vxrm, 0\n\t"                                                                                   \
                "vsetvli %[length], %[left], e8, " BYTES ", ta, ma\n\t"                                               \
                TVM_EXT_RVV_LOAD("a", "0", "t")                                                                       \
                "vle32.v v0, (%[a])\n\t" TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_FIND)                             \
                    TVM_EXT_RVV_PAIR_COPY_##PIXELS "beqz %[n], 2f\n"                                                  \
                "1:\n\t" TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_WORD) TVM_EXT_RVV_PAIR_TAPS(                      \
                    PIXELS, HALVES, BYTES) TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_NEXT)                           \
                    TVM_EXT_RVV_PAIR_TAPS(PIXELS, HALVES, BYTES) TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_STEP_4)   \
                "addi %[n], %[n], -1\n\t"                                                                             \
                "bnez %[n], 1b\n"                                                                                     \
                "2:\n\t"                                                                                              \
                "mv %[n], %[r]\n\t"                                                                                   \
                "beqz %[n], 4f\n"                                                                                     \
                "3:\n\t" TVM_EXT_RVV_PAIR_FIRST(TVM_EXT_RVV_PAIR_W_##PIXELS)                                          \
                    TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_BYTE)                                                  \
                        TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_MUL) TVM_EXT_RVV_PAIR_TYPE("e16", HALVES)          \
                            TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_ADD) TVM_EXT_RVV_PAIR_TYPE("e8", BYTES)        \
                                TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_STEP_1)                                    \
                "addi %[n], %[n], -1\n\t"                                                                             \
                "bnez %[n], 3b\n"                                                                                     \
                "4:\n\t"                                                                                              \
                TVM_EXT_RVV_LOAD("a", "1", "t")                                                                       \
                TVM_EXT_RVV_LOAD("b", "2", "t")                                                                       \
                "vle32.v " TVM_EXT_RVV_PAIR_M_##PIXELS ", (%[a])\n\t"                                                 \
                "vle32.v v24, (%[b])\n\t"                                                                             \
                TVM_EXT_RVV_LOAD("b", "3", "t")                                                                       \
                TVM_EXT_RVV_LOAD("c", "4", "t")                                                                       \
                TVM_EXT_RVV_LOAD("d", "5", "t")                                                                       \
                TVM_EXT_RVV_LOAD("e", "6", "t") TVM_EXT_RVV_PAIR_TYPE("e32", WORDS)                                   \
                    TVM_EXT_RVV_REQUANTIZE(TVM_EXT_RVV_PAIR_SUMS_##PIXELS, TVM_EXT_RVV_PAIR_M_##PIXELS, ROUND, BYTES, \
                                           HALVES)                                                                    \
                        TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_STORE) TVM_EXT_RVV_END                             \
                : [length] "=&r"(length), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [e] "=&r"(e),       \
                  [f] "=&r"(f), [x0] "=&r"(x0), [x1] "=&r"(x1), [x2] "=&r"(x2), [x3] "=&r"(x3), [x4] "=&r"(x4),       \
                  [x5] "=&r"(x5), [w] "+&r"(weights), [n] "+&r"(count)                                                \
                : [left] "r"(task->channels - k), [p] "r"(task->pixels), [y] "r"(task->elements),                     \
                  [t] "r"(&finish), [s] "r"((intptr_t)task->channels), [r] "r"((intptr_t)(task->depth % 4)),          \
                  [k] "r"(k)                                                                                          \
                : "memory" TVM_EXT_RVV_CHANGED);                                                                      \
            k += length;                                                                                              \
        }                                                                                                             \
    }

/* Two taps of each pixel, whose elements are the lowest byte of its word and the byte above. */
#define TVM_EXT_RVV_PAIR_TAPS(PIXELS, HALVES, BYTES)                                                        \
    TVM_EXT_RVV_PAIR_FIRST(TVM_EXT_RVV_PAIR_W_##PIXELS) TVM_EXT_RVV_PAIR_FIRST(TVM_EXT_RVV_PAIR_V_##PIXELS) \
        TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_MUL) TVM_EXT_RVV_EACH_##PIXELS(                          \
            TVM_EXT_RVV_PAIR_NEXT) TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_MACC)                         \
            TVM_EXT_RVV_PAIR_TYPE("e16", HALVES) TVM_EXT_RVV_EACH_##PIXELS(TVM_EXT_RVV_PAIR_ADD)            \
                TVM_EXT_RVV_PAIR_TYPE("e8", BYTES)
#else
/* Plain C. All channels of a pixel are summed first, because its results may replace its input. */
#define TVM_EXT_RVV_DEFINE_PAIRS(PIXELS, ROUND, BYTES, HALVES, WORDS)                                \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_pairs_##PIXELS##_##ROUND(const tvm_ext_rvv_pairs_task *task) \
    {                                                                                                \
        tvm_ext_rvv_pairs_one_by_one(task);                                                          \
    }
#endif

/* Computes the pixels one by one, by products of single taps. */
TVM_EXT_RVV_SHARED void tvm_ext_rvv_pairs_one_by_one(const tvm_ext_rvv_pairs_task *task)
{
    for (int32_t i = 0; i < task->count; ++i) {
        const tvm_ext_rvv_product_task product = {task->sums,    &task->pixels[i], task->weights,
                                                  task->factors, task->depth,      task->channels};
        tvm_ext_rvv_product_1_s8(&product);
        tvm_ext_rvv_requantize(task->requantize, task->elements[i], task->sums, task->factors, task->pitch,
                               task->channels);
    }
}

TVM_EXT_RVV_DEFINE_PAIRS(1, once, "m2", "m4", "m8")
TVM_EXT_RVV_DEFINE_PAIRS(1, twice, "m2", "m4", "m8")
TVM_EXT_RVV_DEFINE_PAIRS(2, once, "m2", "m4", "m8")
TVM_EXT_RVV_DEFINE_PAIRS(2, twice, "m2", "m4", "m8")
TVM_EXT_RVV_DEFINE_PAIRS(5, once, "m1", "m2", "m4")
TVM_EXT_RVV_DEFINE_PAIRS(5, twice, "m1", "m2", "m4")
TVM_EXT_RVV_DEFINE_PAIRS(6, once, "mf2", "m1", "m2")
TVM_EXT_RVV_DEFINE_PAIRS(6, twice, "mf2", "m1", "m2")

/* Computes the results of 1, 2, 5 or 6 pixels. Pixels that do not lie at multiples of four bytes are computed one by
 * one, by products of single taps. Accumulators must not lie halfway between two results. */
TVM_EXT_INLINE void tvm_ext_rvv_pairs(int32_t pixels, bool rounds_twice, const tvm_ext_rvv_pairs_task *task)
{
    uintptr_t addresses = 0u;
    for (int32_t i = 0; i < pixels; ++i) {
        addresses |= (uintptr_t)task->pixels[i];
    }
    if ((addresses & 3u) != 0u) {
        tvm_ext_rvv_pairs_one_by_one(task);
        return;
    }
    if (rounds_twice) {
        if (pixels == 1) {
            tvm_ext_rvv_pairs_1_twice(task);
        } else if (pixels == 2) {
            tvm_ext_rvv_pairs_2_twice(task);
        } else if (pixels == 5) {
            tvm_ext_rvv_pairs_5_twice(task);
        } else {
            tvm_ext_rvv_pairs_6_twice(task);
        }
    } else if (pixels == 1) {
        tvm_ext_rvv_pairs_1_once(task);
    } else if (pixels == 2) {
        tvm_ext_rvv_pairs_2_once(task);
    } else if (pixels == 5) {
        tvm_ext_rvv_pairs_5_once(task);
    } else {
        tvm_ext_rvv_pairs_6_once(task);
    }
}

#endif
