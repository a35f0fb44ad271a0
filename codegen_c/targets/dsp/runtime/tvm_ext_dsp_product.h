/* Products of activations, expanded to 16-bit pairs, with weights of two output channels side by side.
 *
 * Activations: cells, one pair (x[0], x[2]) or (x[1], x[3]) of four adjacent depths each; a unit is two cells of
 * every pixel, the pixels side by side. Weights: a word holds one pair of depths of two channels A and B, as bytes
 * a0 b0 a1 b1. Each sum starts at its channel's bias; all sums are modulo 2^32.
 *
 * For the `joined` functions it holds the pair of numbers (a0 + 256 b0, a1 + 256 b1), used as it stands: the
 * difference of those products and A's is 256 times B's. They need every a + 256 b to fit 16 bits, and the products
 * of each channel B to add up to less than 2^23, whatever the activations.
 *
 * For the `s4` functions weights have 4 bits: a word holds four depths of A and B, in bytes u + 16 b with u = a + 8,
 * depths 0 and 2 in the even ones. Widened, they are multiplied as they stand, and with u masked out: that gives 16
 * times B's sum, the difference A's and 8 times the pixel's elements, which a word in front of the cells takes off. All
 * sums are given 16 times: requantized so, they leave room for a high product.
 */
#ifndef TVM_EXT_DSP_PRODUCT_H
#define TVM_EXT_DSP_PRODUCT_H

#include "tvm_ext_dsp.h"

#define TVM_EXT_DSP_PIXELS 3

/* Expands `count` adjacent bytes to cells of one of STEP adjacent pixels. One or two remaining bytes fill one cell,
 * three fill two: (x[0], x[1]), (x[2], 0). Returns the address of the pixel's next cell. */
#define TVM_EXT_DSP_DEFINE_EXPAND(STEP, SUFFIX, TYPE)                                                                 \
    TVM_EXT_DSP_SHARED uint32_t *tvm_ext_dsp_expand_##STEP##_##SUFFIX(uint32_t *cell, const TYPE *x, int32_t count)   \
    {                                                                                                                 \
        for (; count >= 16; count -= 16) {                                                                            \
            const uint32_t x0 = tvm_ext_dsp_load(x), x1 = tvm_ext_dsp_load(x + 4);                                    \
            const uint32_t x2 = tvm_ext_dsp_load(x + 8), x3 = tvm_ext_dsp_load(x + 12);                               \
            cell[0] = tvm_ext_dsp_even_##SUFFIX(x0);                                                                  \
            cell[STEP] = tvm_ext_dsp_odd_##SUFFIX(x0);                                                                \
            cell[2 * (STEP)] = tvm_ext_dsp_even_##SUFFIX(x1);                                                         \
            cell[3 * (STEP)] = tvm_ext_dsp_odd_##SUFFIX(x1);                                                          \
            cell[4 * (STEP)] = tvm_ext_dsp_even_##SUFFIX(x2);                                                         \
            cell[5 * (STEP)] = tvm_ext_dsp_odd_##SUFFIX(x2);                                                          \
            cell[6 * (STEP)] = tvm_ext_dsp_even_##SUFFIX(x3);                                                         \
            cell[7 * (STEP)] = tvm_ext_dsp_odd_##SUFFIX(x3);                                                          \
            cell += 8 * (STEP);                                                                                       \
            x += 16;                                                                                                  \
        }                                                                                                             \
        for (; count >= 4; count -= 4) {                                                                              \
            const uint32_t x0 = tvm_ext_dsp_load(x);                                                                  \
            cell[0] = tvm_ext_dsp_even_##SUFFIX(x0);                                                                  \
            cell[STEP] = tvm_ext_dsp_odd_##SUFFIX(x0);                                                                \
            cell += 2 * (STEP);                                                                                       \
            x += 4;                                                                                                   \
        }                                                                                                             \
        for (; count > 0; count -= 2) {                                                                               \
            *cell = tvm_ext_dsp_lows((uint32_t)(int32_t)x[0], count > 1 ? (uint32_t)(int32_t)x[1] : 0u);              \
            cell += (STEP);                                                                                           \
            x += 2;                                                                                                   \
        }                                                                                                             \
        return cell;                                                                                                  \
    }

