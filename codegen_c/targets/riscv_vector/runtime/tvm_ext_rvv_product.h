/* Products of pixels and output channels: a vector of channels' weights times one element of each pixel.
 *
 * Weights are widened to 16 bits once for all pixels; accumulators have 32 bits. Groups of registers are as long as the
 * number of pixels allows. */
#ifndef TVM_EXT_RVV_PRODUCT_H
#define TVM_EXT_RVV_PRODUCT_H

#include "tvm_ext_layer.h"
#include "tvm_ext_rvv.h"

#define TVM_EXT_RVV_MOST_PIXELS 6

/* Task: sums[pixel][channel] of `channels` output channels of some pixels, from starts[channel] on, over `depth`
 * elements of each pixel and weights[depth][channel]. */
typedef struct {
    int32_t *sums;
    const uint8_t *const *pixels;
    const int8_t *weights;
    const int32_t *starts;
    int32_t depth;
    int32_t channels;
} tvm_ext_rvv_product_task;

#if TVM_EXT_RVV
#define TVM_EXT_RVV_FIND(PIXEL) TVM_EXT_RVV_LOAD("x" PIXEL, PIXEL, "pixels")
#define TVM_EXT_RVV_STEP(PIXEL, COUNT) "addi %[x" PIXEL "], %[x" PIXEL "], " COUNT "\n\t"
#define TVM_EXT_RVV_STORE(SUMS) "vse32.v " SUMS ", (%[sums])\n\tadd %[sums], %[sums], %[pitch]\n\t"

/* Loads and widens the weights of a tap. */
#define TVM_EXT_RVV_WEIGHTS               \
    "vle8.v v24, (%[weights])\n\t"        \
    "add %[weights], %[weights], %[step]\n\t" \
    "vsext.vf2 v28, v24\n\t"

/* Multiply one pixel, and three pixels, by the weights. */
#define TVM_EXT_RVV_ONE(LOAD, AT, A, V) LOAD " %[a], " AT "(%[x" A "])\n\tvwmacc.vx " V ", %[a], v28\n\t"
#define TVM_EXT_RVV_THREE(LOAD, AT, A, B, C, V, W, X)                                                  \
    LOAD " %[a], " AT "(%[x" A "])\n\t" LOAD " %[b], " AT "(%[x" B "])\n\t" LOAD " %[c], " AT "(%[x" C "])\n\t" \
    "vwmacc.vx " V ", %[a], v28\n\tvwmacc.vx " W ", %[b], v28\n\tvwmacc.vx " X ", %[c], v28\n\t"

/* The forms for 1, 3 and 6 pixels: addresses, accumulators with their start, and products of a tap at offset AT. */
#define TVM_EXT_RVV_FIND_1 TVM_EXT_RVV_FIND("0")
#define TVM_EXT_RVV_STEP_1(COUNT) TVM_EXT_RVV_STEP("0", COUNT)
#define TVM_EXT_RVV_START_1 ""
#define TVM_EXT_RVV_STORE_1 TVM_EXT_RVV_STORE("v0")
#define TVM_EXT_RVV_TAP_1(LOAD, AT) TVM_EXT_RVV_WEIGHTS TVM_EXT_RVV_ONE(LOAD, AT, "0", "v0")

#define TVM_EXT_RVV_FIND_3 TVM_EXT_RVV_FIND_1 TVM_EXT_RVV_FIND("1") TVM_EXT_RVV_FIND("2")
#define TVM_EXT_RVV_STEP_3(COUNT) \
    TVM_EXT_RVV_STEP_1(COUNT) TVM_EXT_RVV_STEP("1", COUNT) TVM_EXT_RVV_STEP("2", COUNT)
#define TVM_EXT_RVV_START_3 "vmv8r.v v8, v0\n\tvmv8r.v v16, v0\n\t"
#define TVM_EXT_RVV_STORE_3 TVM_EXT_RVV_STORE_1 TVM_EXT_RVV_STORE("v8") TVM_EXT_RVV_STORE("v16")
#define TVM_EXT_RVV_TAP_3(LOAD, AT) \
    TVM_EXT_RVV_WEIGHTS TVM_EXT_RVV_THREE(LOAD, AT, "0", "1", "2", "v0", "v8", "v16")

#define TVM_EXT_RVV_FIND_6 \
    TVM_EXT_RVV_FIND_3 TVM_EXT_RVV_FIND("3") TVM_EXT_RVV_FIND("4") TVM_EXT_RVV_FIND("5")
#define TVM_EXT_RVV_STEP_6(COUNT)                                                                            \
    TVM_EXT_RVV_STEP_3(COUNT)                                                                                \
    TVM_EXT_RVV_STEP("3", COUNT) TVM_EXT_RVV_STEP("4", COUNT) TVM_EXT_RVV_STEP("5", COUNT)
#define TVM_EXT_RVV_START_6 \
    "vmv4r.v v4, v0\n\tvmv4r.v v8, v0\n\tvmv4r.v v12, v0\n\tvmv4r.v v16, v0\n\tvmv4r.v v20, v0\n\t"
#define TVM_EXT_RVV_STORE_6                                                                       \
    TVM_EXT_RVV_STORE("v0") TVM_EXT_RVV_STORE("v4") TVM_EXT_RVV_STORE("v8") TVM_EXT_RVV_STORE("v12") \
    TVM_EXT_RVV_STORE("v16") TVM_EXT_RVV_STORE("v20")
#define TVM_EXT_RVV_TAP_6(LOAD, AT)                                                                       \
    TVM_EXT_RVV_WEIGHTS TVM_EXT_RVV_THREE(LOAD, AT, "0", "1", "2", "v0", "v4", "v8")                      \
    TVM_EXT_RVV_THREE(LOAD, AT, "3", "4", "5", "v12", "v16", "v20")

