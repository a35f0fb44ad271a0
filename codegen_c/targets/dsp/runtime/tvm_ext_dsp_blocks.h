/* Elements of all output channels of three pixels by the DSP extension, two channels at a time, from products to
 * bytes in registers.
 *
 * Cells of three adjacent pixels, and weights of channels A and B, are described in tvm_ext_dsp_product.h. Before
 * and after the weights of two channels are the numbers needed there: the initial sums A and B, and the multipliers
 * of A and B. For joined weights, the second number is the initial sum A + 256 B, and all sums B are less than 2^23.
 * An element is (high product of sum and multiplier + rounding) >> shift, saturated.
 *
 * The functions `twice` round twice, as TensorFlow Lite does, by a shift of each channel: an element is (rounded high
 * product of 2 sum and multiplier + rounding * 2^shift) >> (shift + 1), saturated. `signed`: halves are rounded away
 * from zero, which subtracts one from the product if the sum is negative; without it, negative sums give the least
 * element anyhow. A word with the shifts, a byte each, follows the multipliers. */
#ifndef TVM_EXT_DSP_BLOCKS_H
#define TVM_EXT_DSP_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_requantize.h"

#if TVM_EXT_DSP

/* The assembly is longer than the strings that ISO C guarantees; clang warns of this, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 cells, r2 weights, r12 the end of the weights of two channels; r4 to r6 cells, r0 and r3 weights, r7
 * to r11 and lr sums. After the products: r4 to r6 addresses of elements, r0 and r3 multipliers, r12 rounding. On
 * the stack: addresses, rounding, cells, bytes of weights of two channels, the entry into the loop of eight units
 * after the first unit, the end of all weights. r7 and r11 may be frame pointers, so they are saved here and not
 * declared to the compiler. */
#define TVM_EXT_DSP_ONCE(S0, S1, S2, MULTIPLIER, SATURATE, SHIFT)                                                     \
    "smmla " S2 ", " S2 ", " MULTIPLIER ", r12\n\t"                                                                   \
    "smmla " S1 ", " S1 ", " MULTIPLIER ", r12\n\t"                                                                   \
    "smmla " S0 ", " S0 ", " MULTIPLIER ", r12\n\t" SATURATE " " S2 ", #8, " S2 ", asr #" SHIFT "\n\t" SATURATE       \
    " " S1 ", #8, " S1 ", asr #" SHIFT "\n\t" SATURATE " " S0 ", #8, " S0 ", asr #" SHIFT "\n\t"                      \
    "strb " S2 ", [r6], #1\n\t"                                                                                       \
    "strb " S1 ", [r5], #1\n\t"                                                                                       \
    "strb " S0 ", [r4], #1\n\t"
#define TVM_EXT_DSP_FINISH_ONCE(SPLIT, SATURATE, SHIFT, RAISE, SHIFT_B)                                               \
    "ldrd r0, r3, [r2], #8\n\t"                                                                                       \
    "ldm sp, {r4, r5, r6, r12}\n\t" SPLIT TVM_EXT_DSP_ONCE("r7", "r8", "r9", "r0", SATURATE, SHIFT) RAISE             \
        TVM_EXT_DSP_ONCE("r10", "r11", "lr", "r3", SATURATE, SHIFT_B)

/* With two roundings, r3 holds the shifts, that of the present channel in its lowest byte, r1 the product of a sum. */
#define TVM_EXT_DSP_ROUND(S) "smmlar " S ", " S ", r0, r12\n\t"
#define TVM_EXT_DSP_ROUND_SIGNED(S)                                                                                   \
    "smmlar r1, " S ", r0, r12\n\t"                                                                                   \
    "add " S ", r1, " S ", asr #31\n\t"
#define TVM_EXT_DSP_TWICE(S0, S1, S2, ROUND)                                                                          \
    "lsl r12, r12, r3\n\t" ROUND(S2) ROUND(S1) ROUND(S0)                                                              \
    "asr " S2 ", " S2 ", r3\n\t"                                                                                      \
    "asr " S1 ", " S1 ", r3\n\t"                                                                                      \
    "asr " S0 ", " S0 ", r3\n\t"                                                                                      \
    "ssat " S2 ", #8, " S2 ", asr #1\n\t"                                                                             \
    "ssat " S1 ", #8, " S1 ", asr #1\n\t"                                                                             \
    "ssat " S0 ", #8, " S0 ", asr #1\n\t"                                                                             \
    "strb " S2 ", [r6], #1\n\t"                                                                                       \
    "strb " S1 ", [r5], #1\n\t"                                                                                       \
    "strb " S0 ", [r4], #1\n\t"
