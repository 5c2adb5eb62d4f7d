// The graph: its operators, types, builder, text form, verifier and evaluator. The evaluator defines the semantics.
//
// May include: base, number/codec, number/format, number/formula.
// Offers: op.def.
#pragma once

#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/graph.h"
#include "graph/ir/random.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/text.h"
#include "graph/ir/type.h"
#include "graph/ir/verify.h"