TVM_EXT_DSP_DEFINE_EXPAND(1, s8, int8_t)
TVM_EXT_DSP_DEFINE_EXPAND(1, u8, uint8_t)
TVM_EXT_DSP_DEFINE_EXPAND(2, s8, int8_t)
TVM_EXT_DSP_DEFINE_EXPAND(2, u8, uint8_t)
TVM_EXT_DSP_DEFINE_EXPAND(3, s8, int8_t)
TVM_EXT_DSP_DEFINE_EXPAND(3, u8, uint8_t)

/* Fills `count` cells of one of `step` pixels with one value. Returns the address of the pixel's next cell. */
TVM_EXT_DSP_SHARED uint32_t *tvm_ext_dsp_fill(uint32_t *cell, uint32_t pair, int32_t count, int32_t step)
{
    for (; count > 0; --count) {
        *cell = pair;
        cell += step;
    }
    return cell;
}

/* Returns a sum plus -8 times the elements of a cell. */
static inline int32_t tvm_ext_dsp_offset(uint32_t cell, int32_t sum)
{
    return tvm_ext_dsp_smlad(cell, 0xfff8fff8u, sum);
}

/* Computes the word before the cells of one pixel: -8 times the sum of its elements. */
TVM_EXT_DSP_SHARED void tvm_ext_dsp_offsets_1(uint32_t *words, int32_t units)
{
    const uint32_t *const end = &words[1 + (2 * units)];
    int32_t sum = 0;
    for (const uint32_t *cell = &words[1]; cell < end; cell += 2) {
        sum = tvm_ext_dsp_offset(cell[1], tvm_ext_dsp_offset(cell[0], sum));
    }
    words[0] = (uint32_t)sum;
}

/* Computes the same words of 3 adjacent pixels. */
TVM_EXT_DSP_SHARED void tvm_ext_dsp_offsets_3(uint32_t *words, int32_t units)
{
    const uint32_t *const end = &words[3 + (6 * units)];
#if TVM_EXT_DSP
    int32_t sum0 = 0, sum1 = 0, sum2 = 0;
    for (const uint32_t *cell = &words[3]; cell < end; cell += 6) {
        sum0 = tvm_ext_dsp_offset(cell[3], tvm_ext_dsp_offset(cell[0], sum0));
        sum1 = tvm_ext_dsp_offset(cell[4], tvm_ext_dsp_offset(cell[1], sum1));
        sum2 = tvm_ext_dsp_offset(cell[5], tvm_ext_dsp_offset(cell[2], sum2));
    }
    words[0] = (uint32_t)sum0;
    words[1] = (uint32_t)sum1;
    words[2] = (uint32_t)sum2;
#else
    for (int32_t p = 0; p < 3; ++p) { /* one at a time: GCC 12 generates wrong AVX2 vectors for three adjacent sums */
        int32_t sum = 0;
        for (const uint32_t *cell = &words[3 + p]; cell < end; cell += 3) {
            sum = tvm_ext_dsp_offset(*cell, sum);
        }
        words[p] = (uint32_t)sum;
    }
#endif
}

#if TVM_EXT_DSP

/* Assembler check of a loop that a computed jump enters: COUNT copies of a unit since label BEGIN must take
 * UNIT_BYTES each. The jump multiplies by UNIT_BYTES, so another width of an instruction would make it land inside
 * an instruction. `.org` never moves back: the first one fails if the units are longer, the second one if they are
 * shorter. */
#define TVM_EXT_DSP_SIZED(BEGIN, COUNT, UNIT_BYTES)                                                                   \
    "9:\n\t"                                                                                                          \
    ".org " BEGIN " + " COUNT " * " UNIT_BYTES "\n\t"                                                                 \
    ".org 9b\n\t"

