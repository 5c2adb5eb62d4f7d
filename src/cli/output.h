// Standard output. What cannot be written is an error (exit 1): nobody may take half a result for a whole one. A reader
// that has gone (a closed pipe) ends the program quietly, as it ends other filters. Proved by
// tests/cli/output_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::cli {

// Thrown when nobody reads standard output any more.
struct ClosedOutput {};

// A report: what it quotes from files is made printable.
void put(std::string_view text);

// A text of a user or a model, and what programs read: as it is, but on a terminal nothing is left that a terminal
// would obey.
void put_text(std::string_view text);

// Whether colours are for standard output: a terminal, and NO_COLOR unset.
bool output_color();
// A report with colours of its own; whoever makes it has made what it quotes printable.
void put_coloured(std::string_view text);

// Bytes. Error on a terminal.
void put_bytes(std::string_view bytes);

// What the library has buffered; called at the end of every command.
void finish_output();

// What this thread puts from here on is appended there; null: goes to standard output.
void collect_output(std::string* into);

}  // namespace lumen::cli
