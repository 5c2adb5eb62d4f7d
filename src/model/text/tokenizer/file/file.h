// Tokenizers read from and written to files: GGUF metadata, tokenizer.json, SentencePiece, tiktoken.
//
// May include: base, base/file, base/structured, model/file, model/text/stages, model/text/tokenizer,
// model/text/unicode, model/text/vocabulary.
#pragma once

#include "model/text/tokenizer/file/gguf_vocabulary.h"
