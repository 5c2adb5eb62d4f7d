// User messages: which rank of a run writes them, and suggestions for misspelled words.
//
// May include: nothing.
#pragma once

#include "base/messages/log_rank.h"
#include "base/messages/spelling.h"
