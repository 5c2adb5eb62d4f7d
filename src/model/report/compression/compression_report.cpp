#include "model/report/compression/compression_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMarker = "lumen_compression";
constexpr size_t kLongestText = 4096;  // bytes of a name or a reason
constexpr size_t kMostTensors = 200000;
constexpr size_t kMostListed = 10000;  // of any other list
constexpr size_t kMostBins = 1024;
constexpr double kMostBytes = 9e15;
constexpr int64_t kMostLayers = 1 << 16;

// One object of the document: members by name, each read once; unread members are an error.
class Members {
 public:
  Members(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }
  // Null where it is missing or null.
  const json* find(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const json& need(const char* key) {
    const json* found = find(key);
    if (!found) fail(fmt::format("has no '{}'", key));
    return *found;
  }
  std::string text(const char* key) {
    const json* found = find(key);
    if (!found) return {};
    if (!found->is_string()) fail_at(key, "is not a string");
    const auto& text = found->get_ref<const std::string&>();
    if (text.size() > kLongestText) fail_at(key, fmt::format("has {} bytes, more than {}", text.size(), kLongestText));
    return text;
  }
  std::string name(const char* key) {
    need(key);
    return text(key);
  }
  void number(const char* key, std::optional<double>& out, double least, double most) {
    if (const json* found = find(key)) out = in_range(*found, key, least, most);
  }
  double number(const char* key, double least, double most) { return in_range(need(key), key, least, most); }
  double in_range(const json& value, const char* key, double least, double most) const {
    if (!value.is_number()) fail_at(key, "is no number");
    const auto x = value.get<double>();
    if (!std::isfinite(x) || x < least || x > most)
      fail_at(key, fmt::format("is {}, not from {} to {}", x, least, most));
    return x;
  }
  int64_t whole(const char* key, int64_t least, double most) {
    const double x = number(key, least, most);
    if (x != std::floor(x)) fail_at(key, fmt::format("is {}, no whole number", x));
    return x;
  }
  void flag(const char* key, std::optional<bool>& out) {
    const json* found = find(key);
    if (!found) return;
    if (!found->is_boolean()) fail_at(key, "is neither true nor false");
    out = found->get<bool>();
  }
  bool flag(const char* key) {
    std::optional<bool> out;
    flag(key, out);
    return out.value_or(false);
  }
  std::vector<double> numbers(const char* key, double least) {
    const json& list = need(key);
    if (!list.is_array()) fail_at(key, "is no list");
    if (list.size() > kMostBins + 1)
      fail_at(key, fmt::format("has {} numbers, more than {}", list.size(), kMostBins + 1));
    std::vector<double> out;
    for (const json& x : list) out.push_back(in_range(x, key, least, 1e300));
    return out;
  }
  // Calls `read(element, its position)` for every element of a list.
  template <typename Read>
  void each(const char* key, size_t most, const Read& read) {
    const json* list = find(key);
    if (!list) return;
    if (!list->is_array()) fail_at(key, "is no list");
    if (list->size() > most) fail_at(key, fmt::format("has {} elements, more than {}", list->size(), most));
    for (size_t i = 0; i < list->size(); ++i) read((*list)[i], fmt::format("{}.{}[{}]", where_, key, i));
  }
  void finish() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key)) fail(fmt::format("has '{}', which is no part of the form", key.substr(0, 80)));
  }
  std::string place(const char* key) const { return where_ + "." + key; }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Exit::user, fmt::format("{} {}", where_, what),
                "docs/guide/compression.md shows the form of these documents");
  }
  [[noreturn]] void fail_at(const char* key, const std::string& what) const { Members(place(key)).fail(what); }

 private:
  explicit Members(std::string where) : object_(nothing()), where_(std::move(where)) {}
  static const json& nothing() {
    static const json kNothing = json::object();
    return kNothing;
  }

  const json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> known_;
};

