// Tasks put to a model and counted: rows of data, prompts, likelihoods and answers, figures.
//
// May include: base, base/file, base/structured, model/data/rows, model/infer/generate, model/infer/session,
// model/template, model/text/pattern, model/text/unicode.
#pragma once

#include "model/eval/evaluate.h"
