/* Elements of all output channels of two pixels by the DSP extension, four channels at a time, from products to bytes
 * in registers.
 *
 * Cells of two adjacent pixels, and joined weights of channels A and B, C and D, are described in
 * tvm_ext_dsp_product.h. Eight sums leave four registers for operands. Loads that follow each other take one cycle each
 * on a Cortex-M4, after two for the first: 16 products of pairs, 8 loads and 4 extensions take 30 cycles for 32
 * multiply-adds.
 *
 * Before the weights of four channels are the initial sums A, A + 256 B, C and C + 256 D, all sums B and D less than
 * 2^23; after them a multiplier and a rounding of each channel. An element is (high product of sum and multiplier +
 * rounding) >> shift, saturated; those of B and D are for 256 times their sums, so that their shift is 8 larger.
 *
 * The function `twice` rounds twice, as TensorFlow Lite does: after the weights are multipliers of four channels and a
 * word of their shifts, a byte each. An element is (rounded high product of 2 sum and multiplier + rounding * 2^shift,
 * less one if the sum is negative) >> (shift + 1), saturated. */
#ifndef TVM_EXT_DSP_QUADS_H
#define TVM_EXT_DSP_QUADS_H

#include <stdbool.h>
#include <stdint.h>

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_requantize.h"

#define TVM_EXT_DSP_QUAD_PIXELS 2

#if TVM_EXT_DSP

/* The assembly is longer than the strings that ISO C guarantees; clang warns of this, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 cells and r2 weights, less what the first iteration leaves out; r0 and r3 cells, r4 and r5 weights;
 * sums A to D of the first pixel r7 to r10, of the second one r11, r12, lr and r6. I: the unit, of two cells. */
#define TVM_EXT_DSP_QUAD_CELL(PLACE)                                                                                  \
    "ldr.n r0, [r1, #" PLACE "]\n\t"                                                                                  \
    "ldr.n r3, [r1, #" PLACE " + 4]\n\t"                                                                              \
    "ldr.n r4, [r2, #" PLACE "]\n\t"                                                                                  \
    "ldr.n r5, [r2, #" PLACE " + 4]\n\t" TVM_EXT_DSP_SMLAD("r8", "r0", "r4") TVM_EXT_DSP_SMLAD("r12", "r3", "r4")     \
    "sxtb16 r4, r4\n\t" TVM_EXT_DSP_SMLAD("r10", "r0", "r5") TVM_EXT_DSP_SMLAD("r6", "r3", "r5")                      \
    "sxtb16 r5, r5\n\t" TVM_EXT_DSP_SMLAD("r7", "r0", "r4") TVM_EXT_DSP_SMLAD("r11", "r3", "r4")                      \
    TVM_EXT_DSP_SMLAD("r9", "r0", "r5") TVM_EXT_DSP_SMLAD("lr", "r3", "r5")
#define TVM_EXT_DSP_QUAD_UNIT(I) TVM_EXT_DSP_QUAD_CELL("16 * " #I) TVM_EXT_DSP_QUAD_CELL("16 * " #I " + 8")
#define TVM_EXT_DSP_QUAD_UNIT_BYTES "96"

/* Sums of B and D, 256 times. */
#define TVM_EXT_DSP_QUAD_SPLIT                                                                                        \
    "sub r8, r8, r7\n\t"                                                                                              \
    "sub r12, r12, r11\n\t"                                                                                           \
    "sub r10, r10, r9\n\t"                                                                                            \
    "sub r6, r6, lr\n\t"
/* Stores the elements, those of the first pixel last. r0, r1: addresses, which advance. */
#define TVM_EXT_DSP_QUAD_STORE                                                                                        \
    "ldrd r0, r1, [sp]\n\t"                                                                                           \
    "strb r11, [r1], #1\n\t"                                                                                          \
    "strb r12, [r1], #1\n\t"                                                                                          \
    "strb lr, [r1], #1\n\t"                                                                                           \
    "strb r6, [r1], #1\n\t"                                                                                           \
    "strb r7, [r0], #1\n\t"                                                                                           \
    "strb r8, [r0], #1\n\t"                                                                                           \
    "strb r9, [r0], #1\n\t"                                                                                           \
    "strb r10, [r0], #1\n\t"                                                                                          \
    "strd r0, r1, [sp]\n\t"

