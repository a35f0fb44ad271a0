/* The cheapest repeats that keep a sequence within a budget, by simulated annealing: a move that costs more is kept
   with a chance that falls. Bytes above the budget cost, too; their price rises and falls so that every now and then
   there are none. Numbers are added, multiplied and divided only: the same on all machines. */
#include <stdlib.h>
#include <string.h>

#include "anneal.h"

enum { MOVES_AT_ONE_PRICE = 1000, LEAST_WITHIN = 100, MOST_WITHIN = 400, NUM_THRESHOLDS = 256, THRESHOLD_ONE = 1024 };

typedef struct {
    double least, now, most;
} price;

/* Mean cost of a node for a few mean sizes too many, and how far it may rise and fall. */
static price first_price(const anneal_problem *p, double mean_cost)
{
    double mean_size = 1;
    for (int32_t v = 0; v < p->num_values; ++v) {
        mean_size += (double)p->size[v] / p->num_values;
    }
    const double first = mean_cost / mean_size / 5;
    return (price){.least = first / 100, .now = first, .most = first * 10000};
}

static void adapt(price *bytes, int64_t within)
{
    if (within < LEAST_WITHIN && bytes->now < bytes->most) {
        bytes->now *= 1.1;
    } else if (within > MOST_WITHIN && bytes->now > bytes->least) {
        bytes->now /= 1.1;
    }
}

/* Keeps the cheapest plan within the budget in `slots`; returns its number of repeats, or -1. */
static int32_t run(search *a, int64_t moves, double hot, double cold, const int32_t *thresholds, int32_t *slots)
{
    const anneal_problem *p = a->s.p;
    double mean_cost = 1, temperature = 0;
    for (int32_t u = 0; u < p->count; ++u) {
        mean_cost += (double)p->cost[u] / p->count;
    }
    price bytes = first_price(p, mean_cost);
    int64_t best = INT64_MAX, within = 0;
    int32_t num_slots = -1;
    for (int64_t i = 0; i < moves; ++i) {
        if (i % MOVES_AT_ONE_PRICE == 0) {
            const double left = 1 - (double)i / (double)moves;
            temperature = mean_cost * (cold + hot * left * left * left) / THRESHOLD_ONE;
            adapt(&bytes, i == 0 ? LEAST_WITHIN : within);
            within = 0;
        }
        const int64_t cost = a->s.cost, excess = a->s.excess;
        make_move(a);
        const double dearer = (double)(a->s.cost - cost) + bytes.now * (double)(a->s.excess - excess);
        if (dearer > temperature * thresholds[draw(a, NUM_THRESHOLDS)]) {
            take_back(a);
        }
        within += a->s.excess == 0;
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
        a->random = seed * 0x9E3779B97F4A7C15U + 1;
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
