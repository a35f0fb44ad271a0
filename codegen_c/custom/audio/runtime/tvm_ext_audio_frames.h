/* Samples of 16 bits that are kept from one run to the next: frames, stacks and delays. */
#ifndef TVM_EXT_AUDIO_FRAMES_H
#define TVM_EXT_AUDIO_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Frames of `size` samples, one for each `step` that comes in; those that are not full yet are 0. True: all are full.
   kept holds *held samples, and room for one step more than a frame. */
static inline bool tvm_ext_audio_frames(const int16_t *input, int16_t *kept, int32_t *held, int16_t *output,
                                        int32_t count, int32_t size, int32_t step)
{
    bool full = true;
    for (int32_t frame = 0; frame < count; ++frame) {
        int16_t *const out = &output[frame * size];
        memcpy(&kept[*held], &input[frame * step], (size_t)step * sizeof(*kept));
        *held += step;
        if (*held >= size) {
            memcpy(out, kept, (size_t)size * sizeof(*kept));
            *held -= step;
            memmove(kept, &kept[step], (size_t)*held * sizeof(*kept));
        } else {
            memset(out, 0, (size_t)size * sizeof(*kept));
            full = false;
        }
    }
    return full;
}

/* The last `size` samples of a stack that grows by `count`; those that came first stand `more` times more. True where
   the stack is full, and `step` samples leave it. */
static inline bool tvm_ext_audio_stack(const int16_t *input, int16_t *kept, int32_t *held, bool *begun, int16_t *output,
                                       int32_t count, int32_t more, int32_t size, int32_t step)
{
    for (int32_t copy = *begun ? more : 0; copy <= more; ++copy) {
        memcpy(&kept[*held], input, (size_t)count * sizeof(*kept));
        *held += count;
    }
    *begun = true;
    const bool full = *held >= size;
    if (full) {
        memcpy(output, kept, (size_t)size * sizeof(*kept));
        *held -= step;
        memmove(kept, &kept[step], (size_t)*held * sizeof(*kept));
    } else {
        memset(output, 0, (size_t)size * sizeof(*kept));
    }
    return full;
}

#endif
