// JSON and TOML from files and people: bounded depth, typed getters, every mistake with its place.
//
// May include: base, base/messages.
// Offers: base64.h, json_numbers.h.
#pragma once

#include "base/structured/json.h"
#include "base/structured/toml.h"
