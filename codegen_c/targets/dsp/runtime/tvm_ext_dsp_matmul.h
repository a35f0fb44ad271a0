/* Products of two quantized activations by the DSP extension: one vector by four columns of a matrix at a time.
 *
 * A head's matrix is expanded in scratch first, for all vectors that are multiplied by it: to cells of 16-bit pairs
 * (tvm_ext_dsp_product.h) minus the zero point, with those of four columns adjacent. Vectors stay bytes. */
#ifndef TVM_EXT_DSP_MATMUL_H
#define TVM_EXT_DSP_MATMUL_H

#include "tvm_ext_dsp_matrix.h"
#include "tvm_ext_dsp_product.h"
#include "tvm_ext_dsp_requantize.h"
#include "tvm_ext_layer.h"
#include "tvm_ext_matrices.h"

/* Units of two cells up to which the cells of a vector stay in registers. */
#define TVM_EXT_DSP_SHORT_UNITS 2

typedef struct {
    tvm_ext_image input;  /* a vector in each pixel */
    tvm_ext_image output; /* a vector in each pixel */
    tvm_ext_matrices second;
    tvm_ext_dsp_requantize requantize;
} tvm_ext_dsp_matmul_layer;

#if TVM_EXT_DSP

/* Registers as in tvm_ext_dsp_product.h; a word of the matrix is a cell. */
#define TVM_EXT_DSP_MATMUL_CELL(X)                                                                                    \
    "ldmia r2!, {r4, r5, r6, r11}\n\t" TVM_EXT_DSP_SMLAD("r7", X, "r4") TVM_EXT_DSP_SMLAD("r8", X, "r5")              \
        TVM_EXT_DSP_SMLAD("r9", X, "r6") TVM_EXT_DSP_SMLAD("r10", X, "r11")
#define TVM_EXT_DSP_MATMUL_UNIT(WIDEN)                                                                                \
    TVM_EXT_DSP_1X4_BYTES(WIDEN) TVM_EXT_DSP_MATMUL_CELL("r0") TVM_EXT_DSP_MATMUL_CELL("r3")
#define TVM_EXT_DSP_MATMUL_UNIT_BYTES "52"
#define TVM_EXT_DSP_MATMUL_PRODUCT(NAME, WIDEN)                                                                       \
    TVM_EXT_DSP_PRODUCT(NAME, TVM_EXT_DSP_ENTER(TVM_EXT_DSP_MATMUL_UNIT_BYTES, "5")                                   \
                        "ldm r3, {r7, r8, r9, r10}\n\t"                                                               \
                        TVM_EXT_DSP_LOOP(TVM_EXT_DSP_MATMUL_UNIT(WIDEN), TVM_EXT_DSP_MATMUL_UNIT_BYTES)               \
                        "ldr r0, [sp]\n\t"                                                                            \
                        "stm r0, {r7, r8, r9, r10}\n\t"                                                               \
                        TVM_EXT_DSP_LEAVE)

TVM_EXT_DSP_MATMUL_PRODUCT(tvm_ext_dsp_matmul_s8, "sxtb16")
TVM_EXT_DSP_MATMUL_PRODUCT(tvm_ext_dsp_matmul_u8, "uxtb16")

#else

static inline void tvm_ext_dsp_matmul_plain(int32_t *sums, const uint8_t *x, const uint32_t *cells,
                                            const int32_t *start, int32_t units, bool is_unsigned)
{
    for (int32_t k = 0; k < TVM_EXT_DSP_COLUMNS; ++k) {
        sums[k] = start[k];
        for (int32_t u = 0; u < units; ++u) {
            const uint32_t word = tvm_ext_dsp_load(&x[4 * u]);
            const uint32_t even = is_unsigned ? tvm_ext_dsp_even_u8(word) : tvm_ext_dsp_even_s8(word);
            const uint32_t odd = is_unsigned ? tvm_ext_dsp_odd_u8(word) : tvm_ext_dsp_odd_s8(word);
            sums[k] = tvm_ext_dsp_smlad(even, cells[(8 * u) + k], sums[k]);
            sums[k] = tvm_ext_dsp_smlad(odd, cells[(8 * u) + 4 + k], sums[k]);
        }
    }
}

static inline void tvm_ext_dsp_matmul_s8(int32_t *sums, const void *x, const int8_t *cells, const int32_t *start,
                                         int32_t units)
{
    tvm_ext_dsp_matmul_plain(sums, (const uint8_t *)x, (const uint32_t *)(const void *)cells, start, units, false);
}

static inline void tvm_ext_dsp_matmul_u8(int32_t *sums, const void *x, const int8_t *cells, const int32_t *start,
                                         int32_t units)
{
    tvm_ext_dsp_matmul_plain(sums, (const uint8_t *)x, (const uint32_t *)(const void *)cells, start, units, true);
}

