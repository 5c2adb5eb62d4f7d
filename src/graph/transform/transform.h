// Changes that training and adapters make to a function of a model before any pass: low-rank sums, rounded sums, texts
// kept apart.
//
// May include: base, graph/grad, graph/ir, graph/match, graph/pass.
// Offers: layers.h, observe.h, slopes.h, split_columns.h, taps.h.
#pragma once

#include "graph/transform/low_rank.h"
#include "graph/transform/rounded_sum.h"
#include "graph/transform/segments.h"
