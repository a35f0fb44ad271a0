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

/* With two roundings, r3 holds the shifts, that of the present channel in its lowest byte. Instructions of channels A
 * and B alternate, for cores that start two in a cycle. DOUBLE: doubles a sum of B; ADDEND: makes the addend ROUNDING
 * of a sum; OF_B: the register of B's multiplier, RELOAD reads it. */
#define TVM_EXT_DSP_DOUBLE(S) "lsl " S ", " S ", #1\n\t"
#define TVM_EXT_DSP_DOUBLE_JOINED(S) "asr " S ", " S ", #7\n\t"
#define TVM_EXT_DSP_NO_ADDEND(S) ""
#define TVM_EXT_DSP_SIGN_ADDEND(S) "add r1, r12, " S ", asr #31\n\t"
#define TVM_EXT_DSP_SATURATE_HALF(S) "ssat " S ", #8, " S ", asr #1\n\t"
#define TVM_EXT_DSP_FINISH_TWICE(SPLIT, DOUBLE, ADDEND, ROUNDING, OF_B, RELOAD)                                       \
    "ldm r2!, {r0, r1, r3}\n\t"                                                                                       \
    "ldm sp, {r4, r5, r6, r12}\n\t" SPLIT                                                                            \
    "lsl r9, r9, #1\n\t"                                                                                             \
    "lsl r12, r12, r3\n\t"                                                                                           \
    "lsl r8, r8, #1\n\t" ADDEND("r9")                                                                                \
    "lsl r7, r7, #1\n\t"                                                                                             \
    "smmlar r9, r9, r0, " ROUNDING "\n\t" ADDEND("r8") DOUBLE("lr")                                                  \
    "smmlar r8, r8, r0, " ROUNDING "\n\t" ADDEND("r7") DOUBLE("r11")                                                 \
    "smmlar r7, r7, r0, " ROUNDING "\n\t" DOUBLE("r10")                                                              \
    "ldr r12, [sp, #12]\n\t" RELOAD                                                                                  \
    "asr r9, r9, r3\n\t"                                                                                             \
    "asr r8, r8, r3\n\t"                                                                                             \
    "asr r7, r7, r3\n\t"                                                                                             \
    "lsr r3, r3, #8\n\t" TVM_EXT_DSP_SATURATE_HALF("r9")                                                             \
    "lsl r12, r12, r3\n\t" TVM_EXT_DSP_SATURATE_HALF("r8") ADDEND("lr")                                              \
    "strb r9, [r6], #1\n\t"                                                                                          \
    "smmlar lr, lr, " OF_B ", " ROUNDING "\n\t" ADDEND("r11") TVM_EXT_DSP_SATURATE_HALF("r7")                        \
    "smmlar r11, r11, " OF_B ", " ROUNDING "\n\t" ADDEND("r10")                                                      \
    "strb r8, [r5], #1\n\t"                                                                                          \
    "smmlar r10, r10, " OF_B ", " ROUNDING "\n\t"                                                                    \
    "strb r7, [r4], #1\n\t"                                                                                          \
    "asr lr, lr, r3\n\t"                                                                                             \
    "asr r11, r11, r3\n\t"                                                                                           \
    "asr r10, r10, r3\n\t" TVM_EXT_DSP_SATURATE_HALF("lr") TVM_EXT_DSP_SATURATE_HALF("r11")                          \
    "strb lr, [r6], #1\n\t" TVM_EXT_DSP_SATURATE_HALF("r10")                                                         \
    "strb r11, [r5], #1\n\t"                                                                                         \
    "strb r10, [r4], #1\n\t"
#define TVM_EXT_DSP_FINISH_UNSIGNED(SPLIT, DOUBLE)                                                                    \
    TVM_EXT_DSP_FINISH_TWICE(SPLIT, DOUBLE, TVM_EXT_DSP_NO_ADDEND, "r12", "r1", "")
#define TVM_EXT_DSP_FINISH_SIGNED(SPLIT, DOUBLE)                                                                      \
    TVM_EXT_DSP_FINISH_TWICE(SPLIT, DOUBLE, TVM_EXT_DSP_SIGN_ADDEND, "r1", "r0", "ldr r0, [r2, #-8]\n\t")
