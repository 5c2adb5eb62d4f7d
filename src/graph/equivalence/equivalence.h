// Which changes of its parameters leave what a graph computes as it is: channels that what produces an activation may
// divide and what reads it multiply, and spaces that may be rotated. Found by structure, whatever names there are, and
// told with the reason where there is no such change. Graphs are inlined and simplified, their dims numbers.
//
// May include: base, graph/ir, graph/match, graph/pass, number/formula.
// Offers: expert_order.h, hadamard.h, rows_before.h.
#pragma once

#include "graph/equivalence/online_rotation.h"
#include "graph/equivalence/rotation_sites.h"
#include "graph/equivalence/scale_sites.h"
