// Basics for every folder: errors, assertions, source locations, hashes, user messages, numbers of enumerators.
//
// May include: base/messages.
// Offers: ending.h, round_up.h, stopwatch.h, wider_vectors.h.
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
