/* Tiles of float products whose weights are stored in 16 bits each, widened as a block of channels is read.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_TILE_NARROW_F32X1_H
#define TVM_EXT_TILE_NARROW_F32X1_H

#include "tvm_ext_narrow_f32x1.h"
#include "tvm_ext_tile_f32x1.h"

/* Loads up to 12 contiguous vectors of a block. */
TVM_EXT_INLINE void tvm_ext_tile_narrow_f32x1_load(tvm_ext_f32x1 *block, const uint16_t *weights, tvm_ext_weights type,
                                                   int32_t vectors)
{
    block[0] = tvm_ext_narrow_f32x1(weights, type);
    if (vectors > 1) {
        block[1] = tvm_ext_narrow_f32x1(&weights[TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 2) {
        block[2] = tvm_ext_narrow_f32x1(&weights[2 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 3) {
        block[3] = tvm_ext_narrow_f32x1(&weights[3 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 4) {
        block[4] = tvm_ext_narrow_f32x1(&weights[4 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 5) {
        block[5] = tvm_ext_narrow_f32x1(&weights[5 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 6) {
        block[6] = tvm_ext_narrow_f32x1(&weights[6 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 7) {
        block[7] = tvm_ext_narrow_f32x1(&weights[7 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 8) {
        block[8] = tvm_ext_narrow_f32x1(&weights[8 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 9) {
        block[9] = tvm_ext_narrow_f32x1(&weights[9 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 10) {
        block[10] = tvm_ext_narrow_f32x1(&weights[10 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 11) {
        block[11] = tvm_ext_narrow_f32x1(&weights[11 * TVM_EXT_F32X1_LANES], type);
    }
}

/* Loads an even number of vectors, at a multiple of 4 bytes. */
TVM_EXT_INLINE void tvm_ext_tile_narrow_f32x1_load_pairs(tvm_ext_f32x1 *block, const uint16_t *weights,
                                                         tvm_ext_weights type, int32_t vectors)
{
    tvm_ext_narrow_f32x1_two(block, weights, type);
    if (vectors > 2) {
        tvm_ext_narrow_f32x1_two(&block[2], &weights[2 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 4) {
        tvm_ext_narrow_f32x1_two(&block[4], &weights[4 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 6) {
        tvm_ext_narrow_f32x1_two(&block[6], &weights[6 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 8) {
        tvm_ext_narrow_f32x1_two(&block[8], &weights[8 * TVM_EXT_F32X1_LANES], type);
    }
    if (vectors > 10) {
        tvm_ext_narrow_f32x1_two(&block[10], &weights[10 * TVM_EXT_F32X1_LANES], type);
    }
}

/* Adds the products of `length` elements of up to 6 pixels, `step` elements apart, and of the weights of a block.
 *
 * weights: for each element those of the block's channels, adjacent; if their number is even, at a multiple of 4
 * bytes. */
TVM_EXT_INLINE void tvm_ext_tile_narrow_f32x1_add(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                                  const uint16_t *restrict weights, tvm_ext_weights type,
                                                  int32_t length, int32_t pixels, int32_t vectors)
{
    const uint16_t *block = weights;
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_f32x1 f[TVM_EXT_TILE_F32X1_VECTORS];
        if ((vectors % 2) == 0) {
            tvm_ext_tile_narrow_f32x1_load_pairs(f, block, type, vectors);
        } else {
            tvm_ext_tile_narrow_f32x1_load(f, block, type, vectors);
        }
        tvm_ext_tile_f32x1_add_elements(sums, &x[c], step, f, pixels, vectors);
        block += vectors * TVM_EXT_F32X1_LANES;
    }
}

#endif
