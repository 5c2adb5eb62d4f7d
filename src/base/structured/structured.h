// JSON and TOML from files and users: bounded depth, typed getters, every error with its position.
//
// May include: base, base/messages.
// Offers: base64.h, json_numbers.h, page_policy.h.
#pragma once

#include "base/structured/json.h"
#include "base/structured/toml.h"
