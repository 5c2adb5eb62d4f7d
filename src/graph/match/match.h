// What a graph is seen to contain, by its structure: who reads a value, what views read, attention and its gradient.
// Changes nothing; gradients and passes both ask.
//
// May include: base, graph/ir, number/facts.
#pragma once

#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/match/codes.h"
#include "graph/match/sign.h"
#include "graph/match/uses.h"
#include "graph/match/weighted_product.h"
