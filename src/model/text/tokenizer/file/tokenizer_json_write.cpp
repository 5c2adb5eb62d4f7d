// Writes a tokenizer as tokenizer.json, for other programs.
#include <algorithm>
#include <unordered_set>

#include "base/structured/json.h"
#include "model/text/tokenizer/tokenizer_parts.h"

namespace lumen::model::text {
namespace {

using nlohmann::ordered_json;

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return "Isolated";
    case SplitBehavior::removed:
      return "Removed";
    case SplitBehavior::merged_with_previous:
      return "MergedWithPrevious";
    case SplitBehavior::merged_with_next:
      return "MergedWithNext";
    case SplitBehavior::contiguous:
      return "Contiguous";
  }
  return "";
}

ordered_json write_split(std::vector<SplitStep> steps) {
  // ByteLevel ends the list and can include the last pattern and the prefixed space.
  ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  if (!steps.empty() && steps.back() == SplitStep{.pattern = pretokenizers().byte_level}) {
    level["use_regex"] = true;
    steps.pop_back();
  }
  if (!steps.empty() && steps.back().kind == SplitStep::Kind::prefix_space) {
    level["add_prefix_space"] = true;
    steps.pop_back();
  }
  if (steps.empty()) return level;
  ordered_json list = ordered_json::array();
  for (const SplitStep& step : steps) {
    const char* kind = step.kind == SplitStep::Kind::literal ? "String" : "Regex";
    list.push_back({{"type", "Split"},
                    {"pattern", {{kind, step.pattern}}},
                    {"behavior", behavior_name(step.behavior)},
                    {"invert", step.invert}});
  }
  list.push_back(level);
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

ordered_json write_post(const TokenizerParts& p) {
  if (!p.post_json.is_null()) return p.post_json;
  if (p.prefix.empty() && p.suffix.empty()) return nullptr;
  ordered_json single = ordered_json::array(), special = ordered_json::object();
  const auto put = [&](TokenId id) {
    const std::string& text = p.tokens[id];
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  };
  for (const TokenId id : p.prefix) put(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const TokenId id : p.suffix) put(id);
  ordered_json pair = single;
  for (const ordered_json& item : single) {
    ordered_json second = item;
    for (auto& [key, value] : second.items()) {
      value["type_id"] = 1;
      if (key == "Sequence") value["id"] = "B";
    }
    pair.push_back(second);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

const char* model_name(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::unigram:
      return "Unigram";
    case VocabularyKind::word_piece:
      return "WordPiece";
    case VocabularyKind::whole_word:
      return "WordLevel";
    case VocabularyKind::byte_pair:
    case VocabularyKind::character_pair:
    case VocabularyKind::scored_pairs:
      break;
  }
  return "BPE";
}

// Ids of the model's own table: words may encode to them, or they lie between such ids (readers number added tokens
// after the model's unless the model contains them).
std::vector<size_t> model_ids(const TokenizerParts& p) {
  std::vector<size_t> out;
  if (!p.in_model.empty()) {
    for (size_t i = 0; i < p.in_model.size(); ++i) {
      if (p.in_model[i] && (!p.tokens[i].empty() || p.no_text == static_cast<TokenId>(i))) out.push_back(i);
    }
    return out;
  }
  size_t last = 0;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!p.verbatim[i] && !p.tokens[i].empty()) last = i;
  }
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!p.tokens[i].empty() && !(p.verbatim[i] && i > last)) out.push_back(i);
  }
  return out;
}

ordered_json write_model(const TokenizerParts& p) {
  ordered_json model = {{"type", model_name(p.kind)}};
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
  };
  const ordered_json unknown = p.unknown ? ordered_json(p.tokens[*p.unknown]) : ordered_json(nullptr);
  if (p.kind == VocabularyKind::unigram) {
    ordered_json pieces = ordered_json::array();
    const size_t count = p.in_model.empty() ? p.tokens.size() : p.in_model.size();
    for (size_t i = 0; i < count; ++i) pieces.push_back({p.tokens[i], p.scores[i]});
    model["unk_id"] = p.unknown ? ordered_json(*p.unknown) : ordered_json(nullptr);
    model["byte_fallback"] = p.byte_fallback;
    model["vocab"] = std::move(pieces);
    return model;
  }
  nlohmann::ordered_json::object_t entries;
  for (const size_t i : model_ids(p))
    entries.std::vector<std::pair<const std::string, ordered_json>>::emplace_back(p.tokens[i], i);
  if (p.kind == VocabularyKind::word_piece) {
    model["unk_token"] = unknown;
    model["continuing_subword_prefix"] = p.continuing;
    model["max_input_chars_per_word"] = p.longest_word;
    model["vocab"] = std::move(entries);
  } else if (p.kind == VocabularyKind::whole_word) {
    model["vocab"] = std::move(entries);
    model["unk_token"] = unknown;
  } else {
    // Merges that follow from scores also pair tokens that stand outside of the model's table. Such tokens are found in
    // a text before anything is merged, and readers refuse merges of tokens that the table lacks.
    const bool is_derived = p.kind == VocabularyKind::scored_pairs;
    std::unordered_set<std::string_view> held;
    for (const auto& [token, id] : entries) held.insert(token);
    ordered_json merges = ordered_json::array();
    for (const auto& [left, right] : p.merges) {
      if (is_derived && !(held.contains(left) && held.contains(right) && held.contains(left + right))) continue;
      merges.push_back({left, right});
    }
    model["dropout"] = nullptr;
    model["unk_token"] = unknown;
    model["continuing_subword_prefix"] = text_or_null(p.continuing);
    model["end_of_word_suffix"] = text_or_null(p.word_end);
    model["fuse_unk"] = p.fuse_unknown;
    model["byte_fallback"] = p.byte_fallback;
    model["ignore_merges"] = p.ignore_merges;
    model["vocab"] = std::move(entries);
    model["merges"] = std::move(merges);
  }
  return model;
}

}  // namespace

std::string Tokenizer::to_json() const {
  const TokenizerParts& p = *parts_;
  ordered_json added = ordered_json::array();
  for (const AddedTokens* tokens : {&p.added_raw, &p.added_normalized}) {
    for (const AddedToken& t : tokens->all()) {
      added.push_back({{"id", t.id},
                       {"content", t.content},
                       {"single_word", t.single_word},
                       {"lstrip", t.strip_left},
                       {"rstrip", t.strip_right},
                       {"normalized", t.normalized},
                       {"special", t.control}});
    }
  }
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a["id"] < b["id"]; });

  // Byte-level vocabularies without JSON stages are described by their behaviour.
  const bool derived = p.kind == VocabularyKind::byte_pair && p.split_json.is_null();
  const ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const ordered_json root = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added},
                             {"normalizer", derived && p.normalizer.is_nfc() ? ordered_json{{"type", "NFC"}}
                                                                             : ordered_json(p.normalizer_json)},
                             {"pre_tokenizer", derived ? write_split(p.splitter.steps()) : ordered_json(p.split_json)},
                             {"post_processor", write_post(p)},
                             {"decoder", derived ? level : ordered_json(p.decoder_json)},
                             {"model", write_model(p)}};
  return root.dump(2);
}

std::string Tokenizer::to_config_json() const {
  const TokenizerParts& p = *parts_;
  ordered_json root = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (p.bos) root["bos_token"] = p.tokens[*p.bos];
  if (p.eos) root["eos_token"] = p.tokens[*p.eos];
  root["add_bos_token"] = !p.prefix.empty();
  if (!chat_template().empty()) root["chat_template"] = chat_template();
  return root.dump(2);
}

}  // namespace lumen::model::text
