/* State of a search for offsets: the problem, as exact.py lays it out, and the buffers placed so far. */
#ifndef TVM_EXT_EXACT_H
#define TVM_EXT_EXACT_H

#include <stdint.h>

typedef struct {
    int32_t count;                    /* buffers, in order of begin */
    int32_t num_sections;             /* moments */
    int64_t capacity;
    const int32_t *begin, *end;       /* sections a buffer spans, half-open */
    const int64_t *size;              /* bytes a buffer takes from `capacity` */
    const int64_t *alignment;
    const int64_t *fixed;             /* offset, or -1 */
    const int64_t *width, *area;      /* keys of ranks */
    const int32_t *twin;              /* an equal buffer that comes first, or -1 */
    const uint8_t *unordered;         /* may be placed at the offset of a buffer of higher rank */
    const int32_t *first_neighbour;   /* neighbours of i: [first_neighbour[i], first_neighbour[i + 1]) */
    const int32_t *neighbour;
    const int64_t *distance;          /* least bytes from this begin to the neighbour's, if that is above */
    const int64_t *shared;            /* most bytes both may have in common */
    const int32_t *first_use;         /* sections where buffer i takes space: [first_use[i], first_use[i + 1]) */
    const int32_t *used_section;
    const int64_t *used_bytes;
    const int32_t *first_member;      /* and the other way round: buffers that take space in a section */
    const int32_t *member;
    const int64_t *load;              /* bytes that all buffers of a section take at least */
} exact_problem;

typedef struct {
    int32_t index; /* of a buffer, or -1 - section */
    int64_t value;
} change;

typedef struct {
    const exact_problem *p;
    const char *keys;
    int64_t nodes;   /* left to visit */
    int64_t *offset; /* of placed buffers, else -1 */
    int64_t *least;  /* of each buffer */
    int64_t *left;   /* bytes open in a section */
    int64_t *floor;  /* lowest least offset of a section's open buffers; -1 for none */
    int64_t *crowd;  /* most bytes open in a buffer's sections, when it was ranked */
    int32_t *rank;
    int32_t *changed; /* sections whose floor has to be found again */
    uint8_t *is_changed;
    change *trail;
    int64_t trail_length;
    int64_t *solution;
} search;

/* Lowest least offset of a section's open buffers. */
void find_floor(search *s, int32_t section);

/* Every buffer open; false where a section holds too much in any case. */
int begin_search(search *s);

/* Puts b at its least offset and lifts its neighbours; true where the rest may still fit. `undo` goes back either way.
 */
int place(search *s, int32_t b);

/* Leaves nothing open of a section below an offset; true where the rest may still fit. `go_back` undoes it. */
int raise_section(search *s, int32_t section, int64_t offset);

/* Takes back what the trail holds beyond a length. */
void go_back(search *s, int64_t trail_length);

/* Takes b away again; trail_length: as it was before b was placed. */
void undo(search *s, int32_t b, int64_t trail_length);

#endif
