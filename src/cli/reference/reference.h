// The command reference, generated from the parser: completion scripts, manual pages and a reference in Markdown.
//
// May include: base, cli, cli/settings, model/recipe.
#pragma once

#include "cli/reference/commands.h"
