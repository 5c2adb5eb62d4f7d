// The command line: the parts that all commands share, and main().
//
// May include: base, base/file, base/messages, base/threads, cli/config, cli/other_programs, cli/paths, cli/settings,
// model/arch/chat, model/arch/family, model/calibrate, model/compress, model/data/examples, model/data/rows,
// model/infer/measure, model/infer/session, model/recipe, model/report/compression, model/templates, run/device,
// run/device/choose, run/engine, run/engine/verify.
// Offers: layer_text.h, measured_quality.h.
#pragma once

#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/run_app.h"
#include "cli/version.h"
