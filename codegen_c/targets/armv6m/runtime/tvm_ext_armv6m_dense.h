/* Dense layers on Armv6-M: one row by four output channels at a time. */
#ifndef TVM_EXT_ARMV6M_DENSE_H
#define TVM_EXT_ARMV6M_DENSE_H

#include "tvm_ext_armv6m.h"
#include "tvm_ext_armv6m_dense_fours.h"
#include "tvm_ext_armv6m_requantize.h"
#include "tvm_ext_layer.h"

typedef struct {
    int32_t rows;
    int32_t depth;           /* elements of a row of the input */
    int32_t channels;        /* elements of a row of the output, at least four */
    bool has_unsigned_input; /* uint8, otherwise int8 */
    bool is_interleaved;     /* weights as in tvm_ext_armv6m_dense_fours.h, and requantization in 32 bits */
    tvm_ext_armv6m_requantize requantize;
} tvm_ext_armv6m_dense_layer;

/* Computes sums of products of `depth` elements and the weights of four channels, which are contiguous. */
#if TVM_EXT_ARMV6M
/* r0: element, r1: end of elements, r2 to r5: ends of weights, r6: offset to these, r7: weight, r8 to r11: sums. */
#define TVM_EXT_ARMV6M_DEFINE_DENSE(SUFFIX, TYPE, LOAD)                                              \
    TVM_EXT_ARMV6M_ASSEMBLY void tvm_ext_armv6m_dense_##SUFFIX(                                      \
        TVM_EXT_ARMV6M_IN uint32_t sums[TVM_EXT_ARMV6M_WIDTH], TVM_EXT_ARMV6M_IN const TYPE *elements, \
        TVM_EXT_ARMV6M_IN const int8_t *weights, TVM_EXT_ARMV6M_IN int32_t depth)                    \
    {                                                                                                \
        __asm__(TVM_EXT_ARMV6M_SAVE                                                                  \
                "mov r12, r0\n\t"                                                                    \
                "adds r1, r1, r3\n\t"                                                                \
                "adds r2, r2, r3\n\t"                                                                \
                "rsbs r6, r3, #0\n\t"                                                                \
                "movs r7, r3\n\t"                                                                    \
                "adds r3, r2, r7\n\t"                                                                \
                "adds r4, r3, r7\n\t"                                                                \
                "adds r5, r4, r7\n\t"                                                                \
                "movs r0, #0\n\t"                                                                    \
                "mov r8, r0\n\t"                                                                     \
                "mov r9, r0\n\t"                                                                     \
                "mov r10, r0\n\t"                                                                    \
                "mov r11, r0\n"                                                                      \
                "1:\n\t" LOAD " r0, [r1, r6]\n\t"                                                    \
                "ldrsb r7, [r2, r6]\n\t"                                                             \
                "muls r7, r0\n\t"                                                                    \
                "add r8, r7\n\t"                                                                     \
                "ldrsb r7, [r3, r6]\n\t"                                                             \
                "muls r7, r0\n\t"                                                                    \
                "add r9, r7\n\t"                                                                     \
                "ldrsb r7, [r4, r6]\n\t"                                                             \
                "muls r7, r0\n\t"                                                                    \
                "add r10, r7\n\t"                                                                    \
                "ldrsb r7, [r5, r6]\n\t"                                                             \
                "muls r7, r0\n\t"                                                                    \
                "add r11, r7\n\t"                                                                    \
                "adds r6, #1\n\t"                                                                    \
                "bne 1b\n\t"                                                                         \
                TVM_EXT_ARMV6M_STORE_SUMS TVM_EXT_ARMV6M_RESTORE);                                   \
    }
#else
#define TVM_EXT_ARMV6M_DEFINE_DENSE(SUFFIX, TYPE, LOAD)                                               \
    TVM_EXT_ARMV6M_SHARED void tvm_ext_armv6m_dense_##SUFFIX(uint32_t sums[TVM_EXT_ARMV6M_WIDTH],     \
                                                             const TYPE *elements, const int8_t *weights, \
                                                             int32_t depth)                           \
    {                                                                                                 \
        for (int32_t j = 0; j < TVM_EXT_ARMV6M_WIDTH; ++j) {                                          \
            sums[j] = 0;                                                                              \
            for (int32_t c = 0; c < depth; ++c) {                                                     \
                sums[j] += (uint32_t)((int32_t)elements[c] * weights[(j * depth) + c]);               \
            }                                                                                         \
        }                                                                                             \
    }