/* Registers: r0 sums, r1 cells, r2 weights, r3 bias, r12 units (at least 1), then the end of the weights. The loop
 * contains four units; the first iteration enters it at the remainder of the division by four. r7 and r11 may be
 * frame pointers, so they are saved here and not declared to the compiler. */
#define TVM_EXT_DSP_ENTER(UNIT_BYTES, WEIGHT_SHIFT)                                                                   \
    "push {r0, r3, r7, r11}\n\t"                                                                                      \
    "rsb r0, r12, #0\n\t"                                                                                             \
    "and r0, r0, #3\n\t"                                                                                              \
    "add r12, r2, r12, lsl #" WEIGHT_SHIFT "\n\t"                                                                     \
    "movs r4, #" UNIT_BYTES "\n\t"                                                                                    \
    "adr r5, 1f\n\t"                                                                                                  \
    "mla r4, r0, r4, r5\n\t"
#define TVM_EXT_DSP_LOOP(UNIT, UNIT_BYTES)                                                                            \
    "mov pc, r4\n\t"                                                                                                  \
    ".balign 4\n"                                                                                                     \
    "1:\n\t" UNIT UNIT UNIT UNIT TVM_EXT_DSP_SIZED("1b", "4", UNIT_BYTES) "cmp r2, r12\n\t"                           \
    "bne 1b\n\t"
#define TVM_EXT_DSP_LEAVE "pop {r0, r3, r7, r11}\n\t"

/* Defines a function for all channels of some pixels. TEXT finds the addresses of elements in r0, cells in r1, weights
 * in r2, units in r3, the rounding in r4 and the number of blocks of channels in r12. r7 and r11 may be frame pointers,
 * so it saves them itself. */
#define TVM_EXT_DSP_BLOCKS_FUNCTION(NAME, TEXT)                                                                       \
    TVM_EXT_DSP_SHARED void NAME(uint8_t *const output[TVM_EXT_DSP_PIXELS], const int8_t *weights,                    \
                                 const uint32_t *cells, int32_t units, int32_t blocks, int32_t rounding)               \
    {                                                                                                                 \
        register uint8_t *const *r0 __asm__("r0") = output;                                                           \
        register const uint32_t *r1 __asm__("r1") = cells;                                                            \
        register const int8_t *r2 __asm__("r2") = weights;                                                            \
        register int32_t r3 __asm__("r3") = units;                                                                    \
        register int32_t r4 __asm__("r4") = rounding;                                                                 \
        register int32_t r12 __asm__("r12") = blocks;                                                                  \
        __asm__ volatile(TEXT                                                                                         \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r4), "+r"(r12)                                \
                         :                                                                                            \
                         : "r5", "r6", "r8", "r9", "r10", "lr", "cc", "memory");                                      \
    }

#define TVM_EXT_DSP_SMLAD(SUM, A, B) "smlad " SUM ", " A ", " B ", " SUM "\n\t"
#define TVM_EXT_DSP_SMLAD_3(SUM0, SUM1, SUM2, W)                                                                      \
    TVM_EXT_DSP_SMLAD(SUM0, "r4", W) TVM_EXT_DSP_SMLAD(SUM1, "r5", W) TVM_EXT_DSP_SMLAD(SUM2, "r6", W)

#define TVM_EXT_DSP_3X2_CELL(W)                                                                                       \
    "ldmia r1!, {r4, r5, r6}\n\t"                                                                                     \
    "sxtb16 r3, " W "\n\t" TVM_EXT_DSP_SMLAD_3("r7", "r8", "r9", "r3")                                                \
    "sxtb16 r3, " W ", ror #8\n\t" TVM_EXT_DSP_SMLAD_3("r10", "r11", "lr", "r3")