#define TVM_EXT_DSP_FINISH_TWICE(DOUBLE_B, ROUND)                                                                     \
    "ldm r2!, {r0, r1, r3}\n\t"                                                                                       \
    "ldm sp, {r4, r5, r6, r12}\n\t" DOUBLE_B                                                                          \
    "lsl r7, r7, #1\n\t"                                                                                              \
    "lsl r8, r8, #1\n\t"                                                                                              \
    "lsl r9, r9, #1\n\t" TVM_EXT_DSP_TWICE("r7", "r8", "r9", ROUND)                                                   \
    "ldr r0, [r2, #-8]\n\t"                                                                                           \
    "ldr r12, [sp, #12]\n\t"                                                                                          \
    "lsr r3, r3, #8\n\t" TVM_EXT_DSP_TWICE("r10", "r11", "lr", ROUND)
#define TVM_EXT_DSP_DOUBLE_B                                                                                          \
    "lsl r10, r10, #1\n\t"                                                                                            \
    "lsl r11, r11, #1\n\t"                                                                                            \
    "lsl lr, lr, #1\n\t"
#define TVM_EXT_DSP_SPLIT                                                                                             \
    "sub r10, r10, r7\n\t"                                                                                            \
    "sub r11, r11, r8\n\t"                                                                                            \
    "sub lr, lr, r9\n\t"
#define TVM_EXT_DSP_SPLIT_DOUBLE                                                                                      \
    TVM_EXT_DSP_SPLIT                                                                                                 \
    "asr r10, r10, #7\n\t"                                                                                            \
    "asr r11, r11, #7\n\t"                                                                                            \
    "asr lr, lr, #7\n\t"

/* The first unit, whose sums begin at r7 and r10. */
#define TVM_EXT_DSP_BEGIN_3(S0, S1, S2, W)                                                                            \
    "smlad " S2 ", r6, " W ", " S0 "\n\t"                                                                             \
    "smlad " S1 ", r5, " W ", " S0 "\n\t"                                                                             \
    "smlad " S0 ", r4, " W ", " S0 "\n\t"
#define TVM_EXT_DSP_BLOCKS_FIRST                                                                                      \
    "ldr r0, [r2], #4\n\t"                                                                                            \
    "ldmia r1!, {r4, r5, r6}\n\t"                                                                                     \
    "sxtb16 r3, r0\n\t" TVM_EXT_DSP_BEGIN_3("r7", "r8", "r9", "r3")                                                   \
    "sxtb16 r3, r0, ror #8\n\t" TVM_EXT_DSP_BEGIN_3("r10", "r11", "lr", "r3")                                         \
    "ldr r0, [r2], #4\n\t" TVM_EXT_DSP_3X2_CELL("r0")
#define TVM_EXT_DSP_BLOCKS_JOINED_FIRST                                                                               \
    "ldrd r0, r3, [r2], #8\n\t"                                                                                       \
    "ldmia r1!, {r4, r5, r6}\n\t" TVM_EXT_DSP_BEGIN_3("r10", "r11", "lr", "r0")                                       \
    "sxtb16 r0, r0\n\t" TVM_EXT_DSP_BEGIN_3("r7", "r8", "r9", "r0") TVM_EXT_DSP_3X2_JOINED_CELL("r3")

