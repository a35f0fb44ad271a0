/* Requantization with RISC-V's vectors: a factor for each accumulator, the zero point, then the limits.
 *
 * A factor is multiplier / 2^(32 + shift) with a shift above 0: the high word of a product, shifted and rounded once.
 * With TensorFlow Lite's rounding it is multiplier / 2^(31 + shift), and both steps round. */
#ifndef TVM_EXT_RVV_REQUANTIZE_H
#define TVM_EXT_RVV_REQUANTIZE_H

#include "tvm_ext_layer.h"
#include "tvm_ext_requantize.h"
#include "tvm_ext_requantize_tflite.h"
#include "tvm_ext_rvv.h"

typedef struct {
    bool rounds_twice; /* as TensorFlow Lite does; otherwise once, halves to even */
    bool has_ties;     /* an accumulator may lie halfway between two results */
    int32_t left_shift; /* scales accumulators up first, so that every shift is above 0 */
    int32_t zero_point;
    int32_t low;
    int32_t high;
} tvm_ext_rvv_rescale;

/* Rows of a layer's factors, with one number for each channel. */
enum { TVM_EXT_RVV_STARTS, TVM_EXT_RVV_MULTIPLIERS, TVM_EXT_RVV_SHIFTS };

#if TVM_EXT_RVV
/* Defines the requantization of accumulators in groups of WIDE registers; narrowed groups take HALF and QUARTER. ROUND:
 * instructions from accumulators in v8, multipliers in v16 and shifts in v24 to results in v8. */
#define TVM_EXT_RVV_DEFINE_REQUANTIZE(SUFFIX, WIDE, HALF, QUARTER, ROUND)                                        \
    TVM_EXT_RVV_SHARED void tvm_ext_rvv_requantize_##SUFFIX(const tvm_ext_rvv_rescale *rescale, uint8_t *output, \
                                                            const int32_t *sums, const int32_t *multipliers,     \
                                                            const int32_t *shifts, intptr_t count)               \
    {                                                                                                            \
        intptr_t length;                                                                                         \
        __asm__ volatile(                                                                                        \
            TVM_EXT_RVV_BEGIN "csrwi vxrm, 0\n"                                                                  \
                              "1:\n\t"                                                                           \
                              "vsetvli %[length], %[count], e32, " WIDE ", ta, ma\n\t"                           \
                              "vle32.v v8, (%[sums])\n\t"                                                        \
                              "vle32.v v16, (%[multipliers])\n\t"                                                \
                              "vle32.v v24, (%[shifts])\n\t"                                                     \
                              "sub %[count], %[count], %[length]\n\t" ROUND                                      \
                              "vsadd.vx v8, v8, %[zero_point]\n\t"                                               \
                              "vmax.vx v8, v8, %[low]\n\t"                                                       \
                              "vmin.vx v8, v8, %[high]\n\t"                                                      \
                              "vsetvli zero, zero, e16, " HALF ", ta, ma\n\t"                                    \
                              "vnsrl.wi v16, v8, 0\n\t"                                                          \
                              "vsetvli zero, zero, e8, " QUARTER ", ta, ma\n\t"                                  \
                              "vnsrl.wi v8, v16, 0\n\t"                                                          \
                              "vse8.v v8, (%[output])\n\t"                                                       \
                              "add %[output], %[output], %[length]\n\t"                                          \
                              "slli %[length], %[length], 2\n\t"                                                 \
                              "add %[sums], %[sums], %[length]\n\t"                                              \
                              "add %[multipliers], %[multipliers], %[length]\n\t"                                \
                              "add %[shifts], %[shifts], %[length]\n\t"                                          \
                              "bnez %[count], 1b\n\t" TVM_EXT_RVV_END                                            \
            : [length] "=&r"(length), [count] "+r"(count), [output] "+r"(output), [sums] "+r"(sums),             \
              [multipliers] "+r"(multipliers), [shifts] "+r"(shifts)                                             \
            : [left] "r"(rescale->left_shift), [zero_point] "r"(rescale->zero_point), [low] "r"(rescale->low),   \
              [high] "r"(rescale->high), [least] "r"(INT32_MIN), [bits] "r"(32)                                  \
            : "memory" TVM_EXT_RVV_CHANGED);                                                                     \
    }

/* Rounds once, halves up. It is used if no accumulator lies halfway between two results. */
TVM_EXT_RVV_DEFINE_REQUANTIZE(once, "m8", "m4", "m2",
                              "vsll.vx v8, v8, %[left]\n\t"
                              "vmulh.vv v8, v8, v16\n\t"
                              "vssra.vv v8, v8, v24\n\t")

/* Rounds once, halves to even: an odd result is decremented if all bits below it are those of exactly one half. */
TVM_EXT_RVV_DEFINE_REQUANTIZE(even, "m4", "m2", "m1",
                              "vsll.vx v8, v8, %[left]\n\t"
                              "vmul.vv v12, v8, v16\n\t"
                              "vmulh.vv v8, v8, v16\n\t"
                              "vrsub.vx v20, v24, %[bits]\n\t"
                              "vsll.vv v20, v8, v20\n\t"
                              "vxor.vx v20, v20, %[least]\n\t"
                              "vor.vv v20, v20, v12\n\t"
                              "vmseq.vi v0, v20, 0\n\t"
                              "vssra.vv v8, v8, v24\n\t"
                              "vand.vi v20, v8, 1\n\t"
                              "vsetvli zero, zero, e32, m4, ta, mu\n\t"
                              "vsub.vv v8, v8, v20, v0.t\n\t")

/* Rounds twice, the second time halves away from zero: negative numbers are decremented first if there is a shift. */
TVM_EXT_RVV_DEFINE_REQUANTIZE(twice, "m8", "m4", "m2",
                              "vsmul.vv v8, v8, v16\n\t"
                              "vrsub.vi v16, v24, 0\n\t"
                              "vand.vv v16, v16, v8\n\t"
                              "vsra.vi v16, v16, 31\n\t"
                              "vsadd.vv v8, v8, v16\n\t"
                              "vssra.vv v8, v8, v24\n\t")
#endif

/* Requantizes `count` > 0 channels from the first one on. factors: rows of `channels` numbers. */
TVM_EXT_INLINE void tvm_ext_rvv_requantize(const tvm_ext_rvv_rescale *rescale, uint8_t *output, const int32_t *sums,
                                           const int32_t *factors, int32_t channels, int32_t count)
{
    const int32_t *const multipliers = &factors[TVM_EXT_RVV_MULTIPLIERS * channels];
    const int32_t *const shifts = &factors[TVM_EXT_RVV_SHIFTS * channels];
#if TVM_EXT_RVV
    if (rescale->rounds_twice) {
        tvm_ext_rvv_requantize_twice(rescale, output, sums, multipliers, shifts, count);
    } else if (rescale->has_ties) {
        tvm_ext_rvv_requantize_even(rescale, output, sums, multipliers, shifts, count);
    } else {
        tvm_ext_rvv_requantize_once(rescale, output, sums, multipliers, shifts, count);
    }
#else
    for (int32_t k = 0; k < count; ++k) {
        const int32_t value = rescale->rounds_twice ? tvm_ext_requantize_tflite(sums[k], multipliers[k], shifts[k] + 31)
                                                    : tvm_ext_requantize(sums[k] * ((int32_t)1 << rescale->left_shift),
                                                                         multipliers[k], shifts[k] + 32);
        output[k] = (uint8_t)tvm_ext_clamp(value + rescale->zero_point, rescale->low, rescale->high);
    }
#endif
}

#endif
