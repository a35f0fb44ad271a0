/* Depthwise convolution with windows of 3x3 taps and stride 1 with the DSP extension: two output rows by two columns of
 * one channel at a time, from a plane of tvm_ext_dsp_depthwise.h to bytes.
 *
 * All weights of the channel stay in registers, and four rows of the plane are read once for two rows of outputs. Sizes
 * are literals, so each layer has a function of its own. Its argument is a strip: output, multiplier, rounding, plane,
 * weights, start and an even number of rows. A row of taps has two words: (0, 1) and (1, 2). */
#ifndef TVM_EXT_DSP_STRIP3_H
#define TVM_EXT_DSP_STRIP3_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_strip.h"
#include "tvm_ext_requantize.h"

#if TVM_EXT_DSP

/* Registers: r0 to r5 weights, r6 and r12 accumulators of the upper row, lr and r10 of the lower one, r8 and r9 words
 * of the plane, r7 plane, r11 output less an iteration. Words are loaded one by one, several together, because loads
 * that follow each other take one cycle each on a Cortex-M4, after two for the first; on a Cortex-M33 no product may
 * read what the instruction before it loads. On the stack: multiplier, rounding, start, end of a row of blocks, pairs
 * of rows. r7 and r11 may be frame pointers, so they are saved here and not declared to the compiler. */
#define TVM_EXT_DSP_STRIP3_ADD_1(S, START, W0, W1)                                                                    \
    "smlad " S ", r12, " W0 ", " START "\n\t"                                                                         \
    "smlabt " S ", lr, " W1 ", " S "\n\t"
#define TVM_EXT_DSP_STRIP3_MORE_2(S0, S1, W0, W1)                                                                     \
    "smlad " S0 ", r9, " W0 ", " S0 "\n\t"                                                                            \
    "smlabt " S0 ", r8, " W1 ", " S0 "\n\t"                                                                           \
    "smlatb " S1 ", r9, " W0 ", " S1 "\n\t"                                                                           \
    "smlad " S1 ", r8, " W1 ", " S1 "\n\t"
#define TVM_EXT_DSP_STRIP3_FINISH(S, MULTIPLIER, ROUNDING, SATURATE, SHIFT)                                           \
    "smmla " S ", " S ", " MULTIPLIER ", " ROUNDING "\n\t" SATURATE " " S ", #8, " S ", asr #" SHIFT "\n\t"
/* Stores the elements of two rows, U and L, and two columns. FIRST: elements from r11 to the first one. */
#define TVM_EXT_DSP_STRIP3_STORE(U0, U1, L0, L1, FIRST, PITCH, ROW)                                                   \
    "strb " U0 ", [r11, #(" FIRST ")]\n\t"                                                                            \
    "strb " U1 ", [r11, #(" FIRST "+" PITCH ")]\n\t"                                                                  \
    "strb " L0 ", [r11, #(" FIRST "+" ROW ")]\n\t"                                                                    \
    "strb " L1 ", [r11, #(" FIRST "+" ROW "+" PITCH ")]\n\t"
/* Advances r11 by the blocks of an iteration, which the first of them does. */
#define TVM_EXT_DSP_STRIP3_ADVANCE(BLOCKS, PITCH)                                                                     \
    "addw r11, r11, #(2*" BLOCKS "*" PITCH ")\n\t"
/* Repeats a row's blocks up to its end, unless one iteration has all of them. */
#define TVM_EXT_DSP_STRIP3_REPEAT(PAIRS, BLOCKS)                                                                      \
    ".if " PAIRS " != " BLOCKS "\n\t"                                                                                 \
    "ldr r8, [sp, #12]\n\t"                                                                                           \
    "cmp r7, r8\n\t"                                                                                                  \
    "bne 1b\n\t"                                                                                                      \
    ".endif\n\t"
/* The blocks of an iteration. BLOCK: text of one, by its number and an instruction that advances r11 or "". */
#define TVM_EXT_DSP_STRIP3_BLOCKS_1(BLOCK, WORDS, PITCH, ROW, SATURATE, SHIFT)                                        \
    BLOCK("0", TVM_EXT_DSP_STRIP3_ADVANCE("1", PITCH), WORDS, PITCH, ROW, SATURATE, SHIFT)
