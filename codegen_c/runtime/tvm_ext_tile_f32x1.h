/* Tiles of float products: sums of some pixels by some vectors of output channels, side by side in registers.
 *
 * Written for single floats, and copied for vectors of each length under their names. */
#ifndef TVM_EXT_TILE_F32X1_H
#define TVM_EXT_TILE_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_layer.h"

/* Sums of one pixel that begin with elements at `start`: up to 12 vectors. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_start_pixel(tvm_ext_f32x1 *sums, const float *start, int32_t vectors)
{
    sums[0] = tvm_ext_f32x1_load(start);
    if (vectors > 1) {
        sums[1] = tvm_ext_f32x1_load(&start[TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 2) {
        sums[2] = tvm_ext_f32x1_load(&start[2 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 3) {
        sums[3] = tvm_ext_f32x1_load(&start[3 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 4) {
        sums[4] = tvm_ext_f32x1_load(&start[4 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 5) {
        sums[5] = tvm_ext_f32x1_load(&start[5 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 6) {
        sums[6] = tvm_ext_f32x1_load(&start[6 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 7) {
        sums[7] = tvm_ext_f32x1_load(&start[7 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 8) {
        sums[8] = tvm_ext_f32x1_load(&start[8 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 9) {
        sums[9] = tvm_ext_f32x1_load(&start[9 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 10) {
        sums[10] = tvm_ext_f32x1_load(&start[10 * TVM_EXT_F32X1_LANES]);
    }
    if (vectors > 11) {
        sums[11] = tvm_ext_f32x1_load(&start[11 * TVM_EXT_F32X1_LANES]);
    }
}

/* Adds the products of one element of a pixel and the weights at f: up to 12 vectors. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add_element(tvm_ext_f32x1 *sums, float a, const float *f, int32_t vectors)
{
    sums[0] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(f), sums[0]);
    if (vectors > 1) {
        sums[1] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[TVM_EXT_F32X1_LANES]), sums[1]);
    }
    if (vectors > 2) {
        sums[2] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[2 * TVM_EXT_F32X1_LANES]), sums[2]);
    }
    if (vectors > 3) {
        sums[3] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[3 * TVM_EXT_F32X1_LANES]), sums[3]);
    }
    if (vectors > 4) {
        sums[4] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[4 * TVM_EXT_F32X1_LANES]), sums[4]);
    }
    if (vectors > 5) {
        sums[5] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[5 * TVM_EXT_F32X1_LANES]), sums[5]);
    }
    if (vectors > 6) {
        sums[6] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[6 * TVM_EXT_F32X1_LANES]), sums[6]);
    }
    if (vectors > 7) {
        sums[7] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[7 * TVM_EXT_F32X1_LANES]), sums[7]);
    }
    if (vectors > 8) {
        sums[8] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[8 * TVM_EXT_F32X1_LANES]), sums[8]);
    }
    if (vectors > 9) {
        sums[9] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[9 * TVM_EXT_F32X1_LANES]), sums[9]);
    }
    if (vectors > 10) {
        sums[10] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[10 * TVM_EXT_F32X1_LANES]), sums[10]);
    }
    if (vectors > 11) {
        sums[11] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[11 * TVM_EXT_F32X1_LANES]), sums[11]);
    }
}

/* Sums of up to 6 pixels, [pixels][vectors], that begin with elements at `start`. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_start(tvm_ext_f32x1 *sums, const float *start, int32_t pixels, int32_t vectors)
{
    tvm_ext_tile_f32x1_start_pixel(sums, start, vectors);
    if (pixels > 1) {
        tvm_ext_tile_f32x1_start_pixel(&sums[vectors], start, vectors);
    }
    if (pixels > 2) {
        tvm_ext_tile_f32x1_start_pixel(&sums[2 * vectors], start, vectors);
    }
    if (pixels > 3) {
        tvm_ext_tile_f32x1_start_pixel(&sums[3 * vectors], start, vectors);
    }
    if (pixels > 4) {
        tvm_ext_tile_f32x1_start_pixel(&sums[4 * vectors], start, vectors);
    }
    if (pixels > 5) {
        tvm_ext_tile_f32x1_start_pixel(&sums[5 * vectors], start, vectors);
    }
}

/* Adds the products of `length` elements of up to 6 pixels, `step` elements apart, and of the weights of a block.
 *
 * weights: those of the block's channels side by side, for each element. */
TVM_EXT_INLINE void tvm_ext_tile_f32x1_add(tvm_ext_f32x1 *sums, const float *x, int32_t step,
                                           const float *restrict weights, int32_t length, int32_t pixels,
                                           int32_t vectors)
{
    const float *f = weights;
    for (int32_t c = 0; c < length; ++c) {
        tvm_ext_tile_f32x1_add_element(sums, x[c], f, vectors);
        if (pixels > 1) {
            tvm_ext_tile_f32x1_add_element(&sums[vectors], x[step + c], f, vectors);
        }
        if (pixels > 2) {
            tvm_ext_tile_f32x1_add_element(&sums[2 * vectors], x[(2 * step) + c], f, vectors);
        }
        if (pixels > 3) {
            tvm_ext_tile_f32x1_add_element(&sums[3 * vectors], x[(3 * step) + c], f, vectors);
        }
        if (pixels > 4) {
            tvm_ext_tile_f32x1_add_element(&sums[4 * vectors], x[(4 * step) + c], f, vectors);
        }
        if (pixels > 5) {
            tvm_ext_tile_f32x1_add_element(&sums[5 * vectors], x[(5 * step) + c], f, vectors);
        }
        f += vectors * TVM_EXT_F32X1_LANES;
    }
}

#endif