#define TVM_EXT_DSP_BLOCKS(NAME, FIRST, UNIT, UNIT_BYTES, OTHER_BYTES, FINISH)                                         \
    TVM_EXT_DSP_SHARED void NAME(uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *weights,                    \
                                 const uint32_t *cells, int32_t units, int32_t pairs, int32_t rounding)               \
    {                                                                                                                 \
        register uint8_t *const *r0 __asm__("r0") = output;                                                           \
        register const uint32_t *r1 __asm__("r1") = cells;                                                            \
        register const int8_t *r2 __asm__("r2") = weights;                                                            \
        register int32_t r3 __asm__("r3") = units;                                                                    \
        register int32_t r4 __asm__("r4") = rounding;                                                                 \
        register int32_t r12 __asm__("r12") = pairs;                                                                  \
        __asm__ volatile("push {r7, r11}\n\t"                                                                         \
                         "ldmia r0, {r8, r9, r10}\n\t"                                                                \
                         "lsl r5, r3, #3\n\t"                                                                         \
                         "add r6, r5, #" OTHER_BYTES "\n\t"                                                           \
                         "mla r7, r12, r6, r2\n\t"                                                                    \
                         "rsb r6, r3, #1\n\t"                                                                         \
                         "and r6, r6, #7\n\t"                                                                         \
                         "movs r0, #" UNIT_BYTES "\n\t"                                                               \
                         "adr r12, 2f\n\t"                                                                            \
                         "mla r6, r6, r0, r12\n\t"                                                                    \
                         "adr r12, 3f\n\t"                                                                            \
                         "cmp r3, #1\n\t"                                                                             \
                         "it eq\n\t"                                                                                  \
                         "moveq r6, r12\n\t"                                                                          \
                         "orr r6, r6, #1\n\t"                                                                         \
                         "push {r1, r5, r6, r7}\n\t"                                                                  \
                         "push {r4}\n\t"                                                                              \
                         "push {r8, r9, r10}\n"                                                                       \
                         "1:\n\t"                                                                                     \
                         "ldrd r7, r10, [r2], #8\n\t"                                                                 \
                         "ldr r12, [sp, #20]\n\t"                                                                     \
                         "add r12, r12, r2\n\t" FIRST "ldr pc, [sp, #24]\n\t"                                         \
                         ".balign 4\n"                                                                                \
                         "2:\n\t" UNIT UNIT UNIT UNIT UNIT UNIT UNIT UNIT                                             \
                         TVM_EXT_DSP_SIZED("2b", "8", UNIT_BYTES) "cmp r2, r12\n\t"                                   \
                         "bne 2b\n\t"                                                                                 \
                         ".balign 4\n"                                                                                \
                         "3:\n\t"                                                                                     \
                         FINISH                                                                                       \
                         "ldr r1, [sp, #16]\n\t"                                                                      \
                         "ldr r0, [sp, #28]\n\t"                                                                      \
                         "stm sp, {r4, r5, r6}\n\t"                                                                   \
                         "cmp r2, r0\n\t"                                                                             \
                         "bne 1b\n\t"                                                                                 \
                         "add sp, sp, #32\n\t"                                                                        \
                         "pop {r7, r11}\n\t"                                                                          \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r4), "+r"(r12)                                \
                         :                                                                                            \
                         : "r5", "r6", "r8", "r9", "r10", "lr", "cc", "memory");                                      \
    }
/* OTHER_BYTES: of initial sums and factors of two channels. */
#define TVM_EXT_DSP_BLOCKS_PLAIN(SUFFIX, OTHER_BYTES, FINISH)                                                         \
    TVM_EXT_DSP_BLOCKS(tvm_ext_dsp_blocks_##SUFFIX, TVM_EXT_DSP_BLOCKS_FIRST, TVM_EXT_DSP_3X2_UNIT,                   \
                       TVM_EXT_DSP_3X2_UNIT_BYTES, OTHER_BYTES, FINISH)
#define TVM_EXT_DSP_BLOCKS_JOINED(SUFFIX, OTHER_BYTES, FINISH)                                                        \
    TVM_EXT_DSP_BLOCKS(tvm_ext_dsp_blocks_joined_##SUFFIX, TVM_EXT_DSP_BLOCKS_JOINED_FIRST,                           \
                       TVM_EXT_DSP_3X2_JOINED_UNIT, TVM_EXT_DSP_3X2_JOINED_UNIT_BYTES, OTHER_BYTES, FINISH)
