// Messages to people: which rank of a run writes them, and which word was probably meant.
//
// May include: nothing.
#pragma once

#include "base/messages/log_rank.h"
#include "base/messages/spelling.h"
