#include "model/text/stages/decoder.h"

#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

using Part = Decoder::Part;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  size_t end = 0;
  for (size_t at; !what.empty() && (at = text.find(what, end)) != std::string_view::npos; end = at + what.size()) {
    out.append(text.substr(end, at - end));
    out.append(by);
  }
  out.append(text.substr(end));
  return out;
}

std::string replace_matches(std::string_view text, const Pattern& pattern, std::string_view by) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t valid = utf8_valid_run(text, at);
    const std::string_view run = text.substr(at, valid);
    Match match;
    uint64_t work = 0;
    size_t end = 0;
    while (pattern.find(run, end, &match, &work)) {
      out.append(run.substr(end, match.begin - end));
      out.append(by);
      end = match.end;
    }
    out.append(run.substr(end));
    at += valid;
    if (at == text.size()) break;
    const size_t invalid = utf8_invalid_run(text, at);
    out.append(text.substr(at, invalid));
    at += invalid;
  }
  return out;
}

void join(std::vector<Part>& parts) {
  Part whole;
  for (const Part& p : parts) whole.text += p.text;
  parts = {std::move(whole)};
}

std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
  return text;
}

}  // namespace

bool Decoder::is_plain() const {
  return !spaces_ && steps_.size() == 1 && steps_[0].kind == DecodeStep::Kind::alphabet;
}

std::string Decoder::decode(std::vector<Part> parts) const {
  for (const DecodeStep& step : steps_) {
    switch (step.kind) {
      case DecodeStep::Kind::alphabet:
        for (Part& p : parts) {
          if (!p.verbatim) p.text = from_alphabet(p.text).value_or(p.text);
        }
        join(parts);
        break;
      case DecodeStep::Kind::byte_fallback: {
        // Adjacent bytes become one part.
        std::vector<Part> out;
        bool bytes = false;
        for (Part& p : parts) {
          const std::string& t = p.text;
          const int high = t.size() == 6 && t.starts_with("<0x") && t[5] == '>' ? hex_digit(t[3]) : -1;
          const int low = high >= 0 ? hex_digit(t[4]) : -1;
          if (low < 0) {
            out.push_back(std::move(p));
          } else {
            if (!bytes) out.emplace_back();
            out.back().text += static_cast<char>(high * 16 + low);
          }
          bytes = low >= 0;
        }
        parts = std::move(out);
        break;
      }
      case DecodeStep::Kind::fuse:
        join(parts);
        break;
      case DecodeStep::Kind::strip:
        for (Part& p : parts) {
          std::string_view t = p.text;
          for (size_t n = 0; n < step.start && !step.text.empty() && t.starts_with(step.text); ++n)
            t.remove_prefix(step.text.size());
          for (size_t n = 0; n < step.stop && !step.text.empty() && t.ends_with(step.text); ++n)
            t.remove_suffix(step.text.size());
          p.text = std::string(t);
        }
        break;
      case DecodeStep::Kind::replace:
        for (Part& p : parts) p.text = replace_matches(p.text, *step.pattern, step.text);
        break;
      case DecodeStep::Kind::metaspace:
        for (size_t i = 0; i < parts.size(); ++i)
          parts[i].text = replace_all(parts[i].text, step.text, i == 0 && step.drop_first ? "" : " ");
        break;
      case DecodeStep::Kind::word_piece:
        for (size_t i = 0; i < parts.size(); ++i) {
          std::string& t = parts[i].text;
          if (i > 0 && t.starts_with(step.text)) {
            t.erase(0, step.text.size());
          } else if (i > 0) {
            t = std::string(1, ' ').append(t);
          }
          if (step.cleanup) t = clean_up(std::move(t));
        }
        break;
      case DecodeStep::Kind::word_end:
        for (size_t i = 0; i < parts.size(); ++i)
          parts[i].text = replace_all(parts[i].text, step.text, i + 1 == parts.size() ? "" : " ");
        break;
    }
  }
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && spaces_) out += ' ';
    out += parts[i].text;
  }
  return out;
}

}  // namespace lumen::model::text
