// A model in memory: its family's graph, its parameters and their bytes, its tokenizer.
//
// May include: base, base/file, base/threads, graph/equivalence, graph/ir, graph/pass, graph/transform,
// graph/transform/split_experts, model/arch/family, model/file, model/text/tokenizer, number/facts, run/device.
// Offers: function.h, held_formats.h, identity.h, in_memory.h, low_rank_weights.h, split_weights.h.
#pragma once

#include "model/arch/model.h"
