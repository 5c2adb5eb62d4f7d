#include "apps/recommend/interactions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/file/file.h"
#include "model/data/reader/unpack.h"

namespace lumen::recommend {
namespace {

constexpr size_t kLongestLine = 4096, kLongestName = 64, kMostColumns = 4;
constexpr uint64_t kLargestFile = uint64_t{4} << 30;
constexpr int64_t kMostItems = 1 << 30;

bool parts(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

// The words of a line; kMostColumns + 1 when there are more.
size_t words_of(std::string_view line, std::array<std::string_view, kMostColumns + 1>& words) {
  size_t count = 0, at = 0;
  while (at < line.size() && count <= kMostColumns) {
    while (at < line.size() && parts(line[at])) ++at;
    const size_t begin = at;
    while (at < line.size() && !parts(line[at])) ++at;
    if (at > begin) words[count++] = line.substr(begin, at - begin);
  }
  return count;
}

bool begins_with_user(std::string_view word) {
  if (word.starts_with('"')) word.remove_prefix(1);
  constexpr std::string_view kUser = "user";
  return word.size() >= kUser.size() &&
         std::equal(kUser.begin(), kUser.end(), word.begin(), [](char a, char b) { return a == (b | 0x20); });
}

struct Row {
  int64_t user = 0;
  ItemId item = 0;
  double time = 0;
};

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) { out_.item_names.emplace_back(); }

  void line(std::string_view text) {
    ++line_;
    if (text.size() > kLongestLine) fail(fmt::format("more than {} characters", kLongestLine));
    std::array<std::string_view, kMostColumns + 1> words;
    const size_t count = words_of(text, words);
    if (count == 0) return;
    if (rows_.empty() && !headed_ && begins_with_user(words[0])) {
      headed_ = true;
      return;
    }
    if (count < 2 || count > kMostColumns)
      fail(fmt::format("{} columns; user and item, then a time or a rating and a time",
                       count > kMostColumns ? "more than 4" : "1"));
    if (columns_ == 0) columns_ = count;
    if (count != columns_) fail(fmt::format("{} columns where lines before have {}", count, columns_));
    rows_.push_back({number_of(users_, words[0], nullptr), 0, count > 2 ? time_of(words[count - 1]) : 0.0});
    rows_.back().item = number_of(items_, words[1], &out_.item_names);
  }

  Interactions finish() && {
    if (rows_.empty())
      throw Error(Exit::user, fmt::format("{}: no interactions", name_), "one line for each: user item");
    if (columns_ > 2)
      std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.time < b.time; });
    out_.users.resize(users_.size());
    for (const Row& row : rows_) out_.users[row.user].push_back(row.item);
    return std::move(out_);
  }

 private:
  using Names = std::unordered_map<std::string, int64_t>;
  [[noreturn]] void fail(const std::string& what) const { throw user_error("{}:{}: {}", name_, line_, what); }

  int64_t number_of(Names& names, std::string_view word, std::vector<std::string>* list) {
    if (word.size() > kLongestName) fail(fmt::format("a name of more than {} characters", kLongestName));
    for (const char c : word)
      if (c >= 0 && c < ' ') fail("a control character in a name; is this a text file?");
    const auto [at, is_new] = names.emplace(std::string(word), list ? std::ssize(names) + 1 : std::ssize(names));
    if (is_new && list) {
      if (std::ssize(*list) > kMostItems) fail("too many items");
      list->emplace_back(word);
    }
    return at->second;
  }

  double time_of(std::string_view word) const {
    double time = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), time);
    if (code != std::errc() || end != word.data() + word.size() || !(time > -1e300 && time < 1e300))
      fail(fmt::format("'{}' is no time", word));
    return time;
  }

  const std::string& name_;
  Interactions out_;
  Names users_, items_;
  std::vector<Row> rows_;
  int64_t line_ = 0;
  size_t columns_ = 0;
  bool headed_ = false;
};

}  // namespace

int64_t Interactions::count() const {
  return std::accumulate(users.begin(), users.end(), int64_t{0},
                         [](int64_t sum, const auto& user) { return sum + std::ssize(user); });
}

Interactions parse_interactions(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Parser parser(name);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    parser.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(parser).finish();
}