#define TVM_EXT_DSP_3X2_UNIT                                                                                          \
    "ldr r0, [r2], #4\n\t" TVM_EXT_DSP_3X2_CELL("r0") "ldr r0, [r2], #4\n\t" TVM_EXT_DSP_3X2_CELL("r0")
#define TVM_EXT_DSP_3X2_UNIT_BYTES "76"

#define TVM_EXT_DSP_3X2_JOINED_CELL(W)                                                                                \
    "ldmia r1!, {r4, r5, r6}\n\t" TVM_EXT_DSP_SMLAD_3("r10", "r11", "lr", W)                                          \
    "sxtb16 " W ", " W "\n\t" TVM_EXT_DSP_SMLAD_3("r7", "r8", "r9", W)
#define TVM_EXT_DSP_3X2_JOINED_UNIT                                                                                   \
    "ldrd r0, r3, [r2], #8\n\t" TVM_EXT_DSP_3X2_JOINED_CELL("r0") TVM_EXT_DSP_3X2_JOINED_CELL("r3")
#define TVM_EXT_DSP_3X2_JOINED_UNIT_BYTES "64"

#define TVM_EXT_DSP_3X2_S4_CELL(PLACE)                                                                                \
    "ldmia r1!, {r4, r5, r6}\n\t"                                                                                     \
    "sxtb16 r3, r0" PLACE "\n\t" TVM_EXT_DSP_SMLAD_3("r7", "r8", "r9", "r3")                                          \
    "bic r3, r3, #0x000f000f\n\t" TVM_EXT_DSP_SMLAD_3("r10", "r11", "lr", "r3")
#define TVM_EXT_DSP_3X2_S4_UNIT                                                                                       \
    "ldr r0, [r2], #4\n\t" TVM_EXT_DSP_3X2_S4_CELL("") TVM_EXT_DSP_3X2_S4_CELL(", ror #8")
#define TVM_EXT_DSP_3X2_S4_UNIT_BYTES "72"

#define TVM_EXT_DSP_1X4_WORD(X, W, A, B)                                                                              \
    "sxtb16 lr, " W "\n\t" TVM_EXT_DSP_SMLAD(A, X, "lr")                                                              \
    "sxtb16 " W ", " W ", ror #8\n\t" TVM_EXT_DSP_SMLAD(B, X, W)
#define TVM_EXT_DSP_1X4_JOINED_WORD(X, W, A, B)                                                                       \
    TVM_EXT_DSP_SMLAD(B, X, W) "sxtb16 " W ", " W "\n\t" TVM_EXT_DSP_SMLAD(A, X, W)
/* X: loads two cells into r0 and r3. */
#define TVM_EXT_DSP_1X4_CELLS "ldrd r0, r3, [r1], #8\n\t"
#define TVM_EXT_DSP_1X4_BYTES(WIDEN) "ldr r3, [r1], #4\n\t" WIDEN " r0, r3\n\t" WIDEN " r3, r3, ror #8\n\t"
#define TVM_EXT_DSP_1X4_UNIT(X, WORD)                                                                                 \
    "ldmia r2!, {r4, r5, r6, r11}\n\t"                                                                                \
    X WORD("r0", "r4", "r7", "r8") WORD("r0", "r5", "r9", "r10")                                                      \
    WORD("r3", "r6", "r7", "r8") WORD("r3", "r11", "r9", "r10")

#define TVM_EXT_DSP_1X4_S4_CELL(X, W, A, B)                                                                           \
    "sxtb16 lr, " W "\n\t" TVM_EXT_DSP_SMLAD(A, X, "lr")                                                              \
    "bic lr, lr, #0x000f000f\n\t" TVM_EXT_DSP_SMLAD(B, X, "lr")
#define TVM_EXT_DSP_1X4_S4_WORD(W, A, B)                                                                              \
    TVM_EXT_DSP_1X4_S4_CELL("r0", W, A, B) TVM_EXT_DSP_1X4_S4_CELL("r3", W ", ror #8", A, B)
