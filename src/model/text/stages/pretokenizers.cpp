#include "model/text/stages/pretokenizers.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/embedded.h"
#include "base/error.h"
#include "base/structured/toml.h"

namespace lumen::model::text {
namespace {

constexpr std::string_view kFile = "models/pretokenizers.toml";

Pretokenizer read_row(const Toml& row, bool checks) {
  Pretokenizer out;
  out.names = row.texts("names");
  if (out.names.empty()) throw error_at(row.place(), "a pre-tokenizer needs names");
  for (std::string& pattern : row.texts("patterns")) out.steps.push_back({.pattern = std::move(pattern)});
  out.nfc = row.boolean("nfc", false);
  out.ignore_merges = row.boolean("ignore_merges", false);
  out.add_bos = row.boolean("add_bos", false);
  out.ours = row.boolean("ours", false);
  if (checks) (void)Splitter(out.steps, "pre-tokenizer '" + out.names[0] + "'");
  return out;
}

constexpr int64_t kMostSpecials = 1 << 16;

RanksRow read_ranks_row(const Toml& row) {
  RanksRow out;
  out.split = row.text("split");
  out.files = row.texts("files");
  out.model_types = row.texts("model_types");
  out.specials = row.texts("specials");
  out.bos = row.text("bos", "");
  const std::string more = row.text("more", "");
  int64_t number = row.integer("from", 0);
  const int64_t count = row.integer("count", out.specials.size());
  const size_t hole = more.find("{}");
  if (count > kMostSpecials || (count > std::ssize(out.specials) && hole == std::string::npos))
    throw error_at(row.place("count"), "too many control tokens for their names");
  while (std::ssize(out.specials) < count)
    out.specials.push_back(more.substr(0, hole) + std::to_string(number++) + more.substr(hole + 2));
  return out;
}

struct State {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::string>> added;  // source, name
  std::unique_ptr<const PretokenizerTable> table;
};

State& state() {
  static State instance;
  return instance;
}

}  // namespace

const Pretokenizer* PretokenizerTable::find(std::string_view name) const {
  for (const Pretokenizer& row : rows) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return &row;
  }
  return nullptr;
}

const Pretokenizer* PretokenizerTable::match(const std::vector<SplitStep>& steps, bool nfc, bool ignore_merges) const {
  const auto flags = [&](const Pretokenizer& row) { return row.nfc == nfc && row.ignore_merges == ignore_merges; };
  for (const Pretokenizer& row : rows)
    if (flags(row) && row.steps == steps) return &row;
  for (const Pretokenizer& row : rows)
    if (flags(row) && same_cuts(row.steps, steps)) return &row;
  return nullptr;
}

std::optional<std::string> PretokenizerTable::kind_name(VocabularyKind kind) const {
  for (const auto& [name, row] : vocabularies) {
    if (row.kind == kind) return name;
  }
  return std::nullopt;
}

PretokenizerTable read_pretokenizers(std::string text, std::string name, bool checks) {
  const Toml file = Toml::parse(std::move(text), std::move(name));
  PretokenizerTable out;
  out.byte_level = file.text("byte_level", "");
  out.train = file.text("train", "");
  out.characters = file.text("characters", "");
  out.plain = file.text("plain", "");
  out.end_of_generation = file.texts("end_of_generation");
  out.end_of_generation_here = file.texts("end_of_generation_here");
  for (const Toml& row : file.tables("end_of_part"))
    out.ends_of_parts.push_back({row.text("token"), row.texts("beside")});
  for (const Toml& row : file.tables("vocabulary")) {
    constexpr std::pair<std::string_view, VocabularyKind> kKinds[] = {{"byte_pair", VocabularyKind::byte_pair},
                                                                      {"scored_pairs", VocabularyKind::scored_pairs},
                                                                      {"unigram", VocabularyKind::unigram},
                                                                      {"word_piece", VocabularyKind::word_piece}};
    VocabularyRow v;
    const std::string kind = row.text("kind");
    const auto at = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.first == kind; });
    if (at == std::end(kKinds))
      throw error_at(row.place("kind"), fmt::format("unknown kind of vocabulary '{}'", kind),
                     "byte_pair, scored_pairs, unigram or word_piece");
    v.kind = at->second;
    v.bos = row.integer("bos", -1);
    v.eos = row.integer("eos", -1);
    v.unknown = row.integer("unknown", -1);
    v.add_bos = row.boolean("add_bos", false);
    v.add_eos = row.boolean("add_eos", false);
    out.vocabularies[row.text("name")] = v;
  }
  for (const Toml& row : file.tables("split")) out.rows.push_back(read_row(row, checks));
  for (const Toml& row : file.tables("ranks")) out.ranks.push_back(read_ranks_row(row));
  file.refuse_unknown();
  return out;
}

const PretokenizerTable& pretokenizers() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.table) return *s.table;
  auto table = std::make_unique<PretokenizerTable>();
  const auto take = [&](PretokenizerTable more) {
    if (!more.byte_level.empty()) table->byte_level = more.byte_level;
    if (!more.train.empty()) table->train = more.train;
    if (!more.characters.empty()) table->characters = more.characters;
    if (!more.plain.empty()) table->plain = more.plain;
    table->vocabularies.merge(more.vocabularies);
    table->end_of_generation.insert(table->end_of_generation.end(), more.end_of_generation.begin(),
                                    more.end_of_generation.end());
    table->end_of_generation_here.insert(table->end_of_generation_here.end(), more.end_of_generation_here.begin(),
                                         more.end_of_generation_here.end());
    table->ranks.insert(table->ranks.begin(), more.ranks.begin(), more.ranks.end());
    table->ends_of_parts.insert(table->ends_of_parts.end(), more.ends_of_parts.begin(), more.ends_of_parts.end());
    table->rows.insert(table->rows.begin(), more.rows.begin(), more.rows.end());
  };
  for (const embedded::File& file : embedded::models()) {
    if (file.path == kFile) take(read_pretokenizers(std::string(file.text), std::string(file.path), false));
  }
  for (const auto& [text, name] : s.added) take(read_pretokenizers(text, name));
  if (table->rows.empty()) throw user_error("the table of pre-tokenizers ({}) is not part of this program", kFile);
  s.table = std::move(table);
  return *s.table;
}

void add_pretokenizers(std::string text, std::string name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.table) throw user_error("{}: pre-tokenizers must be added before the first tokenizer is loaded", name);
  s.added.emplace_back(std::move(text), std::move(name));
}

}  // namespace lumen::model::text
