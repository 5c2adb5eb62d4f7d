// Tokenizers from a tokenizer.json: the byte-level BPE subset. Whatever the file asks for and we do not have is
// refused.
#include <algorithm>

#include "base/error.h"
#include "model/file/json.h"
#include "model/text/tokenizer_parts.h"

namespace lumen::model {
namespace {

using nlohmann::json;

constexpr size_t kMaxSteps = 32;

Error unsupported(const std::string& where, const std::string& what) {
  return Error(Exit::user, fmt::format("{}: {} is not supported", where, what), "byte-level BPE tokenizers are");
}

bool absent(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null();
}

void read_model(const json& model, const std::string& where, TokenizerParts& p) {
  if (!absent(model, "type") && json_text(model, "type", where) != "BPE")
    throw unsupported(where, "a model of type '" + json_text(model, "type", where) + "'");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!absent(model, key) && !json_text(model, key, where).empty()) throw unsupported(where, key);
  }
  if (json_boolean(model, "byte_fallback", false, where)) throw unsupported(where, "byte_fallback");
  if (!absent(model, "dropout") && model["dropout"] != 0) throw unsupported(where, "dropout");
  p.ignore_merges = json_boolean(model, "ignore_merges", false, where);

  const json& vocabulary = json_member(model, "vocab", where);
  if (!vocabulary.is_object()) throw user_error("{}: \"vocab\" is no object", where);
  // Ids may have gaps, but a short file shall not make a long table.
  const uint64_t limit = std::min<uint64_t>(kMaxVocabulary, (1u << 18) + 64 * vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= limit)
      throw user_error("{}: the id of '{}' is no whole number below {}", where, token, limit);
    const size_t n = id.get<size_t>();
    if (n >= p.tokens.size()) p.tokens.resize(n + 1);
    if (!p.tokens[n].empty()) throw user_error("{}: '{}' and '{}' have the same id {}", where, p.tokens[n], token, n);
    p.tokens[n] = token;
  }
  const json& merges = json_member(model, "merges", where);
  if (!merges.is_array()) throw user_error("{}: \"merges\" is no list", where);
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      p.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      throw user_error("{}: merge {} is no pair", where, p.merges.size());
    p.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

void read_added(const json& root, const std::string& where, TokenizerParts& p) {
  if (absent(root, "added_tokens")) return;
  const json& list = root["added_tokens"];
  if (!list.is_array()) throw user_error("{}: \"added_tokens\" is no list", where);
  std::vector<std::pair<TokenId, bool>> special;
  for (const json& entry : list) {
    const std::string place = where + ": added_tokens";
    AddedToken token;
    const int64_t id = json_integer(entry, "id", place);
    if (id < 0 || id >= std::min<int64_t>(kMaxVocabulary, static_cast<int64_t>(p.tokens.size()) + (1 << 18)))
      throw user_error("{}: id {} is out of range", place, id);
    token.id = static_cast<TokenId>(id);
    token.content = json_text(entry, "content", place);
    token.control = json_boolean(entry, "special", false, place);
    token.normalized = json_boolean(entry, "normalized", !token.control, place);
    token.strip_left = json_boolean(entry, "lstrip", false, place);
    token.strip_right = json_boolean(entry, "rstrip", false, place);
    token.single_word = json_boolean(entry, "single_word", false, place);
    if (static_cast<size_t>(id) >= p.tokens.size()) p.tokens.resize(static_cast<size_t>(id) + 1);
    std::string& text = p.tokens[static_cast<size_t>(id)];
    if (!text.empty() && text != token.content)
      throw user_error("{}: '{}' and '{}' have the same id {}", place, text, token.content, id);
    text = token.content;
    special.emplace_back(token.id, token.control);
    (token.normalized ? p.added_normalized : p.added_raw).add(std::move(token));
  }
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  for (const auto& [id, control] : special) {
    p.kinds[id] = control ? TokenKind::control : TokenKind::user_defined;
    p.verbatim[id] = true;
  }
}

void read_normalizer(const json& node, const std::string& where, TokenizerParts& p) {
  if (node.is_null()) return;
  const std::string type = json_text(node, "type", where);
  if (type == "NFC") {
    p.nfc = true;
  } else if (type == "Sequence") {
    const json& list = json_member(node, "normalizers", where);
    if (!list.is_array() || list.size() > kMaxSteps) throw user_error("{}: a Sequence without a short list", where);
    for (const json& entry : list) read_normalizer(entry, where, p);
  } else {
    throw unsupported(where, "the normalizer '" + type + "'");
  }
}

SplitBehavior read_behavior(const std::string& name, const std::string& where) {
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw unsupported(where, "the split behaviour '" + name + "'");
}

