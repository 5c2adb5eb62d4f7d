// Measurements of models: perplexity, divergence between two models, speed, embeddings, and synthetic models for them.
//
// May include: base, base/file, base/threads, graph/elaborate, graph/ir, lang, model/arch, model/arch/checkpoint,
// model/arch/modules, model/infer/generate, model/infer/session.
#pragma once

#include "model/infer/measure/compare_models.h"
#include "model/infer/measure/correlation.h"
#include "model/infer/measure/embed.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "model/infer/measure/pooling.h"
#include "model/infer/measure/speed.h"
#include "model/infer/measure/speed_many.h"
#include "model/infer/measure/token_source.h"
