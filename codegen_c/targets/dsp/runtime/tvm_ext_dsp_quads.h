/* Elements of all output channels of two pixels by the DSP extension, four channels at a time, from products to bytes
 * in registers.
 *
 * Cells of two adjacent pixels, and joined weights of channels A and B, C and D, are described in
 * tvm_ext_dsp_product.h. Eight sums leave four registers for operands. Loads that follow each other take one cycle each
 * on a Cortex-M4, after two for the first: 16 products of pairs, 8 loads and 4 extensions take 30 cycles for 32
 * multiply-adds.
 *
 * Before the weights of four channels are the initial sums A, A + 256 B, C and C + 256 D, all sums B and D less than
 * 2^23; then the weights of the last cell, those of all other cells, and a multiplier and a rounding of each channel.
 * An element is (high product of sum and multiplier + rounding) >> shift, saturated; those of B and D are for 256 times
 * their sums, so that their shift is 8 larger.
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
#define TVM_EXT_DSP_QUAD_CELLS 32      /* cells of an iteration of the loop, which has two halves */
#define TVM_EXT_DSP_QUAD_CELL_BYTES 48 /* bytes of the instructions of a cell */
#define TVM_EXT_DSP_QUAD_WIDER_BYTES 8 /* additional bytes of the last cell of the first half */

/* Sizes of a layer, which TVM_EXT_DSP_QUADS_SIZES initializes. */
typedef struct {
    int32_t weights_bytes; /* bytes of all channels, with initial sums and factors */
    int32_t left_out;      /* bytes by which a block lowers the address of its weights before the first iteration */
    int32_t entry;         /* bytes of instructions that are left out; 1 more, as addresses of Thumb code have */
    int32_t last_cell;     /* bytes of the cells before the last one of the loop */
    int32_t rounding;      /* the rounding of the functions `twice`; otherwise 0 */
} tvm_ext_dsp_quads_sizes;

/* Initializer of the sizes of `fours` of channels. The last cell of a block is not part of the loop. words: initial
 * sums and factors of four channels. Addresses of weights stay 8 bytes before the factors from one block to the next.
 */
#define TVM_EXT_DSP_QUADS_LEFT_OUT(UNITS)                                                                             \
    ((TVM_EXT_DSP_QUAD_CELLS + 1 - (2 * (UNITS) % TVM_EXT_DSP_QUAD_CELLS)) % TVM_EXT_DSP_QUAD_CELLS)
#define TVM_EXT_DSP_QUADS_IS_SECOND(UNITS) (TVM_EXT_DSP_QUADS_LEFT_OUT(UNITS) >= TVM_EXT_DSP_QUAD_CELLS / 2)
#define TVM_EXT_DSP_QUADS_SIZES(UNITS, FOURS, WORDS, ROUNDING)                                                        \
    {                                                                                                                 \
        4 * (FOURS) * ((4 * (UNITS)) + (WORDS)),                                                                      \
            (8 * (TVM_EXT_DSP_QUADS_LEFT_OUT(UNITS) % (TVM_EXT_DSP_QUAD_CELLS / 2))) - (4 * (WORDS)) - 8,             \
            (TVM_EXT_DSP_QUAD_CELL_BYTES * TVM_EXT_DSP_QUADS_LEFT_OUT(UNITS)) +                                       \
                (TVM_EXT_DSP_QUADS_IS_SECOND(UNITS) ? TVM_EXT_DSP_QUAD_WIDER_BYTES : 0) + 1,                          \
            (16 * (UNITS)) - 16, ROUNDING                                                                             \
    }

#if TVM_EXT_DSP

/* The assembly is longer than the strings that ISO C guarantees; clang warns of this, GCC does not. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* Registers: r1 weights and r2 cells; r0 and r3 cells, r4 and r5 weights; sums A to D of the first pixel r7 to r10, of
 * the second one r11, r12, lr and r6. The loop has two halves of 16 cells, and its first iteration enters it at one of
 * them. r2 and r1 are 8 bytes before the first cell of a half, so that the loads of its last one can advance both.
 * Words are loaded one by one: that takes no more cycles than loads of several words on a Cortex-M4, and fewer on a
 * Cortex-M33, where no product may read what the instruction before it loads. The end of the cells is loaded while the
 * last products are computed. */