#define TVM_EXT_DSP_1X4_S4_UNIT                                                                                       \
    "ldrd r4, r5, [r2], #8\n\t" TVM_EXT_DSP_1X4_CELLS                                                                \
    TVM_EXT_DSP_1X4_S4_WORD("r4", "r7", "r8") TVM_EXT_DSP_1X4_S4_WORD("r5", "r9", "r10")
#define TVM_EXT_DSP_1X4_S4_UNIT_BYTES "72"

#define TVM_EXT_DSP_PRODUCT(NAME, TEXT)                                                                               \
    TVM_EXT_DSP_SHARED void NAME(                                                                                     \
        int32_t *sums, const void *x, const int8_t *weights, const int32_t *bias, int32_t units)              \
    {                                                                                                                 \
        register int32_t *r0 __asm__("r0") = sums;                                                                    \
        register const void *r1 __asm__("r1") = x;                                                                    \
        register const int8_t *r2 __asm__("r2") = weights;                                                            \
        register const int32_t *r3 __asm__("r3") = bias;                                                              \
        register int32_t r12 __asm__("r12") = units;                                                                  \
        __asm__ volatile(TEXT                                                                                         \
                         : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r12)                                          \
                         :                                                                                            \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "lr", "cc", "memory");                                \
    }

/* Computes sums of 3 pixels by channels A and B: sums A of each pixel, then sums B. weights: 8 bytes per unit. */
TVM_EXT_DSP_PRODUCT(
    tvm_ext_dsp_product_3x2,
    TVM_EXT_DSP_ENTER(TVM_EXT_DSP_3X2_UNIT_BYTES, "3")
    "ldrd r7, r10, [r3]\n\t"
    "mov r8, r7\n\t"
    "mov r9, r7\n\t"
    "mov r11, r10\n\t"
    "mov lr, r10\n\t"
    TVM_EXT_DSP_LOOP(TVM_EXT_DSP_3X2_UNIT, TVM_EXT_DSP_3X2_UNIT_BYTES)
    "ldr r0, [sp]\n\t"
    "stm r0, {r7, r8, r9, r10, r11, lr}\n\t"
    TVM_EXT_DSP_LEAVE)

TVM_EXT_DSP_PRODUCT(
    tvm_ext_dsp_product_3x2_joined,
    TVM_EXT_DSP_ENTER(TVM_EXT_DSP_3X2_JOINED_UNIT_BYTES, "3")
    "ldr r7, [r3]\n\t"
    "mov r8, r7\n\t"
    "mov r9, r7\n\t"
    "mov r10, r7\n\t"
    "mov r11, r7\n\t"
    "mov lr, r7\n\t"
    TVM_EXT_DSP_LOOP(TVM_EXT_DSP_3X2_JOINED_UNIT, TVM_EXT_DSP_3X2_JOINED_UNIT_BYTES)
    "ldrd r0, r3, [sp]\n\t"
    "ldr r3, [r3, #4]\n\t"
    "sub r10, r10, r7\n\t"
    "sub r11, r11, r8\n\t"
    "sub lr, lr, r9\n\t"
    "add r10, r3, r10, asr #8\n\t"
    "add r11, r3, r11, asr #8\n\t"
    "add lr, r3, lr, asr #8\n\t"
    "stm r0, {r7, r8, r9, r10, r11, lr}\n\t"
    TVM_EXT_DSP_LEAVE)