/* Defines the sums of PIXELS pixels, with elements loaded by instruction LOAD and 16-bit weights in groups of GROUP
 * registers. The outer loop is over groups of channels, the inner one over taps, four at a time and then the rest. */
#define TVM_EXT_RVV_DEFINE_PRODUCT(NAME, LOAD, PIXELS, GROUP)                                                       \
    TVM_EXT_RVV_SHARED void NAME(const tvm_ext_rvv_product_task *task)                                              \
    {                                                                                                               \
        for (intptr_t k = 0; k < task->channels;) {                                                                 \
            intptr_t length, a, b, c;                                                                               \
            const uint8_t *x0, *x1, *x2, *x3, *x4, *x5;                                                             \
            const int8_t *weights = &task->weights[k];                                                              \
            int32_t *sums = &task->sums[k];                                                                         \
            intptr_t count = task->depth / 4;                                                                       \
            __asm__ volatile(                                                                                       \
                TVM_EXT_RVV_BEGIN "vsetvli %[length], %[left], e16, " GROUP ", ta, ma\n\t"                          \
                                  "vle32.v v0, (%[starts])\n\t" TVM_EXT_RVV_FIND_##PIXELS TVM_EXT_RVV_START_##PIXELS \
                                  "beqz %[count], 2f\n"                                                             \
                                  "1:\n\t" TVM_EXT_RVV_TAP_##PIXELS(LOAD, "0") TVM_EXT_RVV_TAP_##PIXELS(LOAD, "1")  \
                                      TVM_EXT_RVV_TAP_##PIXELS(LOAD, "2") TVM_EXT_RVV_TAP_##PIXELS(LOAD, "3")       \
                                          TVM_EXT_RVV_STEP_##PIXELS("4") "addi %[count], %[count], -1\n\t"          \
                                                                         "bnez %[count], 1b\n"                      \
                                  "2:\n\t"                                                                          \
                                  "mv %[count], %[rest]\n\t"                                                        \
                                  "beqz %[count], 4f\n"                                                             \
                                  "3:\n\t" TVM_EXT_RVV_TAP_##PIXELS(LOAD, "0") TVM_EXT_RVV_STEP_##PIXELS("1")       \
                                  "addi %[count], %[count], -1\n\t"                                                 \
                                  "bnez %[count], 3b\n"                                                             \
                                  "4:\n\t" TVM_EXT_RVV_STORE_##PIXELS TVM_EXT_RVV_END                               \
                : [length] "=&r"(length), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [x0] "=&r"(x0), [x1] "=&r"(x1), \
                  [x2] "=&r"(x2), [x3] "=&r"(x3), [x4] "=&r"(x4), [x5] "=&r"(x5), [weights] "+&r"(weights),         \
                  [sums] "+&r"(sums), [count] "+&r"(count)                                                          \
                : [left] "r"(task->channels - k), [starts] "r"(&task->starts[k]), [pixels] "r"(task->pixels),       \
                  [step] "r"((intptr_t)task->channels), [pitch] "r"((intptr_t)(4 * task->channels)),                \
                  [rest] "r"((intptr_t)(task->depth % 4))                                                           \
                : "memory" TVM_EXT_RVV_CHANGED);                                                                    \
            k += length;                                                                                            \
        }                                                                                                           \
    }
#else
#define TVM_EXT_RVV_DEFINE_PRODUCT(NAME, LOAD, PIXELS, GROUP)                                               \
    TVM_EXT_RVV_SHARED void NAME(const tvm_ext_rvv_product_task *task)                                      \
    {                                                                                                       \
        for (int32_t p = 0; p < (PIXELS); ++p) {                                                            \
            for (int32_t k = 0; k < task->channels; ++k) {                                                  \
                uint32_t sum = (uint32_t)task->starts[k];                                                   \
                for (int32_t t = 0; t < task->depth; ++t) {                                                 \
                    const uint8_t *const x = &task->pixels[p][t]; /* GCC 12 takes (int8_t)*x for *x here */ \
                    const int32_t element = (LOAD)[2] == 'u' ? (int32_t)*x : (int32_t)*(const int8_t *)x;   \
                    sum += (uint32_t)(element * task->weights[(t * task->channels) + k]);                   \
                }                                                                                           \
                task->sums[(p * task->channels) + k] = (int32_t)sum;                                        \
            }                                                                                               \
        }                                                                                                   \
    }
#endif
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_1_s8, "lb", 1, "m4")
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_1_u8, "lbu", 1, "m4")
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_3_s8, "lb", 3, "m4")
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_3_u8, "lbu", 3, "m4")
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_6_s8, "lb", 6, "m2")
TVM_EXT_RVV_DEFINE_PRODUCT(tvm_ext_rvv_product_6_u8, "lbu", 6, "m2")

/* Computes the sums of 1, 3 or 6 pixels with elements of 8 bits. */
TVM_EXT_INLINE void tvm_ext_rvv_product(int32_t pixels, bool is_unsigned, const tvm_ext_rvv_product_task *task)
{
    /* Calls by name: through a pointer, the stack would have no known bound. */
    if (is_unsigned) {
        if (pixels == 1) {
            tvm_ext_rvv_product_1_u8(task);
        } else if (pixels == 3) {
            tvm_ext_rvv_product_3_u8(task);
        } else {
            tvm_ext_rvv_product_6_u8(task);
        }
    } else if (pixels == 1) {
        tvm_ext_rvv_product_1_s8(task);
    } else if (pixels == 3) {
        tvm_ext_rvv_product_3_s8(task);
    } else {
        tvm_ext_rvv_product_6_s8(task);
    }
}

#endif
