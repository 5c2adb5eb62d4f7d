// Reading and writing of models: tensor names map to parameters, packed checkpoints to formats; split and fused tensors
// are converted.
//
// May include: base, base/file, base/structured, base/threads, model/arch, model/arch/checkpoint/packed,
// model/arch/checkpoint/tower_file, model/arch/family, model/arch/modules, model/file, model/file/hub,
// model/text/tokenizer, model/text/tokenizer/file, number/codec, run/device.
#pragma once

#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
