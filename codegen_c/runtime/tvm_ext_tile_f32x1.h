/* Tiles of float products: sums of some pixels by some vectors of output channels, side by side in registers.
 *
 * Written for single floats, and copied for vectors of each length under their names. */
#ifndef TVM_EXT_TILE_F32X1_H
#define TVM_EXT_TILE_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_layer.h"

#define TVM_EXT_TILE_F32X1_VECTORS 12

/* Vectors of a block, one behind the other: up to 12. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_load(tvm_ext_f32x1 *block, const float *source, int32_t vectors)
{
    block[0] = tvm_ext_f32x1_load(source);
    if (vectors > 1) {
        block[1] = tvm_ext_f32x1_load(&source[TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 2) {
        block[2] = tvm_ext_f32x1_load(&source[2 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 3) {
        block[3] = tvm_ext_f32x1_load(&source[3 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 4) {
        block[4] = tvm_ext_f32x1_load(&source[4 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 5) {
        block[5] = tvm_ext_f32x1_load(&source[5 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 6) {
        block[6] = tvm_ext_f32x1_load(&source[6 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 7) {
        block[7] = tvm_ext_f32x1_load(&source[7 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 8) {
        block[8] = tvm_ext_f32x1_load(&source[8 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 9) {
        block[9] = tvm_ext_f32x1_load(&source[9 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 10) {
        block[10] = tvm_ext_f32x1_load(&source[10 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 11) {
        block[11] = tvm_ext_f32x1_load(&source[11 * TVM_EXT_F32X1_LANES]);
    }
}

/* Adds the products of one element of a pixel and the vectors of weights f: up to 12. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add_element(tvm_ext_f32x1 *sums, float a, const tvm_ext_f32x1 *f,
                                                   int32_t vectors)
{
    sums[0] = tvm_ext_f32x1_fma_n(a, f[0], sums[0]);
    if (vectors > 1) {
        sums[1] = tvm_ext_f32x1_fma_n(a, f[1], sums[1]);
    }
    if (vectors > 2) {
        sums[2] = tvm_ext_f32x1_fma_n(a, f[2], sums[2]);
    }
    if (vectors > 3) {
        sums[3] = tvm_ext_f32x1_fma_n(a, f[3], sums[3]);
    }
    if (vectors > 4) {
        sums[4] = tvm_ext_f32x1_fma_n(a, f[4], sums[4]);
    }
    if (vectors > 5) {
        sums[5] = tvm_ext_f32x1_fma_n(a, f[5], sums[5]);
    }
    if (vectors > 6) {
        sums[6] = tvm_ext_f32x1_fma_n(a, f[6], sums[6]);
    }
    if (vectors > 7) {
        sums[7] = tvm_ext_f32x1_fma_n(a, f[7], sums[7]);
    }
    if (vectors > 8) {
        sums[8] = tvm_ext_f32x1_fma_n(a, f[8], sums[8]);
    }
    if (vectors > 9) {
        sums[9] = tvm_ext_f32x1_fma_n(a, f[9], sums[9]);
    }
    if (vectors > 10) {
        sums[10] = tvm_ext_f32x1_fma_n(a, f[10], sums[10]);
    }
    if (vectors > 11) {
        sums[11] = tvm_ext_f32x1_fma_n(a, f[11], sums[11]);
    }
}

/* Sums of up to 6 pixels, [pixels][vectors], that begin with elements at `start`. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_start(tvm_ext_f32x1 *sums, const float *start, int32_t pixels, int32_t vectors)
{
    tvm_ext_tile_f32x1_load(sums, start, vectors);
    if (pixels > 1) {
        tvm_ext_tile_f32x1_load(&sums[vectors], start, vectors);
    }
    if (pixels > 2) {
        tvm_ext_tile_f32x1_load(&sums[2 * vectors], start, vectors);
    }
    if (pixels > 3) {
        tvm_ext_tile_f32x1_load(&sums[3 * vectors], start, vectors);
    }
    if (pixels > 4) {
        tvm_ext_tile_f32x1_load(&sums[4 * vectors], start, vectors);
    }
    if (pixels > 5) {
        tvm_ext_tile_f32x1_load(&sums[5 * vectors], start, vectors);
    }
}

/* The same of one element of each of up to 6 pixels, `step` elements apart. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add_elements(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                                    const tvm_ext_f32x1 *f, int32_t pixels, int32_t vectors)
{
    tvm_ext_tile_f32x1_add_element(sums, x[0], f, vectors);
    if (pixels > 1) {
        tvm_ext_tile_f32x1_add_element(&sums[vectors], x[step], f, vectors);
    }
    if (pixels > 2) {
        tvm_ext_tile_f32x1_add_element(&sums[2 * vectors], x[2 * step], f, vectors);
    }
    if (pixels > 3) {
        tvm_ext_tile_f32x1_add_element(&sums[3 * vectors], x[3 * step], f, vectors);
    }
    if (pixels > 4) {
        tvm_ext_tile_f32x1_add_element(&sums[4 * vectors], x[4 * step], f, vectors);
    }
    if (pixels > 5) {
        tvm_ext_tile_f32x1_add_element(&sums[5 * vectors], x[5 * step], f, vectors);
    }
}

/* Adds the products of `length` elements of up to 6 pixels, `step` elements apart, and of the weights of a block.
 *
 * weights: those of the block's channels side by side, for each element. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                           const float *restrict weights, int32_t length, int32_t pixels,
                                           int32_t vectors)
{
    const float *block = weights;
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_f32x1 f[TVM_EXT_TILE_F32X1_VECTORS];
        tvm_ext_tile_f32x1_load(f, block, vectors);
        tvm_ext_tile_f32x1_add_elements(sums, &x[c], step, f, pixels, vectors);
        block += vectors * TVM_EXT_F32X1_LANES;
    }
}

#endif