void read_quality(Members& m, MeasuredQuality& q) {
  m.number("ppl", q.ppl, 0, 1e300);
  m.number("ppl_error", q.ppl_error, 0, 1e300);
  m.number("kl", q.kl, -1, 1e6);  // the logit files are quantized, so the estimate may be slightly negative
  m.number("kl_error", q.kl_error, 0, 1e6);
  m.number("kl_p99", q.kl_p99, -1, 1e6);
  m.number("kl_most", q.kl_most, -1, 1e6);
  m.number("same_top", q.same_top, 0, 1);
  m.number("cosine", q.cosine, -1.000001, 1.000001);
  m.number("tokens_per_s", q.tokens_per_s, 0, 1e12);
  m.number("prompt_tokens_per_s", q.prompt_tokens_per_s, 0, 1e12);
}

void write_quality(ordered_json& out, const MeasuredQuality& q) {
  const auto put = [&](const char* key, const std::optional<double>& x) {
    if (x) out[key] = *x;
  };
  put("ppl", q.ppl);
  put("ppl_error", q.ppl_error);
  put("kl", q.kl);
  put("kl_error", q.kl_error);
  put("kl_p99", q.kl_p99);
  put("kl_most", q.kl_most);
  put("same_top", q.same_top);
  put("cosine", q.cosine);
  put("tokens_per_s", q.tokens_per_s);
  put("prompt_tokens_per_s", q.prompt_tokens_per_s);
}

CompressionReport::Whole whole_of(const json& value, const std::string& where) {
  Members m(value, where);
  CompressionReport::Whole out;
  out.name = m.text("name");
  out.bytes = m.whole("bytes", 0, kMostBytes);
  out.bits = m.number("bits", 0, 1e6);
  read_quality(m, out.quality);
  m.finish();
  return out;
}

ordered_json json_of(const CompressionReport::Whole& whole) {
  ordered_json out = ordered_json::object();
  if (!whole.name.empty()) out["name"] = whole.name;
  out["bytes"] = whole.bytes;
  out["bits"] = whole.bits;
  write_quality(out, whole.quality);
  return out;
}

CompressionReport::Point point_of(const json& value, const std::string& where) {
  Members m(value, where);
  CompressionReport::Point out;
  out.label = m.name("label");
  out.strategy = m.text("strategy");
  out.bytes = m.whole("bytes", 0, kMostBytes);
  out.bits = m.number("bits", 0, 1e6);
  out.chosen = m.flag("chosen");
  read_quality(m, out.quality);
  m.finish();
  return out;
}

CompressionReport::Histogram histogram_of(const json& value, const std::string& where) {
  Members m(value, where);
  CompressionReport::Histogram out{m.numbers("edges", -1e300), m.numbers("before", 0), {}};
  if (m.find("after")) out.after = m.numbers("after", 0);
  if (out.before.empty() || out.edges.size() != out.before.size() + 1 ||
      (!out.after.empty() && out.after.size() != out.before.size()))
    m.fail("has not one edge more than bins");
  for (size_t i = 1; i < out.edges.size(); ++i)
    if (!(out.edges[i] > out.edges[i - 1])) m.fail("has edges that do not rise");
  m.finish();
  return out;
}

CompressionReport::Tensor tensor_of(const json& value, const std::string& where) {
  Members m(value, where);
  CompressionReport::Tensor out;
  out.name = m.name("name");
  out.role = m.text("role");
  out.format = m.text("format");
  out.strategy = m.text("strategy");
  out.reason = m.text("reason");
  if (m.find("layer")) out.layer = m.whole("layer", -1, kMostLayers);
  out.bytes = m.whole("bytes", 0, kMostBytes);
  out.bits = m.number("bits", 0, 1e6);
  m.number("error", out.error, 0, 1e300);
  m.number("weighted_error", out.weighted_error, 0, 1e300);
  m.each("candidates", 1000, [&](const json& c, const std::string& place) {
    Members candidate(c, place);
    out.candidates.push_back(
        {candidate.name("format"), candidate.whole("bytes", 0, kMostBytes), candidate.number("score", -1e300, 1e300)});
    candidate.finish();
  });
  if (const json* h = m.find("histogram")) out.histogram = histogram_of(*h, m.place("histogram"));
  m.finish();
  return out;
}

