#include "model/file/toml.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

// The library asserts, or in release builds assumes, things that a hostile text can make false. Here it throws instead.
namespace lumen::model {
[[noreturn]] static void refuse_text() {
  throw std::logic_error("unexpected text");
}
}  // namespace lumen::model
#define TOML_ASSERT(condition) ((condition) ? void() : ::lumen::model::refuse_text())
#undef NDEBUG  // with it the library replaces TOML_ASSERT by its own
#include <toml++/toml.h>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {

// A table of the document, which keys of it were asked for, and the tables below it that were handed out.
struct Toml::Node {
  const toml::table* table = nullptr;
  mutable std::set<std::string, std::less<>> asked;
  std::map<const toml::table*, std::unique_ptr<Node>> below;
};

struct Toml::Document {
  SourceRef source;
  toml::table root;
  Node top;
  std::vector<uint32_t> line_starts;

  Place place(const toml::source_region& region) const {
    const auto offset = [&](const toml::source_position& p) -> uint32_t {
      if (p.line == 0 || p.line > line_starts.size()) return 0;
      // toml++ counts columns in code points.
      const std::string& text = source->text;
      size_t at = line_starts[p.line - 1];
      for (uint32_t column = 1; column < p.column && at < text.size() && text[at] != '\n'; ++column) {
        ++at;
        while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
      }
      return static_cast<uint32_t>(at);
    };
    const uint32_t begin = offset(region.begin);
    return {source, begin, std::max(begin + 1, offset(region.end))};
  }
};

namespace {

// Levenshtein distance of two short words, for hints.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest_hint(std::string_view key, const std::set<std::string, std::less<>>& known) {
  std::string_view best;
  size_t least = key.size() / 2 + 2;
  for (const std::string& k : known) {
    if (k.size() > 100 || key.size() > 100) continue;
    const size_t d = distance(key, k);
    if (d < least) {
      least = d;
      best = k;
    }
  }
  if (best.empty()) return {};
  return fmt::format("did you mean '{}'?", best);
}

}  // namespace

namespace {

// The first byte above ASCII outside strings and comments, where TOML has none (the library's behaviour there is
// undefined); text.size() when there is none. Quotes stand nowhere else than around strings, so this needs no parser.
size_t stray_character(std::string_view text) {
  const size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  size_t at = begin;
  while (at < text.size()) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) >= 0x80 || c == 0x7f) return at;
    if (c >= 0 && c < 0x20 && c != '\t' && c != '\n' && c != '\r') return at;
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      if (at > begin && std::string_view(" \t\r\n=[,{.").find(text[at - 1]) == std::string_view::npos) return at;
      const std::string_view three(c == '"' ? "\"\"\"" : "\'\'\'");
      const bool multi = text.substr(at).starts_with(three);
      const std::string_view quote = multi ? three : three.substr(0, 1);
      at += quote.size();
      while (at < text.size() && !text.substr(at).starts_with(quote) && (multi || text[at] != '\n'))
        at += c == '"' && text[at] == '\\' ? 2 : 1;
      at = std::min(text.size(), at + quote.size());
      while (multi && at < text.size() && text[at] == c) ++at;  // up to two quotes may end the content
    } else {
      ++at;
    }
  }
  return text.size();
}

}  // namespace

Toml Toml::parse(std::string text, std::string name, size_t limit) {
  if (text.size() > limit) throw user_error("{}: {} bytes; at most {} are accepted", name, text.size(), limit);
  auto document = std::make_shared<Document>();
  document->source = std::make_shared<Source>(Source{std::move(name), std::move(text)});
  const std::string& content = document->source->text;
  document->line_starts.push_back(0);
  for (size_t i = 0; i < content.size(); ++i) {
    if (content[i] == '\n') document->line_starts.push_back(static_cast<uint32_t>(i + 1));
  }
  if (const size_t at = stray_character(content); at != content.size()) {
    throw error_at({document->source, static_cast<uint32_t>(at), static_cast<uint32_t>(at + 1)},
                   "this character can only stand in a string or comment",
                   "put keys with other characters than A-Z, a-z, 0-9, _ and - in quotes");
  }
  try {
    document->root = toml::parse(content, document->source->name);
  } catch (const toml::parse_error& error) {
    throw error_at(document->place(error.source()), error.description());
  } catch (const std::logic_error&) {
    throw user_error("{}: this is no TOML", document->source->name);
  }
  document->top.table = &document->root;
  Toml out;
  out.node_ = &document->top;
  out.document_ = std::move(document);
  return out;
}

namespace {

const toml::node* look(const toml::table& table, std::set<std::string, std::less<>>& asked, std::string_view key) {
  asked.emplace(key);
  return table.get(key);
}

std::string_view kind_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

}  // namespace

bool Toml::has(std::string_view key) const {
  return look(*node_->table, node_->asked, key) != nullptr;
}

std::vector<std::string> Toml::keys() const {
  std::vector<std::pair<toml::source_position, std::string>> found;
  for (const auto& [key, value] : *node_->table) found.emplace_back(key.source().begin, std::string(key.str()));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [place, key] : found) out.push_back(std::move(key));
  return out;
}