#define TVM_EXT_DSP_QUAD_PRODUCTS                                                                                     \
    TVM_EXT_DSP_SMLAD("r12", "r3", "r4")                                                                              \
    TVM_EXT_DSP_SMLAD("r8", "r0", "r4")                                                                               \
    "sxtb16 r4, r4\n\t" TVM_EXT_DSP_SMLAD("r6", "r3", "r5") TVM_EXT_DSP_SMLAD("r10", "r0", "r5")                      \
    "sxtb16 r5, r5\n\t" TVM_EXT_DSP_SMLAD("r7", "r0", "r4") TVM_EXT_DSP_SMLAD("r9", "r0", "r5")
#define TVM_EXT_DSP_QUAD_LAST_PRODUCTS                                                                                \
    TVM_EXT_DSP_SMLAD("r11", "r3", "r4")                                                                              \
    TVM_EXT_DSP_SMLAD("lr", "r3", "r5")
#define TVM_EXT_DSP_QUAD_CELL(I)                                                                                      \
    "ldr.n r0, [r2, #(8 * " #I " + 8)]\n\t"                                                                           \
    "ldr.n r3, [r2, #(8 * " #I " + 12)]\n\t"                                                                          \
    "ldr.n r4, [r1, #(8 * " #I " + 8)]\n\t"                                                                           \
    "ldr.n r5, [r1, #(8 * " #I " + 12)]\n\t" TVM_EXT_DSP_QUAD_PRODUCTS TVM_EXT_DSP_QUAD_LAST_PRODUCTS
/* The last cell of a half. END: an instruction before its last products. */
#define TVM_EXT_DSP_QUAD_LAST_CELL(END)                                                                               \
    "ldr.w r5, [r1, #132]\n\t"                                                                                        \
    "ldr.w r4, [r1, #128]!\n\t"                                                                                       \
    "ldr.w r3, [r2, #132]\n\t"                                                                                        \
    "ldr.w r0, [r2, #128]!\n\t" TVM_EXT_DSP_QUAD_PRODUCTS END TVM_EXT_DSP_QUAD_LAST_PRODUCTS
#define TVM_EXT_DSP_QUAD_HALF(END)                                                                                    \
    TVM_EXT_DSP_QUAD_CELL(0) TVM_EXT_DSP_QUAD_CELL(1) TVM_EXT_DSP_QUAD_CELL(2) TVM_EXT_DSP_QUAD_CELL(3)               \
    TVM_EXT_DSP_QUAD_CELL(4) TVM_EXT_DSP_QUAD_CELL(5) TVM_EXT_DSP_QUAD_CELL(6) TVM_EXT_DSP_QUAD_CELL(7)               \
    TVM_EXT_DSP_QUAD_CELL(8) TVM_EXT_DSP_QUAD_CELL(9) TVM_EXT_DSP_QUAD_CELL(10) TVM_EXT_DSP_QUAD_CELL(11)             \
    TVM_EXT_DSP_QUAD_CELL(12) TVM_EXT_DSP_QUAD_CELL(13) TVM_EXT_DSP_QUAD_CELL(14) TVM_EXT_DSP_QUAD_LAST_CELL(END)
/* The initial sums and the last cell of a block, from the last cell of the loop on. NEXT: bytes from r1 to the block.
 */
#define TVM_EXT_DSP_QUAD_FIRST(NEXT)                                                                                  \
    "ldr r7, [r1, #" NEXT "]\n\t"                                                                                     \
    "ldr r8, [r1, #(" NEXT " + 4)]\n\t"                                                                               \
    "ldr r9, [r1, #(" NEXT " + 8)]\n\t"                                                                               \
    "ldr r10, [r1, #(" NEXT " + 12)]\n\t"                                                                             \
    "ldr r11, [r1, #(" NEXT " + 16)]\n\t"                                                                             \
    "ldr r12, [r1, #(" NEXT " + 20)]\n\t"                                                                             \
    "ldr r3, [r2, #12]\n\t"                                                                                           \
    "ldr r0, [r2, #8]\n\t"                                                                                            \
    "ldr r2, [sp, #4]\n\t"                                                                                            \
    "smlad r6, r3, r12, r10\n\t"                                                                                      \
    "smlad r10, r0, r12, r10\n\t"                                                                                     \
    "sxtb16 r12, r12\n\t"                                                                                             \
    "smlad lr, r3, r12, r9\n\t"                                                                                       \
    "smlad r9, r0, r12, r9\n\t"                                                                                       \
    "smlad r12, r3, r11, r8\n\t"                                                                                      \
    "smlad r8, r0, r11, r8\n\t"                                                                                       \
    "sxtb16 r4, r11\n\t"                                                                                              \
    "smlad r11, r3, r4, r7\n\t"                                                                                       \
    "smlad r7, r0, r4, r7\n\t"

