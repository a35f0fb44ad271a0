/* Runs in any order that works, some nodes several times, within a budget: the problem as reordering.py hands it over,
   and a plan as the search changes it.

   A plan is a sequence of runs. A value is needed before a run if that or a later run reads it before it is written
   again; it takes its bytes from the write to the last of these reads. What is needed before each run is kept, so that
   a change is counted from its last run back to where the same is needed as before. */
#ifndef REORDER_H
#define REORDER_H

#include <stdint.h>

typedef struct {
    int32_t count, num_values;
    int64_t budget;
    const int32_t *first_read, *read;   /* of node u: values read[first_read[u]] to read[first_read[u + 1] - 1] */
    const int64_t *shared;              /* beside read: bytes that the results share with a value that dies there */
    const int32_t *first_write, *write; /* of node u, likewise */
    const int64_t *extra, *cost;        /* of a node: bytes while it runs, cost of running it again */
    const int64_t *size;                /* of a value */
    const int32_t *maker, *input,
        *output; /* of a value: node, -1 for an input; 1 if there before, if needed at the end */
} reorder_problem;

enum { MOST_CHANGES = 64 };

typedef struct {
    int32_t node;
    int64_t bytes, above; /* of what is needed before it; above the budget while it runs */
} counted_run;

typedef struct {
    const reorder_problem *p;
    int32_t most_runs, words; /* words of a set of values */
    /* Runs by number, as they are counted in the plan. */
    counted_run *run;
    uint64_t *needed;
    int32_t *unused, num_unused;
    int32_t *plan, length; /* numbers of runs */
    int64_t cost, above;
    /* A candidate begins with `head` runs of the plan and ends with `tail` of them. */
    int32_t *candidate, new_length, head, tail;
    int32_t inserted[MOST_CHANGES], num_inserted, removed[MOST_CHANGES], num_removed;
    int64_t new_cost, new_above;
    int32_t *times; /* of a node: its runs in the candidate */
    /* Runs of it that were counted anew, the last one first. */
    int32_t num_counted;
    counted_run *counted;
    uint64_t *counted_needed, *set;
    int32_t *mark_of, stamp; /* of values */
    uint64_t random;
    void *memory;
} search;

/* 0 without memory. The plan is the given sequence of nodes. */
int make_search(search *a, const reorder_problem *p, const int32_t *nodes, int32_t length, int32_t most_runs);
const uint64_t *needed_before(const search *a, int32_t number);
int is_needed(const uint64_t *set, int32_t value);
int32_t node_at(const search *a, int32_t place);

/* The candidate is the plan. */
void begin_candidate(search *a);
int insert_run(search *a, int32_t node, int32_t at);
int remove_run(search *a, int32_t at);
/* Runs [first, first + length) of the candidate go to `to`, a place in what is left. */
void move_runs(search *a, int32_t first, int32_t length, int32_t to);

/* Counts the candidate; 0 where a value is read before it is made. */
int count_candidate(search *a);
void take_candidate(search *a);
void drop_candidate(search *a);

/* A number in [0, below). */
int32_t draw(search *a, int32_t below);
/* Puts a run, or some in a row, earlier or later, as far as what they read is made and what they make is not read. */
void shift(search *a);
/* Makes a candidate; 0 where it is the plan. */
int make_move(search *a);

#endif