/* Channels S and T of both pixels. SHIFT_T: SHIFT + 8. */
#define TVM_EXT_DSP_QUAD_ONCE(S0, S1, T0, T1, SATURATE, SHIFT, SHIFT_T)                                               \
    "ldmia r2!, {r0, r1, r3, r4}\n\t"                                                                                 \
    "smmla " S0 ", " S0 ", r0, r1\n\t"                                                                                \
    "smmla " S1 ", " S1 ", r0, r1\n\t"                                                                                \
    "smmla " T0 ", " T0 ", r3, r4\n\t"                                                                                \
    "smmla " T1 ", " T1 ", r3, r4\n\t" SATURATE " " S0 ", #8, " S0 ", asr #" SHIFT "\n\t" SATURATE " " S1 ", #8, " S1 \
    ", asr #" SHIFT "\n\t" SATURATE " " T0 ", #8, " T0 ", asr #" SHIFT_T "\n\t" SATURATE " " T1 ", #8, " T1           \
    ", asr #" SHIFT_T "\n\t"
#define TVM_EXT_DSP_QUAD_FINISH_ONCE(SATURATE, SHIFT, SHIFT_T)                                                        \
    TVM_EXT_DSP_QUAD_SPLIT                                                                                            \
    TVM_EXT_DSP_QUAD_ONCE("r7", "r11", "r8", "r12", SATURATE, SHIFT, SHIFT_T)                                         \
    TVM_EXT_DSP_QUAD_ONCE("r9", "lr", "r10", "r6", SATURATE, SHIFT, SHIFT_T) TVM_EXT_DSP_QUAD_STORE

/* One channel of both pixels, by a multiplier M. r1: shifts, that of the channel in the lowest byte; r4 and r5: an
 * addend. The rounding is on the stack. DOUBLE: doubles a sum. */
#define TVM_EXT_DSP_QUAD_TWICE(S0, S1, DOUBLE)                                                                        \
    "ldr r0, [r2], #4\n\t"                                                                                            \
    "lsl r4, r3, r1\n\t" DOUBLE(S0) DOUBLE(S1) "add r5, r4, " S0 ", asr #31\n\t"                                      \
    "add r4, r4, " S1 ", asr #31\n\t"                                                                                 \
    "smmlar " S0 ", " S0 ", r0, r5\n\t"                                                                               \
    "smmlar " S1 ", " S1 ", r0, r4\n\t"                                                                               \
    "asr " S0 ", " S0 ", r1\n\t"                                                                                      \
    "asr " S1 ", " S1 ", r1\n\t"                                                                                      \
    "lsr r1, r1, #8\n\t"                                                                                              \
    "ssat " S0 ", #8, " S0 ", asr #1\n\t"                                                                             \
    "ssat " S1 ", #8, " S1 ", asr #1\n\t"
#define TVM_EXT_DSP_QUAD_DOUBLE(S) "lsl " S ", " S ", #1\n\t"
#define TVM_EXT_DSP_QUAD_DOUBLE_JOINED(S) "asr " S ", " S ", #7\n\t"
#define TVM_EXT_DSP_QUAD_FINISH_TWICE                                                                                 \
    "ldr r1, [r2, #16]\n\t"                                                                                           \
    "ldr r3, [sp, #8]\n\t" TVM_EXT_DSP_QUAD_SPLIT TVM_EXT_DSP_QUAD_TWICE("r7", "r11", TVM_EXT_DSP_QUAD_DOUBLE)        \
    TVM_EXT_DSP_QUAD_TWICE("r8", "r12", TVM_EXT_DSP_QUAD_DOUBLE_JOINED)                                               \
    TVM_EXT_DSP_QUAD_TWICE("r9", "lr", TVM_EXT_DSP_QUAD_DOUBLE)                                                       \
    TVM_EXT_DSP_QUAD_TWICE("r10", "r6", TVM_EXT_DSP_QUAD_DOUBLE_JOINED) "adds r2, #4\n\t" TVM_EXT_DSP_QUAD_STORE