/* Sums of B and D, 256 times. */
#define TVM_EXT_DSP_QUAD_SPLIT                                                                                        \
    "sub r8, r8, r7\n\t"                                                                                              \
    "sub r12, r12, r11\n\t"                                                                                           \
    "sub r10, r10, r9\n\t"                                                                                            \
    "sub r6, r6, lr\n\t"
/* Stores the elements as a word of each pixel, that of the first one last. It loads the end of all weights, the address
 * of the first element, which advances, the bytes from there to the second pixel, and the weights that are left out. */
#define TVM_EXT_DSP_QUAD_STORE                                                                                        \
    "ldr r0, [sp]\n\t"                                                                                                \
    "ldr r3, [sp, #8]\n\t"                                                                                            \
    "ldr r4, [sp, #12]\n\t"                                                                                           \
    "ldr r5, [sp, #16]\n\t"                                                                                           \
    "bfi r11, r12, #8, #8\n\t"                                                                                        \
    "bfi lr, r6, #8, #8\n\t"                                                                                          \
    "pkhbt r11, r11, lr, lsl #16\n\t"                                                                                 \
    "str r11, [r3, r4]\n\t"                                                                                           \
    "bfi r7, r8, #8, #8\n\t"                                                                                          \
    "bfi r9, r10, #8, #8\n\t"                                                                                         \
    "pkhbt r7, r7, r9, lsl #16\n\t"                                                                                   \
    "str r7, [r3], #4\n\t"                                                                                            \
    "str r3, [sp, #8]\n\t"

/* Channels S and T of both pixels. SHIFT_T: SHIFT + 8. */
#define TVM_EXT_DSP_QUAD_ONCE(S0, S1, T0, T1, PLACE, SATURATE, SHIFT, SHIFT_T)                                        \
    "ldr.n r0, [r1, #(" PLACE ")]\n\t"                                                                                \
    "ldr.n r5, [r1, #(" PLACE " + 4)]\n\t"                                                                            \
    "ldr.n r3, [r1, #(" PLACE " + 8)]\n\t"                                                                            \
    "ldr.n r4, [r1, #(" PLACE " + 12)]\n\t"                                                                           \
    "smmla " S0 ", " S0 ", r0, r5\n\t"                                                                                \
    "smmla " S1 ", " S1 ", r0, r5\n\t"                                                                                \
    "smmla " T0 ", " T0 ", r3, r4\n\t"                                                                                \
    "smmla " T1 ", " T1 ", r3, r4\n\t" SATURATE " " S0 ", #8, " S0 ", asr #" SHIFT "\n\t" SATURATE " " S1 ", #8, " S1 \
    ", asr #" SHIFT "\n\t" SATURATE " " T0 ", #8, " T0 ", asr #" SHIFT_T "\n\t" SATURATE " " T1 ", #8, " T1           \
    ", asr #" SHIFT_T "\n\t"
#define TVM_EXT_DSP_QUAD_FINISH_ONCE(SATURATE, SHIFT, SHIFT_T)                                                        \
    TVM_EXT_DSP_QUAD_SPLIT                                                                                            \
    TVM_EXT_DSP_QUAD_ONCE("r7", "r11", "r8", "r12", "8", SATURATE, SHIFT, SHIFT_T)                                    \
    TVM_EXT_DSP_QUAD_ONCE("r9", "lr", "r10", "r6", "24", SATURATE, SHIFT, SHIFT_T)                                    \
        TVM_EXT_DSP_QUAD_STORE

/* One channel of both pixels, by a multiplier M. r2: shifts, that of the channel in the lowest byte; r4 and r5: an
 * addend. The rounding is on the stack. DOUBLE: doubles a sum. */
#define TVM_EXT_DSP_QUAD_TWICE(S0, S1, PLACE, DOUBLE)                                                                 \
    "ldr.n r0, [r1, #" PLACE "]\n\t"                                                                                  \
    "lsl r4, r3, r2\n\t" DOUBLE(S0) DOUBLE(S1) "add r5, r4, " S0 ", asr #31\n\t"                                      \
    "add r4, r4, " S1 ", asr #31\n\t"                                                                                 \
    "smmlar " S0 ", " S0 ", r0, r5\n\t"                                                                               \
    "smmlar " S1 ", " S1 ", r0, r4\n\t"                                                                               \
    "asr " S0 ", " S0 ", r2\n\t"                                                                                      \
    "asr " S1 ", " S1 ", r2\n\t"                                                                                      \
    "lsr r2, r2, #8\n\t"                                                                                              \
    "ssat " S0 ", #8, " S0 ", asr #1\n\t"                                                                             \
    "ssat " S1 ", #8, " S1 ", asr #1\n\t"
