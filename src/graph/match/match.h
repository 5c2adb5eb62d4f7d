// Structure found in a graph: the users of a value, the access of views, attention and its gradient. Changes nothing;
// used by gradients and passes.
//
// May include: base, graph/ir, number/facts.
#pragma once

#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/match/codes.h"
#include "graph/match/sign.h"
#include "graph/match/uses.h"
