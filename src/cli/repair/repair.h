// Commands that repair a quantized model with the original at hand: `lumen correct` (low-rank correction: an adapter)
// and `lumen recover` (recovery training of scales and norms).
//
// May include: base, base/file, cli, cli/convert, cli/settings, model/arch/adapter, model/arch/checkpoint,
// model/compress/low_rank_correction, model/compress/recovery_training, model/infer/measure, model/recipe/record,
// run/engine.
#pragma once
