/* Requantization of sums in 32 bits, rounded as in the portable code.
 *
 * Each channel has four factors. In 32 bits: the greatest sum that gives the least element; the range of sums above
 * it that matters; a multiplier with `fraction_bits` more bits than products have room for; and a number that is
 * added to the product, 24 bits below an element. With two constants, two more factors are a distance and the number
 * that is also added from there on. The generator has proved this to be exact. Otherwise, with fraction_bits 0: a bias,
 * and the multiplier and the shift of the whole product. */
#ifndef TVM_EXT_ARMV6M_REQUANTIZE_H
#define TVM_EXT_ARMV6M_REQUANTIZE_H

#include "tvm_ext_armv6m.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_litert.h"
#include "tvm_ext_requantize_tflite.h"

#define TVM_EXT_ARMV6M_ELEMENT_BITS 24

/* Requantization of a layer's sums. */
typedef struct {
    int32_t fraction_bits;
    bool has_two_constants;
    bool in_floats;    /* as in LiteRT; multipliers are the bits of float32 factors */
    bool rounds_twice; /* as in TensorFlow Lite; otherwise once, halves to even, as in ONNX */
    int32_t zero_point;
    int32_t low; /* the least and the greatest element, reduced by a fused activation */
    int32_t high;
} tvm_ext_armv6m_requantize;

/* Returns the number of factors of a channel. */
TVM_EXT_INLINE int32_t tvm_ext_armv6m_num_factors(const tvm_ext_armv6m_requantize *layer)
{
    return layer->has_two_constants ? 6 : 4;
}

/* Returns the element of a sum in 32 bits, by the factors of its channel. */
TVM_EXT_INLINE uint8_t tvm_ext_armv6m_narrow_element(const tvm_ext_armv6m_requantize *layer, uint32_t sum,
                                                     const int32_t *factors)
{
    const uint32_t span = (uint32_t)factors[1];
    const uint32_t high = (uint32_t)factors[2] >> layer->fraction_bits;
    const uint32_t low = (uint32_t)factors[2] & (((uint32_t)1 << layer->fraction_bits) - 1u);
    uint32_t distance = sum - (uint32_t)factors[0];
    if (distance > span) {
        distance = (distance >> 31) != 0 ? 0 : span;
    }
    uint32_t product = (distance * high) + ((distance * low) >> layer->fraction_bits) + (uint32_t)factors[3];
    if (layer->has_two_constants && distance >= (uint32_t)factors[4]) {
        product += (uint32_t)factors[5];
    }
    return (uint8_t)(product >> TVM_EXT_ARMV6M_ELEMENT_BITS);
}

/* Returns the element of a sum, by the factors of its channel. */
TVM_EXT_INLINE uint8_t tvm_ext_armv6m_element(const tvm_ext_armv6m_requantize *layer, uint32_t sum,
                                              const int32_t *factors)
{
    if (layer->fraction_bits > 0) {
        return tvm_ext_armv6m_narrow_element(layer, sum, factors);
    }
    const int32_t total = (int32_t)(sum + (uint32_t)factors[0]);
    int32_t value;
    if (layer->in_floats) {
        value = tvm_ext_requantize_litert(total, factors[1], factors[2]);
    } else {
        value = layer->rounds_twice ? tvm_ext_requantize_tflite(total, factors[1], factors[2])
                                    : tvm_ext_requantize(total, factors[1], factors[2]);
    }
    return (uint8_t)tvm_ext_clamp(value + layer->zero_point, layer->low, layer->high);
}

/* Stores the elements of four adjacent channels. */
TVM_EXT_INLINE void tvm_ext_armv6m_elements(const tvm_ext_armv6m_requantize *layer, uint8_t *output,
                                            const uint32_t sums[TVM_EXT_ARMV6M_WIDTH], const int32_t *factors)
{
    for (int32_t j = 0; j < TVM_EXT_ARMV6M_WIDTH; ++j) {
        output[j] = tvm_ext_armv6m_element(layer, sums[j], &factors[j * tvm_ext_armv6m_num_factors(layer)]);
    }
}

#endif
