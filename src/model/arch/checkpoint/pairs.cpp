#include "model/arch/checkpoint/pairs.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "model/arch/checkpoint/rows.h"

namespace lumen::model::arch {
namespace {

int64_t row_count(const Weight& w) {
  return w.type.shape.size() < 2 ? w.columns() : w.rows();
}

// New row r is old row source(r). Row sections move along with the data; tensor sections stay, and so do tiles if no
// row leaves its tile.
template <typename SourceOf>
void move_rows(Weight& w, SourceOf source) {
  const int64_t rows = row_count(w);
  const Bytes old = w.bytes;
  Room moved(old.size());
  std::copy(old.begin(), old.end(), moved.data());
  const auto move_section = [&](int64_t offset, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(moved.data() + offset + r * stride, old.data() + offset + source(r) * stride, stride);
    }
  };
  if (w.is_f32()) {
    move_section(0, w.type.shape.size() < 2 ? 4 : w.columns() * 4);
    w.bytes = std::move(moved).bytes();
    return;
  }
  const Format& f = *w.type.element.format;
  for (int64_t r = 0; r < rows && f.tile_bytes > 0; ++r) {
    if (source(r) / f.tile_rows == r / f.tile_rows) continue;
    throw user_error("rows of a weight in format '{}' cannot be reordered: its tiles of {} rows share fields", f.name,
                     f.tile_rows);
  }
  const BlobLayout layout = blob_layout(f, rows, w.columns());
  move_section(layout.section[0], layout.row_stride);
  if (f.row_bytes > 0) move_section(layout.section[ordinal(Level::row)], f.row_bytes);
  w.bytes = std::move(moved).bytes();
}

// Rows of a head, and how many of them are rotated.
std::pair<int64_t, int64_t> head_rows(const Weight& w, int64_t heads, int64_t turned) {
  LUMEN_CHECK(heads > 0 && row_count(w) % heads == 0, "{} rows, {} heads", row_count(w), heads);
  const int64_t rows = row_count(w) / heads, turning = turned == 0 ? rows : turned;
  LUMEN_CHECK(turning % 2 == 0 && turning <= rows, "{} of {} rows turn", turning, rows);
  return {rows, turning};
}

// Names in files of the integer config keys with this value, for messages.
std::string keys_of_value(const Family& family, const graph::Config& config, int64_t value) {
  std::string text;
  const auto say = [&](std::string name) {
    if (const size_t at = name.find("{a}"); at != std::string::npos) name.replace(at, 3, family.gguf_architecture());
    text += (text.empty() ? "" : " or ") + fmt::format("'{}'", name);
  };
  for (const ConfigKey& key : family.keys()) {
    const auto found = config.find(key.name);
    if (key.is_float || key.is_bool || found == config.end() || found->second != value) continue;
    if (!key.gguf.empty()) say(key.gguf.front());
    if (!key.hf.empty()) say(key.hf.front());
  }
  return text;
}

// For each place the one it comes from: parts in groups move to their place in the group, or back.
std::vector<int64_t> source_of_groups(int64_t count, const Parameter& p, bool to_own) {
  const int64_t parts = p.hf_groups * p.hf_members, width = (count - p.hf_grouped_from) / parts;
  if (p.hf_grouped_from < 0 || p.hf_grouped_from > count || width * parts != count - p.hf_grouped_from)
    throw user_error("parameter {}: {} rows or columns from {} on do not divide into {} groups of {} parts", p.name,
                     count, p.hf_grouped_from, p.hf_groups, p.hf_members);
  std::vector<int64_t> source(count);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = r - p.hf_grouped_from, part = at / width;
    const int64_t outer = to_own ? p.hf_groups : p.hf_members, inner = to_own ? p.hf_members : p.hf_groups;
    source[r] = at < 0 ? r : p.hf_grouped_from + (part % outer * inner + part / outer) * width + at % width;
  }
  return source;
}

