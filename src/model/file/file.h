// Reading, checking and writing of tensor files: GGUF, safetensors and checkpoints; and locations of models on this
// machine.
//
// May include: base, base/file, base/structured, graph/ir, lang, model/file/hub, number/facts, number/library.
#pragma once

#include "model/file/checkpoint.h"
#include "model/file/gguf.h"
#include "model/file/gguf_split.h"
#include "model/file/own_input.h"
#include "model/file/safetensors.h"
#include "model/file/sections.h"
#include "model/file/tensors.h"
