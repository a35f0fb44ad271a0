/* Repeats within a budget: the problem as annealing.py hands it over, and a plan as the search changes it.

   Nodes are called by their places in the order. Stage k is what runs between the first runs of nodes k - 1 and k; a
   repeat of node u in it stands at slot k * count + u, so that repeats of a stage run in the order's own order, and the
   first run of node k at slot k * count + k. An event of a value is a slot at which it is written or read, coded as
   2 * slot + is_write; inputs are written at slot -1, outputs read at slot count * count. A value takes its bytes from
   each write to the last read before the next write. */
#ifndef ANNEAL_H
#define ANNEAL_H

#include <stdint.h>

typedef struct {
    int32_t count, num_values, budget;
    const int32_t *first_read, *read;       /* of node u: values read[first_read[u]] to read[first_read[u + 1] - 1] */
    const int32_t *shared; /* beside read: bytes that the results share with a value that dies there */
    const int32_t *first_write, *write; /* of node u, likewise */
    const int32_t *extra; /* of a node: bytes while it runs */
    const int64_t *cost; /* of a node */
    const int32_t *size, *maker, *output; /* of a value: bytes; node, -1 for an input; 1 if needed at the end */
    const int32_t *first_waiting, *waiting; /* of stage k: values made before node k and read after it */
} anneal_problem;

enum {
    MOST_REPEATS = 2000,
    ROOM = 48, /* events that repeats may add to a value */
    MOST_CHANGES = 64
};

typedef struct {
    const anneal_problem *p;
    int32_t *sum, *limit; /* at the first run of each node: bytes of values, and the most there may be */
    int32_t num_repeats;
    int32_t slot[MOST_REPEATS], repeat_sum[MOST_REPEATS], repeat_limit[MOST_REPEATS]; /* by slot */
    int32_t *first_event, *num_events, *event; /* of each value, by slot */
    int64_t cost, excess; /* of all repeats; bytes above the limits, over all positions */
    int has_shared;
} plan;

typedef struct {
    int32_t node, stage, is_added;
} change;

typedef struct {
    plan s;
    uint64_t random;
    change changes[MOST_CHANGES]; /* of one move */
    int32_t num_changes;
} search;

/* The plan without repeats; the memory it uses, for free(), or NULL. */
int32_t *make_plan(plan *s);
/* 0 where the repeat is there already, or there is no room for it. */
int insert_repeat(plan *s, int32_t node, int32_t stage);
void remove_repeat(plan *s, int32_t node, int32_t stage);
/* Number of repeats below a slot; number of a value's events up to a slot. */
int32_t repeats_before(const plan *s, int32_t slot);
int32_t events_until(const plan *s, int32_t value, int32_t slot);
/* True where a value has an event at an index, and that is a read. */
int is_read_next(const plan *s, int32_t value, int32_t index);

/* A number in [0, below). */
int32_t draw(search *a, int32_t below);
void make_move(search *a);
void take_back(search *a);

#endif
