// Post-training quantization: formats chosen for every weight, rounding, and adapters merged into their base models.
//
// May include: base, base/file, base/threads, lang, model/arch, model/arch/adapter, model/arch/checkpoint,
// model/arch/family, model/calibrate, model/data/examples, model/recipe, model/recipe/record, number/codec,
// number/format, number/library, run/device, run/engine, run/engine/panels.
// Offers: synthetic.h.
#pragma once

#include "model/compress/codebook.h"
#include "model/compress/merge.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"
