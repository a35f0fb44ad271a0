/* Squares in plain C, in place of Helium; tvm_ext_helium_square_lanes.h includes and documents these functions. */
#ifndef TVM_EXT_HELIUM_SQUARE_PLAIN_H
#define TVM_EXT_HELIUM_SQUARE_PLAIN_H

#include "tvm_ext_helium_square_lanes.h"

#ifndef TVM_EXT_HAS_HELIUM

#define TVM_EXT_SQUARES_VECTOR 16 /* bytes of a row */

/* Writes all bytes, or the last two, of each word from rows [begin, 4). Bytes beyond `lanes` become zeros. */
static inline void tvm_ext_squares_put(uint8_t *target, const uint8_t *const *rows, int32_t begin, int32_t offset,
                                       int32_t lanes, bool turned)
{
    for (int32_t i = 0; i < TVM_EXT_SQUARES_VECTOR; ++i) {
        for (int32_t r = begin; r < 4; ++r) {
            const uint8_t element = i < lanes ? rows[r][offset + i] : 0u;
            target[(i * 4) + r] = (uint8_t)(turned ? element ^ 128u : element);
        }
    }
}

TVM_EXT_INLINE void tvm_ext_squares_copy(uint8_t *target, const uint8_t *const *rows, int32_t count, int32_t lanes,
                                         int32_t pitch, int32_t step, bool turned)
{
    for (int32_t i = 0; i < count; ++i) {
        tvm_ext_squares_put(&target[i * step], rows, 0, i * pitch, lanes, turned);
    }
}

TVM_EXT_INLINE void tvm_ext_squares_move_on(uint8_t *target, const uint8_t *from, const uint8_t *const *rows,
                                            int32_t count, int32_t lanes, int32_t pitch, int32_t step, bool turned)
{
    for (int32_t i = 0; i < count; ++i) {
        for (int32_t k = 0; k < TVM_EXT_SQUARES_VECTOR; ++k) {
            const int32_t word = (i * step) + (k * 4);
            target[word] = from[word + 2];
            target[word + 1] = from[word + 3];
        }
        tvm_ext_squares_put(&target[i * step], rows, 2, i * pitch, lanes, turned);
    }
}

static inline void tvm_ext_squares_fill_row(uint8_t *copy, int32_t bytes, int32_t row, int8_t value)
{
    for (int32_t i = row; i < bytes; i += 4) {
        copy[i] = (uint8_t)value;
    }
}

/* Returns the sums of the four windows of the square at `words`. */
static inline tvm_ext_i32x4 tvm_ext_squares_sums(tvm_ext_words words, const tvm_ext_i8x16 w[4])
{
    tvm_ext_i32x4 sums = tvm_ext_i32x4_splat(0);
    for (int32_t j = 0; j < 4; ++j) {
        for (int32_t k = 0; k < TVM_EXT_SQUARES_VECTOR; ++k) {
            const int32_t element = (int32_t)words.first[words.place[k / 4] + (k % 4)];
            const int32_t weight = w[j].lane[k];
            sums.lane[j] += (element > INT8_MAX ? element - 256 : element) * weight;
        }
    }
    return sums;
}

/* Computes the blocks of a list. `second`: bytes from the first to the second square, `next`: to the next block. */
static inline void tvm_ext_squares_blocks_of(const tvm_ext_squares_work *work, const tvm_ext_helium_rescale *rescale,
                                             const tvm_ext_i8x16 w[4], const tvm_ext_squares_blocks *blocks,
                                             const uint16_t places[8], int32_t step, int32_t next, int32_t second,
                                             int32_t narrow)
{
    tvm_ext_words at = tvm_ext_words_at(work->copy, blocks->square, work->lane);
    /* Shifts belong to doubled products if products are doubled. */
    const int32_t doubled = narrow > 0 ? -narrow : work->factors[2];
    const int32_t shift = doubled + (rescale->rounds_twice ? 0 : 1);
    tvm_ext_i16x8 targets;
    for (int32_t i = 0; i < 8; ++i) {
        targets.lane[i] = (int16_t)places[i];
    }
    for (int32_t i = 0; i < blocks->count; ++i) {
        tvm_ext_i32x4 sums[2];
        for (int32_t half = 0; half < 2; ++half) {
            at = tvm_ext_words_moved(at, half > 0 ? second : next);
            const tvm_ext_i32x4 sum = tvm_ext_i32x4_add_n(tvm_ext_squares_sums(at, w), work->factors[0]);
            sums[half] = tvm_ext_helium_rescaled_alike(rescale, sum, work->factors[1], shift);
        }
        tvm_ext_i16x8_scatter(&work->y[blocks->element + (i * step)], targets,
                              tvm_ext_helium_pairs(rescale, tvm_ext_i16x8_narrow(sums[0], sums[1])));
    }
}

TVM_EXT_INLINE void tvm_ext_squares_channels(tvm_ext_squares_work *work, const tvm_ext_helium_rescale *rescale,
                                             tvm_ext_squares_distances far)
{
    for (; work->channels > 0; --work->channels) {
        tvm_ext_i8x16 w[4];
        for (int32_t i = 0; i < 4; ++i) {
            w[i] = tvm_ext_i8x16_gather(work->weights, &(i < 2 ? work->upper_tables : work->lower_tables)[i % 2 * 16]);
        }
        for (const tvm_ext_squares_blocks *blocks = work->across; blocks != work->across_end; ++blocks) {
            tvm_ext_squares_blocks_of(work, rescale, w, blocks, work->across_places, work->across_step, far.next,
                                      far.second, far.narrow);
        }
        for (const tvm_ext_squares_blocks *blocks = work->down; blocks != work->down_end; ++blocks) {
            tvm_ext_squares_blocks_of(work, rescale, w, blocks, work->down_places, work->down_step, far.down, far.down,
                                      far.narrow);
        }
        work->copy += 4;
        ++work->y;
        work->factors += far.narrow > 0 ? 2 : 3;
        work->weights += far.taps;
    }
}

#endif

#endif