Place Toml::place(std::string_view key) const {
  const toml::node* node = key.empty() ? node_->table : node_->table->get(key);
  return document_->place((node ? node : node_->table)->source());
}

Error Toml::wrong(std::string_view key, std::string_view wanted) const {
  const toml::node* node = node_->table->get(key);
  if (!node) return error_at(place(), fmt::format("the key '{}' is missing here", key));
  return error_at(place(key), fmt::format("'{}' must be {}, not {}", key, wanted, kind_name(*node)));
}

std::string Toml::text(std::string_view key) const {
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (!node || !node->is_string()) throw wrong(key, "a string");
  return node->as_string()->get();
}

int64_t Toml::integer(std::string_view key) const {
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (!node || !node->is_integer()) throw wrong(key, "an integer");
  return node->as_integer()->get();
}

double Toml::number(std::string_view key) const {
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (node && node->is_integer()) return static_cast<double>(node->as_integer()->get());
  if (!node || !node->is_floating_point()) throw wrong(key, "a number");
  return node->as_floating_point()->get();
}

bool Toml::boolean(std::string_view key) const {
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (!node || !node->is_boolean()) throw wrong(key, "true or false");
  return node->as_boolean()->get();
}

std::string Toml::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}
int64_t Toml::integer(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}
double Toml::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}
bool Toml::boolean(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}

namespace {

// Elements of an array, each converted by `one`, which returns false for a wrong type.
template <typename T, typename F>
std::vector<T> list(const toml::node* node, const F& one, const auto& complain) {
  std::vector<T> out;
  if (!node) return out;
  const toml::array* array = node->as_array();
  if (!array) throw complain();
  for (const toml::node& element : *array) {
    T value{};
    if (!one(element, value)) throw complain();
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace

std::vector<std::string> Toml::texts(std::string_view key) const {
  return list<std::string>(
      look(*node_->table, node_->asked, key),
      [](const toml::node& n, std::string& out) {
        if (n.is_string()) out = n.as_string()->get();
        return n.is_string();
      },
      [&] { return wrong(key, "an array of strings"); });
}

std::vector<double> Toml::numbers(std::string_view key) const {
  return list<double>(
      look(*node_->table, node_->asked, key),
      [](const toml::node& n, double& out) {
        if (n.is_integer()) out = static_cast<double>(n.as_integer()->get());
        if (n.is_floating_point()) out = n.as_floating_point()->get();
        return n.is_number();
      },
      [&] { return wrong(key, "an array of numbers"); });
}

std::vector<int64_t> Toml::integers(std::string_view key) const {
  return list<int64_t>(
      look(*node_->table, node_->asked, key),
      [](const toml::node& n, int64_t& out) {
        if (n.is_integer()) out = n.as_integer()->get();
        return n.is_integer();
      },
      [&] { return wrong(key, "an array of integers"); });
}

Toml Toml::below(const void* table) const {
  const auto* t = static_cast<const toml::table*>(table);
  std::unique_ptr<Node>& node = node_->below[t];
  if (!node) {
    node = std::make_unique<Node>();
    node->table = t;
  }
  Toml out;
  out.document_ = document_;
  out.node_ = node.get();
  return out;
}

std::optional<Toml> Toml::table(std::string_view key) const {
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (!node) return std::nullopt;
  if (!node->is_table()) throw wrong(key, "a table");
  return below(node->as_table());
}

std::vector<Toml> Toml::tables(std::string_view key) const {
  std::vector<Toml> out;
  const toml::node* node = look(*node_->table, node_->asked, key);
  if (!node) return out;
  const toml::array* array = node->as_array();
  if (!array) throw wrong(key, "an array of tables");
  for (const toml::node& element : *array) {
    if (!element.is_table()) throw wrong(key, "an array of tables");
    out.push_back(below(element.as_table()));
  }
  return out;
}

Toml::Kind Toml::kind(std::string_view key) const {
  const toml::node* node = node_->table->get(key);
  if (!node) return Kind::missing;
  switch (node->type()) {
    case toml::node_type::table:
      return Kind::table;
    case toml::node_type::array:
      return Kind::array;
    case toml::node_type::string:
      return Kind::text;
    case toml::node_type::integer:
      return Kind::integer;
    case toml::node_type::floating_point:
      return Kind::number;
    case toml::node_type::boolean:
      return Kind::boolean;
    default:
      return Kind::other;
  }
}

// The unknown key that stands first in the text, so that the message does not depend on the order of tables in memory.
struct Toml::Unknown {
  const toml::key* key = nullptr;
  const Node* holder = nullptr;
};

void Toml::refuse_unknown() const {
  Unknown first;
  find_unknown(*node_, first);
  if (!first.key) return;
  throw error_at(document_->place(first.key->source()), fmt::format("unknown key '{}'", first.key->str()),
                 nearest_hint(first.key->str(), first.holder->asked));
}

void Toml::find_unknown(const Node& node, Unknown& first) const {
  for (const auto& [key, value] : *node.table) {
    if (node.asked.contains(key.str())) continue;
    if (!first.key || key.source().begin < first.key->source().begin) first = {&key, &node};
  }
  for (const auto& [table, child] : node.below) find_unknown(*child, first);
}

}  // namespace lumen::model