// Appends the steps of a pre-tokenizer; `*byte_level` when it ended in the byte-level alphabet.
void read_split(const json& node, const std::string& where, std::vector<SplitStep>& steps, bool* byte_level) {
  if (node.is_null()) return;
  if (*byte_level) throw unsupported(where, "a step behind ByteLevel");
  if (steps.size() > kMaxSteps) throw user_error("{}: too many pre-tokenizer steps", where);
  const std::string type = json_text(node, "type", where);
  if (type == "Sequence") {
    const json& list = json_member(node, "pretokenizers", where);
    if (!list.is_array() || list.size() > kMaxSteps) throw user_error("{}: a Sequence without a short list", where);
    for (const json& entry : list) read_split(entry, where, steps, byte_level);
  } else if (type == "Split") {
    SplitStep step;
    const json& pattern = json_member(node, "pattern", where);
    const bool literal = pattern.is_object() && pattern.contains("String");
    step.kind = literal ? SplitStep::Kind::literal : SplitStep::Kind::pattern;
    step.pattern = json_text(pattern, literal ? "String" : "Regex", where);
    step.behavior = read_behavior(json_text(node, "behavior", where), where);
    step.invert = json_boolean(node, "invert", false, where);
    steps.push_back(std::move(step));
  } else if (type == "Digits") {
    const bool single = json_boolean(node, "individual_digits", false, where);
    steps.push_back({.pattern = single ? "\\p{N}" : "\\p{N}+"});
  } else if (type == "Punctuation") {
    SplitStep step{.pattern = "[!-/:-@\\[-`{-~\\p{P}]"};
    if (!absent(node, "behavior")) step.behavior = read_behavior(json_text(node, "behavior", where), where);
    steps.push_back(std::move(step));
  } else if (type == "ByteLevel") {
    if (json_boolean(node, "add_prefix_space", false, where))
      steps.push_back({.kind = SplitStep::Kind::prefix_space, .pattern = ""});
    if (json_boolean(node, "use_regex", true, where)) steps.push_back({.pattern = pretokenizers().byte_level});
    *byte_level = true;
  } else {
    throw unsupported(where, "the pre-tokenizer '" + type + "'");
  }
}

TokenId named_token(const TokenizerParts& p, const std::string& name, const std::string& where) {
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!name.empty() && p.tokens[i] == name) return static_cast<TokenId>(i);
  }
  throw user_error("{}: '{}' is not in the vocabulary", where, name);
}

void read_post(const json& node, const std::string& where, TokenizerParts& p) {
  if (node.is_null()) return;
  const std::string type = json_text(node, "type", where);
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    const json& list = json_member(node, "processors", where);
    if (!list.is_array() || list.size() > kMaxSteps) throw user_error("{}: a Sequence without a short list", where);
    for (const json& entry : list) read_post(entry, where, p);
  } else if (type == "TemplateProcessing") {
    const json& items = json_member(node, "single", where);
    if (!items.is_array() || items.size() > 64) throw user_error("{}: \"single\" is no short list", where);
    bool behind = false;
    for (const json& item : items) {
      if (item.is_object() && item.contains("Sequence")) {
        if (behind) throw unsupported(where, "a template with the text twice");
        behind = true;
      } else {
        const std::string id = json_text(json_member(item, "SpecialToken", where), "id", where);
        (behind ? p.suffix : p.prefix).push_back(named_token(p, id, where));
      }
    }
    if (!behind) throw unsupported(where, "a template without the text");
  } else {
    throw unsupported(where, "the post-processor '" + type + "'");
  }
}

// tokenizer_config.json names BOS and EOS as texts, or as objects with their text.
std::optional<TokenId> config_token(const json& config, const char* key, const std::string& where,
                                    const TokenizerParts& p) {
  if (absent(config, key)) return std::nullopt;
  const json& value = config[key];
  return named_token(p, value.is_object() ? json_text(value, "content", where) : json_text(config, key, where), where);
}

void read_config(std::string_view text, const std::string& where, TokenizerParts& p) {
  const json config = parse_json(text, where);
  if (!config.is_object()) throw user_error("{}: expected a JSON object", where);
  p.bos = config_token(config, "bos_token", where, p);
  p.eos = config_token(config, "eos_token", where, p);
  if (p.bos && p.prefix.empty() && json_boolean(config, "add_bos_token", false, where)) p.prefix = {*p.bos};
  if (p.eos && p.suffix.empty() && json_boolean(config, "add_eos_token", false, where)) p.suffix = {*p.eos};
  const auto chat = config.find("chat_template");
  if (chat == config.end() || chat->is_null()) return;
  if (chat->is_string()) p.chat_template = chat->get<std::string>();
  if (!chat->is_array()) return;
  for (const json& entry : *chat) {
    if (json_text(entry, "name", where) == "default") p.chat_template = json_text(entry, "template", where);
  }
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name, std::string_view config) {
  const json root = parse_json(text, name, 64);
  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  read_model(json_member(root, "model", name), name + ": model", p);
  p.kinds.assign(p.tokens.size(), TokenKind::normal);
  p.verbatim.assign(p.tokens.size(), false);
  read_added(root, name, p);
  const json& model = root["model"];
  if (!absent(model, "unk_token"))
    p.unknown = named_token(p, json_text(model, "unk_token", name), name + ": unk_token");
  if (!absent(root, "normalizer")) read_normalizer(root["normalizer"], name + ": normalizer", p);
  std::vector<SplitStep> steps;
  bool byte_level = false;
  if (!absent(root, "pre_tokenizer")) read_split(root["pre_tokenizer"], name + ": pre_tokenizer", steps, &byte_level);
  if (!byte_level) throw unsupported(name, "a pre-tokenizer without ByteLevel");
  p.splitter = Splitter(std::move(steps), name + ": pre_tokenizer");
  if (!absent(root, "post_processor")) read_post(root["post_processor"], name + ": post_processor", p);
  if (!config.empty()) read_config(config, "tokenizer_config.json beside " + name, p);
  if (!p.bos && p.prefix.size() == 1) p.bos = p.prefix[0];
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (p.tokens[i].empty()) p.kinds[i] = TokenKind::unused;
  }
  finish_tokenizer(p, name);
  return Tokenizer(std::move(parts));
}

}  // namespace lumen::model
