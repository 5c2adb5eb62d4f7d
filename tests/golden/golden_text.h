// Committed texts beside what is made now. A difference is a failure that shows the lines; with LUMEN_BLESS=1 in the
// environment the committed texts are rewritten instead.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

namespace lumen::golden {

// tests/golden in the source tree.
std::filesystem::path folder();

// `file`: below that folder.
void expect_text(const std::string& file, const std::string& now);

// No other file lies in `room`, a folder below that one, than those named: what has no test any more must go.
void expect_no_others(const std::string& room, const std::set<std::string>& files);

// Where LUMEN_KERNEL_TEXTS names a folder, writes what `text` gives to a file in it, so that two versions can be
// compared whole.
void keep_text(const std::string& file, const std::function<std::string()>& text);

// The lines in which two texts differ, "- " before lines of the first and "+ " before those of the second, each group
// under its line number; a long difference is cut.
std::string difference(const std::string& before, const std::string& now);

}  // namespace lumen::golden
