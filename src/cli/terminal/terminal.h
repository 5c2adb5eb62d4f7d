// The terminal of a user: lines that are edited, with history and completion, and Markdown in colours. Without a
// terminal lines are read and text is written as they are. Proved by tests/cli/terminal.
//
// May include: base, base/file, cli, model/text/unicode.
// Offers: line_editor.h, line_input.h, markdown.h.
#pragma once
