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

#endif
