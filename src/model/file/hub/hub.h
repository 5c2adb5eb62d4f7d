// Models of the local Hugging Face cache: their names, which files of a repository make a model, where the cache is and
// what it holds. Nothing here uses the network.
//
// May include: base, base/file.
#pragma once

#include "model/file/hub/cache.h"
#include "model/file/hub/choose.h"
#include "model/file/hub/name.h"
#include "model/file/hub/resolve.h"
