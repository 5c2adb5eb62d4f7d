#include "model/text/tokenizer/file/ranks.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/base64.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

using nlohmann::ordered_json;

constexpr size_t kLargest = size_t{32} << 20;  // bytes of a file
constexpr size_t kLongest = 256;               // bytes of a token: all its splits are tried

struct Line {
  std::string_view token;  // in base64
  int64_t rank = -1;
};

bool is_digit(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

// nullopt for a line of another form.
std::optional<Line> read_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space % 4 != 0) return std::nullopt;
  Line out{.token = line.substr(0, space)};
  std::string_view digits = out.token;
  for (int n = 0; n < 2 && digits.ends_with('='); ++n) digits.remove_suffix(1);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  const char *begin = line.data() + space + 1, *end = line.data() + line.size();
  const auto [stopped, error] = std::from_chars(begin, end, out.rank);
  if (error != std::errc() || stopped != end || out.rank < 0) return std::nullopt;
  return out;
}

std::string_view first_line(std::string_view text) {
  std::string_view line = text.substr(0, std::min(text.find('\n'), std::min(text.size(), 8 * kLongest)));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Tokens by rank; "" for an unused rank.
std::vector<std::string> read_tokens(std::string_view text, const std::string& where) {
  if (text.size() > kLargest) throw user_error("{}: too large for a vocabulary", where);
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  // Ranks may have gaps, but a short file must not allocate a large table.
  const int64_t limit = std::min<int64_t>(kMaxVocabulary, 2 * lines + 1024);
  std::vector<std::string> tokens;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view whole = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (whole.ends_with('\r')) whole.remove_suffix(1);
    if (whole.empty()) continue;
    const auto line = read_line(whole);
    if (!line) throw user_error("{}:{}: not a base64 token with its rank", where, number);
    if (line->rank >= limit) throw user_error("{}:{}: the rank {} is out of range", where, number, line->rank);
    std::string bytes = decode_base64(line->token, where);
    if (bytes.size() > kLongest)
      throw user_error("{}:{}: a token of {} bytes is too long", where, number, bytes.size());
    const size_t rank = line->rank;
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) throw user_error("{}:{}: two tokens have the rank {}", where, number, rank);
    tokens[rank] = std::move(bytes);
  }
  return tokens;
}

// The pairs that form each token, in an order of merges that is equivalent to the ranks.
ordered_json merges_of(const std::vector<std::string>& tokens, const std::string& where) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!tokens[rank].empty() && !ranks.emplace(tokens[rank], rank).second)
      throw user_error("{}: the ranks {} and {} are of the same token", where, ranks[tokens[rank]], rank);
  }
  ordered_json merges = ordered_json::array();
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const std::string& token : tokens) {
    pairs.clear();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(std::string_view(token).substr(0, cut));
      const auto right = left == ranks.end() ? left : ranks.find(std::string_view(token).substr(cut));
      if (right != ranks.end()) pairs.emplace_back(left->second, right->second);
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs) merges.push_back({to_alphabet(tokens[left]), to_alphabet(tokens[right])});
  }
  return merges;
}

const RanksRow& row_for(const std::filesystem::path& path) {
  std::string type;
  const std::filesystem::path config = path.parent_path() / "config.json";
  std::error_code failure;
  if (std::filesystem::is_regular_file(config, failure)) {
    const auto json = parse_json(read_file(config, 16 << 20), config.string());
    if (json.is_object() && json.contains("model_type") && json["model_type"].is_string())
      type = json["model_type"].get<std::string>();
  }
  const std::string name = path.filename().string();
  for (const RanksRow& row : pretokenizers().ranks) {
    const auto has = [](const std::vector<std::string>& list, const std::string& text) {
      return std::find(list.begin(), list.end(), text) != list.end();
    };
    if (has(row.files, name) || (!type.empty() && has(row.model_types, type))) return row;
  }
  throw Error(
      Exit::user,
      fmt::format("{}: this tiktoken file has no split pattern, and none is known for it{}", path.string(),
                  type.empty() ? " (there is no config.json next to it)" : fmt::format(" (model_type '{}')", type)),
      "use the model's tokenizer.json, or add a row [[ranks]] to models/pretokenizers.toml");
}

// The control tokens of tokenizer_config.json, else those of the table.
ordered_json added_tokens(const RanksRow& row, size_t ranks, const nlohmann::json& config, const std::string& where) {
  ordered_json out = ordered_json::array();
  const auto list = config.find("added_tokens_decoder");
  if (list != config.end() && list->is_object() && !list->empty()) {
    for (const auto& [id, entry] : list->items()) {
      int64_t number = -1;
      const auto [stopped, error] = std::from_chars(id.data(), id.data() + id.size(), number);
      if (error != std::errc() || stopped != id.data() + id.size() || !entry.is_object())
        throw user_error("{}: \"added_tokens_decoder\" has no token for '{}'", where, id);
      ordered_json token = entry;
      token["id"] = number;
      out.push_back(std::move(token));
    }
    return out;
  }
  for (size_t i = 0; i < row.specials.size(); ++i)
    out.push_back({{"id", ranks + i}, {"content", row.specials[i]}, {"special", true}, {"normalized", false}});
  return out;
}

}  // namespace

bool is_ranks(std::string_view text) {
  return read_line(first_line(text)).has_value();
}

std::string ranks_as_json(std::string_view text, const std::filesystem::path& path, std::string_view config_text) {
  const std::string where = path.string(), config_name = "tokenizer_config.json next to " + where;
  const RanksRow& row = row_for(path);
  const Pretokenizer* split = pretokenizers().find(row.split);
  if (!split) throw user_error("models/pretokenizers.toml: no pre-tokenizer is called '{}'", row.split);
  const std::vector<std::string> tokens = read_tokens(text, where);
  nlohmann::json config = nlohmann::json::object();
  if (!config_text.empty()) config = parse_json(config_text, config_name);
  if (!config.is_object()) throw user_error("{}: expected a JSON object", config_name);

  ordered_json steps = ordered_json::array();
  for (const SplitStep& step : split->steps)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", step.pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  ordered_json vocab = ordered_json::object_t();
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    if (!tokens[rank].empty())
      vocab.get_ref<ordered_json::object_t&>().std::vector<std::pair<const std::string, ordered_json>>::emplace_back(
          to_alphabet(tokens[rank]), rank);
  const ordered_json added = added_tokens(row, tokens.size(), config, config_name);
  ordered_json root = {
      {"added_tokens", added},
      {"normalizer", split->nfc ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr)},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"}, {"ignore_merges", true}, {"vocab", std::move(vocab)}, {"merges", merges_of(tokens, where)}}}};
  const auto bos = std::find_if(added.begin(), added.end(), [&](const auto& t) { return t["content"] == row.bos; });
  if (split->add_bos && bos != added.end()) {
    const ordered_json first = {{"SpecialToken", {{"id", row.bos}, {"type_id", 0}}}},
                       rest = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    root["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {first, rest}},
        {"pair", {first, rest}},
        {"special_tokens", {{row.bos, {{"id", row.bos}, {"ids", {(*bos)["id"]}}, {"tokens", {row.bos}}}}}}};
  }
  return root.dump();
}

}  // namespace lumen::model::text
