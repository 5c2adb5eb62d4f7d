// User messages: which rank of a run writes them, suggestions for misspelled words, and the time that work still needs.
//
// May include: nothing.
#pragma once

#include "base/messages/log_rank.h"
#include "base/messages/remaining_time.h"
#include "base/messages/spelling.h"