#define TVM_EXT_DSP_SPLIT                                                                                             \
    "sub r10, r10, r7\n\t"                                                                                           \
    "sub r11, r11, r8\n\t"                                                                                           \
    "sub lr, lr, r9\n\t"

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

#define TVM_EXT_DSP_BLOCKS_TEXT(FIRST, UNIT, UNIT_BYTES, OTHER_BYTES, FINISH)                                         \
    "push {r7, r11}\n\t"                                                                                              \
    "ldmia r0, {r8, r9, r10}\n\t"                                                                                     \
    "lsl r5, r3, #3\n\t"                                                                                              \
    "add r6, r5, #" OTHER_BYTES "\n\t"                                                                                \
    "mla r7, r12, r6, r2\n\t"                                                                                         \
    "rsb r6, r3, #1\n\t"                                                                                              \
    "and r6, r6, #7\n\t"                                                                                              \
    "movs r0, #" UNIT_BYTES "\n\t"                                                                                    \
    "adr r12, 2f\n\t"                                                                                                 \
    "mla r6, r6, r0, r12\n\t"                                                                                         \
    "adr r12, 3f\n\t"                                                                                                 \
    "cmp r3, #1\n\t"                                                                                                  \
    "it eq\n\t"                                                                                                       \
    "moveq r6, r12\n\t"                                                                                               \
    "orr r6, r6, #1\n\t"                                                                                              \
    "push {r1, r5, r6, r7}\n\t"                                                                                       \
    "push {r4}\n\t"                                                                                                   \
    "push {r8, r9, r10}\n"                                                                                            \
    "1:\n\t"                                                                                                          \
    "ldrd r7, r10, [r2], #8\n\t"                                                                                      \
    "ldr r12, [sp, #20]\n\t"                                                                                          \
    "add r12, r12, r2\n\t" FIRST "ldr pc, [sp, #24]\n\t"                                                              \
    ".balign 4\n"                                                                                                     \
    "2:\n\t" UNIT UNIT UNIT UNIT UNIT UNIT UNIT UNIT                                                                  \
    TVM_EXT_DSP_SIZED("2b", "8", UNIT_BYTES) "cmp r2, r12\n\t"                                                        \
    "bne 2b\n\t"                                                                                                      \
    ".balign 4\n"                                                                                                     \
    "3:\n\t"                                                                                                          \
    FINISH                                                                                                            \
    "ldr r1, [sp, #16]\n\t"                                                                                           \
    "ldr r0, [sp, #28]\n\t"                                                                                           \
    "stm sp, {r4, r5, r6}\n\t"                                                                                        \
    "cmp r2, r0\n\t"                                                                                                  \
    "bne 1b\n\t"                                                                                                      \
    "add sp, sp, #32\n\t"                                                                                             \
    "pop {r7, r11}\n\t"
/* OTHER_BYTES: of initial sums and factors of two channels. */
#define TVM_EXT_DSP_BLOCKS_PLAIN(SUFFIX, OTHER_BYTES, FINISH)                                                         \
    TVM_EXT_DSP_BLOCKS_FUNCTION(                                                                                      \
        tvm_ext_dsp_blocks_##SUFFIX,                                                                                  \
        TVM_EXT_DSP_BLOCKS_TEXT(TVM_EXT_DSP_BLOCKS_FIRST, TVM_EXT_DSP_3X2_UNIT, TVM_EXT_DSP_3X2_UNIT_BYTES,           \
                                OTHER_BYTES, FINISH))
#define TVM_EXT_DSP_BLOCKS_JOINED(SUFFIX, OTHER_BYTES, FINISH)                                                        \
    TVM_EXT_DSP_BLOCKS_FUNCTION(                                                                                      \
        tvm_ext_dsp_blocks_joined_##SUFFIX,                                                                           \
        TVM_EXT_DSP_BLOCKS_TEXT(TVM_EXT_DSP_BLOCKS_JOINED_FIRST, TVM_EXT_DSP_3X2_JOINED_UNIT,                         \
                                TVM_EXT_DSP_3X2_JOINED_UNIT_BYTES, OTHER_BYTES, FINISH))
