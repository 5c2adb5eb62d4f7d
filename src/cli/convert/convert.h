// Commands that make one model file of another: quantize, export, merge; and verify, which checks where one comes from.
//
// May include: base, base/file, cli, model/arch/checkpoint, model/compress, model/data/examples, model/file,
// model/infer/measure, model/train/record, run/engine.
#pragma once
