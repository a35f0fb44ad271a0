/* Functions of one quantized tensor by Helium: results of 16 elements at a time, gathered from their table, and PReLU
 * of eight elements at a time. */
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

/* PReLU: a result is (start + (x - zero point) * factor) >> shift, clamped. */
typedef struct {
    int32_t repeats;
    int32_t period; /* number of factors below zero */
    bool is_unsigned;
    int32_t zero_point; /* zero point of the input */
    int32_t above;      /* the factor above zero */
    int32_t start;
    int32_t shift;
    int32_t low;
    int32_t high;
} tvm_ext_helium_prelu_layer;

/* Computes `count` adjacent elements, up to eight, of each run. below: their factors below zero. */
TVM_EXT_INLINE void tvm_ext_helium_prelu_eight(const tvm_ext_helium_prelu_layer *layer, const uint8_t *x, uint8_t *y,
                                               const int16_t *below, int32_t count)
{
#if defined(TVM_EXT_HAS_HELIUM)
    const mve_pred16_t inside = vctp16q((uint32_t)count);
    const int16x8_t factors = vldrhq_z_s16(below, inside);
    const int16x8_t above = vdupq_n_s16((int16_t)layer->above);
    const int32x4_t shift = vdupq_n_s32(-layer->shift);
    for (int32_t n = 0; n < layer->repeats; ++n) {
        const int16x8_t elements = layer->is_unsigned ? vreinterpretq_s16_u16(vldrbq_z_u16(x, inside))
                                                      : vldrbq_z_s16((const int8_t *)x, inside);
        const int16x8_t distances = vaddq_n_s16(elements, (int16_t)-layer->zero_point);
        const int16x8_t chosen = vpselq_s16(above, factors, vcmpgeq_n_s16(distances, 0));
        /* Rounding shifts add the half that `start` contains. */
        const int16x8_t values = tvm_ext_i16x8_narrow(vrshlq_s32(vmullbq_int_s16(distances, chosen), shift),
                                                      vrshlq_s32(vmulltq_int_s16(distances, chosen), shift));
        const int16x8_t results = vaddq_n_s16(values, (int16_t)(layer->start >> layer->shift));
        TVM_EXT_HELIUM_KEEP(y, 8);
        vstrbq_p_s16((int8_t *)y, tvm_ext_i16x8_clamp(results, (int16_t)layer->low, (int16_t)layer->high), inside);
        x += layer->period;
        y += layer->period;
    }
#else
    for (int32_t n = 0; n < layer->repeats; ++n) {
        for (int32_t i = 0; i < count; ++i) {
            const int32_t place = (n * layer->period) + i;
            const int32_t element = layer->is_unsigned ? (int32_t)x[place] : (int32_t)((const int8_t *)x)[place];
            const int32_t distance = element - layer->zero_point;
            const int32_t value = (distance * (distance < 0 ? below[i] : layer->above)) + layer->start;
            y[place] = (uint8_t)tvm_ext_limited(value >> layer->shift, layer->low, layer->high);
        }
    }
#endif
}

/* Computes all elements: those of eight factors in all runs, then the next eight, so that factors stay in registers. */
TVM_EXT_INLINE void tvm_ext_helium_prelu(const tvm_ext_helium_prelu_layer *layer, const void *input, void *output,
                                         const int16_t *restrict below)
{
    for (int32_t i = 0; i < layer->period; i += 8) {
        const int32_t left = layer->period - i;
        tvm_ext_helium_prelu_eight(layer, &((const uint8_t *)input)[i], &((uint8_t *)output)[i], &below[i],
                                   left < 8 ? left : 8);
    }
}

#endif
