/* The cheapest repeats that keep a sequence within a budget, by simulated annealing: a move that costs more is kept
   with a chance that falls. Bytes above the budget cost, too. */
#include <stdlib.h>
#include <string.h>

#include "anneal.h"
#include "cooling.h"

static double mean_size_of(const anneal_problem *p)
{
    double mean_size = 1;
    for (int32_t v = 0; v < p->num_values; ++v) {
        mean_size += (double)p->size[v] / p->num_values;
    }
    return mean_size;
}

/* Keeps the cheapest plan within the budget in `slots`; returns its number of repeats, or -1. */
static int32_t run(search *a, int64_t moves, double hot, double cold, const int32_t *thresholds, int32_t *slots)
{
    const anneal_problem *p = a->s.p;
    cooling now = first_cooling(mean_size_of(p), p->cost, p->count, moves, hot, cold);
    int64_t best = INT64_MAX;
    int32_t num_slots = -1;
    for (int64_t i = 0; i < moves; ++i) {
        cool(&now, i);
        const int64_t cost = a->s.cost, excess = a->s.excess;
        make_move(a);
        const double most = now.temperature * thresholds[draw(a, NUM_THRESHOLDS)];
        if (dearer_by(&now, a->s.cost - cost, a->s.excess - excess) > most) {
            take_back(a);
        }
        now.within += a->s.excess == 0;
        if (a->s.excess == 0 && a->s.cost < best) {
            best = a->s.cost;
            num_slots = a->s.num_repeats;
            memcpy(slots, a->s.slot, (size_t)num_slots * sizeof *slots);
        }
    }
    return num_slots;
}

/* Number of repeats of the cheapest plan within the budget that was met, -1 for none, -2 without memory.

   hot, cold: how much dearer a move may be at first and at last, in mean costs of a node. thresholds: NUM_THRESHOLDS
   numbers of which one is drawn each time and multiplied with that, in parts of THRESHOLD_ONE. slots: MOST_REPEATS,
   the first num_slots of them the repeats to begin with. */
int32_t anneal(const anneal_problem *problem, int64_t moves, double hot, double cold, uint64_t seed,
               const int32_t *thresholds, int32_t *slots, int32_t num_slots)
{
    search *a = calloc(1, sizeof *a);
    int32_t result = -2;
    if (a != NULL) {
        a->s.p = problem;
        a->random = first_random(seed);
        int32_t *memory = make_plan(&a->s);
        for (int32_t i = 0; memory != NULL && i < num_slots; ++i) {
            (void)insert_repeat(&a->s, slots[i] % problem->count, slots[i] / problem->count);
        }
        result = memory == NULL ? -2 : run(a, moves, hot, cold, thresholds, slots);
        free(memory);
    }
    free(a);
    return result;
}