ordered_json json_of(const CompressionReport::Tensor& t) {
  ordered_json out = {{"name", t.name}, {"layer", t.layer}, {"role", t.role}, {"format", t.format}};
  if (!t.strategy.empty()) out["strategy"] = t.strategy;
  out["bytes"] = t.bytes;
  out["bits"] = t.bits;
  if (t.error) out["error"] = *t.error;
  if (t.weighted_error) out["weighted_error"] = *t.weighted_error;
  for (const auto& c : t.candidates)
    out["candidates"].push_back({{"format", c.format}, {"bytes", c.bytes}, {"score", c.score}});
  if (!t.reason.empty()) out["reason"] = t.reason;
  if (t.histogram) {
    ordered_json& h = out["histogram"];
    h = {{"edges", t.histogram->edges}, {"before", t.histogram->before}};
    if (!t.histogram->after.empty()) h["after"] = t.histogram->after;
  }
  return out;
}

void read_lists(Members& m, CompressionReport& out) {
  m.each("points", kMostListed,
         [&](const json& p, const std::string& place) { out.points.push_back(point_of(p, place)); });
  m.each("front", kMostListed, [&](const json& p, const std::string& place) {
    Members at(p, place);
    out.front.push_back(
        {at.whole("bytes", 0, kMostBytes), at.number("bits", 0, 1e6), at.number("score", -1e300, 1e300)});
    at.finish();
  });
  m.each("tensors", kMostTensors,
         [&](const json& t, const std::string& place) { out.tensors.push_back(tensor_of(t, place)); });
  m.each("spikes", kMostTensors, [&](const json& s, const std::string& place) {
    Members spike(s, place);
    out.spikes.push_back({spike.name("name"), spike.number("ratio", 0, 1e300), spike.flag("kept")});
    spike.finish();
  });
  m.each("experts", kMostTensors, [&](const json& e, const std::string& place) {
    Members expert(e, place);
    CompressionReport::Expert x{expert.whole("layer", 0, kMostTensors),
                                expert.whole("expert", 0, kMostTensors),
                                expert.name("format"),
                                expert.number("bits", 0, 1e6),
                                expert.number("share", 0, 1),
                                expert.number("spread", 0, 1),
                                expert.number("margin", 0, 1),
                                expert.whole("rows", 0, kMostBytes),
                                {}};
    expert.each("shares", kMostListed, [&](const json& s, const std::string& at) {
      if (!s.is_number() || !(s.get<double>() >= 0 && s.get<double>() <= 1 + 1e-9))
        throw Error(Exit::user, fmt::format("{} is no share", at));
      x.shares.push_back(s.get<double>());
    });
    expert.finish();
    out.experts.push_back(std::move(x));
  });
  m.each("tasks", kMostListed, [&](const json& t, const std::string& place) {
    Members task(t, place);
    CompressionReport::TaskFigure figure{
        task.name("model"), task.name("task"), task.name("figure"), task.number("value", -1e300, 1e300), {}};
    task.number("error", figure.error, 0, 1e300);
    task.finish();
    out.tasks.push_back(std::move(figure));
  });
  m.each("stages", kMostListed, [&](const json& s, const std::string& place) {
    Members stage(s, place);
    out.stages.push_back({stage.name("name"), stage.number("seconds", 0, 1e12)});
    stage.finish();
  });
  m.each("notes", kMostListed, [&](const json& n, const std::string& place) {
    if (!n.is_string() || n.get_ref<const std::string&>().size() > kLongestText)
      throw Error(Exit::user, fmt::format("{} is not a string, or has more than {} bytes", place, kLongestText));
    out.notes.push_back(n.get<std::string>());
  });
}

}  // namespace

std::optional<double> error_of(const CompressionReport::Tensor& tensor) {
  return tensor.weighted_error ? tensor.weighted_error : tensor.error;
}

