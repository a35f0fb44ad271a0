/* What both annealing searches share: random numbers, how much dearer a move may be, and the price of bytes above the
   budget, which rises and falls so that every now and then there are none. Numbers are added, multiplied and divided
   only: the same on all machines. */
#ifndef COOLING_H
#define COOLING_H

#include <stdint.h>

enum { MOVES_AT_ONE_PRICE = 1000, LEAST_WITHIN = 100, MOST_WITHIN = 400, NUM_THRESHOLDS = 256, THRESHOLD_ONE = 1024 };

static inline uint64_t first_random(uint64_t seed)
{
    return seed * 0x9E3779B97F4A7C15U + 1;
}

/* A number in [0, below). */
static inline int32_t draw_below(uint64_t *random, int32_t below)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return (int32_t)(((*random * 2685821657736338717U) >> 32) * (uint64_t)below >> 32);
}

typedef struct {
    double least, now, most;
} price;

/* Mean cost of a node for a few mean sizes too many, and how far it may rise and fall. */
static inline price first_price(double mean_size, double mean_cost)
{
    const double first = mean_cost / mean_size / 5;
    return (price){.least = first / 100, .now = first, .most = first * 10000};
}

/* within: of the moves at one price, those after which nothing was above the budget. */
static inline void adapt(price *bytes, int64_t within)
{
    if (within < LEAST_WITHIN && bytes->now < bytes->most) {
        bytes->now *= 1.1;
    } else if (within > MOST_WITHIN && bytes->now > bytes->least) {
        bytes->now /= 1.1;
    }
}

/* How much dearer move i of all may be, in parts of THRESHOLD_ONE, for a threshold of 1. */
static inline double temperature_at(int64_t i, int64_t moves, double mean_cost, double hot, double cold)
{
    const double left = 1 - (double)i / (double)moves;
    return mean_cost * (cold + hot * left * left * left) / THRESHOLD_ONE;
}

/* Price of moves at a time. within: of the moves since the price was last adapted, those after which nothing was
   above the budget. */
typedef struct {
    int64_t moves, within;
    double hot, cold, mean_cost, temperature;
    price bytes;
} cooling;

/* mean_size: of the values, cost: of each of the nodes. hot, cold: how much dearer a move may be at first and at last,
   in mean costs of a node. */
static inline cooling first_cooling(double mean_size, const int64_t *cost, int32_t count, int64_t moves, double hot,
                                    double cold)
{
    double mean_cost = 1;
    for (int32_t u = 0; u < count; ++u) {
        mean_cost += (double)cost[u] / count;
    }
    return (cooling){.moves = moves,
                     .within = LEAST_WITHIN,
                     .hot = hot,
                     .cold = cold,
                     .mean_cost = mean_cost,
                     .bytes = first_price(mean_size, mean_cost)};
}

/* Before move i: now and then another temperature, and another price. */
static inline void cool(cooling *c, int64_t i)
{
    if (i % MOVES_AT_ONE_PRICE == 0) {
        c->temperature = temperature_at(i, c->moves, c->mean_cost, c->hot, c->cold);
        adapt(&c->bytes, c->within);
        c->within = 0;
    }
}

/* Part by which a plan is dearer that costs so much more, and has so many more bytes above the budget. */
static inline double dearer_by(const cooling *c, int64_t cost, int64_t above)
{
    return (double)cost + c->bytes.now * (double)above;
}

#endif
