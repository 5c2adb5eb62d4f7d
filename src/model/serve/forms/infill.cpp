#include "model/serve/forms/infill.h"

#include "base/error.h"
#include "model/serve/fields.h"

namespace lumen::model::serve {
namespace {

// The names of the tokens before the beginning, before the end, and before the middle, as published models of code have
// them.
struct InfillNames {
  const char *prefix, *suffix, *middle;
};
constexpr InfillNames kNames[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"},
};
constexpr const char* kFileNames[] = {"<|file_sep|>", "<file_sep>", "<|file_separator|>"};

struct InfillTokens {
  text::TokenId prefix = 0, suffix = 0, middle = 0;
};

std::optional<InfillTokens> infill_tokens(const text::Tokenizer& tokenizer) {
  for (const InfillNames& names : kNames) {
    const auto prefix = tokenizer.find(names.prefix), suffix = tokenizer.find(names.suffix),
               middle = tokenizer.find(names.middle);
    if (prefix && suffix && middle) return InfillTokens{*prefix, *suffix, *middle};
  }
  return std::nullopt;
}

}  // namespace

bool has_infill(const ServedModel& model) {
  return model.longest > 0 && infill_tokens(model.tokenizer).has_value();
}

std::vector<text::TokenId> tokens_of(const ServedModel& model, const std::string& text, const std::string& field,
                                     bool is_whole) {
  try {
    return text.empty() && !is_whole
               ? std::vector<text::TokenId>()
               : model.tokenizer.encode(text, {.add_special = is_whole, .parse_special = is_whole});
  } catch (const Error& error) {
    throw wrong_value(field, error.what());
  }
}

std::vector<text::TokenId> infill_prompt(const ServedModel& model, const std::string& prefix, const std::string& suffix,
                                         const std::vector<std::pair<std::string, std::string>>& files) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const std::optional<InfillTokens> marks = infill_tokens(tokenizer);
  if (!marks)
    throw Refusal(400, "this model has no tokens for the middle of a text (fill-in-the-middle)", "suffix",
                  "unsupported_model");
  std::optional<text::TokenId> between;
  for (const char* name : kFileNames)
    if (!between) between = tokenizer.find(name);
  std::vector<text::TokenId> out;
  if (tokenizer.adds_bos() && tokenizer.bos()) out.push_back(*tokenizer.bos());
  const auto add = [&](const std::string& text, const char* field) {
    const std::vector<text::TokenId> tokens = tokens_of(model, text, field, false);
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  for (const auto& [name, text] : files) {
    if (between) out.push_back(*between);
    add((between ? name : "\n# " + name) + "\n" + text, "input_extra");
  }
  if (between && !files.empty()) {
    out.push_back(*between);
    add("filename\n", "input_extra");  // the name of the file in question, which the request does not give
  }
  out.push_back(marks->prefix);
  add(prefix, "input_prefix");
  out.push_back(marks->suffix);
  add(suffix, "input_suffix");
  out.push_back(marks->middle);
  return out;
}

int64_t most_tokens_of(const ServedModel& model) {
  return model.most_tokens > 0 ? model.most_tokens : std::max<int64_t>(1, model.longest);
}

}  // namespace lumen::model::serve