CompressionReport::Histogram histogram_of(std::span<const float> before, std::span<const float> after) {
  LUMEN_CHECK(before.size() == after.size() && !before.empty(), "{} numbers, but {} before", before.size(),
              after.size());
  constexpr size_t kBins = 96, kParts = 1000;
  std::vector<float> ordered(before.begin(), before.end());
  const size_t outer = ordered.size() / kParts;
  std::ranges::nth_element(ordered, ordered.begin() + outer);
  const float ordered_least = ordered[outer];
  const double least = ordered_least;
  std::ranges::nth_element(ordered, ordered.end() - 1 - outer);
  const double most = std::max<double>(ordered[ordered.size() - 1 - outer], std::nextafter(ordered_least, INFINITY));
  CompressionReport::Histogram out;
  for (size_t i = 0; i <= kBins; ++i) out.edges.push_back(least + (most - least) / kBins * i);
  const auto count = [&](std::span<const float> numbers) {
    std::vector<double> bins(kBins);
    for (const float x : numbers) {
      LUMEN_CHECK(std::isfinite(x), "a histogram of {}", x);
      ++bins[std::clamp<double>((x - least) / (most - least) * kBins, 0, kBins - 1)];
    }
    return bins;
  };
  out.before = count(before);
  out.after = count(after);
  return out;
}

ordered_json to_json(const CompressionReport& r) {
  ordered_json out;
  out[kMarker] = CompressionReport::kVersion;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) out[key] = value;
  };
  text("model", r.model);
  text("created", r.created);
  text("text", r.text);
  text("budget", r.budget);
  text("device", r.device);
  out["base"] = json_of(r.base);
  if (r.result) out["result"] = json_of(*r.result);
  if (r.predicted) out["predicted"] = *r.predicted;
  if (r.bound) out["bound"] = *r.bound;
  if (r.proved) out["proved"] = *r.proved;
  for (const auto& p : r.points) {
    ordered_json point = {{"label", p.label}, {"strategy", p.strategy}, {"bytes", p.bytes}, {"bits", p.bits}};
    if (p.chosen) point["chosen"] = true;
    write_quality(point, p.quality);
    out["points"].push_back(std::move(point));
  }
  for (const auto& p : r.front) out["front"].push_back({{"bytes", p.bytes}, {"bits", p.bits}, {"score", p.score}});
  if (!r.front.empty()) out["front_exact"] = r.front_exact;
  for (const auto& t : r.tensors) out["tensors"].push_back(json_of(t));
  for (const auto& s : r.spikes) out["spikes"].push_back({{"name", s.name}, {"ratio", s.ratio}, {"kept", s.kept}});
  for (const auto& e : r.experts)
    out["experts"].push_back({{"layer", e.layer},
                              {"expert", e.expert},
                              {"format", e.format},
                              {"bits", e.bits},
                              {"share", e.share},
                              {"spread", e.spread},
                              {"margin", e.margin},
                              {"rows", e.rows},
                              {"shares", e.shares}});
  for (const auto& t : r.tasks) {
    ordered_json task = {{"model", t.model}, {"task", t.task}, {"figure", t.figure}, {"value", t.value}};
    if (t.error) task["error"] = *t.error;
    out["tasks"].push_back(std::move(task));
  }
  for (const auto& s : r.stages) out["stages"].push_back({{"name", s.name}, {"seconds", s.seconds}});
  for (const auto& n : r.notes) out["notes"].push_back(n);
  return out;
}

std::string compression_json(const CompressionReport& report) {
  return to_json(report).dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

CompressionReport parse_compression_report(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name, 8);
  Members m(document, name);
  const int64_t version = m.whole(kMarker, 1, 1e6);
  if (version != CompressionReport::kVersion)
    m.fail(fmt::format("has version {}; this program supports {}", version, CompressionReport::kVersion));
  CompressionReport out;
  out.model = m.text("model");
  out.created = m.text("created");
  out.text = m.text("text");
  out.budget = m.text("budget");
  out.device = m.text("device");
  out.base = whole_of(m.need("base"), m.place("base"));
  if (const json* result = m.find("result")) out.result = whole_of(*result, m.place("result"));
  m.number("predicted", out.predicted, -1e300, 1e300);
  m.number("bound", out.bound, -1e300, 1e300);
  m.flag("proved", out.proved);
  out.front_exact = m.flag("front_exact");
  read_lists(m, out);
  m.finish();
  return out;
}

}  // namespace lumen::model::report
