// Commands that make one model file of another: quantize (and imatrix, which measures for it), rewrite, export, merge;
// and verify, which checks where one comes from.
//
// May include: base, base/file, cli, model/arch/adapter, model/arch/checkpoint, model/calibrate, model/compress,
// model/compress/choose, model/compress/correct, model/compress/fields, model/compress/layers, model/compress/rewrite,
// model/compress/rotate, model/compress/score, model/data/examples, model/file, model/infer/measure,
// model/report/compression, model/train/record, run/device, run/engine.
#pragma once
