/* The inner loops of tvm_ext_qinterpolate.h with Helium: four channels at a time. */
#ifndef TVM_EXT_HELIUM_QINTERPOLATE_H
#define TVM_EXT_HELIUM_QINTERPOLATE_H

#include "tvm_ext_helium.h"
#include "tvm_ext_qinterpolate.h"

/* Returns up to four elements of a column from channel c on, with zeros after them. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_qinterpolate_elements(const tvm_ext_qinterpolate_layer *layer,
                                                                  const void *x, int32_t c)
{
    const int32_t count = layer->input.channels - c;
    return layer->input.is_unsigned ? tvm_ext_i32x4_load_u8(&((const uint8_t *)x)[c], count)
                                    : tvm_ext_i32x4_load_i8(&((const int8_t *)x)[c], count);
}

/* tvm_ext_qinterpolate_add, in vectors. */
TVM_EXT_INLINE void tvm_ext_helium_qinterpolate_add(const tvm_ext_qinterpolate_layer *layer,
                                                    const tvm_ext_weighted_rows *rows, int32_t count, int32_t *sums,
                                                    bool is_first)
{
    for (int32_t c = 0; c < layer->input.channels; c += 4) {
        tvm_ext_i32x4 sum = is_first ? tvm_ext_i32x4_splat(layer->start) : tvm_ext_i32x4_load(&sums[c]);
        sum = tvm_ext_i32x4_mla(sum, tvm_ext_helium_qinterpolate_elements(layer, rows->x[0], c), rows->weight[0]);
        if (count > 1) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_helium_qinterpolate_elements(layer, rows->x[1], c), rows->weight[1]);
        }
        if (count > 2) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_helium_qinterpolate_elements(layer, rows->x[2], c), rows->weight[2]);
        }
        if (count > 3) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_helium_qinterpolate_elements(layer, rows->x[3], c), rows->weight[3]);
        }
        tvm_ext_i32x4_store(&sums[c], sum);
    }
}

/* Returns the results of four sums, before they are clamped. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_qinterpolate_results(const tvm_ext_qinterpolate_layer *layer,
                                                                 tvm_ext_i32x4 sum)
{
    if (layer->only_shifts) {
        const tvm_ext_i32x4 shift = tvm_ext_i32x4_splat(-layer->shift);
        const tvm_ext_i32x4 value = tvm_ext_i32x4_round_shift_even(sum, tvm_ext_i32x4_splat(0), shift);
        return tvm_ext_i32x4_add_n(value, layer->output.zero_point);
    }
    if (layer->by_high_product) {
        const tvm_ext_i32x4 product = tvm_ext_i32x4_multiply_high(sum, tvm_ext_i32x4_splat(layer->multiplier));
        return tvm_ext_i32x4_shift(tvm_ext_i32x4_add_n(product, layer->rounding), -layer->shift);
    }
    int32_t values[4];
    tvm_ext_i32x4_store(values, sum);
    for (int32_t i = 0; i < 4; ++i) {
        values[i] = tvm_ext_qinterpolate_element(layer, values[i]);
    }
    return tvm_ext_i32x4_load(values);
}

/* tvm_ext_qinterpolate_finish, in vectors. */
TVM_EXT_INLINE void tvm_ext_helium_qinterpolate_finish(const tvm_ext_qinterpolate_layer *layer, const int32_t *slots,
                                                       const int16_t *weights, int32_t count, int32_t *sums,
                                                       void *pixel, bool is_first, bool is_last)
{
    const int32_t step = layer->slot_stride;
    const int32_t weight0 = weights[0];
    const int32_t weight1 = count > 1 ? weights[1] : 0;
    const int32_t weight2 = count > 2 ? weights[2] : 0;
    const int32_t weight3 = count > 3 ? weights[3] : 0;
    for (int32_t c = 0; c < layer->input.channels; c += 4) {
        tvm_ext_i32x4 sum = is_first ? tvm_ext_i32x4_splat(0) : tvm_ext_i32x4_load(&sums[c]);
        sum = tvm_ext_i32x4_mla(sum, tvm_ext_i32x4_load(&slots[c]), weight0);
        if (count > 1) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_i32x4_load(&slots[step + c]), weight1);
        }
        if (count > 2) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_i32x4_load(&slots[(2 * step) + c]), weight2);
        }
        if (count > 3) {
            sum = tvm_ext_i32x4_mla(sum, tvm_ext_i32x4_load(&slots[(3 * step) + c]), weight3);
        }
        if (is_last) {
            const tvm_ext_i32x4 results = tvm_ext_helium_qinterpolate_results(layer, sum);
            const tvm_ext_i16x8 pairs =
                tvm_ext_i16x8_clamp(tvm_ext_i16x8_narrow(results, results), (int16_t)layer->low, (int16_t)layer->high);
            tvm_ext_i16x8_store_even(&((uint8_t *)pixel)[c], pairs, layer->input.channels - c);
        } else {
            tvm_ext_i32x4_store(&sums[c], sum);
        }
    }
}

#endif
