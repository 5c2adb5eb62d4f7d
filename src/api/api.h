// Lumen for other programs: the functions of include/lumen.h, built on the same parts as the commands. They take and
// return handles, strings, numbers in the caller's memory, and a status; an exception becomes a status (boundary.h).
// The shared library liblumen.so exports these functions and no other names; the Python package (python/) uses only
// them. Proved by tests/api.
//
// May include: base, base/messages, base/structured, base/threads, cli, cli/settings, cli/train, graph/grad, graph/ir,
// graph/pass, model/arch, model/arch/checkpoint, model/arch/family, model/device_tensors, model/file/hub,
// model/infer/generate, model/infer/measure, model/infer/schema, model/infer/session, model/templates,
// model/text/unicode, model/train/loop, run/device/choose, run/device/gpu, run/engine.
#pragma once

#include "api/boundary.h"
#include "api/model.h"
#include "api/options.h"
#include "include/lumen.h"