#define TVM_EXT_DSP_STRIP3_BLOCKS_2(BLOCK, WORDS, PITCH, ROW, SATURATE, SHIFT)                                        \
    BLOCK("0", TVM_EXT_DSP_STRIP3_ADVANCE("2", PITCH), WORDS, PITCH, ROW, SATURATE, SHIFT)                            \
    BLOCK("1", "", WORDS, PITCH, ROW, SATURATE, SHIFT)
#define TVM_EXT_DSP_STRIP3_BLOCKS_3(BLOCK, WORDS, PITCH, ROW, SATURATE, SHIFT)                                        \
    BLOCK("0", TVM_EXT_DSP_STRIP3_ADVANCE("3", PITCH), WORDS, PITCH, ROW, SATURATE, SHIFT)                            \
    BLOCK("1", "", WORDS, PITCH, ROW, SATURATE, SHIFT)                                                                \
    BLOCK("2", "", WORDS, PITCH, ROW, SATURATE, SHIFT)
/* Advances to the next two rows, of which there may be none. PLANE: bytes of the plane for each word of a row; BLOCK:
 * of a block. */
#define TVM_EXT_DSP_STRIP3_NEXT_ROWS(PLANE, BLOCK, WORDS, PITCH, ROW, PAIRS, BLOCKS)                                  \
    "movw r10, #(2*" ROW "-2*" PITCH "*" PAIRS ")\n\t"                                                                \
    "add r11, r11, r10\n\t"                                                                                           \
    "addw r7, r7, #(" PLANE "*" WORDS "-" BLOCK "*" PAIRS ")\n\t"                                                     \
    ".if " PAIRS " != " BLOCKS "\n\t"                                                                                 \
    "ldr r8, [sp, #12]\n\t"                                                                                           \
    "addw r8, r8, #(" PLANE "*" WORDS ")\n\t"                                                                         \
    "str r8, [sp, #12]\n\t"                                                                                           \
    ".endif\n\t"                                                                                                      \
    "ldr r10, [sp, #16]\n\t"                                                                                          \
    "subs r10, r10, #1\n\t"                                                                                           \
    "str r10, [sp, #16]\n\t"                                                                                          \
    "bne 1b\n\t"                                                                                                      \
    "add sp, sp, #20\n\t"                                                                                             \
    "pop {r7, r11}\n\t"
/* Saves registers, and reads the strip: BLOCK bytes of the plane are a block; an iteration has BLOCKS of them. */
#define TVM_EXT_DSP_STRIP3_ENTER(BLOCK, PITCH, PAIRS, BLOCKS)                                                         \
    "push {r7, r11}\n\t"                                                                                              \
    "ldr r11, [r0]\n\t"                                                                                               \
    "ldrd r4, r5, [r0, #12]\n\t"                                                                                      \
    "ldrd r7, r3, [r0, #24]\n\t"                                                                                      \
    "ldr r6, [r0, #32]\n\t"                                                                                           \
    "ldr r12, [r0, #52]\n\t"                                                                                          \
    "lsr r12, r12, #1\n\t"                                                                                            \
    "subw r11, r11, #(2*" BLOCKS "*" PITCH ")\n\t"                                                                    \
    "add r8, r7, #(" BLOCK "*" PAIRS ")\n\t"                                                                          \
    "push {r4, r5, r6, r8, r12}\n\t"                                                                                  \
    "ldm r3, {r0, r1, r2, r3, r4, r5}\n"

