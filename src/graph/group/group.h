// Analysis of a fused group for synthesis: how its values are accessed, the parts of an attention and its gradient and
// the keys a mask shows, the letters of a contraction, the axes of a reduction. Independent of machines and loops.
//
// May include: base, graph/fuse, graph/match.
#pragma once

#include "graph/group/access.h"
#include "graph/group/attention.h"
#include "graph/group/dot.h"
#include "graph/group/key_range.h"
#include "graph/group/reduce.h"
