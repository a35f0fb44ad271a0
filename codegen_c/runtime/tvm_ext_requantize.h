/* From sums to quantized elements: one rounding, to nearest, halves to even; no float operation. */
#ifndef TVM_EXT_REQUANTIZE_H
#define TVM_EXT_REQUANTIZE_H

#include <stdint.h>

/* C11 leaves the right shift of negative numbers to the compiler; this code needs it to keep the sign. */
_Static_assert((-3 >> 1) == -2, "right shifts of negative numbers must keep the sign");

/* value / 2^shift, rounded once, halves to even. value: below 2^62; shift: 1 to 62; the result must fit int32. */
static inline int32_t tvm_ext_round_shift(int64_t value, int32_t shift)
{
    const int64_t below_half = ((int64_t)1 << (shift - 1)) - 1;
    const int64_t odd = (value >> shift) & 1;
    return (int32_t)((value + below_half + odd) >> shift);
}

/* value * multiplier / 2^shift, rounded once, halves to even. multiplier: 0 to 2^31 - 1. */
static inline int32_t tvm_ext_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    return tvm_ext_round_shift((int64_t)value * multiplier, shift);
}

static inline int32_t tvm_ext_clamp(int32_t value, int32_t low, int32_t high)
{
    const int32_t raised = value < low ? low : value;
    return raised > high ? high : raised;
}

#endif
