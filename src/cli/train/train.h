// Commands for training, for its data, and for its reports.
//
// May include: base, base/file, base/messages, base/sealed, base/structured, cli, cli/paths, cli/settings, model/arch,
// model/arch/chat, model/arch/checkpoint, model/arch/family, model/compress, model/data/examples, model/data/rows,
// model/file, model/infer/measure, model/infer/sample, model/recipe, model/recipe/record, model/report,
// model/report/compression, model/templates, model/text/tokenizer, model/text/unicode, model/train/adapter_init,
// model/train/budget, model/train/loop, model/train/method, model/train/ranks, model/train/trainer, number/facts,
// run/device/gpu, run/engine, run/ranks.
#pragma once

#include <functional>

#include "model/train/loop/loop.h"

namespace lumen::cli {

// Replaces model::train::run_training for the runs that this thread starts, so that a program can take single steps; an
// empty function restores it. Everything before and after the steps is unchanged.
using TrainingLoop = std::function<model::train::LoopResult(model::train::Trainer&, const model::train::LoopOptions&)>;
void take_steps_by(TrainingLoop loop);

}  // namespace lumen::cli
