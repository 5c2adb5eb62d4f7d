// The commands that download, list and remove models: lumen pull, list, rm.
//
// May include: base, base/fetch, base/file, base/structured, cli, cli/settings, model/file/hub.
#pragma once

#include "cli/hub/client.h"
#include "cli/hub/digest.h"
#include "cli/hub/download.h"