#define TVM_EXT_DSP_STRIP3_ODD_0(WORDS, PITCH, ROW, BLOCKS, SATURATE, SHIFT) ""
#define TVM_EXT_DSP_STRIP3_ODD_1(WORDS, PITCH, ROW, BLOCKS, SATURATE, SHIFT)                                          \
    "ldr r9, [sp, #8]\n\t"                                                                                            \
    "ldrd r12, lr, [r7]\n\t" TVM_EXT_DSP_STRIP3_ADD_1("r6", "r9", "r0", "r1")                                         \
    "ldrd r12, lr, [r7, #(4*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_ADD_1("r6", "r6", "r2", "r3")                         \
    TVM_EXT_DSP_STRIP3_ADD_1("r9", "r9", "r0", "r1")                                                                  \
    "ldrd r12, lr, [r7, #(8*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_ADD_1("r6", "r6", "r4", "r5")                         \
    TVM_EXT_DSP_STRIP3_ADD_1("r9", "r9", "r2", "r3")                                                                  \
    "ldrd r12, lr, [r7, #(12*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_ADD_1("r9", "r9", "r4", "r5")                        \
    "ldrd r12, lr, [sp]\n\t" TVM_EXT_DSP_STRIP3_FINISH("r6", "r12", "lr", SATURATE, SHIFT)                            \
    TVM_EXT_DSP_STRIP3_FINISH("r9", "r12", "lr", SATURATE, SHIFT)                                                     \
    "strb r6, [r11, #(2*" BLOCKS "*" PITCH ")]\n\t"                                                                   \
    "strb r9, [r11, #(2*" BLOCKS "*" PITCH "+" ROW ")]\n\t"

#define TVM_EXT_DSP_STRIP3_BLOCK(NUMBER, ADVANCE, WORDS, PITCH, ROW, SATURATE, SHIFT)                                 \
    "ldr r10, [sp, #8]\n\t"                                                                                           \
    "ldr lr, [r7, #4]\n\t"                                                                                            \
    "ldr r9, [r7, #(4*" WORDS ")]\n\t"                                                                                \
    "ldr r8, [r7, #(4*" WORDS "+4)]\n\t"                                                                              \
    "ldr r12, [r7], #4\n\t"                                                                                           \
    "smlad r6, r9, r2, r10\n\t"                                                                                       \
    "smlabt r6, r8, r3, r6\n\t"                                                                                       \
    "smlad r6, r12, r0, r6\n\t"                                                                                       \
    "smlabt r6, lr, r1, r6\n\t"                                                                                       \
    "smlatb r12, r12, r0, r10\n\t"                                                                                    \
    "smlad r12, lr, r1, r12\n\t"                                                                                      \
    "smlatb r12, r9, r2, r12\n\t"                                                                                     \
    "smlad r12, r8, r3, r12\n\t"                                                                                      \
    "smlad lr, r9, r0, r10\n\t"                                                                                       \
    "smlabt lr, r8, r1, lr\n\t"                                                                                       \
    "smlatb r10, r9, r0, r10\n\t"                                                                                     \
    "smlad r10, r8, r1, r10\n\t"                                                                                      \
    "ldr r9, [r7, #(8*" WORDS "-4)]\n\t"                                                                              \
    "ldr r8, [r7, #(8*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_MORE_2("r6", "r12", "r4", "r5")                             \
    TVM_EXT_DSP_STRIP3_MORE_2("lr", "r10", "r2", "r3")                                                                \
    "ldr r9, [r7, #(12*" WORDS "-4)]\n\t"                                                                             \
    "ldr r8, [r7, #(12*" WORDS ")]\n\t" TVM_EXT_DSP_STRIP3_MORE_2("lr", "r10", "r4", "r5")                            \
    "ldr r8, [sp]\n\t"                                                                                                \
    "ldr r9, [sp, #4]\n\t" ADVANCE TVM_EXT_DSP_STRIP3_FINISH("r6", "r8", "r9", SATURATE, SHIFT)                       \
    TVM_EXT_DSP_STRIP3_FINISH("r12", "r8", "r9", SATURATE, SHIFT)                                                     \
    TVM_EXT_DSP_STRIP3_FINISH("lr", "r8", "r9", SATURATE, SHIFT)                                                      \
    TVM_EXT_DSP_STRIP3_FINISH("r10", "r8", "r9", SATURATE, SHIFT)                                                     \
    TVM_EXT_DSP_STRIP3_STORE("r6", "r12", "lr", "r10", "2*" NUMBER "*" PITCH, PITCH, ROW)

#define TVM_EXT_DSP_STRIP3_TEXT(WORDS, PITCH, ROW, PAIRS, BLOCKS, EACH, ODD, SATURATE, SHIFT)                         \
    TVM_EXT_DSP_STRIP3_ENTER("4", PITCH, PAIRS, BLOCKS)                                                               \
    "1:\n\t" EACH(TVM_EXT_DSP_STRIP3_BLOCK, WORDS, PITCH, ROW, SATURATE, SHIFT)                                       \
    TVM_EXT_DSP_STRIP3_REPEAT(PAIRS, BLOCKS) ODD                                                                      \
    TVM_EXT_DSP_STRIP3_NEXT_ROWS("8", "4", WORDS, PITCH, ROW, PAIRS, BLOCKS)

#define TVM_EXT_DSP_STRIP3_SATURATE_s8 "ssat"
#define TVM_EXT_DSP_STRIP3_SATURATE_u8 "usat"

#define TVM_EXT_DSP_STRIP3_FUNCTION(NAME, TEXT)                                                                       \
    TVM_EXT_DSP_SHARED void NAME(const tvm_ext_dsp_strip *strip)                                                      \
    {                                                                                                                 \
        register const tvm_ext_dsp_strip *r0 __asm__("r0") = strip;                                                   \
        __asm__ volatile(TEXT                                                                                         \
                         : "+r"(r0)                                                                                   \
                         :                                                                                            \
                         : "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "lr", "cc", "memory");       \
    }

/* Defines the function of a layer. WORDS: of a row of the plane. ROW: elements from one output row to the next. PAIRS:
 * pairs of columns, at least one. BLOCKS: pairs of an iteration, 1 to 3. ODD: 1 if one more column follows. All are
 * literals. */
#define TVM_EXT_DSP_DEFINE_STRIP3(NAME, WORDS, PITCH, ROW, PAIRS, BLOCKS, ODD, TYPE, SHIFT)                           \
    TVM_EXT_DSP_STRIP3_FUNCTION(                                                                                      \
        NAME, TVM_EXT_DSP_STRIP3_TEXT(#WORDS, #PITCH, #ROW, #PAIRS, #BLOCKS, TVM_EXT_DSP_STRIP3_BLOCKS_##BLOCKS,      \
                                      TVM_EXT_DSP_STRIP3_ODD_##ODD(#WORDS, #PITCH, #ROW, #BLOCKS,                     \
                                                                   TVM_EXT_DSP_STRIP3_SATURATE_##TYPE, #SHIFT),       \
                                      TVM_EXT_DSP_STRIP3_SATURATE_##TYPE, #SHIFT))

#else

/* Does the same in plain C, for stride 1 or 2. */
static inline void tvm_ext_dsp_strip3(const tvm_ext_dsp_strip *strip, int32_t stride, int32_t words, int32_t pitch,
                                      int32_t row, int32_t columns, bool is_unsigned, int32_t shift)
{
    for (int32_t h = 0; h < strip->rows; ++h) {
        for (int32_t q = 0; q < columns; ++q) {
            int32_t sum = strip->start;
            for (int32_t r = 0; r < 3; ++r) {
                const uint32_t *const x = &strip->plane[(((h * stride) + r) * words) + (q * stride / 2)];
                const uint32_t *const w = &strip->weights[2 * r];
                if (stride == 2) {
                    sum = tvm_ext_dsp_smlad(x[1], w[1], tvm_ext_dsp_smlad(x[0], w[0], sum));
                } else if (q % 2 == 0) {
                    sum = tvm_ext_dsp_low_high(x[1], w[1], tvm_ext_dsp_smlad(x[0], w[0], sum));
                } else {
                    sum = tvm_ext_dsp_smlad(x[1], w[1], tvm_ext_dsp_high_low(x[0], w[0], sum));
                }
            }
            const int32_t value = tvm_ext_dsp_high_product(sum, strip->multiplier, strip->rounding) >> shift;
            strip->output[(h * row) + (q * pitch)] =
                (uint8_t)(is_unsigned ? tvm_ext_saturate_u8(value) : tvm_ext_saturate_s8(value));
        }
    }
}

#define TVM_EXT_DSP_DEFINE_STRIP3(NAME, WORDS, PITCH, ROW, PAIRS, BLOCKS, ODD, TYPE, SHIFT)                           \
    static inline void NAME(const tvm_ext_dsp_strip *strip)                                                           \
    {                                                                                                                 \
        tvm_ext_dsp_strip3(strip, 1, WORDS, PITCH, ROW, (2 * (PAIRS)) + (ODD), TVM_EXT_DSP_IS_UNSIGNED_##TYPE, SHIFT);\
    }

#endif

#endif
