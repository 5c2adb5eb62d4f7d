// Commands that inspect or measure: inspect, compile, format, tokenize, doctor, bench, cache.
//
// May include: base, base/file, base/messages, base/structured, cli, cli/infer, cli/paths, cli/settings, model/arch,
// model/arch/checkpoint, model/arch/family, model/compress, model/file, model/file/hub, model/infer/measure,
// model/infer/recorded, model/recipe, model/recipe/optimizer, model/text/tokenizer, model/text/unicode, number/facts,
// run/device, run/device/choose, run/device/gpu, run/engine, run/engine/cache.
#pragma once
