// Attention and its gradient, streamed over the keys: the parts of a group, the keys that a row sees, kernels of tasks,
// and the merge of parts.
//
// May include: base, graph/group, graph/match, kernel/loop, kernel/machine, kernel/synth/order, kernel/synth/reduce.
#pragma once

#include "kernel/synth/attention/attend.h"
#include "kernel/synth/attention/attend_rows.h"
