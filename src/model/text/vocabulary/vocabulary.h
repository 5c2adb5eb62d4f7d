// Words to tokens: BPE merges, unigram scores, word pieces, and their lookup tables.
//
// May include: base, model/text/unicode.
#pragma once

#include "model/text/vocabulary/added_tokens.h"
#include "model/text/vocabulary/byte_pair.h"
#include "model/text/vocabulary/token_trie.h"
#include "model/text/vocabulary/unigram.h"
#include "model/text/vocabulary/vocabulary_scan.h"
#include "model/text/vocabulary/word_piece.h"