Interactions read_interactions(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  if (bytes.starts_with("\x1f\x8b"))
    return parse_interactions(model::data::gunzip(bytes, file.string(), kLargestFile), file.string());
  if (bytes.size() > kLargestFile) throw user_error("{}: more than {} MiB", file.string(), kLargestFile >> 20);
  return parse_interactions(bytes, file.string());
}

Interactions filtered(Interactions all, int64_t users, int64_t items) {
  std::vector<int64_t> uses(all.item_names.size());
  for (bool changed = true; changed;) {
    std::fill(uses.begin(), uses.end(), 0);
    for (const auto& user : all.users)
      for (const ItemId item : user) ++uses[item];
    const int64_t before = all.count();
    for (auto& user : all.users) std::erase_if(user, [&](ItemId item) { return uses[item] < items; });
    std::erase_if(all.users, [&](const auto& user) { return std::ssize(user) < users; });
    changed = all.count() != before;
  }
  if (all.users.empty())
    throw user_error("no user has {} interactions with items of {} interactions; ask for fewer", users, items);
  std::vector<ItemId> now(all.item_names.size());
  std::vector<std::string> names(1);
  for (size_t item = 1; item < uses.size(); ++item) {
    if (uses[item] == 0) continue;
    now[item] = names.size();
    names.push_back(std::move(all.item_names[item]));
  }
  all.item_names = std::move(names);
  for (auto& user : all.users)
    for (ItemId& item : user) item = now[item];
  return all;
}

Interactions made_up(int64_t users, int64_t items, int64_t circle, uint32_t seed) {
  if (users < 1 || circle < 2 || items < 2 * circle)
    throw usage_error("made-up data needs a user, circles of two items, and two circles");
  Interactions out;
  out.item_names.resize(items + 1);
  for (int64_t item = 1; item <= items; ++item) out.item_names[item] = std::to_string(item);
  const int64_t circles = items / circle;
  for (int64_t user = 0; user < users; ++user) {
    Draws draws(seed, user);
    const int64_t stride = 1 + user % 2;  // depends on the user
    std::array<int64_t, 2> home = {draws.below(circles), draws.below(circles)};
    std::array<int64_t, 2> place = {draws.below(circle), draws.below(circle)};
    std::vector<ItemId>& own = out.users.emplace_back();
    const int64_t length = 8 + draws.below(12);
    int64_t at = 0;
    while (std::ssize(own) < length) {
      if (draws.uniform() < 0.1) at = 1 - at;
      place[at] = draws.uniform() < 0.85 ? (place[at] + stride) % circle : draws.below(circle);
      const ItemId item = home[at] * circle + place[at] + 1;
      if (own.empty() || own.back() != item) own.push_back(item);
    }
  }
  return out;
}

std::string interactions_text(const Interactions& all) {
  std::string out;
  for (size_t user = 0; user < all.users.size(); ++user)
    for (const ItemId item : all.users[user]) out += fmt::format("{} {}\n", user + 1, all.item_names[item]);
  return out;
}

// SplitMix64, seeded by all three numbers.
Split::Split(Interactions every) : all(std::move(every)) {
  for (size_t user = 0; user < all.users.size(); ++user)
    if (all.users[user].size() >= 3) tested.push_back(user);
}

std::vector<ItemId> Split::training(int64_t user) const {
  const std::vector<ItemId>& own = all.users[user];
  return own.size() < 3 ? own : std::vector<ItemId>(own.begin(), own.end() - 2);
}

std::vector<ItemId> Split::seen(int64_t user, bool test) const {
  const std::vector<ItemId>& own = all.users[user];
  return {own.begin(), own.end() - (test ? 1 : 2)};
}

ItemId Split::answer(int64_t user, bool test) const {
  const std::vector<ItemId>& own = all.users[user];
  return own[own.size() - (test ? 1 : 2)];
}

ItemId draw_other(Draws& draws, const std::vector<ItemId>& history, int64_t items) {
  constexpr int kTries = 1000;  // with half of all items in the history, two tries on average
  for (int i = 0; i < kTries; ++i) {
    const ItemId item = 1 + draws.below(items);
    if (!std::binary_search(history.begin(), history.end(), item)) return item;
  }
  for (ItemId item = 1; item <= items; ++item)
    if (!std::binary_search(history.begin(), history.end(), item)) return item;
  return 0;
}

}  // namespace lumen::recommend
