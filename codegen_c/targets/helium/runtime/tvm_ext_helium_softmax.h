/* Softmax over vectors of quantized elements with Helium, four at a time, with the same bytes as tvm_ext_qsoftmax.h. */
#ifndef TVM_EXT_HELIUM_SOFTMAX_H
#define TVM_EXT_HELIUM_SOFTMAX_H

#include "tvm_ext_helium.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_softmax_layer.h"

#if defined(TVM_EXT_HAS_HELIUM)

/* Returns the largest element of a vector. */
TVM_EXT_INLINE int32_t tvm_ext_helium_largest(const tvm_ext_softmax_layer *layer, const uint8_t *x)
{
    int8x16_t elements;
    int32_t largest = layer->is_unsigned ? 0 : INT8_MIN;
    if (layer->is_unsigned) {
        __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
                         "1:\n\tvldrb.u8 %q[v], [%[x]], #16\n\tvmaxv.u8 %[largest], %q[v]\n\tletp lr, 1b\n"
                         "2:\n\t"
                         : [v] "=&w"(elements), [x] "+r"(x), [largest] "+r"(largest)
                         : [n] "r"(layer->length)
                         : "lr", "cc", "memory");
    } else {
        __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
                         "1:\n\tvldrb.u8 %q[v], [%[x]], #16\n\tvmaxv.s8 %[largest], %q[v]\n\tletp lr, 1b\n"
                         "2:\n\t"
                         : [v] "=&w"(elements), [x] "+r"(x), [largest] "+r"(largest)
                         : [n] "r"(layer->length)
                         : "lr", "cc", "memory");
    }
    return largest;
}

/* Loads four elements with LOAD and sets VALUE to their exponentials, relative to the largest element of the vector. */
#define TVM_EXT_HELIUM_EXPONENTIALS(LOAD)                                                                            \
    LOAD " %q[places], [%[x]], #4\n\t"                                                                              \
         "vsub.i32 %q[places], %q[largest], %q[places]\n\t"                                                         \
         "vldrw.u32 %q[value], [%[table], %q[places], uxtw #2]\n\t"
#define TVM_EXT_HELIUM_SOFTMAX_SUM(LOAD)                                                                             \
    __asm__ volatile("wlstp.32 lr, %[n], 2f\n"                                                                       \
                     "1:\n\t" TVM_EXT_HELIUM_EXPONENTIALS(LOAD) "vaddlva.s32 %[low], %[high], %q[value]\n\t"        \
                     "letp lr, 1b\n"                                                                                 \
                     "2:\n\t"                                                                                        \
                     : [places] "=&w"(places), [value] "=&w"(value), [x] "+l"(x), [low] "+r"(low), [high] "+r"(high)  \
                     : [n] "r"(layer->length), [largest] "w"(vdupq_n_s32(largest)), [table] "r"(exponential)          \
                     : "lr", "cc", "memory")
#define TVM_EXT_HELIUM_SOFTMAX_RESULTS(LOAD)                                                                         \
    __asm__ volatile("wlstp.32 lr, %[n], 2f\n"                                                                       \
                     "1:\n\t" TVM_EXT_HELIUM_EXPONENTIALS(LOAD) "vmulh.s32 %q[value], %q[value], %q[factor]\n\t"    \
                     "vrshl.s32 %q[value], %[shift]\n\t"                                                             \
                     "vadd.i32 %q[value], %q[value], %[zero_point]\n\t"                                              \
                     "vmin.s32 %q[value], %q[value], %q[most]\n\t"                                                   \
                     "vstrb.32 %q[value], [%[y]], #4\n\t"                                                            \
                     "letp lr, 1b\n"                                                                                 \
                     "2:\n\t"                                                                                        \
                     : [places] "=&w"(places), [value] "=&w"(value), [x] "+l"(x), [y] "+l"(y)                         \
                     : [n] "r"(layer->length), [largest] "w"(vdupq_n_s32(largest)), [table] "r"(exponential),         \
                       [factor] "w"(vdupq_n_s32(factor)), [shift] "r"(32 - layer->shift),                             \
                       [zero_point] "r"(layer->zero_point), [most] "w"(vdupq_n_s32(layer->high))                      \
                     : "lr", "cc", "memory")

