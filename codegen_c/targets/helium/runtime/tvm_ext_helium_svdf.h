/* Weighted sums over time of an SVDF with Helium, four outputs at a time: the bytes of tvm_ext_svdf_sum. */
#ifndef TVM_EXT_HELIUM_SVDF_H
#define TVM_EXT_HELIUM_SVDF_H

#include "tvm_ext_helium.h"
#include "tvm_ext_helium_rescale.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image window; /* the steps, from the oldest to the newest */
    int32_t rank; /* features of each output */
    int32_t multiplier;
    int32_t shift; /* negative */
    tvm_ext_helium_rescale rescale;
} tvm_ext_helium_svdf_layer;

/* Outputs whose sums are in one vector. */
#define TVM_EXT_HELIUM_SVDF_LANES 4

/* Returns elements `first`, first + rank and so on of the window or of the weights: `count` of them, 1 to 4. The other
 * lanes are 0, and nothing is read for them. */
TVM_EXT_INLINE tvm_ext_i32x4 tvm_ext_helium_svdf_load(const tvm_ext_helium_svdf_layer *layer, const void *elements,
                                                      int32_t first, int32_t count)
{
#ifdef TVM_EXT_HAS_HELIUM
    const int8_t *const narrow = &((const int8_t *)elements)[layer->window.is_wide ? 0 : first];
    const int16_t *const wide = &((const int16_t *)elements)[layer->window.is_wide ? first : 0];
    if (layer->rank == 1 && count >= TVM_EXT_HELIUM_SVDF_LANES) {
        return layer->window.is_wide ? vldrhq_s32(wide) : vldrbq_s32(narrow);
    }
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)layer->rank);
    const mve_pred16_t lanes = vctp32q((uint32_t)count);
    return layer->window.is_wide ? vldrhq_gather_shifted_offset_z_s32(wide, places, lanes)
                                 : vldrbq_gather_offset_z_s32(narrow, places, lanes);
#else
    int32_t lanes[TVM_EXT_HELIUM_SVDF_LANES] = {0};
    for (int32_t i = 0; i < count && i < TVM_EXT_HELIUM_SVDF_LANES; ++i) {
        lanes[i] = tvm_ext_element(&layer->window, elements, first + (i * layer->rank));
    }
    return tvm_ext_i32x4_load(lanes);
#endif
}

/* Writes up to four outputs from their sums, which wrap. count: 1 or more. */
TVM_EXT_INLINE void tvm_ext_helium_svdf_store(const tvm_ext_helium_svdf_layer *layer, int8_t *output,
                                              tvm_ext_i32x4 sums, int32_t count)
{
    const tvm_ext_i32x4 results = tvm_ext_helium_rescaled_alike(&layer->rescale, sums, layer->multiplier, layer->shift);
    const tvm_ext_i16x8 pairs = tvm_ext_helium_pairs(&layer->rescale, tvm_ext_i16x8_narrow(results, results));
    tvm_ext_i16x8_store_even(output, pairs, count);
}

/* Computes up to four outputs from unit `unit` on. */
TVM_EXT_INLINE void tvm_ext_helium_svdf_units(const tvm_ext_helium_svdf_layer *layer, const void *window,
                                              int8_t *output, const void *weights, const int32_t *bias, int32_t unit,
                                              int32_t count)
{
    tvm_ext_i32x4 sums = tvm_ext_i32x4_load(&bias[unit]);
    for (int32_t m = 0; m < layer->window.rows; ++m) {
        const int32_t first = (m * layer->window.channels) + (unit * layer->rank);
        for (int32_t j = 0; j < layer->rank; ++j) {
            const tvm_ext_i32x4 x = tvm_ext_helium_svdf_load(layer, window, first + j, count);
            const tvm_ext_i32x4 w = tvm_ext_helium_svdf_load(layer, weights, first + j, count);
            sums = tvm_ext_i32x4_add(sums, tvm_ext_i32x4_multiply(x, w));
        }
    }
    tvm_ext_helium_svdf_store(layer, &output[unit], sums, count);
}

/* Computes the outputs of one batch. weights: [steps][features]. bias: of each output, and zeros up to a multiple of
 * four. */
TVM_EXT_INLINE void tvm_ext_helium_svdf_sum(const tvm_ext_helium_svdf_layer *layer, const void *window, int8_t *output,
                                            const void *weights, const int32_t *bias)
{
    const int32_t units = layer->window.channels / layer->rank;
    const int32_t rest = units % TVM_EXT_HELIUM_SVDF_LANES;
    for (int32_t unit = 0; unit < units - rest; unit += TVM_EXT_HELIUM_SVDF_LANES) {
        tvm_ext_helium_svdf_units(layer, window, output, weights, bias, unit, TVM_EXT_HELIUM_SVDF_LANES);
    }
    if (rest > 0) {
        tvm_ext_helium_svdf_units(layer, window, output, weights, bias, units - rest, rest);
    }
}

#endif
