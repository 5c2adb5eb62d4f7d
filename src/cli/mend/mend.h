// Commands that recover quality lost in quantization: correct (trains an adapter for the quantized model) and recover
// (trains its scales and norms).
//
// May include: base, base/file, cli, cli/convert, cli/paths, model/arch/adapter, model/arch/checkpoint,
// model/compress/correct, model/compress/fields, model/infer/measure, model/recipe/record, run/engine.
#pragma once
