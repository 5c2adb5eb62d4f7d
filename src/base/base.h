// Words that every floor speaks: errors, checks of our own mistakes, places in texts, hashes, messages to people,
// numbers of enumerators.
//
// May include: base/messages.
// Offers: draws.h, round_up.h, stopwatch.h.
#pragma once

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/naming.h"
#include "base/ordinal.h"
#include "base/place.h"
#include "base/printable.h"