/* All functions of PLAIN and JOINED. SHIFT_B: SHIFT + 8, because sums B are multiplied by 256. */
#define TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, TYPE, SATURATE, SHIFT, SHIFT_B)                                        \
    PLAIN(TYPE##_##SHIFT, "16", TVM_EXT_DSP_FINISH_ONCE("", SATURATE, #SHIFT, "", #SHIFT))                            \
    JOINED(TYPE##_##SHIFT, "16",                                                                                      \
           TVM_EXT_DSP_FINISH_ONCE(TVM_EXT_DSP_SPLIT, SATURATE, #SHIFT, "lsl r12, r12, #8\n\t", #SHIFT_B))
#define TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, SUFFIX, ROUND)                                                        \
    PLAIN(SUFFIX, "20", TVM_EXT_DSP_FINISH_TWICE(TVM_EXT_DSP_DOUBLE_B, ROUND))                                        \
    JOINED(SUFFIX, "20", TVM_EXT_DSP_FINISH_TWICE(TVM_EXT_DSP_SPLIT_DOUBLE, ROUND))
#define TVM_EXT_DSP_BLOCKS_EACH(PLAIN, JOINED)                                                                        \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, s8, "ssat", 4, 12)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, s8, "ssat", 8, 16)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, u8, "usat", 4, 12)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, u8, "usat", 8, 16)                                                         \
    TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, s8_twice, TVM_EXT_DSP_ROUND)                                              \
    TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, s8_twice_signed, TVM_EXT_DSP_ROUND_SIGNED)

TVM_EXT_DSP_BLOCKS_EACH(TVM_EXT_DSP_BLOCKS_PLAIN, TVM_EXT_DSP_BLOCKS_JOINED)

#pragma GCC diagnostic pop

#else

/* How sums become elements: rounded once, by one shift, or twice, without negative sums or with them. */
typedef struct {
    bool is_joined;
    bool is_unsigned;
    bool rounds_twice;
    bool is_signed;
    int32_t shift;
} tvm_ext_dsp_blocks_form;

/* Returns the element of a sum. rounding: as the functions get it. */
static inline int32_t tvm_ext_dsp_blocks_element(const tvm_ext_dsp_blocks_form *form, int32_t sum, int32_t multiplier,
                                                 int32_t shift, int32_t rounding)
{
    int32_t value;
    if (form->rounds_twice) {
        value = tvm_ext_dsp_high_product_rounded(sum * 2, multiplier, rounding * (1 << shift));
        value = (value + (form->is_signed ? sum >> 31 : 0)) >> (shift + 1);
    } else {
        value = tvm_ext_dsp_high_product(sum, multiplier, rounding) >> form->shift;
    }
    return form->is_unsigned ? tvm_ext_saturate_u8(value) : tvm_ext_saturate_s8(value);
}

/* The same computation in plain C, of some pixels by an even number of channels at a time. */
static inline void tvm_ext_dsp_blocks(const tvm_ext_dsp_blocks_form *form, uint8_t *const output[],
                                      const int8_t *weights, const uint32_t *cells, int32_t units, int32_t blocks,
                                      int32_t rounding, int32_t pixels, int32_t channels)
{
    for (int32_t k = 0; k < blocks * channels; k += channels) {
        const int8_t *const products = &weights[4 * channels];
        const int8_t *const multipliers = &products[4 * channels * units];
        const int8_t *const shifts = &multipliers[4 * channels];
        for (int32_t i = (pixels * channels) - 1; i >= 0; --i) {
            const int32_t p = i / channels;
            const int32_t j = i % channels;
            const int32_t first = j - (j % 2); /* of two channels */
            uint32_t sums[2] = {tvm_ext_dsp_load(&weights[4 * first]), tvm_ext_dsp_load(&weights[4 * (first + 1)])};
            for (int32_t c = 0; c < 2 * units; ++c) {
                const uint32_t cell = cells[(c * pixels) + p];
                const uint32_t word = tvm_ext_dsp_load(&products[2 * ((c * channels) + first)]);
                const uint32_t second = form->is_joined ? word : tvm_ext_dsp_odd_s8(word);
                sums[0] = (uint32_t)tvm_ext_dsp_smlad(cell, tvm_ext_dsp_even_s8(word), (int32_t)sums[0]);
                sums[1] = (uint32_t)tvm_ext_dsp_smlad(cell, second, (int32_t)sums[1]);
            }
            sums[1] = form->is_joined ? (uint32_t)((int32_t)(sums[1] - sums[0]) >> 8) : sums[1];
            const int32_t multiplier = (int32_t)tvm_ext_dsp_load(&multipliers[4 * j]);
            const int32_t shift = form->rounds_twice ? shifts[j] : 0;
            output[p][k + j] =
                (uint8_t)tvm_ext_dsp_blocks_element(form, (int32_t)sums[j % 2], multiplier, shift, rounding);
        }
        weights = form->rounds_twice ? &shifts[4] : shifts;
    }
}

#define TVM_EXT_DSP_BLOCKS(NAME, IS_JOINED, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                              \
    static inline void NAME(uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *weights, const uint32_t *cells,  \
                            int32_t units, int32_t pairs, int32_t rounding)                                           \
    {                                                                                                                 \
        const tvm_ext_dsp_blocks_form form = {IS_JOINED, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT};                \
        tvm_ext_dsp_blocks(&form, output, weights, cells, units, pairs, rounding, TVM_EXT_DSP_PIXELS, 2);             \
    }
#define TVM_EXT_DSP_BLOCKS_OF(NAME, SUFFIX, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                              \
    TVM_EXT_DSP_BLOCKS(NAME##_##SUFFIX, false, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                           \
    TVM_EXT_DSP_BLOCKS(NAME##_joined_##SUFFIX, true, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)
#define TVM_EXT_DSP_BLOCKS_EACH(NAME)                                                                                 \
    TVM_EXT_DSP_BLOCKS_OF(NAME, s8_4, false, false, false, 4)                                                         \
    TVM_EXT_DSP_BLOCKS_OF(NAME, s8_8, false, false, false, 8)                                                         \
    TVM_EXT_DSP_BLOCKS_OF(NAME, u8_4, true, false, false, 4)                                                          \
    TVM_EXT_DSP_BLOCKS_OF(NAME, u8_8, true, false, false, 8)                                                          \
    TVM_EXT_DSP_BLOCKS_OF(NAME, s8_twice, false, true, false, 0)                                                      \
    TVM_EXT_DSP_BLOCKS_OF(NAME, s8_twice_signed, false, true, true, 0)

TVM_EXT_DSP_BLOCKS_EACH(tvm_ext_dsp_blocks)

#endif

#endif
