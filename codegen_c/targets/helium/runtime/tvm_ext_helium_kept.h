/* Pointwise convolutions of up to 16 input channels with Helium: the weights of four output channels stay in registers
 * for a row of pixels, and two pixels are computed at a time.
 *
 * A pixel is read as 16 bytes; zero weights meet the bytes of the pixels after it. The last pixels of a row are copied
 * to scratch first if these reads would go beyond the row. */
#ifndef TVM_EXT_HELIUM_KEPT_H
#define TVM_EXT_HELIUM_KEPT_H

#include "tvm_ext_helium_channels.h"
#include "tvm_ext_layer.h"

typedef struct {
    tvm_ext_image input;
    tvm_ext_image output;
    int32_t in_place; /* pixels of a row that are read in place, an even number; the others are copied */
    tvm_ext_helium_product product;
} tvm_ext_helium_kept_layer;

#ifdef TVM_EXT_HAS_HELIUM

typedef tvm_ext_i8x16 tvm_ext_helium_weights[TVM_EXT_HELIUM_BLOCK];

TVM_EXT_INLINE void tvm_ext_helium_keep(tvm_ext_helium_weights weights, const int8_t *source)
{
    for (int32_t k = 0; k < TVM_EXT_HELIUM_BLOCK; ++k) {
        weights[k] = tvm_ext_i8x16_load(&source[k * TVM_EXT_HELIUM_STEP]);
    }
}

/* Adds the products of the pixel at x, and of the one `depth` bytes after it, to the accumulators. */
TVM_EXT_INLINE void tvm_ext_helium_kept_sums(tvm_ext_i32x4 sums[2], const int8_t *x, int32_t depth,
                                             const tvm_ext_helium_weights w)
{
    int8x16_t v0, v1;
    __asm__ volatile("vldrb.u8 %q[v0], [%[x]]\n\t"
                     "vmladav.s8 r0, %q[v0], %q[w0]\n\tvmladav.s8 r2, %q[v0], %q[w1]\n\t"
                     "vldrb.u8 %q[v1], [%[x], %[depth]]\n\t"
                     "vmladav.s8 r4, %q[v0], %q[w2]\n\tvmladav.s8 r6, %q[v0], %q[w3]\n\t"
                     "vmladav.s8 r8, %q[v1], %q[w0]\n\tvmladav.s8 r10, %q[v1], %q[w1]\n\t"
                     "vmladav.s8 r12, %q[v1], %q[w2]\n\tvmladav.s8 lr, %q[v1], %q[w3]\n\t"
                     "vmov %q[v0][2], %q[v0][0], r0, r4\n\tvmov %q[v0][3], %q[v0][1], r2, r6\n\t"
                     "vmov %q[v1][2], %q[v1][0], r8, r12\n\tvmov %q[v1][3], %q[v1][1], r10, lr\n\t"
                     : [v0] "=&w"(v0), [v1] "=&w"(v1)
                     : [x] "r"(x), [depth] "i"(depth), [w0] "w"(w[0]), [w1] "w"(w[1]), [w2] "w"(w[2]), [w3] "w"(w[3])
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "memory");
    sums[0] = tvm_ext_i32x4_add(sums[0], vreinterpretq_s32_s8(v0));
    sums[1] = tvm_ext_i32x4_add(sums[1], vreinterpretq_s32_s8(v1));
}

#else

typedef const int8_t *tvm_ext_helium_weights[1];

TVM_EXT_INLINE void tvm_ext_helium_keep(tvm_ext_helium_weights weights, const int8_t *source)
{
    weights[0] = source;
}

TVM_EXT_INLINE void tvm_ext_helium_kept_sums(tvm_ext_i32x4 sums[2], const int8_t *x, int32_t depth,
                                             const tvm_ext_helium_weights w)
{
    sums[0] = tvm_ext_dots(1, 1, x, 0, w[0], sums[0]);
    sums[1] = tvm_ext_dots(1, 1, &x[depth], 0, w[0], sums[1]);
}

#endif

/* Computes four channels of `count` >= 2 pixels. rest: remaining channels. If count is odd, a pixel is repeated. */
TVM_EXT_INLINE void tvm_ext_helium_kept_run(const tvm_ext_helium_kept_layer *layer, const int8_t *x, uint8_t *y,
                                            const tvm_ext_helium_weights weights, const int32_t *factors, int32_t rest,
                                            int32_t count)
{
    const int32_t depth = layer->input.channels;
    const int32_t pitch = layer->output.pitch * tvm_ext_helium_output_bytes(&layer->product);
    for (int32_t m = 0; m < count; m += 2) {
        tvm_ext_i32x4 sums[2];
        if (count % 2 > 0 && m + 1 == count) {
            x -= depth;
            y -= pitch;
        }
        sums[0] = tvm_ext_i32x4_load(factors);
        sums[1] = sums[0];
        tvm_ext_helium_kept_sums(sums, x, depth, weights);
        tvm_ext_helium_store_block(&layer->product, sums, y, &y[pitch], factors, rest, 2);
        x += 2 * depth;
        y += 2 * pitch;
    }
}

/* Computes output rows [row_begin, row_end) of all images. scratch: the last pixels of a row, and 16 bytes. */
TVM_EXT_INLINE void tvm_ext_helium_kept(const tvm_ext_helium_kept_layer *layer, const void *input, void *output,
                                        const int8_t *restrict weights, const int32_t *restrict factors, void *scratch,
                                        int32_t row_begin, int32_t row_end)
{
    const tvm_ext_image *const source = &layer->input;
    const tvm_ext_image *const made = &layer->output;
    const int32_t depth = source->channels;
    const int32_t bytes = tvm_ext_helium_output_bytes(&layer->product);
    const int32_t others = made->columns - layer->in_place;
    /* A single pixel is copied together with the one before it, because pixels are computed in pairs. */
    const int32_t first = others == 1 ? layer->in_place - 1 : layer->in_place;
    for (int32_t n = 0; n < made->images; ++n) {
        for (int32_t h = row_begin; h < row_end; ++h) {
            const int8_t *const x = &((const int8_t *)input)[tvm_ext_row(source, n, h)];
            uint8_t *const y = &((uint8_t *)output)[tvm_ext_row(made, n, h) * bytes];
            const int8_t *filter = weights;
            const int32_t *factor = factors;
            if (others > 0) {
                tvm_ext_copy_i8((int8_t *)scratch, &x[first * depth], (made->columns - first) * depth);
            }
            for (int32_t k = 0; k < layer->product.channels; k += TVM_EXT_HELIUM_BLOCK) {
                tvm_ext_helium_weights kept;
                tvm_ext_helium_keep(kept, filter);
                const int32_t rest = layer->product.channels - k;
                if (layer->in_place > 0) {
                    tvm_ext_helium_kept_run(layer, x, &y[k * bytes], kept, factor, rest, layer->in_place);
                }
                if (others > 0) {
                    tvm_ext_helium_kept_run(layer, (const int8_t *)scratch, &y[((first * made->pitch) + k) * bytes],
                                            kept, factor, rest, made->columns - first);
                }
                filter += TVM_EXT_HELIUM_BLOCK * TVM_EXT_HELIUM_STEP;
                factor += TVM_EXT_HELIUM_FACTORS;
            }
        }
    }
}

#endif
