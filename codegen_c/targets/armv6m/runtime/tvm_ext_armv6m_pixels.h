/* All channels of eight pixels in assembly: sums of pairs as in tvm_ext_armv6m_product.h, then their requantization in
 * 32 bits as in tvm_ext_armv6m_requantize.h.
 *
 * A pair of sums is kept as U, the sum of the upper halves of all runs, and T, the sum of whole words: the lower sum
 * is T - 2^16 U, so that the end of a run adds twice and does not separate the halves. */
#ifndef TVM_EXT_ARMV6M_PIXELS_H
#define TVM_EXT_ARMV6M_PIXELS_H

#include "tvm_ext_armv6m.h"

#if TVM_EXT_ARMV6M

/* Operands in the order in which the assembly reads them. */
typedef struct {
    uint8_t *const *output; /* the first element of each pixel */
    const int32_t *factors;
    const uint32_t *cells;
    const int8_t *weights;
    int32_t channels;
    int32_t fraction_bits;
} tvm_ext_armv6m_pixels_layer;

/* Adds a word of two halves to T and U, and resets it. */
#define TVM_EXT_ARMV6M_ADD_WORD(WORD, T, U) \
    "add " T ", " WORD "\n\t"               \
    "mov r4, " WORD "\n\t"                  \
    "lsrs r4, r4, #16\n\t"                  \
    "adds " U ", r4\n\t"                    \
    "mov " WORD ", lr\n\t"

/* Begins T and U of two words, in r0 to r3. */
#define TVM_EXT_ARMV6M_FIRST_WORDS(FIRST, SECOND) \
    "mov r0, " FIRST "\n\t"                       \
    "lsrs r1, r0, #16\n\t"                        \
    "mov r2, " SECOND "\n\t"                      \
    "lsrs r3, r2, #16\n\t"                        \
    "mov " FIRST ", lr\n\t"                       \
    "mov " SECOND ", lr\n\t"

/* Adds the products of one tap, whose weight is at the offset r7 from r6. */
#define TVM_EXT_ARMV6M_PIXELS_TAP         \
    "ldmia r5!, {r0, r1, r2, r3}\n\t"     \
    "ldrsb r4, [r6, r7]\n\t"              \
    "muls r0, r4\n\t"                     \
    "add r8, r0\n\t"                      \
    "muls r1, r4\n\t"                     \
    "add r9, r1\n\t"                      \
    "muls r2, r4\n\t"                     \
    "add r10, r2\n\t"                     \
    "muls r3, r4\n\t"                     \
    "add r11, r3\n\t"

/* Adds the products of the next tap. */
#define TVM_EXT_ARMV6M_PIXELS_NEXT TVM_EXT_ARMV6M_PIXELS_TAP "adds r7, #1\n"

/* Adds the products of a run of - r7 taps, four at a time: one or two taps first if the number is no multiple of four.
 * The labels 4N to 7N. */
#define TVM_EXT_ARMV6M_PIXELS_RUN(N)                                                           \
    "lsrs r4, r7, #1\n\t"                                                                      \
    "bcc 4" N "f\n\t" TVM_EXT_ARMV6M_PIXELS_NEXT "beq 7" N "f\n"                              \
    "4" N ":\n\t"                                                                              \
    "lsrs r4, r7, #2\n\t"                                                                      \
    "bcs 6" N "f\n"                                                                            \
    "5" N ":\n\t" TVM_EXT_ARMV6M_PIXELS_NEXT TVM_EXT_ARMV6M_PIXELS_NEXT                         \
    "6" N ":\n\t" TVM_EXT_ARMV6M_PIXELS_NEXT TVM_EXT_ARMV6M_PIXELS_NEXT "bne 5" N "b\n"        \
    "7" N ":\n\t"

/* Computes element I from its sum in r0 and stores it, at OUTPUT in the list of pixels. r1: list of pixels, r3: index
 * of the channel, r7: fraction bits, r8: - s, r9: span, r10 and r11: m in two parts, r12: c. A distance out of range
 * jumps to TVM_EXT_ARMV6M_LIMIT, which is ahead or back: TO is f or b. */
#define TVM_EXT_ARMV6M_ELEMENT(I, OUTPUT, TO, MORE) \
    "add r0, r8\n\t"                                \
    "cmp r0, r9\n\t"                                \
    "bhi 1" I TO "\n"                               \
    "2" I ":\n\t"                                   \
    "mov r2, r10\n\t"                               \
    "muls r2, r0\n\t"                               \
    "mov r4, r11\n\t"                               \
    "muls r4, r0\n\t"                               \
    "lsrs r4, r7\n\t"                               \
    "adds r2, r4\n\t"                               \
    "add r2, r12\n\t" MORE                          \
    "3" I ":\n\t"                                   \
    "lsrs r2, r2, #24\n\t"                          \
    "ldr r4, [r1, #" OUTPUT "]\n\t"                 \
    "strb r2, [r4, r3]\n\t"

