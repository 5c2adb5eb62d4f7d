// What training reads: documents, chats and pairs as examples, their masks, and batches of them, each a pure function
// of seed and step.
//
// May include: base, base/file, base/sealed, base/structured, base/threads, model/data/rows, model/templates,
// model/text/tokenizer, model/text/unicode.
// Offers: load.h.
#pragma once

#include "model/data/examples/batches.h"
#include "model/data/examples/dataset.h"
#include "model/data/examples/example_batches.h"