#endif
TVM_EXT_ARMV6M_DEFINE_DENSE(s8, int8_t, "ldrsb")
TVM_EXT_ARMV6M_DEFINE_DENSE(u8, uint8_t, "ldrb")

/* Computes one row from interleaved weights. */
TVM_EXT_INLINE void tvm_ext_armv6m_dense_interleaved(const tvm_ext_armv6m_dense_layer *layer, const uint8_t *elements,
                                                     uint8_t *row, const int8_t *weights, const int32_t *factors)
{
#if TVM_EXT_ARMV6M
    int32_t sum = 0;
    for (int32_t c = 0; c < layer->depth; ++c) {
        sum += layer->has_unsigned_input ? (int32_t)elements[c] : (int32_t)((const int8_t *)elements)[c];
    }
    const int32_t groups = ((uintptr_t)elements & 3u) == 0 ? layer->depth / TVM_EXT_ARMV6M_WIDTH : 0;
    const int32_t ones = layer->depth - (groups * TVM_EXT_ARMV6M_WIDTH);
    const tvm_ext_armv6m_fours fours = {
        elements,           weights, row, factors, layer->channels, layer->requantize.fraction_bits, ones, groups,
        (uint32_t)sum << 7,
    };
    if (layer->has_unsigned_input && layer->requantize.has_two_constants) {
        tvm_ext_armv6m_dense_fours_u8_twice(&fours);
    } else if (layer->has_unsigned_input) {
        tvm_ext_armv6m_dense_fours_u8_once(&fours);
    } else if (layer->requantize.has_two_constants) {
        tvm_ext_armv6m_dense_fours_s8_twice(&fours);
    } else {
        tvm_ext_armv6m_dense_fours_s8_once(&fours);
    }
#else
    for (int32_t k = 0; k < layer->channels; ++k) {
        const int32_t lane = k % TVM_EXT_ARMV6M_WIDTH;
        const int32_t offset = lane < TVM_EXT_ARMV6M_WIDTH - 1 ? 128 : 0;
        const int8_t *const four = &weights[(k - lane) * layer->depth];
        uint32_t sum = 0;
        for (int32_t c = 0; c < layer->depth; ++c) {
            const int8_t byte = four[(c * TVM_EXT_ARMV6M_WIDTH) + lane];
            const int32_t weight = offset != 0 ? (int32_t)(uint8_t)byte - offset : byte;
            const int32_t element = layer->has_unsigned_input ? elements[c] : ((const int8_t *)elements)[c];
            sum += (uint32_t)(element * weight);
        }
        const int32_t *const own = &factors[k * tvm_ext_armv6m_num_factors(&layer->requantize)];
        row[k] = tvm_ext_armv6m_narrow_element(&layer->requantize, sum, own);
    }
#endif
}

/* Computes all rows of the output. The last four channels may overlap those before: computing them twice gives the
 * same bytes. */
TVM_EXT_INLINE void tvm_ext_armv6m_dense(const tvm_ext_armv6m_dense_layer *layer, const void *input, void *output,
                                         const int8_t *weights, const int32_t *factors)
{
    const int32_t depth = layer->depth;
    for (int32_t m = 0; m < layer->rows; ++m) {
        const uint8_t *const elements = &((const uint8_t *)input)[m * depth];
        uint8_t *const row = &((uint8_t *)output)[m * layer->channels];
        if (layer->is_interleaved) {
            tvm_ext_armv6m_dense_interleaved(layer, elements, row, weights, factors);
            continue;
        }
        for (int32_t first = 0; first < layer->channels; first += TVM_EXT_ARMV6M_WIDTH) {
            const int32_t last = layer->channels - TVM_EXT_ARMV6M_WIDTH;
            const int32_t k = first < last ? first : last;
            uint32_t sums[TVM_EXT_ARMV6M_WIDTH];
            if (layer->has_unsigned_input) {
                tvm_ext_armv6m_dense_u8(sums, elements, &weights[k * depth], depth);
            } else {
                tvm_ext_armv6m_dense_s8(sums, (const int8_t *)elements, &weights[k * depth], depth);
            }
            tvm_ext_armv6m_elements(&layer->requantize, &row[k], sums,
                                    &factors[k * tvm_ext_armv6m_num_factors(&layer->requantize)]);
        }
    }
}

#endif
