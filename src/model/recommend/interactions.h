// What users did, in order: read from a table of text, filtered, split, and drawn from. A file is hostile: every line
// is bounded, and what is wrong is named with its line. Proved by tests/model/recommend/interactions_test.cpp and
// tests/fuzz/interactions_fuzz.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/draws.h"

namespace lumen::model {

using ItemId = int32_t;  // 1 .. items; 0 is no item

struct Interactions {
  std::vector<std::vector<ItemId>> users;  // each in order of time
  std::vector<std::string> item_names;     // item_names[i] is what the file calls item i; [0] is empty
  int64_t items() const { return std::ssize(item_names) - 1; }
  int64_t count() const;
};

// Lines of two to four columns, apart by blanks, tabs or commas: user, item, time (of three columns) or rating and time
// (of four). With times, a user's interactions are put in their order, equal ones as they stand. A first line whose
// first word begins with "user" names columns and is left out; so are empty lines and a byte order mark. Items are
// numbered in the order in which they come first. Error with the line.
Interactions parse_interactions(std::string_view text, const std::string& name);
// The same of a file, which may be packed by gzip.
Interactions read_interactions(const std::filesystem::path& file);
// What is left where every user has `users` and every item `items` interactions at least. Error when nothing is.
Interactions filtered(Interactions all, int64_t users, int64_t items);

// Made up by a seed: items stand in circles of `circle`; users keep to two circles, and mostly go on to the next item
// of the one they are in. What comes next follows from what was last, and how far one goes follows from who one is.
Interactions made_up(int64_t users, int64_t items, int64_t circle, uint32_t seed);
std::string interactions_text(const Interactions& all);

// Leave one out: a user's last item is the test, the one before it validation, the others training. Users of fewer than
// three interactions are trained on whole.
struct Split {
  explicit Split(Interactions all);
  Interactions all;
  std::vector<int64_t> tested;  // users that have a test
  std::vector<ItemId> training(int64_t user) const;
  // What the model sees before it names the answer.
  std::vector<ItemId> seen(int64_t user, bool test) const;
  ItemId answer(int64_t user, bool test) const;
};

// An item that is none of `history` (sorted), uniformly; 0 where there is no such item.
ItemId draw_other(Draws& draws, const std::vector<ItemId>& history, int64_t items);

}  // namespace lumen::model
