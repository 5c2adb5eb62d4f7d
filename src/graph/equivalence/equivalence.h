// Changes of its parameters that keep a graph's results: per-channel scales that the producer of an activation may
// divide by and its readers multiply by, and spaces that may be rotated. Found by structure, independent of names;
// where no such change exists, a reason is given. Graphs are inlined and simplified, their dims numbers.
//
// May include: base, graph/ir, graph/match, graph/pass, number/formula.
// Offers: expert_order.h, hadamard.h, rows_before.h.
#pragma once

#include "graph/equivalence/online_rotation.h"
#include "graph/equivalence/rotation_sites.h"
#include "graph/equivalence/scale_sites.h"