/* On the stack: two addresses of elements, the rounding, cells less what the first iteration leaves out, the bytes of
 * weights that it leaves out, the entry into the loop, the end of the cells, the end of all weights. OTHER_BYTES: of
 * initial sums and factors of four channels. */
#define TVM_EXT_DSP_QUADS(NAME, OTHER_BYTES, FINISH) TVM_EXT_DSP_BLOCKS_FUNCTION(NAME, \
    "push {r7, r11}\n\t" \
    "ldrd r8, r9, [r0]\n\t" \
    "lsl r5, r3, #4\n\t" \
    "add r6, r5, #" OTHER_BYTES "\n\t" \
    "mla r6, r12, r6, r2\n\t" \
    "add r5, r5, r1\n\t" \
    "rsb r7, r3, #0\n\t" \
    "and r7, r7, #7\n\t" \
    "movs r0, #" TVM_EXT_DSP_QUAD_UNIT_BYTES "\n\t" \
    "adr r12, 2f\n\t" \
    "mla r0, r7, r0, r12\n\t" \
    "orr r0, r0, #1\n\t" \
    "lsl r7, r7, #4\n\t" \
    "sub r1, r1, r7\n\t" \
    "push {r0, r5, r6}\n\t" \
    "push {r1, r7}\n\t" \
    "push {r4}\n\t" \
    "push {r8, r9}\n" \
    "1:\n\t" \
    "ldmia r2!, {r7, r8, r9, r10}\n\t" \
    "ldrd r1, r0, [sp, #12]\n\t" \
    "mov r11, r7\n\t" \
    "mov r12, r8\n\t" \
    "mov lr, r9\n\t" \
    "mov r6, r10\n\t" \
    "sub r2, r2, r0\n\t" \
    "ldr pc, [sp, #20]\n\t" \
    ".balign 4\n" \
    "2:\n\t" TVM_EXT_DSP_QUAD_UNIT(0) TVM_EXT_DSP_QUAD_UNIT(1) TVM_EXT_DSP_QUAD_UNIT(2) \
    TVM_EXT_DSP_QUAD_UNIT(3) TVM_EXT_DSP_QUAD_UNIT(4) TVM_EXT_DSP_QUAD_UNIT(5) \
    TVM_EXT_DSP_QUAD_UNIT(6) TVM_EXT_DSP_QUAD_UNIT(7) \
    TVM_EXT_DSP_SIZED("2b", "8", TVM_EXT_DSP_QUAD_UNIT_BYTES) "ldr r0, [sp, #24]\n\t" \
    "adds r1, #128\n\t" \
    "adds r2, #128\n\t" \
    "cmp r1, r0\n\t" \
    "bne 2b\n\t" FINISH \
    "ldr r0, [sp, #28]\n\t" \
    "cmp r2, r0\n\t" \
    "bne 1b\n\t" \
    "add sp, sp, #32\n\t" \
    "pop {r7, r11}\n\t")

TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_4, "48", TVM_EXT_DSP_QUAD_FINISH_ONCE("ssat", "4", "12"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_8, "48", TVM_EXT_DSP_QUAD_FINISH_ONCE("ssat", "8", "16"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_4, "48", TVM_EXT_DSP_QUAD_FINISH_ONCE("usat", "4", "12"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_8, "48", TVM_EXT_DSP_QUAD_FINISH_ONCE("usat", "8", "16"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_twice_signed, "36", TVM_EXT_DSP_QUAD_FINISH_TWICE)

#pragma GCC diagnostic pop

#else

/* How sums become elements: by a shift and a rounding of each channel, or twice, by a shift of each channel. */
typedef struct {
    bool is_unsigned;
    bool rounds_twice;
    int32_t shift;
} tvm_ext_dsp_quads_form;

/* Returns the element of channel j of four. sum: of B and D 256 times. factors: of four channels. */
static inline int32_t tvm_ext_dsp_quads_element(const tvm_ext_dsp_quads_form *form, int32_t sum, const int8_t *factors,
                                                int32_t j, int32_t rounding)
{
    int32_t value;
    if (form->rounds_twice) {
        const int32_t shift = ((const uint8_t *)factors)[16 + j];
        const int32_t whole = j % 2 == 1 ? sum >> 8 : sum;
        value = tvm_ext_dsp_high_product_rounded(whole * 2, (int32_t)tvm_ext_dsp_load(&factors[4 * j]),
                                                 rounding * (1 << shift));
        value = (value + (whole >> 31)) >> (shift + 1);
    } else {
        value = tvm_ext_dsp_high_product(sum, (int32_t)tvm_ext_dsp_load(&factors[8 * j]),
                                         (int32_t)tvm_ext_dsp_load(&factors[(8 * j) + 4])) >>
                (form->shift + (j % 2 == 1 ? 8 : 0));
    }
    return form->is_unsigned ? tvm_ext_saturate_u8(value) : tvm_ext_saturate_s8(value);
}

/* The same computation in plain C. */
static inline void tvm_ext_dsp_quads(const tvm_ext_dsp_quads_form *form, uint8_t *const output[TVM_EXT_DSP_QUAD_PIXELS],
                                     const int8_t *weights, const uint32_t *cells, int32_t units, int32_t fours,
                                     int32_t rounding)
{
    for (int32_t k = 0; k < 4 * fours; k += 4) {
        const int8_t *const products = &weights[16];
        const int8_t *const factors = &products[16 * units];
        for (int32_t p = TVM_EXT_DSP_QUAD_PIXELS - 1; p >= 0; --p) { /* the first pixel may stand for both */
            int32_t sums[4];
            for (int32_t j = 0; j < 4; ++j) {
                uint32_t sum = tvm_ext_dsp_load(&weights[4 * j]);
                for (int32_t c = 0; c < 2 * units; ++c) {
                    const uint32_t word = tvm_ext_dsp_load(&products[(8 * c) + (4 * (j / 2))]);
                    const uint32_t pair = j % 2 == 1 ? word : tvm_ext_dsp_even_s8(word);
                    sum = (uint32_t)tvm_ext_dsp_smlad(cells[(TVM_EXT_DSP_QUAD_PIXELS * c) + p], pair, (int32_t)sum);
                }
                sums[j] = (int32_t)sum;
            }
            for (int32_t j = 0; j < 4; ++j) {
                const int32_t less = j % 2 == 1 ? sums[j - 1] : 0;
                const uint32_t sum = (uint32_t)sums[j] - (uint32_t)less;
                output[p][k + j] = (uint8_t)tvm_ext_dsp_quads_element(form, (int32_t)sum, factors, j, rounding);
            }
        }
        weights = &factors[form->rounds_twice ? 20 : 32];
    }
}

#define TVM_EXT_DSP_QUADS(NAME, IS_UNSIGNED, ROUNDS_TWICE, SHIFT)                                                     \
    static inline void NAME(uint8_t *const output[TVM_EXT_DSP_QUAD_PIXELS], const int8_t *weights,                    \
                            const uint32_t *cells, int32_t units, int32_t fours, int32_t rounding)                    \
    {                                                                                                                 \
        const tvm_ext_dsp_quads_form form = {IS_UNSIGNED, ROUNDS_TWICE, SHIFT};                                       \
        tvm_ext_dsp_quads(&form, output, weights, cells, units, fours, rounding);                                     \
    }

TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_4, false, false, 4)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_8, false, false, 8)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_4, true, false, 4)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_8, true, false, 8)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_twice_signed, false, true, 0)

#endif

#endif