#endif

/* Returns the units of two cells in a vector. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_matmul_units(const tvm_ext_dsp_matmul_layer *layer)
{
    return (layer->second.depth + 3) / 4;
}

/* Returns the columns, rounded up to a multiple of four. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_matmul_columns(const tvm_ext_dsp_matmul_layer *layer)
{
    return (layer->second.columns + TVM_EXT_DSP_COLUMNS - 1) / TVM_EXT_DSP_COLUMNS * TVM_EXT_DSP_COLUMNS;
}

/* Expands all cells of a matrix, and the initial sums of its columns: the part of the vectors' zero point. */
TVM_EXT_INLINE void tvm_ext_dsp_expand_matrix(const tvm_ext_dsp_matmul_layer *layer, const uint8_t *matrix,
                                              uint32_t *cells, int32_t *start)
{
    const int32_t units = tvm_ext_dsp_matmul_units(layer);
    for (int32_t n = 0; n < layer->second.columns; n += TVM_EXT_DSP_COLUMNS) {
        int32_t sums[TVM_EXT_DSP_COLUMNS] = {0, 0, 0, 0};
        for (int32_t u = 0; u < units; ++u) {
            tvm_ext_dsp_expand_unit(&layer->second, matrix, cells, n, 4 * u);
            if (layer->input.zero_point != 0) {
                const uint32_t ones = 0x00010001u;
                sums[0] = tvm_ext_dsp_smlad(cells[0], ones, tvm_ext_dsp_smlad(cells[4], ones, sums[0]));
                sums[1] = tvm_ext_dsp_smlad(cells[1], ones, tvm_ext_dsp_smlad(cells[5], ones, sums[1]));
                sums[2] = tvm_ext_dsp_smlad(cells[2], ones, tvm_ext_dsp_smlad(cells[6], ones, sums[2]));
                sums[3] = tvm_ext_dsp_smlad(cells[3], ones, tvm_ext_dsp_smlad(cells[7], ones, sums[3]));
            }
            cells += 8;
        }
        start[n] = -layer->input.zero_point * sums[0];
        start[n + 1] = -layer->input.zero_point * sums[1];
        start[n + 2] = -layer->input.zero_point * sums[2];
        start[n + 3] = -layer->input.zero_point * sums[3];
    }
}

/* Writes up to four results from column n on. */
TVM_EXT_INLINE void tvm_ext_dsp_matmul_store(const tvm_ext_dsp_matmul_layer *layer, uint8_t *y, const int32_t *sums,
                                             const int32_t *multipliers, const uint8_t *shifts, int32_t n)
{
    const tvm_ext_dsp_requantize *const requantize = &layer->requantize;
    const bool is_whole = layer->second.columns % TVM_EXT_DSP_COLUMNS == 0;
    const int32_t count = is_whole ? TVM_EXT_DSP_COLUMNS : layer->second.columns - n;
    y[n] = (uint8_t)tvm_ext_dsp_element(requantize, sums[0], multipliers[0], shifts[0]);
    if (count > 1) {
        y[n + 1] = (uint8_t)tvm_ext_dsp_element(requantize, sums[1], multipliers[0], shifts[0]);
    }
    if (count > 2) {
        y[n + 2] = (uint8_t)tvm_ext_dsp_element(requantize, sums[2], multipliers[0], shifts[0]);
    }
    if (count > 3) {
        y[n + 3] = (uint8_t)tvm_ext_dsp_element(requantize, sums[3], multipliers[0], shifts[0]);
    }
}

/* Returns the sum of one column and the cells of a short vector. */
TVM_EXT_INLINE int32_t tvm_ext_dsp_short_sum(const uint32_t *x, const uint32_t *cells, int32_t start, int32_t units)
{
    int32_t sum = tvm_ext_dsp_smlad(x[0], cells[0], start);
    sum = tvm_ext_dsp_smlad(x[1], cells[4], sum);
    if (units > 1) {
        sum = tvm_ext_dsp_smlad(x[2], cells[8], sum);
        sum = tvm_ext_dsp_smlad(x[3], cells[12], sum);
    }
    return sum;
}

