#include "model/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace lumen::model::serve {
namespace {

// Escapes a label value.
std::string label(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string head(const std::string& name, const char* kind, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

}  // namespace

void TimeHistogram::add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[at - kBounds.begin()];
  sum_ += seconds;
}

std::string TimeHistogram::text(const std::string& name, const std::string& labels) const {
  std::string out;
  int64_t all = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    all += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, all);
  }
  return out + fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, all);
}

void RequestCounts::add(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[{path, status}];
}

std::string RequestCounts::text() const {
  const std::lock_guard lock(mutex_);
  std::string out = head("lumen_http_requests_total", "counter", "Requests answered, by path and status.");
  for (const auto& [key, count] : counts_)
    out +=
        fmt::format("lumen_http_requests_total{{path=\"{}\",code=\"{}\"}} {}\n", label(key.first), key.second, count);
  return out;
}

std::string prefix_metrics(const infer::PrefixNumbers& numbers) {
  const auto line = [](const std::string& name, const char* kind, const char* help, int64_t value) {
    return head(name, kind, help) + fmt::format("{} {}\n", name, value);
  };
  return line("lumen_prefix_cache_bytes", "gauge", "Bytes of the prefix cache on disk.", numbers.bytes) +
         line("lumen_prefix_cache_files", "gauge", "Files in the prefix cache on disk.", numbers.files) +
         line("lumen_prefix_cache_read_total", "counter", "Files read from the prefix cache on disk.", numbers.read) +
         line("lumen_prefix_cache_written_total", "counter", "Files written to the prefix cache on disk.",
              numbers.written) +
         line("lumen_prefix_cache_dropped_total", "counter", "Files evicted from the prefix cache on disk.",
              numbers.dropped) +
         line("lumen_prefix_cache_refused_total", "counter", "Damaged files removed from the prefix cache on disk.",
              numbers.refused);
}

std::string metrics_text(const std::map<std::string, ServeNumbers>& by_model, const RequestCounts& requests) {
  struct Row {
    const char *name, *kind, *help;
    std::function<double(const ServeNumbers&)> value;
  };
  const auto used = [](const ServeNumbers& n) {
    return n.pages > 0 ? double(n.pages - n.free_pages) / double(n.pages) : 0.0;
  };
  const Row rows[] = {
      {"lumen_requests_running", "gauge", "Sequences being generated.", [](const auto& n) { return n.running; }},
      {"lumen_requests_waiting", "gauge", "Sequences waiting to run.", [](const auto& n) { return n.waiting; }},
      {"lumen_cache_usage_ratio", "gauge", "Share of KV cache pages in use, including the prefix cache.", used},
      {"lumen_prompt_tokens_total", "counter", "Prompt tokens.", [](const auto& n) { return n.prompt_tokens; }},
      {"lumen_prompt_tokens_cached_total", "counter", "Prompt tokens from the prefix cache, in memory or on disk.",
       [](const auto& n) { return n.cached_tokens; }},
      {"lumen_prompt_tokens_from_disk_total", "counter", "Prompt tokens from the prefix cache on disk.",
       [](const auto& n) { return n.disk_tokens; }},
      {"lumen_generation_tokens_total", "counter", "Tokens generated.",
       [](const auto& n) { return n.generation_tokens; }},
      {"lumen_drafted_tokens_total", "counter", "Draft tokens proposed.",
       [](const auto& n) { return n.drafted_tokens; }},
      {"lumen_accepted_tokens_total", "counter", "Draft tokens accepted.",
       [](const auto& n) { return n.accepted_tokens; }},
      {"lumen_embedded_tokens_total", "counter", "Tokens of embedded inputs.",
       [](const auto& n) { return n.embedded_tokens; }},
      {"lumen_preemptions_total", "counter", "Preempted sequences.", [](const auto& n) { return n.put_back; }},
      {"lumen_requests_cancelled_total", "counter",
       "Requests cancelled by their client, or because it read too slowly.", [](const auto& n) { return n.cancelled; }},
      {"lumen_requests_out_of_time_total", "counter", "Requests that reached their time limit.",
       [](const auto& n) { return n.out_of_time; }},
      {"lumen_requests_failed_total", "counter", "Requests that failed with a server error.",
       [](const auto& n) { return n.failed; }},
  };
  std::string out;
  for (const Row& row : rows) {
    out += head(row.name, row.kind, row.help);
    for (const auto& [model, numbers] : by_model)
      out += fmt::format("{}{{model=\"{}\"}} {}\n", row.name, label(model), row.value(numbers));
  }
  const auto times = [&](const char* name, const char* help, TimeHistogram ServeNumbers::* which) {
    out += head(name, "histogram", help);
    for (const auto& [model, numbers] : by_model)
      out += (numbers.*which).text(name, fmt::format("model=\"{}\"", label(model)));
  };
  times("lumen_time_to_first_token_seconds", "Time to first token.", &ServeNumbers::first_token);
  times("lumen_time_per_output_token_seconds", "Mean time between the tokens of a sequence.",
        &ServeNumbers::each_token);
  times("lumen_request_seconds", "Duration of requests.", &ServeNumbers::whole);
  return out + requests.text();
}

}  // namespace lumen::model::serve