#define TVM_EXT_DSP_QUAD_DOUBLE(S) "lsl " S ", " S ", #1\n\t"
#define TVM_EXT_DSP_QUAD_DOUBLE_JOINED(S) "asr " S ", " S ", #7\n\t"
#define TVM_EXT_DSP_QUAD_FINISH_TWICE                                                                                 \
    "ldr r2, [r1, #24]\n\t"                                                                                           \
    "ldr r3, [sp, #28]\n\t" TVM_EXT_DSP_QUAD_SPLIT TVM_EXT_DSP_QUAD_TWICE("r7", "r11", "8", TVM_EXT_DSP_QUAD_DOUBLE)  \
    TVM_EXT_DSP_QUAD_TWICE("r8", "r12", "12", TVM_EXT_DSP_QUAD_DOUBLE_JOINED)                                         \
    TVM_EXT_DSP_QUAD_TWICE("r9", "lr", "16", TVM_EXT_DSP_QUAD_DOUBLE)                                                 \
    TVM_EXT_DSP_QUAD_TWICE("r10", "r6", "20", TVM_EXT_DSP_QUAD_DOUBLE_JOINED) "ldr r2, [sp, #24]\n\t"                 \
        TVM_EXT_DSP_QUAD_STORE

/* A number as a part of the assembly. */
#define TVM_EXT_DSP_QUAD_TEXT(NUMBER) TVM_EXT_DSP_QUAD_TEXT_OF(NUMBER)
#define TVM_EXT_DSP_QUAD_TEXT_OF(NUMBER) #NUMBER

/* On the stack: the end of all weights, the cells less those that are left out, the address of the first element, bytes
 * from there to the second pixel, the weights that are left out, the entry into the loop, its last cell, the rounding.
 * NEXT: bytes from r1 to the next block after the last cell. r7 and r11 may be frame pointers, so they are saved here
 * and not declared to the compiler. */
#define TVM_EXT_DSP_QUADS_TEXT(NEXT, FINISH)                                                                          \
    "push {r7, r11}\n\t"                                                                                              \
    "ldr r6, [r0]\n\t"                                                                                                \
    "ldr r7, [r0, #4]\n\t"                                                                                            \
    "ldm r3, {r4, r8, r9, r10, r11}\n\t"                                                                              \
    "adr r0, 2f\n\t"                                                                                                  \
    "subs r1, #" NEXT "\n\t"                                                                                          \
    "add r4, r4, r1\n\t"                                                                                              \
    "sub r5, r2, r8\n\t"                                                                                              \
    "subs r5, #(" NEXT " + 24)\n\t"                                                                                   \
    "subs r7, r7, r6\n\t"                                                                                             \
    "add r9, r9, r0\n\t"                                                                                              \
    "add r10, r10, r2\n\t"                                                                                            \
    "push {r4, r5, r6, r7, r8, r9, r10, r11}\n\t"                                                                     \
    "mov r2, r10\n\t"                                                                                                 \
    "mov r5, r8\n"                                                                                                    \
    "1:\n\t" TVM_EXT_DSP_QUAD_FIRST(NEXT)                                                                             \
    "sub r1, r1, r5\n\t"                                                                                              \
    "ldr pc, [sp, #20]\n\t"                                                                                           \
    ".balign 4\n"                                                                                                     \
    "2:\n\t" TVM_EXT_DSP_QUAD_HALF("")                                                                                \
    TVM_EXT_DSP_SIZED("2b", "16", TVM_EXT_DSP_QUAD_TEXT(TVM_EXT_DSP_QUAD_CELL_BYTES) " + "                            \
        TVM_EXT_DSP_QUAD_TEXT(TVM_EXT_DSP_QUAD_WIDER_BYTES))                                                          \
    TVM_EXT_DSP_QUAD_HALF("ldr r0, [sp, #24]\n\t")                                                                    \
    "cmp r2, r0\n\t"                                                                                                  \
    "bne 2b\n\t" FINISH                                                                                               \
    "cmp r1, r0\n\t"                                                                                                  \
    "bne 1b\n\t"                                                                                                      \
    "add sp, sp, #32\n\t"                                                                                             \
    "pop {r7, r11}\n\t"