void group_rows(Weight& w, const Parameter& p, bool to_own) {
  if (p.hf_groups == 0 || p.hf_members == 1 || p.hf_grouped_columns) return;
  const std::vector<int64_t> source = source_of_groups(row_count(w), p, to_own);
  move_rows(w, [&](int64_t r) { return source[r]; });
}

void group_columns(Weight& w, const Parameter& p, bool to_own) {
  if (p.hf_groups == 0 || p.hf_members == 1 || !p.hf_grouped_columns) return;
  if (is_rounded(w))
    throw Error(Exit::user,
                fmt::format("parameter {}: columns of a weight in format '{}' cannot be reordered", p.name,
                            w.type.element.format->name),
                "read a folder of floats, or a GGUF file");
  Weight turned = transposed(w);
  const std::vector<int64_t> source = source_of_groups(turned.rows(), p, to_own);
  move_rows(turned, [&](int64_t r) { return source[r]; });
  w = transposed(turned);
}

}  // namespace

bool is_reordered(const Parameter& p) {
  return p.hf_halves > 0 || (p.hf_groups > 0 && p.hf_members > 1);
}

void rows_to_own_order(Weight& w, const Parameter& p) {
  if (p.hf_halves > 0) halves_to_pairs(w, p.hf_halves, p.hf_turned);
  group_rows(w, p, true);
}

void rows_to_folder_order(Weight& w, const Parameter& p) {
  group_rows(w, p, false);
  if (p.hf_halves > 0) pairs_to_halves(w, p.hf_halves, p.hf_turned);
}

void columns_to_own_order(Weight& w, const Parameter& p) {
  group_columns(w, p, true);
}

void columns_to_folder_order(Weight& w, const Parameter& p) {
  group_columns(w, p, false);
}

void to_own_order(Weight& w, const Parameter& p) {
  rows_to_own_order(w, p);
  columns_to_own_order(w, p);
}

void to_folder_order(Weight& w, const Parameter& p) {
  columns_to_folder_order(w, p);
  rows_to_folder_order(w, p);
}

void check_pairs(const Family& family, const graph::Config& config, const Parameter& p, const std::string& file) {
  if (p.hf_halves == 0) return;
  int64_t rows = p.shape.empty() ? 1 : p.shape[0].number();
  for (size_t d = 1; d + 1 < p.shape.size(); ++d) rows *= p.shape[d].number();
  if (p.hf_halves < 0 || rows % p.hf_halves != 0)
    throw user_error("{}: the {} rows of parameter '{}' do not divide into {} heads (see {})", file, rows, p.name,
                     p.hf_halves, keys_of_value(family, config, p.hf_halves));
  const int64_t head = rows / p.hf_halves, turned = p.hf_turned == 0 ? head : p.hf_turned;
  if (turned > 0 && turned % 2 == 0 && turned <= head) return;
  throw Error(Exit::user,
              fmt::format("{}: {} rows of each head of parameter '{}' are rotated, but a head has {}", file, turned,
                          p.name, head),
              fmt::format("rows are rotated in pairs: {} must be an even number of at most {}",
                          keys_of_value(family, config, turned), head));
}

void halves_to_pairs(Weight& w, int64_t heads, int64_t turned) {
  const auto [d, t] = head_rows(w, heads, turned);
  move_rows(w, [d = d, t = t](int64_t r) {
    const int64_t at = r % d;
    return at < t ? r - at + at % 2 * (t / 2) + at / 2 : r;
  });
}

void pairs_to_halves(Weight& w, int64_t heads, int64_t turned) {
  const auto [d, t] = head_rows(w, heads, turned);
  move_rows(w, [d = d, t = t](int64_t r) {
    const int64_t at = r % d;
    return at < t ? r - at + at % (t / 2) * 2 + at / (t / 2) : r;
  });
}

}  // namespace lumen::model::arch
