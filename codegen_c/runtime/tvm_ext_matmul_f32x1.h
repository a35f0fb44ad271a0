/* Products of two float activations: sums of a tile, some vectors of the first by a block of columns of the second.
 *
 * Written for single floats; copied for vectors of each length under their names. */
#ifndef TVM_EXT_MATMUL_F32X1_H
#define TVM_EXT_MATMUL_F32X1_H

#include "tvm_ext_f32x1.h"
#include "tvm_ext_layer.h"

/* Packs columns [0, width) of a matrix, so that those of each element are adjacent: elements are `element_step`
 * apart, columns `column_step`. */
TVM_EXT_INLINE void tvm_ext_matmul_f32x1_pack(float *block, const float *matrix, int32_t column_step,
                                              int32_t element_step, int32_t depth, int32_t width)
{
    for (int32_t n = 0; n < width; ++n) {
        for (int32_t c = 0; c < depth; ++c) {
            block[(c * width) + n] = matrix[(n * column_step) + (c * element_step)];
        }
    }
}

/* Adds the products of one element and a block of up to 8 vectors of columns, `step` elements apart. */
TVM_EXT_INLINE void tvm_ext_matmul_f32x1_add_element(tvm_ext_f32x1 *sums, float a, const float *f, int32_t step,
                                                     int32_t vectors)
{
    sums[0] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(f), sums[0]);
    if (vectors > 1) {
        sums[1] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[step]), sums[1]);
    }
    if (vectors > 2) {
        sums[2] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[2 * step]), sums[2]);
    }
    if (vectors > 3) {
        sums[3] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[3 * step]), sums[3]);
    }
    if (vectors > 4) {
        sums[4] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[4 * step]), sums[4]);
    }
    if (vectors > 5) {
        sums[5] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[5 * step]), sums[5]);
    }
    if (vectors > 6) {
        sums[6] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[6 * step]), sums[6]);
    }
    if (vectors > 7) {
        sums[7] = tvm_ext_f32x1_fma_n(a, tvm_ext_f32x1_load(&f[7 * step]), sums[7]);
    }
}

/* Adds the products of `depth` elements of up to 6 vectors, `x_step` apart, and of a block of columns. */
TVM_EXT_INLINE void tvm_ext_matmul_f32x1_add(tvm_ext_f32x1 *sums, const float *x, int32_t x_step, const float *matrix,
                                             int32_t column_step, int32_t element_step, int32_t depth, int32_t pixels,
                                             int32_t vectors)
{
    const int32_t step = column_step * TVM_EXT_F32X1_LANES;
    for (int32_t c = 0; c < depth; ++c) {
        const float *const f = &matrix[c * element_step];
        tvm_ext_matmul_f32x1_add_element(sums, x[c], f, step, vectors);
        if (pixels > 1) {
            tvm_ext_matmul_f32x1_add_element(&sums[vectors], x[x_step + c], f, step, vectors);
        }
        if (pixels > 2) {
            tvm_ext_matmul_f32x1_add_element(&sums[2 * vectors], x[(2 * x_step) + c], f, step, vectors);
        }
        if (pixels > 3) {
            tvm_ext_matmul_f32x1_add_element(&sums[3 * vectors], x[(3 * x_step) + c], f, step, vectors);
        }
        if (pixels > 4) {
            tvm_ext_matmul_f32x1_add_element(&sums[4 * vectors], x[(4 * x_step) + c], f, step, vectors);
        }
        if (pixels > 5) {
            tvm_ext_matmul_f32x1_add_element(&sums[5 * vectors], x[(5 * x_step) + c], f, step, vectors);
        }
    }
}

#endif