/* The least element has distance 0, and c is its whole product. */
#define TVM_EXT_ARMV6M_LIMIT(I, BACK) \
    "1" I ":\n\t"                     \
    "lsls r2, r0, #1\n\t"             \
    "mov r2, r12\n\t"                 \
    "bcs 3" I BACK "\n\t"             \
    "mov r0, r9\n\t"                  \
    "b 2" I BACK "\n"

/* The two elements of a pair of sums at the stack's offsets T and U; the second one first, because the first pixel
 * must be stored last. */
#define TVM_EXT_ARMV6M_TWO_ELEMENTS(T, U, I, J, OUTPUT_I, OUTPUT_J, TO, MORE_I, MORE_J) \
    "ldr r5, [sp, #" T "]\n\t"                                                           \
    "ldr r0, [sp, #" U "]\n\t"                                                           \
    "lsls r4, r0, #16\n\t"                                                               \
    "subs r5, r5, r4\n\t" TVM_EXT_ARMV6M_ELEMENT(J, OUTPUT_J, TO, MORE_J)                \
    "movs r0, r5\n\t" TVM_EXT_ARMV6M_ELEMENT(I, OUTPUT_I, TO, MORE_I)

/* Adds the second constant, the stack's word at 56, at distances of lr and more. */
#define TVM_EXT_ARMV6M_MORE(I)   \
    "cmp r0, lr\n\t"             \
    "blo 3" I "f\n\t"            \
    "ldr r4, [sp, #56]\n\t"      \
    "adds r2, r4\n"

/* Three statements, because a string must not have more than 4095 characters. On the stack: T and U of four words, then
 * the list of pixels, factors, cells, index of the channel, channels, fraction bits, and the second constant. In the
 * loop over taps: r0 to r3: cells, r4: weight, r5: next cells, r6: end of the weights, r7: offset to a weight, r8 to
 * r11: pairs of sums, lr: what a run begins with. */
