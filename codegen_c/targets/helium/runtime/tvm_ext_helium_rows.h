/* Dense layers and pointwise convolutions of quantized elements by Helium: two rows by four output channels at a
 * time.
 *
 * A row is a vector, or a pixel. Rows that are uint8, or no whole steps of 16 bytes, are copied to scratch first. */
#ifndef TVM_EXT_HELIUM_ROWS_H
#define TVM_EXT_HELIUM_ROWS_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input; /* for a dense layer one row per vector, or per part of the only vector */
    tvm_ext_image output;
    tvm_ext_helium_product product;
} tvm_ext_helium_rows_layer;

/* Returns true if rows of one run cannot be read in place: they are uint8, or no whole steps. */
TVM_EXT_INLINE bool tvm_ext_helium_is_copied(const tvm_ext_image *input, const tvm_ext_helium_product *product)
{
    return input->is_unsigned || input->channels != tvm_ext_helium_row_bytes(product);
}

/* Computes all channels of rows [begin, end) in pairs, from copies in scratch if they are not read in place. The
 * last row may be a pair with itself. pitch: bytes from one output row to the next. */
TVM_EXT_INLINE void tvm_ext_helium_rows(const tvm_ext_image *input, const tvm_ext_helium_product *product,
                                        tvm_ext_helium_two *two, const uint8_t *source, uint8_t *target, int32_t pitch,
                                        const int8_t *restrict weights, const int32_t *restrict factors, void *scratch,
                                        int32_t begin, int32_t end)
{
    const int32_t depth = input->channels;
    for (int32_t m = begin; m < end; m += 2) {
        const int32_t next = m + 1 < end ? 1 : 0;
        const uint8_t *const x = &source[m * depth];
        uint8_t *const y = &target[m * pitch];
        const int8_t *x0 = (const int8_t *)x;
        const int8_t *x1 = &x0[next * depth];
        if (tvm_ext_helium_is_copied(input, product)) {
            int8_t *const first = (int8_t *)scratch;
            int8_t *const second = &first[tvm_ext_helium_row_bytes(product)];
            tvm_ext_helium_copy(input, first, x, depth);
            tvm_ext_helium_copy(input, second, &x[next * depth], depth);
            x0 = first;
            x1 = second;
        }
        two(x0, x1, 0, y, &y[next * pitch], weights, factors);
    }
}

/* Computes output rows [row_begin, row_end) of all images, whose pixels are rows of one run. Pairs continue from one
 * row of pixels to the next if those of the only image are contiguous. */
TVM_EXT_INLINE void tvm_ext_helium_pointwise(const tvm_ext_helium_rows_layer *layer, tvm_ext_helium_two *two,
                                             const void *input, void *output, const int8_t *restrict weights,
                                             const int32_t *restrict factors, void *scratch, int32_t row_begin,
                                             int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const uint8_t *const x = (const uint8_t *)input;
    uint8_t *const y = (uint8_t *)output;
    const int32_t bytes = tvm_ext_helium_output_bytes(&layer->product);
    if (made->images == 1 && !made->is_ring && !source->is_ring) {
        tvm_ext_helium_rows(source, &layer->product, two, x, y, made->pitch * bytes, weights, factors, scratch,
                            row_begin * made->columns, row_end * made->columns);
        return;
    }
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            tvm_ext_helium_rows(source, &layer->product, two, &x[tvm_ext_row(source, n, h)],
                                &y[tvm_ext_row(made, n, h) * bytes], made->pitch * bytes, weights, factors, scratch, 0,
                                made->columns);
        }
    }
}

/* Computes all vectors of a dense layer. */
TVM_EXT_INLINE void tvm_ext_helium_dense(const tvm_ext_helium_rows_layer *layer, tvm_ext_helium_two *two,
                                         const void *input, void *output, const int8_t *restrict weights,
                                         const int32_t *restrict factors, void *scratch)
{
    tvm_ext_helium_rows(&layer->input, &layer->product, two, (const uint8_t *)input, (uint8_t *)output,
                        layer->product.channels * tvm_ext_helium_output_bytes(&layer->product), weights, factors,
                        scratch, 0, layer->input.rows);
}

/* Computes the only vector of a dense layer. */
TVM_EXT_INLINE void tvm_ext_helium_dense_one(const tvm_ext_helium_rows_layer *layer, tvm_ext_helium_one *one,
                                             const void *input, void *output, const int8_t *restrict weights,
                                             const int32_t *restrict factors, void *scratch)
{
    const int8_t *x = (const int8_t *)input;
    if (tvm_ext_helium_is_copied(&layer->input, &layer->product)) {
        int8_t *const copy = (int8_t *)scratch;
        tvm_ext_helium_copy(&layer->input, copy, (const uint8_t *)input, layer->input.channels);
        x = copy;
    }
    one(x, (uint8_t *)output, weights, factors);
}

/* Adds products of parts [begin, end) of one vector, whose parts are whole steps, to the sums of all channels. Sums
 * begin at the starts of the factors; the last part stores the elements of the output. scratch: a part, if it is
 * copied. */
TVM_EXT_INLINE void tvm_ext_helium_dense_add(const tvm_ext_helium_rows_layer *layer, const void *input, void *output,
                                             int32_t *sums, const int8_t *restrict weights,
                                             const int32_t *restrict factors, void *scratch, int32_t begin, int32_t end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_helium_product *const product = &layer->product;
    const int32_t part_bytes = source->channels * TVM_EXT_HELIUM_BLOCK;
    const int8_t *filter = &weights[begin * part_bytes];
    const int32_t *factor = factors;
    for (int32_t k = 0; k < product->channels; k += TVM_EXT_HELIUM_BLOCK) {
        tvm_ext_i32x4 sum[1];
        sum[0] = tvm_ext_i32x4_load(begin > 0 ? &sums[k] : factor);
        for (int32_t h = begin; h < end; ++h) {
            const uint8_t *const part = &((const uint8_t *)input)[tvm_ext_row(source, 0, h)];
            const int8_t *x = (const int8_t *)part;
            if (source->is_unsigned) {
                int8_t *const copy = (int8_t *)scratch;
                tvm_ext_helium_copy(source, copy, part, source->channels);
                x = copy;
            }
            filter = tvm_ext_helium_add_row(product, sum, x, x, 0, filter, 1);
        }
        tvm_ext_i32x4_store(&sums[k], sum[0]);
        if (end == source->rows) {
            uint8_t *const y = &((uint8_t *)output)[k * tvm_ext_helium_output_bytes(product)];
            tvm_ext_helium_store_block(product, sum, y, y, factor, product->channels - k, 1);
        }
        filter += (source->rows - (end - begin)) * part_bytes;
        factor += TVM_EXT_HELIUM_FACTORS;
    }
}

#endif
