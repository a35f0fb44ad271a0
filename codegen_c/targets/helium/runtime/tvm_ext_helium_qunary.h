/* Functions of one quantized image by Helium: results of 16 elements at a time, gathered from their table. */
#ifndef TVM_EXT_HELIUM_QUNARY_H
#define TVM_EXT_HELIUM_QUNARY_H

#include "tvm_ext_helium.h"
#include "tvm_ext_qunary.h"

/* Computes `count` adjacent results. */
TVM_EXT_INLINE void tvm_ext_helium_look_up(const uint8_t *x, uint8_t *y, const uint8_t *table, int32_t count)
{
#if defined(TVM_EXT_HAS_HELIUM)
    int8x16_t elements;
    int8x16_t results;
    __asm__ volatile("wlstp.8 lr, %[n], 2f\n"
                     "1:\n\tvldrb.u8 %q[v], [%[x]], #16\n\tvldrb.u8 %q[r], [%[table], %q[v]]\n\t"
                     "vstrb.8 %q[r], [%[y]], #16\n\tletp lr, 1b\n"
                     "2:\n\t"
                     : [v] "=&w"(elements), [r] "=&w"(results), [x] "+r"(x), [y] "+r"(y)
                     : [n] "r"(count), [table] "r"(table)
                     : "lr", "cc", "memory");
#else
    for (int32_t i = 0; i < count; ++i) {
        y[i] = table[x[i]];
    }
#endif
}

/* Computes output rows [row_begin, row_end) of one image: in runs of a row, or of a pixel if pixels have a pitch. */
TVM_EXT_INLINE void tvm_ext_helium_qunary(const tvm_ext_qunary_layer *layer, const void *input, void *output,
                                          const void *restrict table, int32_t row_begin, int32_t row_end)
{
    const int32_t channels = layer->output.channels;
    const bool is_one_run = layer->output.pitch == channels;
    const int32_t runs = is_one_run ? 1 : layer->output.columns;
    const int32_t length = is_one_run ? layer->output.columns * channels : channels;
    for (int32_t h = row_begin; h < row_end; ++h) {
        const uint8_t *const x = &((const uint8_t *)input)[tvm_ext_row(&layer->input, 0, h)];
        uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h)];
        for (int32_t w = 0; w < runs; ++w) {
            tvm_ext_helium_look_up(&x[w * length], &y[w * layer->output.pitch], (const uint8_t *)table, length);
        }
    }
}

#endif