/* Computes 16 times these sums from weights of 4 bits, 4 bytes per unit. x: cells after their words. */
TVM_EXT_DSP_PRODUCT(
    tvm_ext_dsp_product_3x2_s4,
    TVM_EXT_DSP_ENTER(TVM_EXT_DSP_3X2_S4_UNIT_BYTES, "2")
    "ldmia r1!, {r7, r8, r9}\n\t"
    "ldr lr, [r3]\n\t"
    "add r7, r7, lr\n\t"
    "add r8, r8, lr\n\t"
    "add r9, r9, lr\n\t"
    "movs r5, #0\n\t"
    "mov r10, r5\n\t"
    "mov r11, r5\n\t"
    "mov lr, r5\n\t"
    TVM_EXT_DSP_LOOP(TVM_EXT_DSP_3X2_S4_UNIT, TVM_EXT_DSP_3X2_S4_UNIT_BYTES)
    "ldrd r0, r3, [sp]\n\t"
    "ldr r3, [r3, #4]\n\t"
    "sub r7, r7, r10\n\t"
    "sub r8, r8, r11\n\t"
    "sub r9, r9, lr\n\t"
    "lsl r7, r7, #4\n\t"
    "lsl r8, r8, #4\n\t"
    "lsl r9, r9, #4\n\t"
    "add r10, r10, r3, lsl #4\n\t"
    "add r11, r11, r3, lsl #4\n\t"
    "add lr, lr, r3, lsl #4\n\t"
    "stm r0, {r7, r8, r9, r10, r11, lr}\n\t"
    TVM_EXT_DSP_LEAVE)

/* Computes sums of 1 pixel by channels A, B, C and D. weights: a word of A and B, one of C and D, 16 bytes per unit. */
#define TVM_EXT_DSP_PRODUCT_1X4(NAME, UNIT_BYTES, X)                                                                  \
    TVM_EXT_DSP_PRODUCT(NAME, TVM_EXT_DSP_ENTER(UNIT_BYTES, "4")                                                      \
                        "ldm r3, {r7, r8, r9, r10}\n\t"                                                               \
                        TVM_EXT_DSP_LOOP(TVM_EXT_DSP_1X4_UNIT(X, TVM_EXT_DSP_1X4_WORD), UNIT_BYTES)                   \
                        "ldr r0, [sp]\n\t"                                                                            \
                        "stm r0, {r7, r8, r9, r10}\n\t"                                                               \
                        TVM_EXT_DSP_LEAVE)
#define TVM_EXT_DSP_PRODUCT_1X4_JOINED(NAME, UNIT_BYTES, X)                                                           \
    TVM_EXT_DSP_PRODUCT(NAME, TVM_EXT_DSP_ENTER(UNIT_BYTES, "4")                                                      \
                        "ldr r7, [r3]\n\t"                                                                            \
                        "ldr r9, [r3, #8]\n\t"                                                                        \
                        "mov r8, r7\n\t"                                                                              \
                        "mov r10, r9\n\t"                                                                             \
                        TVM_EXT_DSP_LOOP(TVM_EXT_DSP_1X4_UNIT(X, TVM_EXT_DSP_1X4_JOINED_WORD), UNIT_BYTES)            \
                        "ldrd r0, r3, [sp]\n\t"                                                                       \
                        "ldr r4, [r3, #4]\n\t"                                                                        \
                        "ldr r5, [r3, #12]\n\t"                                                                       \
                        "sub r8, r8, r7\n\t"                                                                          \
                        "sub r10, r10, r9\n\t"                                                                        \
                        "add r8, r4, r8, asr #8\n\t"                                                                  \
                        "add r10, r5, r10, asr #8\n\t"                                                                \
                        "stm r0, {r7, r8, r9, r10}\n\t"                                                               \
                        TVM_EXT_DSP_LEAVE)

TVM_EXT_DSP_PRODUCT_1X4(tvm_ext_dsp_product_1x4, "72", TVM_EXT_DSP_1X4_CELLS)
TVM_EXT_DSP_PRODUCT_1X4_JOINED(tvm_ext_dsp_product_1x4_joined, "56", TVM_EXT_DSP_1X4_CELLS)

