// Evaluates models on tasks: rows of data, prompts, likelihoods, generated answers, and metrics.
//
// May include: base, base/file, base/structured, model/data/rows, model/infer/generate, model/infer/session,
// model/templates, model/text/pattern, model/text/unicode.
#pragma once

#include "model/eval/evaluate.h"
