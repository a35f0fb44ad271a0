/* Inputs of Winograd's tiles for the DSP extension: copied pixels or padding, and pairs of their channels. */
#ifndef TVM_EXT_DSP_WINOGRAD_PATCH_H
#define TVM_EXT_DSP_WINOGRAD_PATCH_H

#include "tvm_ext_dsp.h"
#include "tvm_ext_kernels.h"
#include "tvm_ext_layer.h"

/* Prevents compilers from moving loads up, for which there are no registers. */
#if TVM_EXT_DSP
#define TVM_EXT_DSP_IN_ORDER __asm__ volatile("" : : : "memory")
#else
#define TVM_EXT_DSP_IN_ORDER ((void)0)
#endif

/* Returns four bytes of padding. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_winograd_padding(const tvm_ext_image *image)
{
    return ((uint32_t)image->zero_point & 0xffu) * 0x01010101u;
}

/* Returns the pair of channels in the even bytes of four adjacent bytes, or in the odd bytes. */
TVM_EXT_INLINE uint32_t tvm_ext_dsp_winograd_pair(const tvm_ext_image *image, const uint8_t *bytes, bool is_odd)
{
    const uint32_t word = tvm_ext_dsp_load(bytes);
    uint32_t pair;
    if (image->is_unsigned) {
        pair = is_odd ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_even_u8(word);
    } else {
        pair = is_odd ? tvm_ext_dsp_odd_s8(word) : tvm_ext_dsp_even_s8(word);
    }
    return pair;
}

/* Fills words with padding; the next function copies words of the image. Channels are a multiple of four. */
TVM_EXT_DSP_SHARED void tvm_ext_dsp_winograd_fill(uint32_t *restrict to, uint32_t padding, int32_t words)
{
    for (; words >= 4; words -= 4) {
        to[0] = padding;
        to[1] = padding;
        to[2] = padding;
        to[3] = padding;
        to += 4;
    }
    for (; words > 0; --words) {
        *to = padding;
        ++to;
    }
}

TVM_EXT_DSP_SHARED void tvm_ext_dsp_winograd_copy(uint32_t *restrict to, const uint8_t *from, int32_t words)
{
    for (; words >= 4; words -= 4) {
        to[0] = tvm_ext_dsp_load(&from[0]);
        to[1] = tvm_ext_dsp_load(&from[4]);
        to[2] = tvm_ext_dsp_load(&from[8]);
        to[3] = tvm_ext_dsp_load(&from[12]);
        to += 4;
        from += 16;
    }
    for (; words > 0; --words) {
        *to = tvm_ext_dsp_load(from);
        ++to;
        from += 4;
    }
}

#endif
