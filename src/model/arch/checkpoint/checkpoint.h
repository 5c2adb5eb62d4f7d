// Models from files and into files: names become roles, packed checkpoints become formats, parts and fused tensors are
// taken apart and joined.
//
// May include: base, base/file, base/structured, base/threads, model/arch, model/arch/checkpoint/packed,
// model/arch/family, model/file, model/text/tokenizer, model/text/tokenizer/file, number/codec, run/device.
#pragma once

#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
