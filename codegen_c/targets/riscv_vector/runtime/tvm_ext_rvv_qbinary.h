/* Sums and differences of two quantized tensors with RISC-V's vectors. */
#ifndef TVM_EXT_RVV_QBINARY_H
#define TVM_EXT_RVV_QBINARY_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_rvv.h"

/* An element is start + first * a + second * b, shifted right and rounded, halves up, then limited. */
typedef struct {
    int32_t start;
    int32_t first;
    int32_t second;
    int32_t shift; /* 1 or more */
    int32_t low;
    int32_t high;
} tvm_ext_rvv_sum;

typedef struct {
    tvm_ext_image first;
    tvm_ext_image second;
    tvm_ext_image output;
    tvm_ext_rvv_sum sum;
} tvm_ext_rvv_qbinary_layer;

/* Computes `count` > 0 elements. Instruction FIRST widens the elements of a, SECOND those of b. */
#if TVM_EXT_RVV
#define TVM_EXT_RVV_DEFINE_SUMS(SUFFIX, A, B, FIRST, SECOND)                                                       \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_sums_##SUFFIX(const tvm_ext_rvv_sum *sum, uint8_t *output, const uint8_t *a, \
                                                      const uint8_t *b, intptr_t count)                            \
    {                                                                                                              \
        intptr_t length;                                                                                           \
        __asm__ volatile(                                                                                          \
            TVM_EXT_RVV_BEGIN "csrwi vxrm, 0\n"                                                                    \
                              "1:\n\t"                                                                             \
                              "vsetvli %[length], %[count], e32, m8, ta, ma\n\t"                                   \
                              "vle8.v v0, (%[a])\n\t"                                                              \
                              "vle8.v v2, (%[b])\n\t"                                                              \
                              "vmv.v.x v8, %[start]\n\t" FIRST " v16, v0\n\t" SECOND " v24, v2\n\t"                \
                              "sub %[count], %[count], %[length]\n\t"                                              \
                              "vmacc.vx v8, %[first], v16\n\t"                                                     \
                              "vmacc.vx v8, %[second], v24\n\t"                                                    \
                              "add %[a], %[a], %[length]\n\t"                                                      \
                              "add %[b], %[b], %[length]\n\t"                                                      \
                              "vssra.vx v8, v8, %[shift]\n\t"                                                      \
                              "vmax.vx v8, v8, %[low]\n\t"                                                         \
                              "vmin.vx v8, v8, %[high]\n\t"                                                        \
                              "vsetvli zero, zero, e16, m4, ta, ma\n\t"                                            \
                              "vnsrl.wi v16, v8, 0\n\t"                                                            \
                              "vsetvli zero, zero, e8, m2, ta, ma\n\t"                                             \
                              "vnsrl.wi v8, v16, 0\n\t"                                                            \
                              "vse8.v v8, (%[output])\n\t"                                                         \
                              "add %[output], %[output], %[length]\n\t"                                            \
                              "bnez %[count], 1b\n\t" TVM_EXT_RVV_END                                              \
            : [length] "=&r"(length), [count] "+r"(count), [output] "+r"(output), [a] "+r"(a), [b] "+r"(b)         \
            : [start] "r"(sum->start), [first] "r"(sum->first), [second] "r"(sum->second), [shift] "r"(sum->shift), \
              [low] "r"(sum->low), [high] "r"(sum->high)                                                           \
            : "memory" TVM_EXT_RVV_CHANGED);                                                                       \
    }
#else
#define TVM_EXT_RVV_DEFINE_SUMS(SUFFIX, A, B, FIRST, SECOND)                                                       \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_sums_##SUFFIX(const tvm_ext_rvv_sum *sum, uint8_t *output, const uint8_t *a, \
                                                      const uint8_t *b, intptr_t count)                            \
    {                                                                                                              \
        for (int32_t i = 0; i < count; ++i) {                                                                      \
            const int32_t total = sum->start + (sum->first * ((const A *)a)[i]) + (sum->second * ((const B *)b)[i]); \
            output[i] = (uint8_t)tvm_ext_clamp(tvm_ext_round_shift_up(total, sum->shift), sum->low, sum->high);    \
        }                                                                                                          \
    }
#endif
TVM_EXT_RVV_DEFINE_SUMS(s8_s8, int8_t, int8_t, "vsext.vf4", "vsext.vf4")
TVM_EXT_RVV_DEFINE_SUMS(s8_u8, int8_t, uint8_t, "vsext.vf4", "vzext.vf4")
TVM_EXT_RVV_DEFINE_SUMS(u8_s8, uint8_t, int8_t, "vzext.vf4", "vsext.vf4")
TVM_EXT_RVV_DEFINE_SUMS(u8_u8, uint8_t, uint8_t, "vzext.vf4", "vzext.vf4")

/* Computes a run of elements. */
TVM_EXT_INLINE void tvm_ext_rvv_qbinary_run(const tvm_ext_rvv_qbinary_layer *layer, uint8_t *output, const uint8_t *a,
                                            const uint8_t *b, int32_t count)
{
    if (layer->first.is_unsigned) {
        (layer->second.is_unsigned ? tvm_ext_rvv_sums_u8_u8 : tvm_ext_rvv_sums_u8_s8)(&layer->sum, output, a, b, count);
    } else {
        (layer->second.is_unsigned ? tvm_ext_rvv_sums_s8_u8 : tvm_ext_rvv_sums_s8_s8)(&layer->sum, output, a, b, count);
    }
}

/* Computes output rows [row_begin, row_end) of one image, row by row, or pixel by pixel if pixels have gaps. */
TVM_EXT_INLINE void tvm_ext_rvv_qbinary_rows(const tvm_ext_rvv_qbinary_layer *layer, const void *first,
                                             const void *second, void *output, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *const a = &((const uint8_t *)first)[tvm_ext_row(&layer->first, 0, h)];
        const uint8_t *const b = &((const uint8_t *)second)[tvm_ext_row(&layer->second, 0, h)];
        uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            tvm_ext_rvv_qbinary_run(layer, &y[w * layer->output.pitch], &a[w * length], &b[w * length], length);
        }
    }
}

#endif
