// Commands that run a model: run, chat, embed, perplexity, eval.
//
// May include: base, base/file, base/messages, base/structured, cli, cli/pictures, cli/settings, cli/terminal,
// model/arch, model/arch/chat, model/arch/checkpoint, model/arch/modules, model/data/rows, model/eval, model/file/hub,
// model/infer/generate, model/infer/grammar, model/infer/measure, model/infer/schema, model/infer/session,
// model/infer/tower, model/report/compression, model/serve/pictures, model/templates, model/text/unicode, run/device.
// Offers: drafts.h, invariance.h, mapping.h.
#pragma once
