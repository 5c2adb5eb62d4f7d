// Gradients as a transform on the graph: one rule for each operator, no tape.
//
// May include: base, graph/ir, graph/match, graph/pass, number/gradient.
#pragma once

#include "graph/grad/reverse.h"
#include "graph/grad/work.h"
