// Commands that give a rounded model back some of what rounding took: correct (an adapter beside it) and recover (its
// scales and norms, trained).
//
// May include: base, base/file, cli, cli/convert, cli/paths, model/arch/adapter, model/arch/checkpoint,
// model/compress/correct, model/compress/fields, model/infer/measure, model/recipe/record, run/engine.
#pragma once