/* Returns the sum of the exponentials of a vector. */
TVM_EXT_INLINE int64_t tvm_ext_helium_softmax_sum(const tvm_ext_softmax_layer *layer, const uint8_t *x, int32_t largest,
                                                  const int32_t *exponential)
{
    int32x4_t places;
    int32x4_t value;
    register uint32_t low __asm__("r4") = 0;
    register uint32_t high __asm__("r5") = 0;
    if (layer->is_unsigned) {
        TVM_EXT_HELIUM_SOFTMAX_SUM("vldrb.u32");
    } else {
        TVM_EXT_HELIUM_SOFTMAX_SUM("vldrb.s32");
    }
    return (int64_t)((uint64_t)high << 32 | low);
}

/* Computes all results of a vector if no product is a tie. */
TVM_EXT_INLINE void tvm_ext_helium_softmax_results(const tvm_ext_softmax_layer *layer, const uint8_t *x, uint8_t *y,
                                                   int32_t largest, const int32_t *exponential, int32_t factor)
{
    int32x4_t places;
    int32x4_t value;
    if (layer->is_unsigned) {
        TVM_EXT_HELIUM_SOFTMAX_RESULTS("vldrb.u32");
    } else {
        TVM_EXT_HELIUM_SOFTMAX_RESULTS("vldrb.s32");
    }
}

#else

TVM_EXT_INLINE int32_t tvm_ext_helium_largest(const tvm_ext_softmax_layer *layer, const uint8_t *x)
{
    int32_t largest = tvm_ext_softmax_element(layer, x, 0);
    for (int32_t c = 1; c < layer->length; ++c) {
        const int32_t element = tvm_ext_softmax_element(layer, x, c);
        largest = element > largest ? element : largest;
    }
    return largest;
}

TVM_EXT_INLINE int64_t tvm_ext_helium_softmax_sum(const tvm_ext_softmax_layer *layer, const uint8_t *x, int32_t largest,
                                                  const int32_t *exponential)
{
    int64_t sum = 0;
    for (int32_t c = 0; c < layer->length; ++c) {
        sum += exponential[largest - tvm_ext_softmax_element(layer, x, c)];
    }
    return sum;
}

TVM_EXT_INLINE void tvm_ext_helium_softmax_results(const tvm_ext_softmax_layer *layer, const uint8_t *x, uint8_t *y,
                                                   int32_t largest, const int32_t *exponential, int32_t factor)
{
    for (int32_t c = 0; c < layer->length; ++c) {
        const int64_t numerator = exponential[largest - tvm_ext_softmax_element(layer, x, c)];
        const int32_t value = tvm_ext_round_shift_up(numerator * factor, layer->shift) + layer->zero_point;
        y[c] = (uint8_t)(value > layer->high ? layer->high : value);
    }
}

#endif

/* Computes all vectors. exponential: table for 0, -1, -2 ... steps of the input. */
TVM_EXT_INLINE void tvm_ext_helium_softmax(const tvm_ext_softmax_layer *layer, const void *input, void *output,
                                           const int32_t *restrict exponential)
{
    for (int32_t m = 0; m < layer->vectors; ++m) {
        const uint8_t *const x = &((const uint8_t *)input)[m * layer->length];
        uint8_t *const y = &((uint8_t *)output)[m * layer->length];
        const int32_t largest = tvm_ext_helium_largest(layer, x);
        const int64_t sum = tvm_ext_helium_softmax_sum(layer, x, largest, exponential);
        const int32_t factor = (int32_t)((layer->steps + (sum / 2)) / sum);
        /* An exponential has at most 30 trailing zeros; a tie needs shift - 1. */
        if (((uint64_t)factor & (((uint64_t)1 << (layer->shift - 31)) - 1u)) != 0) {
            tvm_ext_helium_softmax_results(layer, x, y, largest, exponential, factor);
        } else {
            for (int32_t c = 0; c < layer->length; ++c) {
                const int32_t numerator = exponential[largest - tvm_ext_softmax_element(layer, x, c)];
                const int32_t value = tvm_ext_requantize(numerator, factor, layer->shift) + layer->zero_point;
                y[c] = (uint8_t)tvm_ext_clamp(value, layer->low, layer->high);
            }
        }
    }
}

#endif
