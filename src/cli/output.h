// Standard output. A failed write is an error (exit 1), so that a partial result is not mistaken for a complete one. A
// closed pipe ends the program quietly, as it ends other filters. Proved by tests/cli/output_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::cli {

// Thrown when the reader of standard output has closed it.
struct ClosedOutput {};

// Prints a report; text that it quotes from files is made printable.
void put(std::string_view text);

// Prints text of a user or a model, or output for programs, unchanged. On a terminal control sequences are removed.
void put_text(std::string_view text);

// Whether standard output gets colours: it is a terminal and NO_COLOR is unset.
bool output_color();
// Prints a report that contains colour codes; the caller has made quoted text printable.
void put_coloured(std::string_view text);

// Writes binary data. Error on a terminal.
void put_bytes(std::string_view bytes);

// Flushes the buffered output; called at the end of every command.
void finish_output();

// Redirects this thread's output: it is appended to `into`; null restores standard output.
void collect_output(std::string* into);

}  // namespace lumen::cli
