// The passes from a graph to groups that become kernels, and the memory plan; pipeline.cpp has their order on one page.
//
// May include: base, graph/ir, graph/match, number/facts.
#pragma once

#include "graph/pass/pipeline.h"
#include "graph/pass/recompute.h"
