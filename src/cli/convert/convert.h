// Commands that convert one model file into another: quantize (and imatrix, which measures for it), rewrite, export,
// merge; and verify, which checks a file's provenance.
//
// May include: base, base/file, base/messages, cli, cli/convert/candidates, cli/convert/experts,
// cli/convert/measured_result, cli/paths, cli/pictures, cli/settings, model/arch, model/arch/chat,
// model/arch/checkpoint, model/arch/checkpoint/packed, model/calibrate, model/compress, model/compress/activations,
// model/compress/choose, model/compress/criteria, model/compress/equivalent_transform, model/compress/layers,
// model/compress/rotate, model/compress/score, model/compress/split, model/file, model/infer/measure,
// model/infer/session, model/recipe, model/recipe/record, model/report/compression, number/facts, run/device,
// run/engine.
// Offers: calibrated.h.
#pragma once