/* All functions of PLAIN and JOINED. SHIFT_B: SHIFT + 8, because sums B are multiplied by 256. */
#define TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, TYPE, SATURATE, SHIFT, SHIFT_B)                                        \
    PLAIN(TYPE##_##SHIFT, "16", TVM_EXT_DSP_FINISH_ONCE("", SATURATE, #SHIFT, "", #SHIFT))                            \
    JOINED(TYPE##_##SHIFT, "16",                                                                                      \
           TVM_EXT_DSP_FINISH_ONCE(TVM_EXT_DSP_SPLIT, SATURATE, #SHIFT, "lsl r12, r12, #8\n\t", #SHIFT_B))
#define TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, SUFFIX, FINISH)                                                       \
    PLAIN(SUFFIX, "20", FINISH("", TVM_EXT_DSP_DOUBLE))                                                               \
    JOINED(SUFFIX, "20", FINISH(TVM_EXT_DSP_SPLIT, TVM_EXT_DSP_DOUBLE_JOINED))
#define TVM_EXT_DSP_BLOCKS_EACH(PLAIN, JOINED)                                                                        \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, s8, "ssat", 4, 12)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, s8, "ssat", 8, 16)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, u8, "usat", 4, 12)                                                         \
    TVM_EXT_DSP_BLOCKS_ONCE(PLAIN, JOINED, u8, "usat", 8, 16)                                                         \
    TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, s8_twice, TVM_EXT_DSP_FINISH_UNSIGNED)                                    \
    TVM_EXT_DSP_BLOCKS_TWICE(PLAIN, JOINED, s8_twice_signed, TVM_EXT_DSP_FINISH_SIGNED)

TVM_EXT_DSP_BLOCKS_EACH(TVM_EXT_DSP_BLOCKS_PLAIN, TVM_EXT_DSP_BLOCKS_JOINED)

#pragma GCC diagnostic pop

#else

/* How a sum becomes an element: by one rounding and one shift, or by two roundings, which are exact for negative sums
 * if is_signed. With holds_sums the sum itself is stored. */
typedef struct {
    bool is_joined;
    bool holds_sums;
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

/* Computes in plain C what the assembly computes: some pixels by an even number of channels at a time. */
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
            const int32_t first = j - (j % 2); /* the first of two channels */
            uint32_t sums[2] = {tvm_ext_dsp_load(&weights[4 * first]), tvm_ext_dsp_load(&weights[4 * (first + 1)])};
            for (int32_t c = 0; c < 2 * units; ++c) {
                const uint32_t cell = cells[(c * pixels) + p];
                const uint32_t word = tvm_ext_dsp_load(&products[2 * ((c * channels) + first)]);
                const uint32_t second = form->is_joined ? word : tvm_ext_dsp_odd_s8(word);
                sums[0] = (uint32_t)tvm_ext_dsp_smlad(cell, tvm_ext_dsp_even_s8(word), (int32_t)sums[0]);
                sums[1] = (uint32_t)tvm_ext_dsp_smlad(cell, second, (int32_t)sums[1]);
            }
            sums[1] = form->is_joined ? (uint32_t)((int32_t)(sums[1] - sums[0]) >> 8) : sums[1];
            if (form->holds_sums) {
                tvm_ext_dsp_store(&output[p][4 * (k + j)], sums[j % 2]);
                continue;
            }
            const int32_t multiplier = (int32_t)tvm_ext_dsp_load(&multipliers[4 * j]);
            const int32_t shift = form->rounds_twice ? shifts[j] : 0;
            output[p][k + j] =
                (uint8_t)tvm_ext_dsp_blocks_element(form, (int32_t)sums[j % 2], multiplier, shift, rounding);
        }
        weights = form->holds_sums ? multipliers : form->rounds_twice ? &shifts[4] : shifts;
    }
}

#define TVM_EXT_DSP_BLOCKS(NAME, IS_JOINED, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT)                              \
    static inline void NAME(uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *weights, const uint32_t *cells,  \
                            int32_t units, int32_t pairs, int32_t rounding)                                           \
    {                                                                                                                 \
        const tvm_ext_dsp_blocks_form form = {IS_JOINED, false, IS_UNSIGNED, ROUNDS_TWICE, IS_SIGNED, SHIFT};         \
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
