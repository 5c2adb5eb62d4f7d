// What the parser knows of every command, for people and shells: completion scripts, manual pages and a reference in
// Markdown come from it.
//
// May include: base, cli.
#pragma once

#include "cli/reference/commands.h"
