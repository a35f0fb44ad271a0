/* LayerNorm and RMSNorm of quantized vectors by Helium, four elements at a time: the bytes of tvm_ext_normalize.h. */
#ifndef TVM_EXT_HELIUM_NORMALIZE_H
#define TVM_EXT_HELIUM_NORMALIZE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_normalize.h"

#if defined(TVM_EXT_HAS_HELIUM)

/* Sums elements and their squares, 16 at a time. */
#define TVM_EXT_HELIUM_NORMALIZE_SUMS(TYPE)                                                                          \
    __asm__ volatile("wlstp.8 lr, %[n], 2f\n"                                                                        \
                     "1:\n\tvldrb.u8 %q[v], [%[x]], #16\n\t"                                                         \
                     "vaddva." TYPE " %[total], %q[v]\n\t"                                                           \
                     "vmladava." TYPE " %[squares], %q[v], %q[v]\n\t"                                                \
                     "letp lr, 1b\n"                                                                                 \
                     "2:\n\t"                                                                                        \
                     : [v] "=&w"(elements), [x] "+r"(place), [total] "+Te"(total), [squares] "+Te"(squares)          \
                     : [n] "r"(layer->length)                                                                        \
                     : "lr", "cc", "memory")

/* Computes the results of a vector. LOAD: widens four elements. */
#define TVM_EXT_HELIUM_NORMALIZE_RESULTS(LOAD)                                                                       \
    __asm__ volatile("wlstp.32 lr, %[n], 2f\n"                                                                       \
                     "1:\n\t" LOAD " %q[v], [%[x]], #4\n\t"                                                          \
                     "vmlas.s32 %q[v], %q[scale], %[start]\n\t"                                                      \
                     "vmulh.s32 %q[v], %q[v], %q[root]\n\t"                                                          \
                     "vldrw.u32 %q[w], [%[weight]], #16\n\t"                                                         \
                     "vmulh.s32 %q[v], %q[v], %q[w]\n\t"                                                             \
                     "vldrw.u32 %q[w], [%[bias]], #16\n\t"                                                           \
                     "vadd.i32 %q[v], %q[v], %q[w]\n\t"                                                              \
                     "vshl.s32 %q[v], %[shift]\n\t"                                                                  \
                     "vmax.s32 %q[v], %q[v], %q[least]\n\t"                                                          \
                     "vmin.s32 %q[v], %q[v], %q[most]\n\t"                                                           \
                     "vstrb.32 %q[v], [%[y]], #4\n\t"                                                                \
                     "letp lr, 1b\n"                                                                                 \
                     "2:\n\t"                                                                                        \
                     : [v] "=&w"(v), [w] "=&w"(w), [x] "+l"(place), [y] "+l"(y), [weight] "+r"(weight),              \
                       [bias] "+r"(bias)                                                                             \
                     : [n] "r"(layer->length), [scale] "w"(vdupq_n_s32((int32_t)scale)), [start] "r"(start),         \
                       [root] "w"(vdupq_n_s32(factor.root)), [shift] "r"(-layer->rest),                              \
                       [least] "w"(vdupq_n_s32(layer->low)), [most] "w"(vdupq_n_s32(layer->high))                    \
                     : "lr", "cc", "memory")

/* Computes one vector. */
TVM_EXT_INLINE void tvm_ext_helium_normalize_one(const tvm_ext_normalize_layer *layer, const uint8_t *x, uint8_t *y,
                                                 const int32_t *weight, const int32_t *bias)
{
    const int32_t length = layer->length;
    const int32_t zero_point = layer->zero_point;
    const uint8_t *place = x;
    int8x16_t elements;
    int32_t total = 0;
    int32_t squares = 0;
    if (layer->is_unsigned) {
        TVM_EXT_HELIUM_NORMALIZE_SUMS("u8");
    } else {
        TVM_EXT_HELIUM_NORMALIZE_SUMS("s8");
    }
    /* The sums of elements minus the zero point. */
    squares += zero_point * ((length * zero_point) - (2 * total));
    total = layer->is_centered ? total - (length * zero_point) : 0;
    const tvm_ext_normalize_factor factor = tvm_ext_normalize_root(layer, total, squares);
    const uint32_t scale = (uint32_t)length << factor.left;
    const uint32_t start = (uint32_t)(-(length * zero_point) - total) << factor.left;
    int32x4_t v;
    int32x4_t w;
    place = x;
    if (layer->is_unsigned) {
        TVM_EXT_HELIUM_NORMALIZE_RESULTS("vldrb.u32");
    } else {
        TVM_EXT_HELIUM_NORMALIZE_RESULTS("vldrb.s32");
    }
}

#else

TVM_EXT_INLINE void tvm_ext_helium_normalize_one(const tvm_ext_normalize_layer *layer, const uint8_t *x, uint8_t *y,
                                                 const int32_t *weight, const int32_t *bias)
{
    tvm_ext_normalize_layer one = *layer;
    one.vectors = 1;
    tvm_ext_normalize(&one, x, y, weight, bias);
}

#endif

/* Computes all vectors. */
TVM_EXT_INLINE void tvm_ext_helium_normalize(const tvm_ext_normalize_layer *layer, const void *input, void *output,
                                             const int32_t *restrict weight, const int32_t *restrict bias)
{
    for (int32_t m = 0; m < layer->vectors; ++m) {
        tvm_ext_helium_normalize_one(layer, &((const uint8_t *)input)[m * layer->length],
                                     &((uint8_t *)output)[m * layer->length], weight, bias);
    }
}

#endif