#define TVM_EXT_ARMV6M_DEFINE_PIXELS(SUFFIX, CONSTANTS, MORE)                                                          \
    TVM_EXT_ARMV6M_ASSEMBLY void tvm_ext_armv6m_pixels_##SUFFIX(                                                       \
        TVM_EXT_ARMV6M_IN const tvm_ext_armv6m_pixels_layer *layer)                                                    \
    {                                                                                                                  \
        __asm__(TVM_EXT_ARMV6M_SAVE                                                                                    \
                "sub sp, #64\n\t"                                                                                      \
                "ldmia r0!, {r1, r2, r3, r6}\n\t"                                                                      \
                "ldmia r0!, {r4, r5}\n\t"                                                                              \
                "str r1, [sp, #32]\n\t"                                                                                \
                "str r2, [sp, #36]\n\t"                                                                                \
                "str r3, [sp, #40]\n\t"                                                                                \
                "movs r0, #0\n\t"                                                                                      \
                "str r0, [sp, #44]\n\t"                                                                                \
                "str r4, [sp, #48]\n\t"                                                                                \
                "str r5, [sp, #52]\n"                                                                                  \
                "5:\n\t"                                                                                               \
                "movs r7, #1\n\t"                                                                                      \
                "lsls r7, r7, #31\n\t"                                                                                 \
                "lsrs r4, r7, #16\n\t"                                                                                 \
                "adds r7, r4\n\t"                                                                                      \
                "mov lr, r7\n\t"                                                                                       \
                "mov r8, r7\n\t"                                                                                       \
                "mov r9, r7\n\t"                                                                                       \
                "mov r10, r7\n\t"                                                                                      \
                "mov r11, r7\n\t"                                                                                      \
                "ldr r5, [sp, #40]\n\t"                                                                                \
                "movs r7, #0\n\t"                                                                                     \
                "ldrsb r7, [r6, r7]\n\t" /* the first run; each channel has one */                                    \
                "subs r6, r6, r7\n\t"                                                                                 \
                "adds r7, #1\n\t" TVM_EXT_ARMV6M_PIXELS_RUN("0")  \
                "mov r7, sp\n\t" TVM_EXT_ARMV6M_FIRST_WORDS("r8", "r9")                                               \
                "stmia r7!, {r0, r1, r2, r3}\n\t" TVM_EXT_ARMV6M_FIRST_WORDS("r10", "r11")                            \
                "stmia r7!, {r0, r1, r2, r3}\n\t"                                                                     \
                "movs r7, #0\n\t"                                                                                     \
                "b 7f\n"                                                                                              \
                );  \
        __asm__("6:\n\t" TVM_EXT_ARMV6M_PIXELS_RUN("1")  \
                "mov r7, sp\n\t" /* the end of a run */                                                                \
                "ldmia r7!, {r0, r1, r2, r3}\n\t" TVM_EXT_ARMV6M_ADD_WORD("r8", "r0", "r1")                            \
                    TVM_EXT_ARMV6M_ADD_WORD("r9", "r2", "r3")                                                          \
                "subs r7, #16\n\t"                                                                                     \
                "stmia r7!, {r0, r1, r2, r3}\n\t"                                                                      \
                "ldmia r7!, {r0, r1, r2, r3}\n\t" TVM_EXT_ARMV6M_ADD_WORD("r10", "r0", "r1")                           \
                    TVM_EXT_ARMV6M_ADD_WORD("r11", "r2", "r3")                                                         \
                "subs r7, #16\n\t"                                                                                     \
                "stmia r7!, {r0, r1, r2, r3}\n\t"                                                                      \
                "movs r7, #0\n"                                                                                        \
                "7:\n\t"                                                                                               \
                "ldrsb r7, [r6, r7]\n\t" /* the next run, or the end */                                                \
                "subs r6, r6, r7\n\t"                                                                                  \
                "adds r7, #1\n\t"                                                                                      \
                "bmi 6b\n\t"                                                                                           \
                "ldr r2, [sp, #36]\n\t"                                                                                \
                "ldmia r2!, {r3, r4, r5}\n\t"                                                                          \
                "rsbs r3, r3, #0\n\t"                                                                                  \
                "mov r8, r3\n\t"                                                                                       \
                "mov r9, r4\n\t"                                                                                       \
                "ldr r7, [sp, #52]\n\t"                                                                                \
                "movs r3, r5\n\t"                                                                                      \
                "lsrs r3, r7\n\t"                                                                                      \
                "mov r10, r3\n\t"                                                                                      \
                "lsls r3, r7\n\t"                                                                                      \
                "subs r5, r5, r3\n\t"                                                                                  \
                "mov r11, r5\n\t" CONSTANTS                                                                            \
                "str r2, [sp, #36]\n\t"                                                                                \
                "ldr r1, [sp, #32]\n\t"                                                                                \
                "ldr r3, [sp, #44]\n\t" TVM_EXT_ARMV6M_TWO_ELEMENTS("24", "28", "6", "7", "24", "28", "f", MORE("6"),  \
                                                                    MORE("7"))                                         \
                    TVM_EXT_ARMV6M_TWO_ELEMENTS("16", "20", "4", "5", "16", "20", "f", MORE("4"), MORE("5"))           \
                "b 8f\n" TVM_EXT_ARMV6M_LIMIT("7", "b") TVM_EXT_ARMV6M_LIMIT("6", "b") TVM_EXT_ARMV6M_LIMIT("5", "b")  \
                    TVM_EXT_ARMV6M_LIMIT("4", "b") TVM_EXT_ARMV6M_LIMIT("3", "f") TVM_EXT_ARMV6M_LIMIT("2", "f")       \
                        TVM_EXT_ARMV6M_LIMIT("1", "f") TVM_EXT_ARMV6M_LIMIT("0", "f")                                  \
                );  \
        __asm__("8:\n\t" TVM_EXT_ARMV6M_TWO_ELEMENTS("8", "12", "2", "3", "8", "12", "b", MORE("2"), MORE("3"))        \
                    TVM_EXT_ARMV6M_TWO_ELEMENTS("0", "4", "0", "1", "0", "4", "b", MORE("0"), MORE("1"))               \
                "adds r3, #1\n\t"                                                                                      \
                "str r3, [sp, #44]\n\t"                                                                                \
                "ldr r4, [sp, #48]\n\t"                                                                                \
                "cmp r3, r4\n\t"                                                                                       \
                "bhs 9f\n\t"                                                                                           \
                "b 5b\n"                                                                                               \
                "9:\n\t"                                                                                               \
                "add sp, #64\n\t" TVM_EXT_ARMV6M_RESTORE);                                                             \
    }

#define TVM_EXT_ARMV6M_NO_MORE(I) ""
TVM_EXT_ARMV6M_DEFINE_PIXELS(once, "ldmia r2!, {r3}\n\tmov r12, r3\n\t", TVM_EXT_ARMV6M_NO_MORE)
TVM_EXT_ARMV6M_DEFINE_PIXELS(twice, "ldmia r2!, {r3, r4, r5}\n\tmov r12, r3\n\tmov lr, r4\n\tstr r5, [sp, #56]\n\t",
                             TVM_EXT_ARMV6M_MORE)

#endif

#endif
