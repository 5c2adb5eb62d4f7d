// Stages of a tokenizer around its vocabulary: normalizer, pre-tokenizer and decoder.
//
// May include: base, base/structured, model/text/pattern, model/text/unicode.
#pragma once

#include "model/text/stages/decoder.h"
#include "model/text/stages/normalizer.h"
#include "model/text/stages/pretokenizers.h"
#include "model/text/stages/split.h"
