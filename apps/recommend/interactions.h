// Users' interactions, in order: parsed from a text table, filtered, split, and sampled. A file is hostile: every line
// is bounded, and errors name their line. Proved by tests/apps/recommend/interactions_test.cpp and
// tests/fuzz/apps/interactions_fuzz.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/draws/draws.h"

namespace lumen::recommend {

using ItemId = int32_t;  // 1 .. items; 0: padding

struct Interactions {
  std::vector<std::vector<ItemId>> users;  // each in order of time
  std::vector<std::string> item_names;     // item_names[i]: the file's name of item i; [0] is empty
  int64_t items() const { return std::ssize(item_names) - 1; }
  int64_t count() const;
};

// Lines of two to four columns, separated by blanks, tabs or commas: user, item, time (with three columns) or rating
// and time (with four). With times, a user's interactions are sorted by them, stably. A first line whose first word
// begins with "user" is a header and is skipped; so are empty lines and a byte order mark. Items are numbered by first
// occurrence. Error with the line.
Interactions parse_interactions(std::string_view text, const std::string& name);
// The same for a file, which may be gzip data.
Interactions read_interactions(const std::filesystem::path& file);
// The subset where every user has at least `users` and every item at least `items` interactions. Error when it is
// empty.
Interactions filtered(Interactions all, int64_t users, int64_t items);

// Synthetic data by a seed: items form circles of `circle`; users stay in two circles, and mostly go on to the next
// item of the current one. The next item depends on the last one, and the step on the user.
Interactions made_up(int64_t users, int64_t items, int64_t circle, uint32_t seed);
std::string interactions_text(const Interactions& all);

// Leave-one-out: a user's last item is the test, the one before it validation, the others training. Users of fewer than
// three interactions are entirely training data.
struct Split {
  explicit Split(Interactions all);
  Interactions all;
  std::vector<int64_t> tested;  // users with a test item
  std::vector<ItemId> training(int64_t user) const;
  // The model's input before it predicts the answer.
  std::vector<ItemId> seen(int64_t user, bool test) const;
  ItemId answer(int64_t user, bool test) const;
};

// A uniformly random item not in `history` (sorted); 0 where there is none.
ItemId draw_other(Draws& draws, const std::vector<ItemId>& history, int64_t items);

}  // namespace lumen::recommend
