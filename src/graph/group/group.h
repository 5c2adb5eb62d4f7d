// What a fused group says, read off the graph for synthesis: how its values are read, what an attention and its
// gradient are made of and which keys a mask shows, what a contraction's letters are, what a reduction passes over.
// Knows neither machines nor loops.
//
// May include: base, graph/fuse, graph/match.
#pragma once

#include "graph/group/access.h"
#include "graph/group/attention.h"
#include "graph/group/dot.h"
#include "graph/group/key_range.h"
#include "graph/group/reduce.h"