/* Multiplies a short vector by a matrix: the vector's cells stay in registers. */
TVM_EXT_INLINE void tvm_ext_dsp_matmul_short(const tvm_ext_dsp_matmul_layer *layer, const uint8_t *vector, uint8_t *y,
                                             const uint32_t *cells, const int32_t *start, const int32_t *multipliers,
                                             const uint8_t *shifts)
{
    const int32_t units = tvm_ext_dsp_matmul_units(layer);
    const uint32_t first = tvm_ext_dsp_load(vector);
    const uint32_t other = units > 1 ? tvm_ext_dsp_load(&vector[4]) : 0;
    const bool is_unsigned = layer->input.is_unsigned;
    const uint32_t x[4] = {is_unsigned ? tvm_ext_dsp_even_u8(first) : tvm_ext_dsp_even_s8(first),
                           is_unsigned ? tvm_ext_dsp_odd_u8(first) : tvm_ext_dsp_odd_s8(first),
                           is_unsigned ? tvm_ext_dsp_even_u8(other) : tvm_ext_dsp_even_s8(other),
                           is_unsigned ? tvm_ext_dsp_odd_u8(other) : tvm_ext_dsp_odd_s8(other)};
    for (int32_t n = 0; n < layer->second.columns; n += TVM_EXT_DSP_COLUMNS) {
        const int32_t sums[TVM_EXT_DSP_COLUMNS] = {tvm_ext_dsp_short_sum(x, &cells[0], start[n], units),
                                                   tvm_ext_dsp_short_sum(x, &cells[1], start[n + 1], units),
                                                   tvm_ext_dsp_short_sum(x, &cells[2], start[n + 2], units),
                                                   tvm_ext_dsp_short_sum(x, &cells[3], start[n + 3], units)};
        tvm_ext_dsp_matmul_store(layer, y, sums, multipliers, shifts, n);
        cells += units * 8;
    }
}

/* Multiplies one vector by a matrix. copy: memory in which a vector of incomplete units is padded. */
TVM_EXT_INLINE void tvm_ext_dsp_matmul_vector(const tvm_ext_dsp_matmul_layer *layer, const uint8_t *vector, uint8_t *y,
                                              const uint32_t *cells, const int32_t *start, uint8_t *copy,
                                              const int32_t *multipliers, const uint8_t *shifts)
{
    const int32_t units = tvm_ext_dsp_matmul_units(layer);
    const uint8_t *x = vector;
    if (layer->second.depth % 4 != 0) {
        for (int32_t c = 0; c < layer->second.depth; ++c) {
            copy[c] = vector[c];
        }
        x = copy;
    }
    if (units <= TVM_EXT_DSP_SHORT_UNITS) {
        tvm_ext_dsp_matmul_short(layer, x, y, cells, start, multipliers, shifts);
        return;
    }
    for (int32_t n = 0; n < layer->second.columns; n += TVM_EXT_DSP_COLUMNS) {
        const int8_t *const matrix = (const int8_t *)(const void *)&cells[2 * n * units];
        int32_t sums[TVM_EXT_DSP_COLUMNS];
        if (layer->input.is_unsigned) {
            tvm_ext_dsp_matmul_u8(sums, x, matrix, &start[n], units);
        } else {
            tvm_ext_dsp_matmul_s8(sums, x, matrix, &start[n], units);
        }
        tvm_ext_dsp_matmul_store(layer, y, sums, multipliers, shifts, n);
    }
}

/* Computes output rows [row_begin, row_end), head by head. scratch: initial sums, cells of a matrix, and for vectors
 * of incomplete units memory for one. */
TVM_EXT_INLINE void tvm_ext_dsp_matmul(const tvm_ext_dsp_matmul_layer *layer, const void *input, const void *second,
                                       void *output, const int32_t *multipliers, const uint8_t *shifts, void *scratch,
                                       int32_t row_begin, int32_t row_end)
{
    const bool heads_inside = layer->second.heads_inside;
    int32_t *const start = (int32_t *)scratch;
    uint32_t *const cells = (uint32_t *)&start[tvm_ext_dsp_matmul_columns(layer)];
    const int32_t num_cells = 2 * tvm_ext_dsp_matmul_columns(layer) * tvm_ext_dsp_matmul_units(layer);
    const int32_t first = heads_inside ? 0 : row_begin;
    const int32_t last = heads_inside ? layer->second.heads : row_end;
    for (int32_t head = first; head < last; ++head) {
        tvm_ext_dsp_expand_matrix(layer, &((const uint8_t *)second)[head * layer->second.head_step], cells, start);
        const int32_t begin = heads_inside ? row_begin : 0;
        const int32_t end = heads_inside ? row_end : layer->output.columns;
        for (int32_t i = begin; i < end; ++i) {
            const int32_t h = heads_inside ? i : head;
            const int32_t w = heads_inside ? head : i;
            const uint8_t *const x =
                &((const uint8_t *)input)[tvm_ext_row(&layer->input, 0, h) + (w * layer->second.depth)];
            uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(&layer->output, 0, h) + (w * layer->second.columns)];
            tvm_ext_dsp_matmul_vector(layer, x, y, cells, start, (uint8_t *)&cells[num_cells], multipliers, shifts);
        }
    }
}

#endif
