// Changes of a model's function by training, adapters and files before any pass: low-rank sums, rounded sums, packed
// sequences, formats of activations.
//
// May include: base, graph/grad, graph/ir, graph/match, graph/pass, number/facts.
// Offers: encode_inputs.h, layers.h, low_rank_inputs.h, observe.h, slopes.h, split_columns.h, taps.h.
#pragma once

#include "graph/transform/low_rank.h"
#include "graph/transform/rounded_sum.h"
#include "graph/transform/segments.h"