/* Computes 16 times these sums from weights of 4 bits, 8 bytes per unit. x: cells after their word. */
TVM_EXT_DSP_PRODUCT(
    tvm_ext_dsp_product_1x4_s4,
    TVM_EXT_DSP_ENTER(TVM_EXT_DSP_1X4_S4_UNIT_BYTES, "3")
    "ldr lr, [r1], #4\n\t"
    "ldr r7, [r3]\n\t"
    "ldr r9, [r3, #8]\n\t"
    "add r7, r7, lr\n\t"
    "add r9, r9, lr\n\t"
    "movs r5, #0\n\t"
    "mov r8, r5\n\t"
    "mov r10, r5\n\t"
    TVM_EXT_DSP_LOOP(TVM_EXT_DSP_1X4_S4_UNIT, TVM_EXT_DSP_1X4_S4_UNIT_BYTES)
    "ldrd r0, r3, [sp]\n\t"
    "ldr r4, [r3, #4]\n\t"
    "ldr r5, [r3, #12]\n\t"
    "sub r7, r7, r8\n\t"
    "sub r9, r9, r10\n\t"
    "lsl r7, r7, #4\n\t"
    "lsl r9, r9, #4\n\t"
    "add r8, r8, r4, lsl #4\n\t"
    "add r10, r10, r5, lsl #4\n\t"
    "stm r0, {r7, r8, r9, r10}\n\t"
    TVM_EXT_DSP_LEAVE)

/* These functions compute the same sums from the bytes of a pixel at any address instead of its cells. */
TVM_EXT_DSP_PRODUCT_1X4(tvm_ext_dsp_product_1x4_s8, "80", TVM_EXT_DSP_1X4_BYTES("sxtb16"))
TVM_EXT_DSP_PRODUCT_1X4(tvm_ext_dsp_product_1x4_u8, "80", TVM_EXT_DSP_1X4_BYTES("uxtb16"))
TVM_EXT_DSP_PRODUCT_1X4_JOINED(tvm_ext_dsp_product_1x4_s8_joined, "64", TVM_EXT_DSP_1X4_BYTES("sxtb16"))
TVM_EXT_DSP_PRODUCT_1X4_JOINED(tvm_ext_dsp_product_1x4_u8_joined, "64", TVM_EXT_DSP_1X4_BYTES("uxtb16"))

#else

static inline void tvm_ext_dsp_product(int32_t *sums, const uint32_t *cells, const int8_t *weights, const int32_t *bias,
                                       int32_t units, int32_t pixels, int32_t channels, int32_t joined)
{
    for (int32_t p = 0; p < pixels; ++p) {
        for (int32_t k = 0; k < channels; ++k) {
            int32_t sum = bias[k];
            for (int32_t c = 0; c < 2 * units; ++c) {
                const int8_t *word = &weights[(c * channels + k / 2 * 2) * 2];
                int32_t w0 = word[k % 2], w1 = word[2 + k % 2];
                if (joined && k % 2 == 1) {
                    w0 += word[0] < 0;
                    w1 += word[2] < 0;
                }
                sum = tvm_ext_dsp_smlad(cells[c * pixels + p], tvm_ext_dsp_lows((uint32_t)w0, (uint32_t)w1), sum);
            }
            sums[k * pixels + p] = sum;
        }
    }
}

/* Computes 16 times these sums from weights of 4 bits. */
static inline void tvm_ext_dsp_product_s4(int32_t *sums, const uint32_t *words, const int8_t *weights,
                                          const int32_t *bias, int32_t units, int32_t pixels, int32_t channels)
{
    for (int32_t p = 0; p < pixels; ++p) {
        for (int32_t k = 0; k < channels; k += 2) {
            int32_t both = (int32_t)words[p], second = 0;
            for (int32_t u = 0; u < units; ++u) {
                const uint32_t *cells = &words[pixels + (2 * u * pixels) + p];
                const uint32_t word = tvm_ext_dsp_load(&weights[((u * channels / 2) + (k / 2)) * 4]);
                const uint32_t even = tvm_ext_dsp_even_s8(word), odd = tvm_ext_dsp_odd_s8(word);
                both = tvm_ext_dsp_smlad(cells[pixels], odd, tvm_ext_dsp_smlad(cells[0], even, both));
                second = tvm_ext_dsp_smlad(cells[0], even & 0xfff0fff0u, second);
                second = tvm_ext_dsp_smlad(cells[pixels], odd & 0xfff0fff0u, second);
            }
            sums[(k * pixels) + p] = (int32_t)(((uint32_t)bias[k] + (uint32_t)both - (uint32_t)second) << 4);
            sums[((k + 1) * pixels) + p] = (int32_t)(((uint32_t)bias[k + 1] << 4) + (uint32_t)second);
        }
    }
}

