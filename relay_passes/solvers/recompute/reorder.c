/* The cheapest runs within a budget, in any order that works, by simulated annealing: a move that costs more is kept
   with a chance that falls. Bytes above the budget cost, too. */
#include <stdlib.h>

#include "cooling.h"
#include "reorder.h"

static double mean_size_of(const reorder_problem *p)
{
    double mean_size = 1;
    for (int32_t v = 0; v < p->num_values; ++v) {
        mean_size += (double)p->size[v] / p->num_values;
    }
    return mean_size;
}

static int32_t copy_plan(const search *a, int32_t *nodes)
{
    for (int32_t k = 0; k < a->length; ++k) {
        nodes[k] = a->run[a->plan[k]].node;
    }
    return a->length;
}

/* Keeps the cheapest plan within the budget in `nodes`; returns its length, or -1. */
static int32_t run(search *a, int64_t moves, double hot, double cold, const int32_t *thresholds, int32_t *nodes)
{
    const reorder_problem *p = a->p;
    cooling now = first_cooling(mean_size_of(p), p->cost, p->count, moves, hot, cold);
    int64_t best = INT64_MAX;
    int32_t length = -1;
    for (int64_t i = 0; i < moves && best > 0; ++i) {
        cool(&now, i);
        const double most = now.temperature * thresholds[draw(a, NUM_THRESHOLDS)];
        const int is_kept = make_move(a) && count_candidate(a) &&
                            dearer_by(&now, a->new_cost - a->cost, a->new_above - a->above) <= most;
        if (is_kept) {
            take_candidate(a);
        } else {
            drop_candidate(a);
        }
        now.within += a->above == 0;
        if (a->above == 0 && a->cost < best) {
            best = a->cost;
            length = copy_plan(a, nodes);
        }
    }
    return length;
}

/* Length of the cheapest plan within the budget that was met, -1 for none, -2 without memory.

   nodes, length: where it starts; the plan that was met, at most most_runs. hot, cold: how much dearer a move may be at
   first and at last, in mean costs of a node. thresholds: NUM_THRESHOLDS numbers of which one is drawn each time and
   multiplied with that, in parts of THRESHOLD_ONE. */
int32_t reorder(const reorder_problem *problem, int32_t *nodes, int32_t length, int32_t most_runs, int64_t moves,
                double hot, double cold, uint64_t seed, const int32_t *thresholds)
{
    search *a = calloc(1, sizeof *a);
    int32_t result = -2;
    if (a != NULL) {
        a->random = first_random(seed);
        result = make_search(a, problem, nodes, length, most_runs) ? run(a, moves, hot, cold, thresholds, nodes) : -2;
        free(a->memory);
    }
    free(a);
    return result;
}

/* Runs of a candidate (or of the plan) that read what the run right before them makes, from the first that differs to
   the first that does not. */
static int32_t num_in_a_row(const search *a, const int32_t *numbers, int32_t length)
{
    const reorder_problem *p = a->p;
    const int32_t end = a->tail > 0 ? length - a->tail + 1 : length;
    int32_t count = 0;
    for (int32_t place = a->head > 0 ? a->head : 1; place < end; ++place) {
        const int32_t node = a->run[numbers[place]].node, before = a->run[numbers[place - 1]].node;
        for (int32_t k = p->first_read[node]; k < p->first_read[node + 1]; ++k) {
            count += p->maker[p->read[k]] == before;
        }
    }
    return count;
}

/* Puts runs behind what they read, as far as the plan, which has to be within the budget, stays so. 0 without memory.
 */
int32_t tidy(const reorder_problem *problem, int32_t *nodes, int32_t length, int64_t moves, uint64_t seed)
{
    search *a = calloc(1, sizeof *a);
    int32_t is_made = 0;
    if (a != NULL) {
        a->random = first_random(seed);
        is_made = make_search(a, problem, nodes, length, length);
        for (int64_t i = 0; is_made && i < moves; ++i) {
            begin_candidate(a);
            shift(a);
            if (a->head < a->length && count_candidate(a) && a->new_above == 0 &&
                num_in_a_row(a, a->candidate, a->new_length) >= num_in_a_row(a, a->plan, a->length)) {
                take_candidate(a);
            }
        }
        if (is_made) {
            (void)copy_plan(a, nodes);
        }
        free(a->memory);
    }
    free(a);
    return is_made;
}