#define TVM_EXT_DSP_QUADS(NAME, NEXT, FINISH)                                                                         \
    TVM_EXT_DSP_SHARED void NAME(uint8_t *const output[TVM_EXT_DSP_QUAD_PIXELS], const int8_t *weights,               \
                                 const uint32_t *cells, const tvm_ext_dsp_quads_sizes *sizes)                         \
    {                                                                                                                 \
        register uint8_t *const *r0 __asm__("r0") = output;                                                           \
        register const int8_t *r1 __asm__("r1") = weights;                                                            \
        register const uint32_t *r2 __asm__("r2") = cells;                                                            \
        register const tvm_ext_dsp_quads_sizes *r3 __asm__("r3") = sizes;                                             \
        __asm__ volatile(TVM_EXT_DSP_QUADS_TEXT(NEXT, FINISH)                                                         \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3)                                                     \
                         :                                                                                            \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "r12", "lr", "cc", "memory");                         \
    }

TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_4, "(4 * 12 - 8)", TVM_EXT_DSP_QUAD_FINISH_ONCE("ssat", "4", "12"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_8, "(4 * 12 - 8)", TVM_EXT_DSP_QUAD_FINISH_ONCE("ssat", "8", "16"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_4, "(4 * 12 - 8)", TVM_EXT_DSP_QUAD_FINISH_ONCE("usat", "4", "12"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_8, "(4 * 12 - 8)", TVM_EXT_DSP_QUAD_FINISH_ONCE("usat", "8", "16"))
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_twice_signed, "(4 * 9 - 8)", TVM_EXT_DSP_QUAD_FINISH_TWICE)

#pragma GCC diagnostic pop

#else

/* How a sum becomes an element: by a rounding of each channel and one shift, or by two roundings and a shift of each
 * channel. */
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

/* Computes in plain C what the assembly computes. */
static inline void tvm_ext_dsp_quads(const tvm_ext_dsp_quads_form *form, uint8_t *const output[TVM_EXT_DSP_QUAD_PIXELS],
                                     const int8_t *weights, const uint32_t *cells, const tvm_ext_dsp_quads_sizes *sizes)
{
    const int32_t units = (sizes->last_cell + 16) / 16;
    const int32_t block_bytes = (16 * units) + (form->rounds_twice ? 36 : 48);
    const int32_t channels = 4 * (sizes->weights_bytes / block_bytes);
    for (int32_t k = 0; k < channels; k += 4) {
        const int8_t *const products = &weights[16];
        const int8_t *const factors = &products[16 * units];
        for (int32_t p = TVM_EXT_DSP_QUAD_PIXELS - 1; p >= 0; --p) { /* the first pixel may stand for both */
            int32_t sums[4];
            for (int32_t j = 0; j < 4; ++j) {
                uint32_t sum = tvm_ext_dsp_load(&weights[4 * j]);
                for (int32_t c = 0; c < 2 * units; ++c) {
                    const int32_t place = (c + 1) % (2 * units); /* the last cell comes first */
                    const uint32_t word = tvm_ext_dsp_load(&products[(8 * place) + (4 * (j / 2))]);
                    const uint32_t pair = j % 2 == 1 ? word : tvm_ext_dsp_even_s8(word);
                    sum = (uint32_t)tvm_ext_dsp_smlad(cells[(TVM_EXT_DSP_QUAD_PIXELS * c) + p], pair, (int32_t)sum);
                }
                sums[j] = (int32_t)sum;
            }
            for (int32_t j = 0; j < 4; ++j) {
                const int32_t less = j % 2 == 1 ? sums[j - 1] : 0;
                const uint32_t sum = (uint32_t)sums[j] - (uint32_t)less;
                output[p][k + j] = (uint8_t)tvm_ext_dsp_quads_element(form, (int32_t)sum, factors, j, sizes->rounding);
            }
        }
        weights = &factors[form->rounds_twice ? 20 : 32];
    }
}

#define TVM_EXT_DSP_QUADS(NAME, IS_UNSIGNED, ROUNDS_TWICE, SHIFT)                                                     \
    static inline void NAME(uint8_t *const output[TVM_EXT_DSP_QUAD_PIXELS], const int8_t *weights,                    \
                            const uint32_t *cells, const tvm_ext_dsp_quads_sizes *sizes)                              \
    {                                                                                                                 \
        const tvm_ext_dsp_quads_form form = {IS_UNSIGNED, ROUNDS_TWICE, SHIFT};                                       \
        tvm_ext_dsp_quads(&form, output, weights, cells, sizes);                                                      \
    }

TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_4, false, false, 4)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_8, false, false, 8)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_4, true, false, 4)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_u8_8, true, false, 8)
TVM_EXT_DSP_QUADS(tvm_ext_dsp_quads_s8_twice_signed, false, true, 0)

#endif

#endif