/* Computes what tvm_ext_dsp_product computes for 1 pixel by 4 channels, from bytes. */
static inline void tvm_ext_dsp_product_bytes(int32_t *sums, const uint8_t *x, const int8_t *weights,
                                             const int32_t *bias, int32_t units, int32_t is_unsigned, int32_t joined)
{
    const int32_t *start = bias;
    for (int32_t u = 0; u < units; ++u) {
        const uint32_t word = tvm_ext_dsp_load(&x[4 * u]);
        const uint32_t cells[2] = {is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word),
                                   is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word)};
        tvm_ext_dsp_product(sums, cells, &weights[16 * u], start, 1, 1, 4, joined);
        start = sums;
    }
}

#define TVM_EXT_DSP_PRODUCT(NAME, PIXELS, CHANNELS, JOINED)                                                           \
    static inline void NAME(                                                                                         \
        int32_t *sums, const void *cells, const int8_t *weights, const int32_t *bias, int32_t units)                 \
    {                                                                                                                \
        tvm_ext_dsp_product(sums, (const uint32_t *)cells, weights, bias, units, PIXELS, CHANNELS, JOINED);          \
    }
#define TVM_EXT_DSP_PRODUCT_BYTES(NAME, IS_UNSIGNED, JOINED)                                                          \
    static inline void NAME(                                                                                         \
        int32_t *sums, const void *x, const int8_t *weights, const int32_t *bias, int32_t units)                     \
    {                                                                                                                \
        tvm_ext_dsp_product_bytes(sums, (const uint8_t *)x, weights, bias, units, IS_UNSIGNED, JOINED);              \
    }

#define TVM_EXT_DSP_PRODUCT_S4(NAME, PIXELS, CHANNELS)                                                                \
    static inline void NAME(                                                                                         \
        int32_t *sums, const void *words, const int8_t *weights, const int32_t *bias, int32_t units)                 \
    {                                                                                                                \
        tvm_ext_dsp_product_s4(sums, (const uint32_t *)words, weights, bias, units, PIXELS, CHANNELS);               \
    }

TVM_EXT_DSP_PRODUCT_S4(tvm_ext_dsp_product_3x2_s4, 3, 2)
TVM_EXT_DSP_PRODUCT_S4(tvm_ext_dsp_product_1x4_s4, 1, 4)
TVM_EXT_DSP_PRODUCT(tvm_ext_dsp_product_3x2, 3, 2, 0)
TVM_EXT_DSP_PRODUCT(tvm_ext_dsp_product_3x2_joined, 3, 2, 1)
TVM_EXT_DSP_PRODUCT(tvm_ext_dsp_product_1x4, 1, 4, 0)
TVM_EXT_DSP_PRODUCT(tvm_ext_dsp_product_1x4_joined, 1, 4, 1)
TVM_EXT_DSP_PRODUCT_BYTES(tvm_ext_dsp_product_1x4_s8, 0, 0)
TVM_EXT_DSP_PRODUCT_BYTES(tvm_ext_dsp_product_1x4_u8, 1, 0)
TVM_EXT_DSP_PRODUCT_BYTES(tvm_ext_dsp_product_1x4_s8_joined, 0, 1)
TVM_EXT_DSP_PRODUCT_BYTES(tvm_ext_dsp_product_1x4_u8_joined, 1, 1)

#endif

#endif
